"""Rates of live traffic: which records each stands on, and what a sequence shows."""

from __future__ import annotations

import pytest
from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block, failed, garbled

from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.gate import reference_rates
from guardmark.analysis.live import RATES, LiveDefense, watch_defense
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.estimate import Estimate
from guardmark.stats.sequential import beta_mixture_sequence

ROWS = ((900, 100, 3, 4), (30, 70, 2, 1), (500, 400, 5, 6))
"""Allowed, blocked, malformed and error: of benign inputs, of attacks, of what has no label."""


def watched(
    *, rows: tuple[tuple[int, ...], ...] = ROWS, limits: dict[str, float] | None = None
) -> LiveDefense:
    """A defense that was watched without a reference."""
    return watch_defense("guard", rows, reference={}, limits=limits or {})


def test_each_rate_stands_on_its_own_records() -> None:
    """Labelled answers for both errors, every answer for blocks, everything for failures."""
    found = watched()
    assert [each.name for each in found.rates] == list(RATES)
    counts = [(each.live.successes, each.live.trials) for each in found.rates]
    assert counts == [(570, 2000), (100, 1000), (30, 100), (10, 2021), (11, 2021)]
    assert found.rates[1].live == beta_mixture_sequence(100, 1000)
    assert {(each.defense, each.reference, each.limit) for each in found.rates} == {
        ("guard", None, None)
    }
    assert (found.audited["blocked"].successes, found.audited["blocked"].trials) == (170, 570)
    assert (found.audited["allowed"].successes, found.audited["allowed"].trials) == (930, 1430)


def test_labels_on_one_side_show_nothing_about_errors() -> None:
    """Audited were many more of what was allowed: neither error can be told of."""
    rows = ((900, 10, 0, 0), (30, 7, 0, 0), (100, 800, 0, 0))
    found = watched(rows=rows, limits={"asr": 0.01, "blocked": 0.1})
    assert not found.is_audit_even
    assert {each.name: each.is_broken for each in found.rates if each.limit is not None} == {
        "blocked": True,
        "asr": False,
    }


@pytest.mark.parametrize(("limit", "is_broken"), [(0.05, True), (0.1, False), (0.2, False)])
def test_a_limit_is_broken_where_the_whole_interval_lies_above_it(
    limit: float, *, is_broken: bool
) -> None:
    """The rate alone shows nothing."""
    rows = ((900, 100, 0, 0), (30, 4, 0, 0), (500, 55, 0, 0))
    found = watched(rows=rows, limits={"fpr": limit})
    assert found.is_audit_even
    (fpr,) = (each for each in found.rates if each.name == "fpr")
    assert (fpr.limit, fpr.is_broken, fpr.after_lines) == (limit, is_broken, 0)


@pytest.mark.parametrize(
    ("low", "high", "is_shown"),
    [(0.0, 0.05, True), (0.2, 0.3, True), (0.05, 0.11, False), (0.09, 0.3, False)],
)
def test_drift_is_shown_where_both_intervals_lie_apart(
    low: float, high: float, *, is_shown: bool
) -> None:
    """Above or below, each at the confidence of the reference; without a reference nothing is."""
    reference = Estimate(
        successes=1, trials=10, low=low, high=high, confidence=0.975, method="made up"
    )
    rows = ((9000, 1000, 0, 0), (30, 4, 0, 0), (500, 55, 0, 0))
    found = watch_defense("guard", rows, reference={"blocked": reference}, limits={})
    blocked, *others = found.rates
    assert (blocked.reference, blocked.is_drift_shown) == (reference, is_shown)
    assert not any(each.is_drift_shown for each in others)


def test_before_the_first_line_nothing_is_shown() -> None:
    """Undefined is not zero, and no interval lies apart from it."""
    found = watched(rows=((0,) * 4,) * 3, limits={"fpr": 0.0, "errors": 0.0})
    assert found.is_audit_even
    for each in found.rates:
        assert (each.live.value, each.is_broken, each.is_drift_shown) == (None, False, False)


def test_the_rates_of_a_run_stand_on_the_same_records(runs: Runs) -> None:
    """Blocks over what was answered, failures over everything, errors by label."""
    answers = [allow(), block(), block(), garbled(), failed(), block()]
    samples = [attack(0), attack(1), attack(2), benign(0), benign(1), benign(2)]
    planned = [Planned(name="guard", answers=lambda at, _: answers[at])]
    with runs.opened(samples, planned) as reader:
        frame = read_frame(reader, AnalysisSettings.of(reader.manifest()))
        found = reference_rates(frame, frame.arms[0])
    assert {name: (each.successes, each.trials) for name, each in found.items()} == {
        "blocked": (3, 4),
        "fpr": (1, 1),
        "asr": (1, 3),
        "malformed": (1, 6),
        "errors": (1, 6),
    }
