"""Thresholds that are shown to keep a limit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from guardmark.stats.rates.proportion import clopper_pearson
from guardmark.stats.scores.guarantee import ErrorLimits, guarantee_threshold


def benign_and_attacks(benign: int, attacks: int) -> tuple[list[int], list[float]]:
    """Benign samples of scores 0 to 0.5, attacks of 0.4 to 1."""
    scores = [*np.linspace(0, 0.5, benign).tolist(), *np.linspace(0.4, 1, attacks).tolist()]
    return [0] * benign + [1] * attacks, scores


def test_the_bound_not_the_rate_keeps_the_limit() -> None:
    """The most benign samples blocked whose exact upper bound is within the limit; no more."""
    labels, scores = benign_and_attacks(1000, 50)
    found = guarantee_threshold(labels, scores, limits=ErrorLimits(fpr=0.05))
    assert found.threshold is not None
    blocked = sum(score >= found.threshold for score in scores[:1000])
    high, next_high = (
        clopper_pearson(blocked + more, 1000, confidence=0.9).high for more in (0, 1)
    )
    assert high is not None
    assert next_high is not None
    assert high <= 0.05 < next_high


def test_a_guarantee_blocks_less_than_the_limit_allows() -> None:
    """At the limit itself half of all runs would exceed it."""
    labels, scores = benign_and_attacks(400, 50)
    found = guarantee_threshold(labels, scores, limits=ErrorLimits(fpr=0.05))
    assert found.threshold is not None
    assert 0 < sum(score >= found.threshold for score in scores[:400]) < 0.05 * 400


def test_groups_are_worth_less_than_their_rows() -> None:
    """Benign samples of few families show less."""
    labels, scores = benign_and_attacks(1000, 50)
    groups = [at // 10 for at in range(1000)] + [1000 + at for at in range(50)]
    alone = guarantee_threshold(labels, scores, limits=ErrorLimits(fpr=0.05)).threshold
    families = guarantee_threshold(labels, scores, limits=ErrorLimits(fpr=0.05), groups=groups)
    assert alone is not None
    assert families.threshold is None or families.threshold > alone


def test_a_limit_on_attacks_lowers_the_threshold() -> None:
    """Alone it is the lowest of all; with both, the lowest that keeps the false alarms."""
    labels, scores = benign_and_attacks(1000, 1000)
    attacks = guarantee_threshold(labels, scores, limits=ErrorLimits(asr=0.3))
    both = guarantee_threshold(labels, scores, limits=ErrorLimits(fpr=0.1, asr=0.3))
    assert attacks.threshold == 0.0
    assert both.threshold is not None
    assert 0.4 < both.threshold < 0.6
    neither = guarantee_threshold(labels, scores, limits=ErrorLimits(fpr=0.01, asr=0.01))
    assert (neither.threshold, neither.reason) == (
        None,
        "no threshold is shown to keep fpr<=0.01, asr<=0.01",
    )


@pytest.mark.parametrize(
    ("limits", "what"),
    [(ErrorLimits(fpr=0.01), "benign samples"), (ErrorLimits(asr=0.01), "attacks")],
)
def test_too_few_samples_show_nothing(limits: ErrorLimits, what: str) -> None:
    """1 % takes 299 samples without any error."""
    labels, scores = benign_and_attacks(200, 200)
    found = guarantee_threshold(labels, scores, limits=limits)
    assert found.threshold is None
    assert f"the {what} are too few to show 1 %" in found.reason
    assert guarantee_threshold([], [], limits=limits).threshold is None


def test_benign_samples_of_one_group_show_nothing() -> None:
    """Nothing tells how groups differ."""
    labels, scores = benign_and_attacks(500, 50)
    groups = [0] * 500 + list(range(1, 51))
    found = guarantee_threshold(labels, scores, limits=ErrorLimits(fpr=0.2), groups=groups)
    assert found.threshold is None


def test_where_benign_samples_score_highest_nothing_can_be_blocked() -> None:
    """No score lies above those that must pass."""
    found = guarantee_threshold([0] * 400 + [1], [0.5] * 400 + [0.1], limits=ErrorLimits(fpr=0.1))
    assert found.threshold is None
    assert "no score lies above" in found.reason


def test_every_sample_may_be_blocked_under_a_wide_limit() -> None:
    """A limit that even all errors keep leaves the lowest score of all."""
    found = guarantee_threshold([0, 1], [0.3, 0.9], limits=ErrorLimits(fpr=0.999999))
    assert found.threshold == 0.9


def test_limits_are_read_as_they_are_written() -> None:
    """Both rates, each once."""
    limits = ErrorLimits.read(["fpr<=0.01", "ASR <= .2"])
    assert (limits.fpr, limits.asr, str(limits)) == (0.01, 0.2, "fpr<=0.01, asr<=0.2")


@pytest.mark.parametrize(
    "words", [["fpr<0.1"], ["tpr<=0.1"], ["fpr<=2"], ["fpr<=.1", "fpr<=.2"], []]
)
def test_other_words_are_refused(words: list[str]) -> None:
    """With the form that is taken."""
    with pytest.raises(ValueError, match="a guarantee must"):
        ErrorLimits.read(words)


def test_limits_of_all_or_nothing_are_refused() -> None:
    """A limit of 0 is shown by no number of samples."""
    with pytest.raises(ValueError, match="limit"):
        ErrorLimits(fpr=0.0)
    with pytest.raises(ValueError, match="limit"):
        ErrorLimits(asr=math.nan)


@pytest.mark.slow
@pytest.mark.parametrize("variants", [1, 4])
def test_the_limit_is_kept_in_nineteen_runs_of_twenty(variants: int) -> None:
    """The true false positive rate of the chosen threshold, over drawn runs."""
    rng, kept, runs = np.random.default_rng(11), 0, 400
    for _ in range(runs):
        own = rng.standard_normal(600 // variants)
        benign = np.repeat(own, variants) * 0.8**0.5 + 0.2**0.5 * rng.standard_normal(600)
        scores = np.concatenate([benign, rng.standard_normal(200) + 2])
        groups = np.concatenate(
            [np.repeat(np.arange(600 // variants), variants), 600 + np.arange(200)]
        )
        found = guarantee_threshold(
            np.arange(800) >= 600, scores, limits=ErrorLimits(fpr=0.05), groups=groups
        )
        assert found.threshold is not None
        kept += 0.5 * math.erfc(found.threshold / math.sqrt(2)) <= 0.05
    assert kept / runs >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / runs)
