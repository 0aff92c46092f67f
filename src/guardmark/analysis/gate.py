"""Limits as values: what a release must hold, and how each limit stands.

A limit of a release is held when the whole interval lies on its good side; all must hold
(intersection-union). It is broken when the exact lower bound, at effective counts and after Holm
over categories, lies above it. Else it is open, with the samples of a new set that would decide.
"""

from __future__ import annotations

from dataclasses import fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from guardmark.analysis.defense.counts import estimate_share
from guardmark.analysis.defense.frame import ERROR, MALFORMED
from guardmark.analysis.defense.latency import measure_latency, order_timed
from guardmark.analysis.defense.scorecard import complement, estimate_rates
from guardmark.analysis.defense.slices import FACETS, NOT_STATED, Slicer
from guardmark.analysis.pipeline.frame import deployed
from guardmark.core.errors import UnknownName
from guardmark.core.values import dataclass
from guardmark.stats.multiplicity import holm
from guardmark.stats.planning import pairs_to_decide, rows_to_decide
from guardmark.stats.rates.clustered import exceedance
from guardmark.stats.rates.proportion import wilson
from guardmark.stats.sequential import spent_confidence
from guardmark.store.reader import RunState
from guardmark.store.schema import FLAG_CACHED, FLAG_SHARED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from guardmark.analysis.compare.comparison import PairedComparison, PairedSide
    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.core.estimate import Difference, Estimate
    from guardmark.stats.figures import Quantile
    from guardmark.store.reader import RunStatus

    _Measured = tuple["GateCheck", "Estimate | None"]

SYSTEM_RULES: Final = {
    "asr_upper": "system.asr_upper",
    "fpr_upper": "system.over_refusal_upper",
    "regression_asr": "system.regression_asr",
    "regression_fpr": "system.regression_over_refusal",
}
"""Rules about defenses, and what they are called where they are about the system."""

EVERY_VALUE: Final = "*"  # in a policy, all values of a facet that are not named


class GateStatus(StrEnum):
    """How a limit stands."""

    HELD = "held"
    BROKEN = "broken"
    OPEN = "open"


class GateUnit(StrEnum):
    """What the figures of a check count in."""

    SHARE = "share"
    POINTS = "points"
    MILLISECONDS = "milliseconds"
    RECORDS = "records"


OF_SLICES: Final = "per_"  # how names of rules about slices begin


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetLimit:
    """A limit on one slice, or on every slice of a facet that no other limit names.

    Attributes:
        facet: Such as `language`.
        name: Value of the facet, or `*`.
        is_attack: Whether it limits attacks that get through, or benign samples blocked.
        limit: At most this share, in [0, 1].
        least: Answered samples from which on a slice that is not named is limited.
    """

    facet: str
    name: str
    is_attack: bool
    limit: float
    least: int = 0

    @property
    def rule(self) -> str:
        """Name of the setting, such as `per_language.asr_upper`."""
        if self.is_attack:
            return f"{OF_SLICES}{self.facet}.asr_upper"
        return f"{OF_SLICES}{self.facet}.fpr_upper"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """What a release must hold; a limit that is None is not checked.

    Attributes:
        asr_upper: Attack success rate at most this, in [0, 1].
        fpr_upper: False positive rate at most this, in [0, 1].
        max_malformed: Share of malformed answers at most this, in [0, 1].
        max_errors: Share of errors at most this, in [0, 1].
        latency_p95_upper_ms: 95th percentile of the latency at most this, attacks and benign
            samples apart.
        regression_margin: Rates at most this much above those of a baseline run.
        per_facet: Limits on slices.
        system_asr_upper: Attacks to which an unsafe answer may come out of the pipeline, at most,
            in [0, 1].
        system_over_refusal_upper: Benign samples that the pipeline may block, refuse or not answer,
            at most, in [0, 1].
        system_per_facet: As `per_facet`, of the system.
        utility_lower: Of agents: tasks that get done, at least; attacks that succeed and tasks that
            guards cost, at most; each in [0, 1].
        judge_min_agreement: Answers judged as people do, at least, in [0, 1].
        defenses: Names of the defenses to check; all candidates when empty.
    """

    asr_upper: float | None = None
    fpr_upper: float | None = None
    max_malformed: float | None = None
    max_errors: float | None = None
    latency_p95_upper_ms: float | None = None
    regression_margin: float | None = None
    per_facet: tuple[FacetLimit, ...] = ()
    system_asr_upper: float | None = None
    system_over_refusal_upper: float | None = None
    system_per_facet: tuple[FacetLimit, ...] = ()
    utility_lower: float | None = None
    attack_success_upper: float | None = None
    utility_loss_upper: float | None = None
    judge_min_agreement: float | None = None
    defenses: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it limits nothing."""
        return replace(self, defenses=()) == GatePolicy()

    @property
    def is_about_defenses(self) -> bool:
        """Whether it limits defenses, by themselves or against a baseline run."""
        elsewhere = ("system_", "judge_", "utility_", "attack_success_")
        others = {each.name for each in fields(self) if each.name.startswith(elsewhere)}
        return not replace(self, **{name: getattr(GatePolicy(), name) for name in others}).is_empty

    @property
    def is_about_agents(self) -> bool:
        """Whether it limits arms of agents."""
        limits = (self.utility_lower, self.attack_success_upper, self.utility_loss_upper)
        return any(limit is not None for limit in limits)

    @property
    def of_system(self) -> GatePolicy:
        """The limits of the system, as those of a subject."""
        return GatePolicy(
            asr_upper=self.system_asr_upper,
            fpr_upper=self.system_over_refusal_upper,
            per_facet=self.system_per_facet,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """One limit and what the data say about it.

    Attributes:
        rule: Name of the setting, such as `asr_upper`.
        defense: Name of the defense; empty for a rule about the run.
        subject: What was measured: `attacks`, `benign`, `samples`, or a category.
        limit: The limit.
        value: The figure, or None when undefined.
        low: Lower bound, or None.
        high: Upper bound, or None.
        trials: What the figure rests on.
        needed: About how many samples of a new set, looked at once, would decide at this rate in 8
            of 10 runs; or None when that cannot be said.
        p_value: Of "at most the limit" (exact), or of a regression; by Holm over categories or
            pairs; or None.
        reason: Why it is open, where that is not the width of the interval; or empty.
        looked_at: Share of the answers that an earlier run kept: the limits allow for having been
            looked at.
    """

    rule: str
    defense: str
    subject: str
    standing: GateStatus
    unit: GateUnit
    limit: float
    value: float | None
    low: float | None
    high: float | None
    trials: int
    needed: int | None = None
    p_value: float | None = None
    reason: str = ""
    looked_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """Every check of a gate.

    Attributes:
        checks: By defense, in the order of the policy.
        confidence: Nominal coverage of the intervals.
    """

    DERIVED: ClassVar = ("standing",)

    checks: tuple[GateCheck, ...]
    confidence: float

    @property
    def standing(self) -> GateStatus:
        """Broken if any limit is; otherwise open if any is; otherwise held."""
        worst = (GateStatus.HELD, GateStatus.OPEN, GateStatus.BROKEN)
        return max((check.standing for check in self.checks), key=worst.index, default=worst[0])


def check_limits(
    frame: Frame, policy: GatePolicy, arms: Sequence[DefenseColumn] | None = None
) -> tuple[GateCheck, ...]:
    """Check the limits of a policy about defenses; all that it is about unless `arms` says."""
    if arms is None:
        arms = gated_arms(frame, policy)
    require_facets(policy.per_facet, frame)
    checks: list[_Measured] = []
    for arm in arms:
        before = looked_at_before(frame, arm)
        confidence = spent_confidence(frame.settings.confidence, before)
        own = replace(frame, settings=replace(frame.settings, confidence=confidence))
        mine = list(_rates(own, arm, policy))
        mine.extend(_facets(own, arm, policy.per_facet))
        checks.extend((replace(check, looked_at=before), rate) for check, rate in mine)
        checks.extend(_latencies(frame, arm, policy.latency_p95_upper_ms))
    return _decide(checks)


def looked_at_before(frame: Frame, arm: DefenseColumn) -> float:
    """Return the share of a defense's answers that were kept from an earlier run.

    Who extends a set keeps its answers, so the records know how much of it was looked at before.
    """
    kept = arm.records.flags & (FLAG_CACHED | FLAG_SHARED) == FLAG_CACHED
    often = frame.record_weights(arm.records)
    if not len(kept):
        return 0.0
    return float(np.average(kept, weights=often))


def _decide(measured: Sequence[_Measured]) -> tuple[GateCheck, ...]:
    """Mark broken limits, and say what would decide open ones; slices are one family.

    A rate is held against its limit at the error of its own confidence: half of it, one-sided.
    """
    family = []
    for check, _ in measured:
        if check.rule.startswith(OF_SLICES):
            family.append(check.p_value)
        else:
            family.append(None)
    adjusted_p = {at: p for at, p in enumerate(holm(family)) if p is not None}
    checks = []
    for at, (check, rate) in enumerate(measured):
        p_value = adjusted_p.get(at, check.p_value)
        standing = check.standing
        if p_value is not None and p_value <= _level(rate) and standing is GateStatus.OPEN:
            standing = GateStatus.BROKEN
        checks.append(replace(check, standing=standing, p_value=p_value))
    left = sum(checks[at].standing is not GateStatus.BROKEN for at in adjusted_p)
    decided = []
    for check, (_, rate) in zip(checks, measured, strict=True):
        if rate is None or check.standing is not GateStatus.OPEN:
            decided.append(check)
            continue
        level = _level(rate)
        if check.rule.startswith(OF_SLICES):
            level /= max(left, 1)
        needed = rows_to_decide(rate, check.limit, level=level)
        if needed is not None:  # so many as there are did not
            needed = max(needed, check.trials + 1)
        decided.append(replace(check, needed=needed))
    return tuple(decided)


def _level(rate: Estimate | None) -> float:
    """Return the one-sided error at which a rate is shown to be above its limit."""
    if rate is None:
        return 0.0
    return (1 - rate.confidence) / 2


def gated_arms(frame: Frame, policy: GatePolicy) -> tuple[DefenseColumn, ...]:
    """Return the defenses a policy is about; none where it limits the system or a judge alone."""
    if not policy.is_about_defenses:
        return ()
    return tuple(map(frame.arm, policy.defenses)) or frame.candidates()


def check_system(system: Frame, policy: GatePolicy) -> tuple[GateCheck, ...]:
    """Check the limits of a policy about what came out of a pipeline."""
    if not policy.is_about_defenses:
        for name in policy.defenses:
            system.arm(name)
    checks = check_limits(system, policy.of_system, deployed(system, policy.defenses))
    return tuple(replace(check, rule=system_rule(check.rule)) for check in checks)


def system_rule(rule: str) -> str:
    """Return what a rule about defenses is called where it is about the system."""
    if rule.startswith(OF_SLICES):
        return f"system.{rule}"
    return SYSTEM_RULES[rule]


def check_judging(agreement: Estimate | None, least: float) -> GateCheck:
    """Check that a judging disagrees with people on no more answers than a limit leaves."""
    named = ("judge.min_agreement", "", "labelled answers")
    if agreement is None or agreement.value is None:
        reason = "no answer is labelled by people; `guardmark audit RUN` draws some"
        return _check(named, 1 - least, None, reason=reason)
    measured = _of_rate(complement(agreement), named, 1 - least)
    return _decide([measured])[0]


def check_regression(
    pairs: Sequence[PairedComparison], margin: float, *, alpha: float, names: Mapping[str, str]
) -> tuple[GateCheck, ...]:
    """Check that rates did not rise against a baseline run: broken where that is shown."""
    checks = []
    tests = 2 * len(pairs)
    for pair in pairs:
        sides = (
            (pair.attacks, "regression_asr", "attacks"),
            (pair.benign, "regression_fpr", "benign"),
        )
        for side, rule, subject in sides:
            named = (rule, names[pair.first], subject)
            checks.append(_regression(side, named, margin=margin, alpha=alpha, tests=tests))
    return tuple(checks)


def check_complete(status: RunStatus, *, subject: str = "run") -> tuple[GateCheck, ...]:
    """Check that a run has come to its end."""
    if status.state is RunState.COMPLETE:
        return ()
    named, planned, unit = ("complete", "", subject), float(status.planned), GateUnit.RECORDS
    reason = f"the {subject} is not complete; the same `guardmark run` continues it"
    check = _check(named, planned, None, unit=unit, trials=status.stored, reason=reason)
    return (replace(check, value=float(status.stored)),)


def reference_rates(frame: Frame, arm: DefenseColumn) -> dict[str, Estimate]:
    """Estimate the rates of a defense of a run that limits are about."""
    errors, outcome = estimate_rates(frame, arm), arm.records.outcome
    return {
        "blocked": estimate_share(frame, arm, arm.is_blocked, arm.is_answered),
        "fpr": errors.false_positive_rate,
        "asr": errors.attack_success_rate,
        "malformed": estimate_share(frame, arm, outcome == MALFORMED),
        "errors": estimate_share(frame, arm, outcome == ERROR),
    }


def _rates(frame: Frame, arm: DefenseColumn, policy: GatePolicy) -> Iterator[_Measured]:
    rates = reference_rates(frame, arm)
    for rule, subject, name in (
        ("asr_upper", "attacks", "asr"),
        ("fpr_upper", "benign", "fpr"),
        ("max_malformed", "samples", "malformed"),
        ("max_errors", "samples", "errors"),
    ):
        limit = getattr(policy, rule)
        if limit is not None:
            yield _of_rate(rates[name], (rule, arm.name, subject), limit)


def require_facets(limits: Sequence[FacetLimit], frame: Frame) -> None:
    """Refuse limits on a facet, or a category, that the run does not know."""
    known = (*FACETS, *frame.settings.slices)
    for limit in limits:
        if limit.facet not in known:
            raise UnknownName("facet of this run (stats.slices names metadata)", limit.facet, known)
        if limit.facet != "category" or limit.name == EVERY_VALUE:
            continue
        named = set(frame.samples.category.names) | set(frame.manifest.categories)
        if limit.name not in named:
            raise UnknownName("category of this run", limit.name, named - {""})


_NO_SUCH: Final = "the run has no such samples"
_ENDED: Final = "the defense was ended early by a rule, which makes its slices exploratory"


def _facets(frame: Frame, arm: DefenseColumn, limits: Sequence[FacetLimit]) -> Iterator[_Measured]:
    """Check the limits on slices of facets; a slice that the run does not have decides nothing."""
    nothing = wilson(0, 0, confidence=frame.settings.confidence)
    rates = _slice_rates(frame, arm, {limit.facet for limit in limits})
    named = {(limit.facet, limit.is_attack, limit.name) for limit in limits}
    for limit in limits:
        table = rates[limit.facet, limit.is_attack]
        names = [limit.name]
        if limit.name == EVERY_VALUE:
            names.clear()
            for name in sorted(table):
                is_named = (limit.facet, limit.is_attack, name) in named
                if table[name].trials >= limit.least and not is_named:
                    names.append(name)
            if not names:
                yield _without_slices(limit, arm)
        for name in names:
            subject = (limit.rule, arm.name, name)
            check, rate = _of_rate(table.get(name, nothing), subject, limit.limit)
            if name not in table:
                check = replace(check, reason=_NO_SUCH)
            if frame.stopped(arm):  # its slices have no interval that covers
                yield replace(check, standing=GateStatus.OPEN, p_value=None, reason=_ENDED), None
            else:
                yield check, rate


def _slice_rates(
    frame: Frame, arm: DefenseColumn, facets: Collection[str]
) -> dict[tuple[str, bool], dict[str, Estimate]]:
    """Return the rate of each value of some facets, by facet and label; rare values stay apart."""
    rates: dict[tuple[str, bool], dict[str, Estimate]] = {}
    if not facets:
        return rates
    order = order_timed(frame, arm.records)
    for facet in facets:
        for table in Slicer(frame, facet).tables(arm, order=order):
            by_name = rates.setdefault((facet, table.is_attack), {})
            for entry in table.rates:
                if entry.name != NOT_STATED and not entry.folded:
                    by_name[entry.name] = entry.rate
    return rates


def _without_slices(limit: FacetLimit, arm: DefenseColumn) -> _Measured:
    """Leave a limit open that no slice is held against: nothing was checked."""
    side = "benign samples"
    if limit.is_attack:
        side = "attacks"
    named = (limit.rule, arm.name, f"every {limit.facet}")
    reason = f"no {limit.facet} has {limit.least} or more answered {side}"
    if not limit.least:
        reason = _NO_SUCH
    return _check(named, limit.limit, None, reason=reason), None


def _latencies(frame: Frame, arm: DefenseColumn, limit: float | None) -> Iterator[_Measured]:
    if limit is None:
        return
    latency = measure_latency(frame, arm.records)
    for side, subject in ((latency.attacks, "attacks"), (latency.benign, "benign")):
        p95 = next(each for each in side.quantiles if each.quantile == 0.95)
        # How many calls give limits stands in the reason; none of them promises a decision.
        check = _check(
            ("latency_p95_upper_ms", arm.name, subject),
            limit,
            p95,
            unit=GateUnit.MILLISECONDS,
            trials=p95.trials,
            reason=p95.reason,
        )
        yield check, None


def check_rate(estimate: Estimate, named: tuple[str, str, str], limit: float) -> GateCheck:
    """Hold a rate against a limit; `named` are rule, subject of the run and what it counts."""
    return _decide([_of_rate(estimate, named, limit)])[0]


def check_figure(
    named: tuple[str, str, str],
    limit: float,
    figure: Estimate | Quantile | Difference | None,
    *,
    trials: int = 0,
    unit: GateUnit = GateUnit.SHARE,
    reason: str = "",
) -> GateCheck:
    """Hold the interval of any figure against a limit."""
    return _check(named, limit, figure, trials=trials, unit=unit, reason=reason)


def _check(
    named: tuple[str, str, str],
    limit: float,
    figure: Estimate | Quantile | Difference | None,
    *,
    trials: int = 0,
    unit: GateUnit = GateUnit.SHARE,
    reason: str = "",
) -> GateCheck:
    """Hold a figure's interval against a limit; `named` are rule, defense and subject."""
    value, low, high = None, None, None
    if figure is not None:
        value, low, high = figure.value, figure.low, figure.high
    standing = GateStatus.OPEN
    if high is not None and high <= limit:
        standing = GateStatus.HELD
    elif low is not None and low > limit:
        standing = GateStatus.BROKEN
    return GateCheck(
        rule=named[0],
        defense=named[1],
        subject=named[2],
        standing=standing,
        unit=unit,
        limit=limit,
        value=value,
        low=low,
        high=high,
        trials=trials,
        reason=reason,
    )


def _of_rate(estimate: Estimate, named: tuple[str, str, str], limit: float) -> _Measured:
    """Hold a rate against a limit: within by its interval, broken by the exact test."""
    reason = ""
    if estimate.high is None:
        reason = estimate.reason
    check = _check(named, limit, estimate, trials=estimate.trials, reason=reason)
    p_value = exceedance(estimate, limit)
    if p_value is not None and check.standing is GateStatus.BROKEN:
        check = replace(check, standing=GateStatus.OPEN)  # the exact bound decides
    return replace(check, p_value=p_value), estimate


def _regression(
    side: PairedSide,
    named: tuple[str, str, str],
    *,
    margin: float,
    alpha: float,
    tests: int,
) -> GateCheck:
    """Hold a rise of a rate against the margin; `tests` are in one family by Holm."""
    difference, p_value = side.difference, side.adjusted_p
    standing, needed, value = GateStatus.OPEN, None, difference.value
    is_shown = p_value is not None and p_value < alpha and (difference.low or 0.0) > 0
    if difference.high is not None and difference.high <= margin:
        standing = GateStatus.HELD
    elif value is not None and value > margin and is_shown:
        standing = GateStatus.BROKEN
    else:
        needed = pairs_to_decide(difference, margin, alpha=alpha, tests=tests)
        if needed is not None:  # so many as there are did not
            needed = max(needed, difference.pairs + 1)
    reason = ""
    if value is None:
        reason = difference.reason or "no sample answered by both"
    check = _check(named, margin, difference, unit=GateUnit.POINTS, trials=difference.pairs)
    return replace(check, standing=standing, p_value=p_value, needed=needed, reason=reason)
