"""The headline of a run is counted again from its records, without `analysis`."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.folders import read_frozen
from tests.golden.runs import RUNS, GoldenRun
from tests.oracles.slow.formulas.paired import difference, marked
from tests.oracles.slow.formulas.rates import rate_of

from guardmark.app.verify.headline import check_headline, difference_interval, rate_interval
from guardmark.app.verify.mismatches import Mismatches

Json = dict[str, Any]

GROUPS = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), max_size=12)
PAIRS = st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), max_size=25)


def unpacked(run: GoldenRun, folder: Path, name: str = "summary.json") -> Path:
    """Lay out the records and a summary of a frozen run."""
    frozen = read_frozen(run)
    (folder / "records.sqlite").write_bytes(frozen["run/records.sqlite"])
    source = "run/summary.json" if name == "summary.json" else f"printed/{name}"
    (folder / "summary.json").write_bytes(frozen[source])
    return folder / "summary.json"


def check(summary: Path) -> tuple[Mismatches, str]:
    """Count the headline again."""
    found = Mismatches()
    with closing(sqlite3.connect(summary.with_name("records.sqlite"))) as connection:
        note = check_headline(summary, connection, found)
    return found, note


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_headlines_of_all_kinds_of_run_hold(run: GoldenRun, tmp_path: Path) -> None:
    """Groups, repeats, failures, pipelines, attacks; of rules that ended a defense the counts."""
    found, note = check(unpacked(run, tmp_path))
    assert [*map(str, found.listed)] == []
    assert found.compared > 50
    assert ("not counted again" in note) == (run.name == "stopped")


@pytest.mark.parametrize("name", ["demo", "grouped"])
def test_a_headline_at_another_threshold_holds(name: str, tmp_path: Path) -> None:
    """Decisions are taken again from the scores, on one side or on both."""
    run = next(run for run in RUNS if run.name == name)
    found, _ = check(unpacked(run, tmp_path, "threshold.json"))
    assert [*map(str, found.listed)] == []


def defense(*keys: str, value: object) -> Callable[[Json], None]:
    """Change a figure of the first defense."""

    def change(summary: Json) -> None:
        place = summary["defenses"][0]
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def pair(side: str, key: str) -> Callable[[Json], None]:
    """Change a figure of the first pair."""

    def change(summary: Json) -> None:
        summary["comparison"]["pairs"][0][side]["difference"][key] = 0.123

    return change


CHANGES = {
    "counts.attacks.allow": defense("counts", "attacks", "allow", value=1),
    "counts.benign.answered": defense("counts", "benign", "answered", value=1),
    "rates.attack_success_rate.low": defense("rates", "attack_success_rate", "low", value=0.1),
    "rates.true_positive_rate.value": defense("rates", "true_positive_rate", "value", value=None),
    "rates.false_positive_rate.high": defense("rates", "false_positive_rate", "high", value=0.1),
    "rates.answered.trials": defense("rates", "answered", "trials", value=9),
    "pairs[0].attack_success_rate.difference.low": pair("attack_success_rate", "low"),
    "pairs[0].false_positive_rate.difference.value": pair("false_positive_rate", "value"),
    "defenses[words].counts": defense("counts", value=[]),
}


@pytest.mark.parametrize("place", CHANGES)
def test_a_headline_that_was_changed_is_named(place: str, tmp_path: Path) -> None:
    """Also where the file holds another kind of thing."""
    path = unpacked(next(run for run in RUNS if run.name == "grouped"), tmp_path)
    summary = json.loads(path.read_bytes())
    name = summary["defenses"][0]["name"]
    CHANGES[place](summary)
    path.write_text(json.dumps(summary), encoding="utf-8")
    found, _ = check(path)
    wanted = place.replace("[words]", f"[{name}]")
    assert any(wanted in each.where for each in found.listed), [*found.listed][:5]


@pytest.mark.parametrize("text", ["", "[]", "{", "\ufeff{}"])
def test_a_summary_that_is_no_object_is_a_mismatch(text: str, tmp_path: Path) -> None:
    """And no crash."""
    path = unpacked(RUNS[0], tmp_path)
    path.write_text(text, encoding="utf-8")
    found, _ = check(path)
    assert [each.stated for each in found.listed] == ["no JSON object"]


@given(GROUPS)
def test_a_rate_has_the_limits_of_the_slow_reference(groups: list[tuple[int, int]]) -> None:
    """Alone, in groups, in one group, without any."""
    shapes = Counter((trials, min(hits, trials)) for trials, hits in groups)
    slow, found = rate_of(shapes, 0.9), rate_interval(shapes, 0.9)
    for key in ("value", "low", "high"):
        assert getattr(found, key) == (
            None if slow[key] is None else pytest.approx(slow[key], abs=1e-12)
        )


@given(PAIRS)
def test_a_difference_has_the_limits_of_the_slow_reference(
    pairs: list[tuple[int, bool, bool]],
) -> None:
    """Alone, in groups, in one group, without any."""
    slow = difference(marked((str(group), one, two) for group, one, two in pairs), 0.95)
    groups: dict[int, list[int]] = {}
    for group, one, two in pairs:
        counts = groups.setdefault(group, [0, 0, 0])
        for place, is_so in enumerate((True, one and not two, two and not one)):
            counts[place] += is_so
    found = difference_interval(Counter((m, b, c) for m, b, c in groups.values()), 0.95)
    for key in ("value", "low", "high"):
        assert getattr(found, key) == (
            None if slow[key] is None else pytest.approx(slow[key], abs=1e-12)
        )
