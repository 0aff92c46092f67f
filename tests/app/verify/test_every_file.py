"""Figures of a run's other files are counted a second time, too, not only written again."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.app.verify.test_every_figure import EXAMPLE, at, judged, leaves, moved
from tests.journeys.command_line import CONFIG, few_rows, guardmark, set_up, write_rows

from guardmark.app.verify.artefacts.comparison import check_compared, recount_compared
from guardmark.app.verify.artefacts.sarif import check_sarif, recount_sarif
from guardmark.app.verify.artefacts.tables import check_table, recount_categories, recount_variants
from guardmark.app.verify.columns import read_samples
from guardmark.app.verify.difference import Comparer
from guardmark.app.verify.recount import read_recounts
from guardmark.app.verify.source import open_source
from guardmark.app.verify.summary import recount_summary

Json = dict[str, Any]

PAID = """\
from guardmark.core.outcome import Decision, Evidence, Outcome
from guardmark.core.usage import Usage


def answer(text, modulus, usage):
    size = len(text) * modulus % 101
    if size > 95:
        raise RuntimeError("too long")
    outcome = Outcome.BLOCK if size > 40 else Outcome.ALLOW
    return Decision(outcome=outcome, evidence=Evidence(usage=usage) if size % 7 else None)


def large(text):
    return answer(text, 37, Usage(prompt_tokens=len(text), completion_tokens=len(text) % 5))


def small(text):
    return answer(text, 53, Usage(prompt_tokens=len(text) // 2, cost=len(text) / 1000))
"""
PRICED = CONFIG + (
    '  large: {type: python, target: "guard.py:large"}\n'
    '  small: {type: python, target: "guard.py:small"}\n'
    "prices: {large: {per_call: 0.5, input_per_1k: 2, output_per_1k: 6}}\n"
    "run: {repeats: 2}\n"
    "stats: {non_inferiority_margin: 0.2, min_per_category: 9}\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A finished run, read by the second path.

    Attributes:
        folder: Where it lies.
        summary: Its `summary.json`, counted a second time.
        compared: Its `comparison.json`, counted a second time.
        sarif: Its `results.sarif`, counted a second time.
    """

    folder: Path
    summary: Json
    compared: Json | None
    sarif: Json


def look(folder: Path) -> Look:
    """Count a finished run a second time."""
    stated = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    with open_source(folder / "records.sqlite") as source:
        summary = recount_summary(source, stated)
        recounts = read_recounts(source, read_samples(source), stated)
        compared = recount_compared(source, summary, recounts)
        sarif = recount_sarif(source, recounts)
    return Look(folder=folder, summary=summary, compared=compared, sarif=sarif)


def run(folder: Path, *words: str) -> Path:
    """Carry out a run; return its folder."""
    done = guardmark("run", *words, "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    return folder / "out"


def paid(folder: Path) -> Path:
    """Three defenses of which two say what they consume; some answers and categories lack."""
    set_up(folder, PRICED)
    rows = few_rows(90)
    for row in rows[::11]:
        row["category"] = ""
    write_rows(folder / "data.jsonl", rows)
    (folder / "guard.py").write_text(PAID, encoding="utf-8")
    return run(folder, "bench.yaml")


def piped(folder: Path) -> Path:
    """A pipeline of two arms and two judges."""
    judged(folder)
    return folder / "out"


RUNS: dict[str, Callable[[Path], Path]] = {
    "paid": paid,
    "pipeline": piped,
    "tutor": lambda folder: run(folder, str(EXAMPLE), "--offline"),
}


@pytest.fixture(scope="module", params=RUNS)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Look:
    """A finished run of each kind, with the files of every format that carries figures."""
    folder = RUNS[request.param](tmp_path_factory.mktemp("run"))
    done = guardmark("report", folder, "-f", "json,csv,sarif", cwd=folder.parent)
    assert done.code == 0, done.err
    return look(folder)


def is_noticed(said: object, found: object) -> bool:
    """Whether a value that stands there is found to be off."""
    comparer = Comparer()
    comparer.value("", "", said=said, found=found)
    return bool(comparer.findings)


def named(place: Iterable[str | int]) -> str:
    """A place with * for each index."""
    return ".".join("*" if isinstance(step, int) else step for step in place)


def test_comparison_json_is_counted_a_second_time(seen: Look) -> None:
    """Hundreds of values, and both counts agree."""
    comparer = Comparer()
    check_compared(seen.folder / "comparison.json", seen.compared, comparer)
    assert [*map(str, comparer.findings)] == []
    assert comparer.uncounted == []
    assert comparer.compared > 200


def test_every_number_of_comparison_json_that_is_off_is_noticed(seen: Look) -> None:
    """By the second count alone; no number of the file is vouched for by nobody."""
    assert unnoticed(seen.folder / "comparison.json", seen.compared) == set()


def test_results_sarif_is_counted_a_second_time(seen: Look) -> None:
    """Every result in its order, with its rule, level, score and fingerprint."""
    comparer = Comparer()
    check_sarif(seen.folder / "results.sarif", seen.sarif, comparer)
    assert [*map(str, comparer.findings)] == []
    assert comparer.compared > 200


def test_every_number_of_results_sarif_that_is_off_is_noticed(seen: Look) -> None:
    """How much was found and shown, scores, and the severity of each rule."""
    assert unnoticed(seen.folder / "results.sarif", seen.sarif) == set()
    for rule in seen.sarif["runs"][0]["tool"]["driver"]["rules"]:
        is_bypass = rule["id"].startswith("bypass/")
        assert (float(rule.get("properties", {}).get("security-severity", 0)) > 0) == is_bypass


def unnoticed(path: Path, found: object) -> set[str]:
    """The places where a number that is off goes unnoticed, with * for an index."""
    places = set()
    for place, value in leaves(json.loads(path.read_text(encoding="utf-8"))):
        try:
            known = at(found, place)
        except (LookupError, TypeError):
            places.add(named(place))
        else:
            if not is_noticed(moved(value), known):
                places.add(named(place))
    return places


def test_what_defenses_consume_is_added_up_again(tmp_path: Path) -> None:
    """In tokens and in money, of attacks and of benign samples, limits included."""
    found = look(paid(tmp_path)).compared
    assert found is not None
    costs = [cost for pair in found["pairs"] for cost in pair["costs"]]
    assert {(cost["label"], cost["unit"]) for cost in costs} == {
        (label, unit) for label in ("attack", "benign") for unit in ("tokens", "money")
    }
    assert all(cost["mean_difference"]["low"] is not None for cost in costs)


TABLES = {"categories.csv": recount_categories, "variant_metrics.csv": recount_variants}


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_that_is_off_is_noticed(seen: Look, tmp_path: Path, name: str) -> None:
    """Figures, names, methods and empty cells, of defenses and of a pipeline's arms."""
    told = TABLES[name](seen.summary)
    comparer = Comparer()
    check_table(seen.folder / name, told, comparer)
    assert [*map(str, comparer.findings)] == []
    with (seen.folder / name).open(newline="", encoding="utf-8") as stream:
        head, *rows = csv.reader(stream)
    assert len(rows) == len(told) > 0
    assert comparer.compared == 1 + len(head) * len(rows), "no cell is passed over"
    for column, title in enumerate(head):
        forged = [row.copy() for row in rows]
        for row in forged:
            row[column] = edited(row[column])
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream, lineterminator="\n").writerows([head, *forged])
        comparer = Comparer()
        check_table(tmp_path / name, told, comparer)
        places = {finding.place for finding in comparer.findings}
        assert places == {f"row {number}, {title}" for number in range(2, len(rows) + 2)}


def edited(cell: str) -> str:
    """Return a cell that says a little else."""
    try:
        return repr(moved(float(cell)))
    except ValueError:
        return "0.5" if cell == "" else f"{cell}x"


def test_a_row_of_another_defense_is_noticed(seen: Look, tmp_path: Path) -> None:
    """A defense that was never measured has no row."""
    text = (seen.folder / "categories.csv").read_text(encoding="utf-8")
    line = text.splitlines()[1].split(",", 1)[1]
    (tmp_path / "categories.csv").write_text(f"{text}invented,{line}\n", encoding="utf-8")
    comparer = Comparer()
    check_table(tmp_path / "categories.csv", recount_categories(seen.summary), comparer)
    assert [finding.place for finding in comparer.findings] == ["rows"]


def test_a_comparison_of_nothing_is_noticed(tmp_path: Path) -> None:
    """A run of one defense leaves no comparison; a file that says otherwise is not its own."""
    set_up(tmp_path, CONFIG)
    out = run(tmp_path, "bench.yaml")
    assert look(out).compared is None
    path = out / "comparison.json"
    path.write_text('{"pairs": []}', encoding="utf-8")
    comparer = Comparer()
    check_compared(path, None, comparer)
    assert [finding.file for finding in comparer.findings] == ["comparison.json"]


@pytest.mark.parametrize("text", ["", "[]", "{", "\ufeff{}"])
def test_a_comparison_that_is_no_object_is_noticed(tmp_path: Path, text: str) -> None:
    """It is a difference, no crash."""
    path = tmp_path / "comparison.json"
    path.write_text(text, encoding="utf-8")
    comparer = Comparer()
    check_compared(path, {"pairs": [], "attacks": 3}, comparer)
    assert comparer.findings
