"""The five frozen runs: told again byte for byte, verified, and made again with equal answers."""

from __future__ import annotations

import csv
import io
import json
from hashlib import sha256
from pathlib import Path

import pytest
from tests.golden.comparison import difference, differences, record_differences
from tests.golden.folders import carry_out, contents, lay_out, made_once, read_frozen, unpack
from tests.golden.runs import FROZEN, RUNS, GoldenRun, step
from tests.schemas import check_document

NAMES = [run.name for run in RUNS]
SHOWN_FILES = 8


QUICK = "demo"
PARAMS = [
    pytest.param(run, id=run.name, marks=() if run.name == QUICK else pytest.mark.slow)
    for run in RUNS
]


@pytest.fixture(scope="module", params=PARAMS)
def retold(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[GoldenRun, Path]:
    """A run with its frozen records, every report of it written by the present code."""
    run: GoldenRun = request.param
    folder = tmp_path_factory.mktemp("retold") / run.name
    unpack(run, folder)
    carry_out(run.retelling, folder)
    return run, folder


@pytest.mark.slow
def test_reports_of_frozen_records_are_the_frozen_reports(retold: tuple[GoldenRun, Path]) -> None:
    """Every report, export and output of a command has the bytes it had before the rebuild."""
    run, folder = retold
    frozen, made = read_frozen(run), contents(run, folder)
    for name in (*made_once(frozen), *(f"printed/{each.printed}" for each in run.making)):
        frozen.pop(name, None)
        made.pop(name, None)
    said = differences(frozen, made)
    more = f"\n... and {len(said) - SHOWN_FILES} more files" if len(said) > SHOWN_FILES else ""
    assert not said, f"{len(said)} files differ\n" + "\n\n".join(said[:SHOWN_FILES]) + more


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
    equal = {*made_once(frozen), *(n for n in frozen if n.endswith("/trace.jsonl"))}
    equal |= {f"printed/{each.printed}" for each in run.making if each.printed}
    assert (
        differences(*({n: files[n] for n in equal - {*records}} for files in (frozen, made))) == []
    )


@pytest.mark.parametrize("run", RUNS, ids=NAMES)
def test_tables_hold_the_cells_of_before_their_quotes(run: GoldenRun) -> None:
    """Neither quotes, nor line feeds, nor limits and counts that came later, changed a cell."""
    before = json.loads((FROZEN / "cells-before-quoting.json").read_text(encoding="utf-8"))
    tables = {
        f"{run.name}/{name}": sha256(
            json.dumps(_older_cells(content.decode())).encode()
        ).hexdigest()
        for name, content in read_frozen(run).items()
        if name.endswith(".csv")
    }
    assert tables
    assert tables == {name: told for name, told in before.items() if name.split("/")[0] == run.name}


def _older_cells(table: str) -> list[list[str]]:
    """The cells of a table without the columns of limits and counts that came later."""
    rows = [*csv.reader(io.StringIO(table, newline=""))]
    kept = [
        at
        for at, title in enumerate(rows[0])
        if title not in _LATER and not title.endswith((" low", " high", " n"))
    ]
    return [[row[at] for at in kept] for row in rows]


def test_a_changed_record_is_noticed() -> None:
    """The comparison by key passes over times and nothing else."""
    row = {"defense": "a", "id": "s", "repeat": 0, "stage": "defense", "layer": "run"}
    told = [json.dumps(row | more).encode() for more in _MORE]
    assert record_differences(told[0], told[1]) == []
    assert len(record_differences(told[0], told[2])) == 1


def test_a_changed_line_is_shown() -> None:
    """A difference is told as a short diff, and what is volatile is passed over."""
    assert "-one\n+two" in difference("run/summary.md", b"zero\none\n", b"zero\ntwo\n")
    assert difference("run/inspect/a.json", b'{"guardmark": "1"}', b'{"guardmark": "2"}') == ""
    assert differences({"a": b""}, {"b": b""}) == ["a: is not made any more", "b: was not there"]


def test_only_the_last_digits_of_a_number_may_differ() -> None:
    """Another processor adds in another order; a figure that a reader would see is a difference."""
    frozen = b'{"n": 12, "low": 0.584074806048924, "no": -2.7755575615628914e-17}'
    again = b'{"n": 12, "low": 0.5840748060489246, "no": 2.7755575615628914e-17}'
    assert difference("run/figures.json", frozen, again) == ""
    assert difference("run/figures.json", frozen, again.replace(b"0.58", b"0.59")) != ""
    assert difference("run/figures.json", frozen, again.replace(b"12", b"13")) != ""


_LATER = (
    *("median_latency_low_ms", "median_latency_high_ms", "timed", "stands_for"),
    *("allow_low", "allow_high", "guarded"),
)
_MORE = (
    {"outcome": "allow", "latency_ns": 1},
    {"outcome": "allow", "latency_ns": 2},
    {"outcome": "block", "latency_ns": 1},
)
