"""The five frozen runs: the same figures and words, verified, and the same answers made again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.golden.comparison import (
    FIGURE_FILES,
    figure_differences,
    record_differences,
    word_difference,
)
from tests.golden.folders import carry_out, contents, lay_out, made_once, read_frozen, unpack
from tests.golden.runs import RUNS, WORDS, GoldenRun, step
from tests.schemas import check_document

NAMES = [run.name for run in RUNS]


@pytest.fixture(scope="module", params=RUNS, ids=NAMES)
def retold(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[GoldenRun, Path]:
    """A run with its frozen records, every report of it written by the present code."""
    run: GoldenRun = request.param
    folder = tmp_path_factory.mktemp("retold") / run.name
    unpack(run, folder)
    carry_out(run.retelling, folder)
    return run, folder


def test_figures_of_frozen_records_are_the_frozen_figures(retold: tuple[GoldenRun, Path]) -> None:
    """Every report, export and output of a command that carries figures has those of before."""
    run, folder = retold
    frozen = read_frozen(run)
    for name in (*made_once(frozen), *WORDS.get(run.name, ())):
        del frozen[name]
    assert frozen
    assert figure_differences(frozen, contents(run, folder)) == []


def test_words_of_one_report_are_the_frozen_words(retold: tuple[GoldenRun, Path]) -> None:
    """A report in each readable format, so that a change of words is seen and meant."""
    run, folder = retold
    frozen, made = read_frozen(run), contents(run, folder)
    for name in WORDS.get(run.name, ()):
        assert word_difference(name, frozen[name], made[name]) == ""


def test_frozen_records_are_intact(retold: tuple[GoldenRun, Path]) -> None:
    """The hash chain of the frozen records holds, and `verify` finds no difference."""
    _, folder = retold
    carry_out([step("verify run --data .")], folder)


def test_summaries_keep_to_the_schema_made_from_the_types(retold: tuple[GoldenRun, Path]) -> None:
    """What `guardmark schema --of summary` promises, every summary written now holds."""
    _, folder = retold
    beside = (path.parent / "summary.json" for path in folder.rglob("records.sqlite"))
    summaries = sorted(path for path in beside if path.exists())
    assert summaries
    for path in summaries:
        check_document(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS, ids=NAMES)
def test_parts_asked_again_answer_as_they_did(run: GoldenRun, tmp_path: Path) -> None:
    """Decisions, responses, verdicts and tries are equal by key; only times may differ."""
    folder = tmp_path / "work"
    lay_out(run, folder)
    carry_out(run.making, folder)
    frozen, made = read_frozen(run), contents(run, folder)
    records = [name for name in made_once(frozen) if name.endswith("records.sqlite")]
    assert records
    for name in records:
        results = name.replace("records.sqlite", "results.jsonl")
        assert record_differences(frozen[results], made[results]) == [], results
    others = {name: frozen[name] for name in made_once(frozen) if name.endswith(FIGURE_FILES)}
    others |= {name: frozen[name] for name in frozen if name.endswith("/trace.jsonl")}
    assert figure_differences(others, made) == []


def test_a_changed_record_is_noticed() -> None:
    """The comparison by key passes over times and nothing else."""
    row = {"defense": "a", "id": "s", "repeat": 0, "stage": "defense", "layer": "run"}
    frozen = json.dumps(row | {"outcome": "allow", "latency_ns": 1}).encode()
    slower = json.dumps(row | {"outcome": "allow", "latency_ns": 2}).encode()
    blocked = json.dumps(row | {"outcome": "block", "latency_ns": 1}).encode()
    assert record_differences(frozen, slower) == []
    assert len(record_differences(frozen, blocked)) == 1


FIGURES = {
    "n": 12,
    "low": 0.584074806048924,
    "no": -2.7755575615628914e-17,
    "method": "wilson",
    "is_known": True,
    "why": "too few samples",
    "notes": ["one sentence"],
    "rates": [{"asr": 0.5}],
}


@pytest.mark.parametrize(
    "change",
    [
        {"n": 13},
        {"n": True},
        {"low": 0.5840749},
        {"low": None},
        {"method": "wald"},
        {"is_known": 1},
        {"rates": []},
        {"rates": [{"fpr": 0.5}]},
        {"rates": [{"asr": 0.5}, {"asr": 0.5}]},
    ],
)
def test_a_changed_figure_is_noticed(change: dict[str, object]) -> None:
    """Another value, another kind of value, a figure that is gone, or one entry more."""
    files = [{"a.json": json.dumps(value).encode()} for value in (FIGURES, FIGURES | change)]
    assert len(figure_differences(*files)) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"low": 0.5840748060489246, "no": 2.7755575615628914e-17},
        {"why": "not enough samples"},
        {"notes": ["one sentence", "and another"]},
        {"more": 1},
    ],
)
def test_what_moves_no_figure_is_passed_over(change: dict[str, object]) -> None:
    """The last digits of another processor, sentences, and figures that came later."""
    files = [{"a.json": json.dumps(value).encode()} for value in (FIGURES, FIGURES | change)]
    assert figure_differences(*files) == []


def test_tables_and_lines_are_compared_like_documents() -> None:
    """A cell by its column, a line by its keys, and a file that is gone by its name."""
    table, wider = b"name,asr\na,0.5\n", b"name,n,asr\na,3,0.50\n"
    assert figure_differences({"a.csv": table}, {"a.csv": wider}) == []
    assert figure_differences({"a.csv": wider}, {"a.csv": table}) == ["a.csv[0]: n: is gone"]
    lines, other = b'{"asr":0.5}\n', b'{"asr":0.6}\n'
    assert len(figure_differences({"a.jsonl": lines}, {"a.jsonl": other})) == 1
    assert figure_differences({"a.csv": table}, {}) == ["a.csv: is not made any more"]


def test_a_changed_line_is_shown() -> None:
    """Words are compared by line, and their numbers are not."""
    assert "-one\n+two" in word_difference("summary.md", b"zero\none\n", b"zero\ntwo\n")
    assert word_difference("summary.md", b"3 of 5 (60.0 %)\n", b"4 of 5 (80.0 %)\n") == ""
