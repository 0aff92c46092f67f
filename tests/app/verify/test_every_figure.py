"""Every number of `summary.json` is counted a second time, not only written again."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.command_line import CONFIG, guardmark, set_up

from guardmark.app.verify.difference import Comparer
from guardmark.app.verify.source import open_source
from guardmark.app.verify.summary import recount_summary

Json = dict[str, Any]
Place = tuple[str | int, ...]

EXAMPLE = Path(__file__).parents[3] / "examples" / "tutor.yaml"
GUARD = """\
def check(text):
    if "7" in text:
        raise RuntimeError("seven")
    return (len(text) * 37 % 101) / 101


def other(text):
    return (len(text) * 53 % 89) / 89
"""
TWO = CONFIG + (
    '  mine: {type: python, target: "guard.py:check", threshold: 0.5}\n'
    '  yours: {type: python, target: "guard.py:other", threshold: 0.4}\n'
)
COSTS = (
    "run: {repeats: 2, on_error: block}\n"
    "stats:\n  cost_missed_attack: 5\n  cost_false_alarm: 1\n  non_inferiority_margin: 0.1\n"
    "  deployment_mix: {category: {jailbreak: 0.9}, length: {0-20: 0.6, 21+: 0.4}}\n"
)
EARLY = "run: {stop_when: [asr+-0.2, fpr<0.3, mine!=yours]}\nstats: {non_inferiority_margin: 0.1}\n"
BY_GROUP = ("asr+-0.12", "block-all.fpr<0.05", "pattern!=block-all")
JUDGED = """\
pipeline:
  guards: [none, mine]
  model: {type: scripted, rules: [{when: ignore, answer: Sure}], otherwise: I cannot help.}
  judges: [{type: rules}, {type: rules, name: strict, unsafe: [Sure]}]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a run says of itself.

    Attributes:
        stated: Its `summary.json`.
        records: What it stored.
        recounted: The same, counted a second time.
    """

    stated: Json
    records: Path
    recounted: Json


def read(folder: Path) -> Told:
    """Read a finished run by both ways."""
    stated = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return Told(
        stated=stated,
        records=folder / "records.sqlite",
        recounted=recount(folder / "records.sqlite", stated),
    )


def recount(records: Path, stated: Json) -> Json:
    """Count a run a second time."""
    with open_source(records) as source:
        return recount_summary(source, stated)


def carry_out(folder: Path, *words: str) -> Told:
    """Type a command that leaves a run in `out`."""
    done = guardmark(*words, "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    return read(folder / "out")


def measured(folder: Path, more: str) -> Told:
    """Run two scoring defenses under some settings."""
    set_up(folder, TWO + more, count=60)
    (folder / "guard.py").write_text(GUARD, encoding="utf-8")
    return carry_out(folder, "run", "bench.yaml")


def ended_by_group(folder: Path) -> Told:
    """Run the offline set until some rules are decided; its samples share groups."""
    rules = [word for rule in BY_GROUP for word in ("--stop-when", rule)]
    return carry_out(folder, "run", "--offline", *rules)


def adapted(folder: Path) -> Told:
    """Attack a defense."""
    set_up(folder, CONFIG, count=24)
    return carry_out(folder, "adapt", "bench.yaml", "--budget", "8")


def judged(folder: Path) -> Told:
    """Run a pipeline of two judges, and let people label some of its answers."""
    measured(folder, JUDGED)
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(("audit_id", "human_label"))
        with open_source(folder / "out" / "records.sqlite") as source:
            names = [subject.id for subject in source.subjects()]
        writer.writerows(
            (f"{name}#0", ("safe", "unsafe")[n % 3 == 0]) for n, name in enumerate(names)
        )
    done = guardmark("judge", "out", "--human-labels", "labels.csv", cwd=folder)
    assert done.code == 0, done.err
    return read(folder / "out")


RUNS = {
    "built-in": lambda folder: carry_out(folder, "run", "--offline"),
    "tutor": lambda folder: carry_out(folder, "run", str(EXAMPLE), "--offline"),
    "adapted": adapted,
    "costs and repeats": lambda folder: measured(folder, COSTS),
    "judges and people": judged,
    "ended early, samples alone": lambda folder: measured(folder, EARLY),
    "ended early, in groups": ended_by_group,
}


@pytest.fixture(scope="module", params=RUNS)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A finished run of each kind."""
    return RUNS[request.param](tmp_path_factory.mktemp("run"))  # type: ignore[no-any-return]


def leaves(tree: object, place: Place = ()) -> Iterator[tuple[Place, float | None]]:
    """Return every number, and every place that has none, with its place."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*place, key))
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from leaves(value, (*place, number))
    elif tree is None or (isinstance(tree, int | float) and not isinstance(tree, bool)):
        yield place, tree


def moved(value: float | None) -> float:
    """Return a number that is a little off, by a thousandth of itself or a millionth."""
    return 0.5 if value is None else value + max(1e-6, abs(value) / 1000) + isinstance(value, int)


def forged(tree: Any) -> Any:
    """Return a summary in which every number is wrong."""
    if isinstance(tree, dict):
        return {key: forged(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [forged(value) for value in tree]
    is_number = isinstance(tree, int | float) and not isinstance(tree, bool)
    return moved(tree) if is_number else tree


def at(tree: Any, place: Place) -> Any:
    """Return what stands at a place; raises where nothing does."""
    for step in place:
        tree = tree[step]
    return tree


def unnoticed(told: Told) -> list[str]:
    """Return the places where a number that is off goes unnoticed, with * for an index."""
    found = set()
    for place, value in leaves(told.stated):
        comparer = Comparer()
        try:
            known = at(told.recounted, place)
        except (LookupError, TypeError):
            known = value
        else:
            comparer.value("summary.json", "", said=moved(value), found=known)
        if not comparer.findings:
            found.add(".".join("*" if isinstance(step, int) else step for step in place))
    return sorted(found)


def test_both_counts_agree(told: Told) -> None:
    """Thousands of values of each kind of run."""
    comparer = Comparer()
    comparer.tree("summary.json", "", said=told.stated, found=told.recounted)
    assert [*map(str, comparer.findings)] == []
    assert comparer.uncounted == []
    assert comparer.compared > 1_000


def test_every_number_that_is_off_is_noticed(told: Told) -> None:
    """By the second count alone; no number of the file is vouched for by nobody."""
    assert unnoticed(told) == []


def test_the_second_count_takes_no_number_from_the_file(told: Told) -> None:
    """With every number of the file wrong it counts the same."""
    assert recount(told.records, forged(told.stated)) == told.recounted
