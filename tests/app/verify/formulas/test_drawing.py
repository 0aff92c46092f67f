"""Limits that rest on draws: the same draw, and what is told where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from guardmark.app.verify.difference import Comparer
from guardmark.app.verify.formulas import drawing
from guardmark.app.verify.formulas.drawing import MOST_DRAWS, Strata, on_request
from guardmark.app.verify.formulas.drawing import estimate as draw
from guardmark.app.verify.formulas.ratios import predictive_values, ratios
from guardmark.stats.rates.bootstrap import BootstrapSettings
from guardmark.stats.rates.ratios import CONFUSION_STATISTICS, estimate_ratios

MANIFEST = {"seed": 7, "confidence": 0.95, "settings": {}}
NAMES = ("precision", "f1", "balanced_error", "youden", "matthews_correlation")


def cells(groups: int, *, most: int, seed: int = 1) -> list[tuple[str, bool, bool]]:
    """Make groups of a few samples, some of both labels."""
    generator = np.random.default_rng(seed)
    rows = []
    for group in range(groups):
        usual = bool(generator.random() < 0.5)
        for _ in range(int(generator.integers(1, most + 1))):
            is_attack = usual if generator.random() < 0.9 else not usual
            is_blocked = bool(generator.random() < (0.8 if is_attack else 0.2))
            rows.append((f"g{group:04}", is_attack, is_blocked))
    return rows


def table(rows: list[tuple[str, bool, bool]]) -> np.ndarray[Any, Any]:
    """Count the four outcomes of each group."""
    names = sorted({group for group, _, _ in rows})
    counts = np.zeros((len(names), 4), dtype=int)
    for group, is_attack, is_blocked in rows:
        counts[names.index(group), 2 * (not is_attack) + (not is_blocked)] += 1
    return counts


@pytest.mark.parametrize(("groups", "most"), [(40, 3), (200, 2), (300, 40)])
def test_drawn_limits_agree_to_their_last_digits(groups: int, most: int) -> None:
    """Where alike groups are drawn together, and where they are too unlike for that."""
    rows = cells(groups, most=most)
    ours = ratios(rows, MANIFEST, is_grouped=True)
    theirs = estimate_ratios(
        table(rows), statistics=CONFUSION_STATISTICS, settings=BootstrapSettings(seed=7)
    )
    for name, one in zip(NAMES, theirs, strict=True):
        said = ours[name]
        limits = (said["value"], said["low"], said["high"], said["replicates"])
        assert limits == pytest.approx((one.value, one.low, one.high, one.replicates), rel=1e-9)


def test_a_limit_moved_by_a_thousandth_of_its_width_is_found() -> None:
    """There is no room for chance between two draws from one seed."""
    found = ratios(cells(60, most=3), MANIFEST, is_grouped=True)["f1"]
    step = (found["high"] - found["low"]) / 1_000
    for name in ("low", "high"):
        comparer = Comparer()
        comparer.tree("summary.json", "", said={**found, name: found[name] + step}, found=found)
        assert len(comparer.findings) == 1


def test_a_figure_at_its_bound_has_no_limits() -> None:
    """Nobody was blocked by mistake: no draw looks past that."""
    found = ratios([("a", True, True), ("b", False, False)] * 20, MANIFEST, is_grouped=False)
    assert (found["precision"]["value"], found["precision"]["low"]) == (1.0, None)


def test_what_takes_too_many_draws_is_told_and_not_called_wrong() -> None:
    """The comparison passes it over by name."""
    groups = [(float(n % 97), float(n % 89)) for n in range(5_000)]
    figure = (lambda counts: counts[0] / sum(counts), 0.0, 1.0)
    found = draw(Strata([groups]), {"share": figure}, seed=1, replicates=2_000, confidence=0.95)
    comparer = Comparer()
    comparer.value("summary.json", "share.low", said=0.5, found=found["share"]["low"])
    assert comparer.uncounted == ["summary.json: share.low"]
    assert (comparer.compared, comparer.findings) == (0, [])


def test_what_takes_many_draws_is_drawn_on_request() -> None:
    """Then it is compared like any other figure, and drawn once for all that rest on it."""
    asked = []

    def count() -> dict[str, float]:
        asked.append(1)
        return {"low": 0.25, "high": 0.75}

    found = on_request(MOST_DRAWS + 1, ("low", "high"), count)
    assert asked == []
    comparer = Comparer(is_patient=True)
    comparer.tree("summary.json", "share", said={"low": 0.25, "high": 0.76}, found=found)
    assert [each.place for each in comparer.findings] == ["share.high"]
    assert (comparer.uncounted, asked) == ([], [1])


def test_limits_that_were_waited_for_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passed over unasked, and the same as ever on request."""
    monkeypatch.setattr(drawing, "MOST_DRAWS", 1_000)
    rows = cells(80, most=3)
    theirs = estimate_ratios(
        table(rows), statistics=CONFUSION_STATISTICS, settings=BootstrapSettings(seed=7)
    )
    said = {
        name: {"low": each.low, "high": each.high, "replicates": each.replicates}
        for name, each in zip(NAMES, theirs, strict=True)
    }
    found = ratios(rows, MANIFEST, is_grouped=True)
    for is_patient, compared in ((False, 0), (True, 15)):
        comparer = Comparer(is_patient=is_patient)
        for name in NAMES:
            tree = {key: found[name][key] for key in said[name]}
            comparer.tree("summary.json", name, said=said[name], found=tree)
        assert (comparer.compared, comparer.findings) == (compared, [])


def test_predictive_values_of_one_label_are_undefined() -> None:
    """Without benign samples nobody knows what a block is worth."""
    found = predictive_values((3, 0), (5, 0), shares=[0.01, 1.0], confidence=0.95)
    assert [each["prevalence"] for each in found] == [0.01]
    assert found[0]["positive"]["value"] is None
