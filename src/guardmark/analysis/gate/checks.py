"""The checks of a release gate: each limit against the interval of its figure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.defense.counts import estimate_slices, grouped_rate, sort_into_cells
from guardmark.analysis.defense.frame import ERROR, MALFORMED
from guardmark.analysis.defense.latency import measure_latency, order_by_latency
from guardmark.analysis.defense.scorecard import complement
from guardmark.analysis.defense.slices import Slicer
from guardmark.analysis.gate.limits import EVERY_CATEGORY, GateCheck, GateStatus, GateUnit
from guardmark.core.errors import UnknownName
from guardmark.stats.distributions import two_sided_z
from guardmark.stats.quantiles import quantile_ranks
from guardmark.stats.sequential import GROUP_WEIGHTED
from guardmark.store.reader import RunState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from guardmark.analysis.compare.comparison import PairedComparison, PairedSide
    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.gate.limits import GatePolicy
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Estimate, Quantile
    from guardmark.store.reader import RunStatus


def check_limits(
    frame: Frame, policy: GatePolicy, settings: AnalysisSettings
) -> tuple[GateCheck, ...]:
    """Check the limits of a policy that one run can answer."""
    arms = gated_arms(frame, policy)
    limits = _category_limits(frame, policy)
    slicer = Slicer(frame, "category") if limits else None
    checks: list[GateCheck] = []
    for arm in arms:
        checks.extend(_rates(frame, arm, policy=policy, settings=settings))
        checks.extend(_failures(frame, arm, policy=policy, settings=settings))
        if slicer is not None:
            found = tuple(_categories(slicer, arm, limits=limits, settings=settings))
            checks.extend(_exploratory(found) if frame.stopped(arm) else found)
        checks.extend(_latencies(frame, arm, policy=policy, settings=settings))
    return tuple(checks)


def gated_arms(frame: Frame, policy: GatePolicy) -> tuple[DefenseColumn, ...]:
    """Return the defenses a policy is about."""
    arms = {arm.name: arm for arm in frame.arms}
    for name in policy.defenses:
        if name not in arms:
            raise UnknownName("defense of this run", name, arms)
    if policy.defenses:
        return tuple(arms[name] for name in policy.defenses)
    candidates = tuple(arm for arm in frame.arms if not arm.is_baseline)
    return candidates or frame.arms


def check_regression(
    pairs: Sequence[PairedComparison], margin: float, *, alpha: float, names: Mapping[str, str]
) -> tuple[GateCheck, ...]:
    """Check that rates did not rise against a baseline run.

    Broken when the rise is significant and material: p below alpha and more than the margin.
    Held when the whole interval lies at or below the margin.
    """
    return tuple(
        _regression(side, (rule, subject), margin=margin, alpha=alpha, defense=names[pair.first])
        for pair in pairs
        for side, rule, subject in (
            (pair.attacks, "regression_asr", "attacks"),
            (pair.benign, "regression_fpr", "benign"),
        )
    )


def check_complete(status: RunStatus, *, subject: str = "run") -> tuple[GateCheck, ...]:
    """Check that a run has come to its end."""
    if status.state is RunState.COMPLETE:
        return ()
    check = GateCheck(
        rule="complete",
        defense="",
        subject=subject,
        standing=GateStatus.OPEN,
        unit=GateUnit.RECORDS,
        limit=float(status.planned),
        value=float(status.stored),
        low=None,
        high=None,
        trials=status.stored,
        reason=f"the {subject} is not complete; the same `guardmark run` continues it",
    )
    return (check,)


def needed_trials(
    value: float | None, limit: float, *, confidence: float, design_effect: float = 1.0
) -> int | None:
    """Return about how many samples would decide whether a rate holds a limit.

    The Wilson interval leaves out a limit L exactly when (p - L)^2 > z^2 L (1 - L) / n.
    """
    rate = 0.0 if value is None else value
    if rate == limit or limit in {0.0, 1.0}:
        return None
    z = two_sided_z(confidence)
    return math.ceil(design_effect * z * z * limit * (1 - limit) / (rate - limit) ** 2)


def _rates(
    frame: Frame, arm: DefenseColumn, *, policy: GatePolicy, settings: AnalysisSettings
) -> Iterator[GateCheck]:
    if frame.stops is not None and frame.stopped(arm):
        # Where looking decided when to stop, only an interval for every look covers.
        attacks, benign = (
            frame.stops.estimate(arm.name, is_attack=label) for label in (True, False)
        )
    else:
        cells = sort_into_cells(frame, np.zeros(frame.sample_count, dtype=np.int32), 1)
        benign, blocked = estimate_slices(
            cells, arm, hits=arm.is_blocked, trials=arm.is_answered, confidence=settings.confidence
        )
        attacks = complement(blocked)
    if policy.asr_upper is not None:
        yield _of_rate(attacks, ("asr_upper", "attacks"), policy.asr_upper, arm=arm)
    if policy.fpr_upper is not None:
        yield _of_rate(benign, ("fpr_upper", "benign"), policy.fpr_upper, arm=arm)


def _failures(
    frame: Frame, arm: DefenseColumn, *, policy: GatePolicy, settings: AnalysisSettings
) -> Iterator[GateCheck]:
    for rule, limit, outcome in (
        ("max_malformed", policy.max_malformed, MALFORMED),
        ("max_errors", policy.max_errors, ERROR),
    ):
        if limit is not None:
            hits = arm.records.outcome == outcome
            groups = frame.samples.group.codes[arm.records.sample]
            share = grouped_rate(hits, groups, confidence=settings.confidence)
            yield _of_rate(share, (rule, "samples"), limit, arm=arm)


def _category_limits(frame: Frame, policy: GatePolicy) -> dict[str, float]:
    """Return the limit of each category that the run has attacks of, or the policy names."""
    said = dict(policy.per_category)
    everyone = said.pop(EVERY_CATEGORY, None)
    category = frame.samples.category
    present = {
        category.names[code] for code in np.unique(category.codes[frame.samples.is_attack]).tolist()
    } - {""}
    known = present | set(frame.manifest.categories)
    for name in said:
        if name not in known:
            raise UnknownName("category of this run", name, known)
    if everyone is not None:
        said = {**dict.fromkeys(sorted(present), everyone), **said}
    return said


def _categories(
    slicer: Slicer, arm: DefenseColumn, *, limits: Mapping[str, float], settings: AnalysisSettings
) -> Iterator[GateCheck]:
    attacks, _ = slicer.tables(arm, settings, by_latency=order_by_latency(arm))
    rates = {entry.name: entry.rate for entry in attacks.rates}
    for name, limit in limits.items():
        rate = rates.get(name)
        if rate is None:
            yield _undefined(("per_category", name), limit, arm=arm, settings=settings)
        else:
            yield _of_rate(rate, ("per_category", name), limit, arm=arm)


def _exploratory(checks: Iterable[GateCheck]) -> Iterator[GateCheck]:
    """Leave the slices of a defense that was ended early open: their intervals do not cover."""
    reason = "the defense was ended early by a rule, which makes its slices exploratory"
    for check in checks:
        yield replace(check, standing=GateStatus.OPEN, needed=None, reason=reason)


def _latencies(
    frame: Frame, arm: DefenseColumn, *, policy: GatePolicy, settings: AnalysisSettings
) -> Iterator[GateCheck]:
    limit = policy.latency_p95_upper_ms
    if limit is None:
        return
    latency = measure_latency(frame, arm, settings)
    for side, subject in ((latency.attacks, "attacks"), (latency.benign, "benign")):
        p95 = next(each for each in side.quantiles if each.quantile == 0.95)
        yield _of_quantile(p95, subject, limit, arm=arm)


def _of_rate(
    estimate: Estimate, named: tuple[str, str], limit: float, *, arm: DefenseColumn
) -> GateCheck:
    standing = _standing(estimate.low, estimate.high, limit)
    # Where a rule ended a defense early, limits are those of the mean over groups.
    is_mean = estimate.method == GROUP_WEIGHTED
    value = estimate.group_mean if is_mean else estimate.value
    needed = None
    if standing is GateStatus.OPEN:
        needed = needed_trials(
            value,
            limit,
            confidence=estimate.confidence,
            design_effect=estimate.design_effect or 1.0,
        )
    return GateCheck(
        rule=named[0],
        defense=arm.name,
        subject=named[1],
        standing=standing,
        unit=GateUnit.SHARE,
        limit=limit,
        value=value,
        low=estimate.low,
        high=estimate.high,
        trials=estimate.trials,
        needed=needed,
        reason=estimate.reason if estimate.high is None else "",
    )


def _undefined(
    named: tuple[str, str], limit: float, *, arm: DefenseColumn, settings: AnalysisSettings
) -> GateCheck:
    return GateCheck(
        rule=named[0],
        defense=arm.name,
        subject=named[1],
        standing=GateStatus.OPEN,
        unit=GateUnit.SHARE,
        limit=limit,
        value=None,
        low=None,
        high=None,
        trials=0,
        needed=needed_trials(None, limit, confidence=settings.confidence),
        reason="the run has no attack of this category",
    )


def _of_quantile(p95: Quantile, subject: str, limit: float, *, arm: DefenseColumn) -> GateCheck:
    needed = quantile_ranks(p95.trials, p95.quantile, confidence=p95.confidence).needed
    return GateCheck(
        rule="latency_p95_upper_ms",
        defense=arm.name,
        subject=subject,
        standing=_standing(p95.low, p95.high, limit),
        unit=GateUnit.MILLISECONDS,
        limit=limit,
        value=p95.value,
        low=p95.low,
        high=p95.high,
        trials=p95.trials,
        needed=needed if p95.trials < needed else None,
        reason=p95.reason,
    )


def _standing(low: float | None, high: float | None, limit: float) -> GateStatus:
    if high is not None and high <= limit:
        return GateStatus.HELD
    if low is not None and low > limit:
        return GateStatus.BROKEN
    return GateStatus.OPEN


def _regression(
    side: PairedSide, named: tuple[str, str], *, margin: float, alpha: float, defense: str
) -> GateCheck:
    difference = side.difference
    standing, needed = GateStatus.OPEN, None
    value, p_value = difference.value, side.adjusted_p
    if difference.high is not None and difference.high <= margin:
        standing = GateStatus.HELD
    elif value is not None and value > margin and p_value is not None and p_value < alpha:
        standing = GateStatus.BROKEN
    elif value is not None and difference.high is not None and value != margin:
        # An interval's half-width shrinks with the root of the number of pairs.
        half = difference.high - value if value < margin else value - (difference.low or 0.0)
        wanted = abs(margin - value) if value < margin else value
        needed = math.ceil(difference.pairs * (half / wanted) ** 2)
    return GateCheck(
        rule=named[0],
        defense=defense,
        subject=named[1],
        standing=standing,
        unit=GateUnit.POINTS,
        limit=margin,
        value=value,
        low=difference.low,
        high=difference.high,
        trials=difference.pairs,
        needed=needed,
        p_value=p_value,
        reason="" if value is not None else (difference.reason or "no sample answered by both"),
    )
