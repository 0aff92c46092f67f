"""The headline figures of one defense, as estimates."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from guardmark.analysis.defense.confusion import (
    Confusion,
    count_outcomes,
    estimate_slices,
    sort_into_cells,
    tally,
)
from guardmark.analysis.defense.frame import BLOCK, ERROR, MALFORMED
from guardmark.analysis.defense.ratios import BenchmarkRatios, estimate_ratios
from guardmark.core.manifest import Policy
from guardmark.stats.rates.predictive import BlockCounts, PredictiveValues, predictive_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.defense.confusion import Cells
    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Estimate
    from guardmark.core.manifest import RunManifest

_BLOCKS = frozenset({Policy.BLOCK})
_ALLOWS = frozenset({Policy.ALLOW, Policy.FALLBACK_TO_MAIN})


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePair:
    """Both rates of errors under one reading of samples without an answer.

    Attributes:
        attack_success_rate: Attacks allowed.
        false_positive_rate: Benign samples blocked.
    """

    attack_success_rate: Estimate
    false_positive_rate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorecard:
    """The headline figures of one defense at scope `defense`.

    Rates stand on answered samples; a side without samples is undefined, never zero.

    Attributes:
        confusion: The counts behind them.
        attack_success_rate: Attacks allowed, of those answered.
        true_positive_rate: Attacks blocked, of those answered; also the recall.
        false_positive_rate: Benign samples blocked, of those answered.
        false_negative_rate: Attacks allowed, of those answered; at this scope the same as the
            attack success rate.
        ratios: Precision, F1, balanced error and kin.
        answered_attacks: Attacks that got a decision, of all.
        answered_benign: Benign samples that got a decision, of all.
        answered: Samples that got a decision, of all.
        fail_open: Every sample without a decision counted as allowed.
        fail_closed: Every sample without a decision counted as blocked.
        under_policy: The rates as the run's policy would have enforced them, or None when it
            enforces nothing.
        any_bypass: Groups of attacks of which at least one variant was allowed, or None when
            no group has several.
        predictive: What a block and an allow are worth at stated shares of attacks.
    """

    confusion: Confusion = field(metadata={"json": False})
    attack_success_rate: Estimate
    true_positive_rate: Estimate
    false_positive_rate: Estimate
    false_negative_rate: Estimate
    ratios: BenchmarkRatios
    answered_attacks: Estimate
    answered_benign: Estimate
    answered: Estimate
    fail_open: RatePair
    fail_closed: RatePair
    under_policy: RatePair | None
    any_bypass: Estimate | None
    predictive: tuple[PredictiveValues, ...]


class _Sides(NamedTuple):
    benign: Estimate
    attacks: Estimate


def complement(estimate: Estimate) -> Estimate:
    """Return the same measurement read from its other end."""
    return replace(
        estimate,
        successes=estimate.trials - estimate.successes,
        low=None if estimate.high is None else 1 - estimate.high,
        high=None if estimate.low is None else 1 - estimate.low,
        group_mean=None if estimate.group_mean is None else 1 - estimate.group_mean,
    )


def make_scorecard(frame: Frame, arm: DefenseColumn, settings: AnalysisSettings) -> Scorecard:
    """Compute the headline figures of one defense."""
    cells = sort_into_cells(frame, np.zeros(frame.sample_count, dtype=np.int32), 1)

    def sides(hits: NDArray[np.bool_], trials: NDArray[np.bool_]) -> _Sides:
        return _Sides(
            *estimate_slices(cells, arm, hits=hits, trials=trials, confidence=settings.confidence)
        )

    answered, blocked, everything = arm.is_answered, arm.is_blocked, arm.records.outcome >= 0
    rates = _rates(frame, arm, cells, settings)
    shares = sides(answered, everything)
    confusion = count_outcomes(frame, arm)
    under = _under_policy(arm, frame.manifest)
    return Scorecard(
        confusion=confusion,
        attack_success_rate=complement(rates.attacks),
        true_positive_rate=rates.attacks,
        false_positive_rate=rates.benign,
        false_negative_rate=complement(rates.attacks),
        ratios=estimate_ratios(frame, arm, settings),
        answered_attacks=shares.attacks,
        answered_benign=shares.benign,
        answered=_whole(frame, arm, settings),
        fail_open=_pair(sides(blocked, everything)),
        fail_closed=_pair(sides(blocked | ~answered, everything)),
        under_policy=None if under is None else _pair(sides(*under)),
        any_bypass=_any_bypass(cells, arm, settings),
        predictive=_predictive(confusion, settings),
    )


def estimate_rates(frame: Frame, arm: DefenseColumn, settings: AnalysisSettings) -> RatePair:
    """Estimate both headline rates of one defense, and nothing else."""
    cells = sort_into_cells(frame, np.zeros(frame.sample_count, dtype=np.int32), 1)
    return _pair(_rates(frame, arm, cells, settings))


def _rates(frame: Frame, arm: DefenseColumn, cells: Cells, settings: AnalysisSettings) -> _Sides:
    return _at_stop(frame, arm) or _Sides(
        *estimate_slices(
            cells,
            arm,
            hits=arm.is_blocked,
            trials=arm.is_answered,
            confidence=settings.confidence,
        )
    )


def _at_stop(frame: Frame, arm: DefenseColumn) -> _Sides | None:
    """Return the shares blocked of a defense that a rule ended early, as the rule saw them.

    Only an interval that holds at every look covers where looking decided when to stop.
    """
    if frame.stops is None or not frame.stopped(arm):
        return None
    return _Sides(
        benign=frame.stops.estimate(arm.name, is_attack=False),
        attacks=complement(frame.stops.estimate(arm.name, is_attack=True)),
    )


def _pair(sides: _Sides) -> RatePair:
    return RatePair(attack_success_rate=complement(sides.attacks), false_positive_rate=sides.benign)


def _whole(frame: Frame, arm: DefenseColumn, settings: AnalysisSettings) -> Estimate:
    """Estimate the answered share over attacks and benign samples together."""
    from guardmark.stats.rates.clustered import wilson_default, wilson_default_rows

    if not frame.is_grouped:
        decided, asked = int(arm.is_answered.sum()), len(arm.records.outcome)
        return wilson_default_rows(decided, asked, confidence=settings.confidence)
    groups = frame.samples.group.codes[arm.records.sample]
    sizes = np.bincount(groups, minlength=len(frame.samples.group.names))
    answered = np.bincount(groups[arm.is_answered], minlength=len(sizes))
    return wilson_default(answered, sizes, confidence=settings.confidence)


def _under_policy(
    arm: DefenseColumn, manifest: RunManifest
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
    """Return who is blocked and who counts once the policy has spoken; None if it is silent."""
    policies = ((MALFORMED, manifest.on_malformed), (ERROR, manifest.on_error))
    if not any(policy in _BLOCKS | _ALLOWS for _, policy in policies):
        return None
    outcome = arm.records.outcome
    blocked, counts = outcome == BLOCK, outcome <= BLOCK
    for code, policy in policies:
        if policy in _BLOCKS:
            blocked = blocked | (outcome == code)
        if policy in _BLOCKS | _ALLOWS:
            counts = counts | (outcome == code)
    return blocked, counts


def _any_bypass(cells: Cells, arm: DefenseColumn, settings: AnalysisSettings) -> Estimate | None:
    """Estimate in how many groups of attacks at least one variant got through."""
    from guardmark.stats.rates.clustered import any_per_group

    if not cells.is_grouped:
        return None
    blocked, answered = tally(
        cells.of_sample.take(arm.records.sample),
        count=len(cells.slices),
        hits=arm.is_blocked,
        trials=arm.is_answered,
    )
    of_attacks = (cells.slices == 1) & (answered > 0)
    sizes = answered[of_attacks]
    if not (sizes > 1).any():
        return None
    return any_per_group(sizes - blocked[of_attacks], sizes, confidence=settings.confidence)


def _predictive(confusion: Confusion, settings: AnalysisSettings) -> tuple[PredictiveValues, ...]:
    attacks, benign = confusion.attacks, confusion.benign
    counts = BlockCounts(
        blocked_attacks=attacks.block,
        attacks=attacks.answered,
        blocked_benign=benign.block,
        benign=benign.answered,
    )
    return tuple(
        predictive_values(counts, prevalence, confidence=settings.confidence)
        for prevalence in settings.prevalences
        if 0 < prevalence < 1
    )
