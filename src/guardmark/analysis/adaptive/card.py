"""Whether a defense holds against an attacker who watches it, and what people confirm of that."""

from __future__ import annotations

from dataclasses import field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.adaptive.attacker import AttackerCard, read_attacker
from guardmark.analysis.adaptive.audit import AuditCard, Proofs, read_audit_card
from guardmark.analysis.adaptive.operators import (
    OperatorCard,
    TransferCard,
    read_operators,
    read_transfers,
)
from guardmark.analysis.adaptive.repairs import (
    RepairCard,
    RepairedCard,
    read_repaired,
    read_repairs,
)
from guardmark.analysis.adaptive.rows import (
    FULL,
    STRICT,
    CostCard,
    read_adaptive,
    read_costs,
    words_of,
)
from guardmark.analysis.adaptive.success import (
    NAMED_ARMS,
    ROUNDS,
    AreaCard,
    AttackMask,
    GradientCard,
    SearchTimes,
    SeedsCard,
    measure_area,
    measure_gradient,
    measure_seeds,
    tries_compared,
)
from guardmark.analysis.adaptive.target import TargetCard, measure_target, read_target
from guardmark.analysis.defense.counts import SampleRates, grouped_difference
from guardmark.core.values import dataclass
from guardmark.stats.attempts.extrapolation import Extrapolation, extrapolate_success
from guardmark.stats.attempts.success_area import area_difference, areas_of
from guardmark.stats.attempts.survival import (
    RestrictedMean,
    SurvivalCurve,
    attack_success_at,
    kaplan_meier,
    restricted_mean,
)
from guardmark.stats.multiplicity import holm
from guardmark.stats.rates.proportion import wilson
from guardmark.store.layers import ADAPTIVE, BLIND, NULL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.rows import AdaptiveRecords
    from guardmark.analysis.adaptive.success import SurvivalTime
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Difference, Estimate
    from guardmark.stats.arguments import Flags, Ints
    from guardmark.stats.figures import Ratio
    from guardmark.store.reader import RecordReader

_STEPS: Final = (1, 2, 5, 10, 16, 20, 50, 64, 100, 200, 512)
_TOLD: Final = (1, 16, 64)  # search calls of which a summary tells, beside the budget
_AHEAD: Final = 4  # times the budget, as far as blind tries are extrapolated


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRate:
    """What had got through by the end of a round.

    Attributes:
        name: `R0` to `R5`; `R0` is the texts as they are.
        strict: By variants that are provably the same text (V0, V1).
        full: By these, by bounded or listed changes, and by what was judged the same (V2, V3).
    """

    name: str = field(metadata={"json": "round"})
    strict: Estimate
    full: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCurve:
    """Success of an arm by search tries.

    Attributes:
        arm: `adaptive`, `blind` or `null`.
        points: Tries and the share of all attacks that had got through by then.
        at_budget: The share at the end of the budget.
    """

    arm: str
    points: tuple[tuple[int, float], ...]
    at_budget: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveCard:
    """What an adaptive measurement says of one defense.

    Attributes:
        name: Of the defense.
        settings: Battery, lock, budget and seed.
        findings: Flags and diagnosis.
        attacks: Attacks that were answered at first: the denominator of every rate.
        missing: Attacks that were not; they count for nothing.
        at_calls: Search calls and the share of attacks that had got through by then, as they are
            included.
        asr_at: ASR@k of the blind arm by Chen's estimator, by k.
        gains: Adaptive minus blind at equal tries, by k.
        gain_in_all: The same within as many calls as the budget, with those of diagnosis and fixed
            list counted.
        null_gain: Null arm minus static; None without control arms, as the gain.
        delta: Last round minus static, paired.
        battery_strict: Attacks that fell to any of the fixed list, strict tiers.
        battery_full: The same, all proved tiers.
        survival: Search tries to the first bypass, of attacks blocked at first; None without.
        mean_tries: Mean tries up to the budget, of the same attacks.
        reliability: Share of passes that passed again, or None for a steady defense.
        calls: Arm and account to calls.
        extrapolated: Blind success at several times the budget, or None.
        extrapolated_at: Tries it speaks of.
        unanswered: Tries without an answer.
        target: What the target model did, or None when none was asked.
        attacker: What an attacker model did, or None when none was configured.
        gradient: The arm with gradient access, or None without one.
        resting: Attacks that got through, but by nothing better than a judgement or a table.
        audit: What people say of bypasses that rest on a judgement, or None without a sheet.
        repaired: The repaired defense, attacked again; None where no cleaning helps.
        seeds: What several seeds came to, or None for one; all else is of the first seed.
        over_turns: Attacks that a conversation got through, of those on which one was tried in the
            search; None where none was.
    """

    name: str = field(metadata={"json": "defense"})
    settings: Mapping[str, object]
    findings: Mapping[str, object]
    attacks: int
    missing: int
    rounds: tuple[RoundRate, ...]
    arms: tuple[ArmCurve, ...]
    at_calls: tuple[tuple[int, Estimate], ...]
    asr_at: tuple[tuple[int, Ratio], ...] = field(metadata={"json": "blind_asr_at"})
    gains: tuple[tuple[int, Difference], ...]
    gain_in_all: Difference | None = field(metadata={"json": "gain_at_equal_calls"})
    null_gain: Difference | None
    delta: Difference = field(metadata={"json": "robustness_delta"})
    battery_strict: Estimate
    battery_full: Estimate
    survival: SurvivalCurve | None = field(metadata={"json": {"median_tries": "queries"}})
    mean_tries: RestrictedMean | None
    area: AreaCard
    reliability: Estimate | None
    operators: tuple[OperatorCard, ...]
    repairs: tuple[RepairCard, ...]
    transfers: tuple[TransferCard, ...]
    calls: Mapping[tuple[str, str], int]
    costs: CostCard
    extrapolated: Extrapolation | None
    extrapolated_at: int
    unanswered: int
    target: TargetCard | None = None
    attacker: AttackerCard | None = None
    gradient: GradientCard | None = None
    resting: int = 0
    audit: AuditCard | None = None
    repaired: RepairedCard | None = None
    seeds: SeedsCard | None = None
    over_turns: Estimate | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        """`RANDOMISED`, `STATEFUL`, `RATE_LIMITED`, `ERRORS_AS_BLOCK`."""
        return words_of(self.findings, "flags")

    def shares_of(self, findings: str) -> dict[str, Estimate]:
        """Return shares of the examined attacks, by what was found: `labels` or `signs`."""
        counts = self.findings.get(findings)
        if not isinstance(counts, dict):
            return {}
        examined = int(str(self.findings.get("examined", 0)))
        shares = {}
        for name, count in counts.items():
            if isinstance(count, list):
                shares[name] = wilson(*count)
            else:
                shares[name] = wilson(min(count, examined), examined)
        return shares

    @property
    def budget(self) -> int:
        """Search calls an attack was worth."""
        return int(str(self.settings.get("budget", 0)))

    @property
    def is_carried_out(self) -> bool:
        """Whether each try is a case of an agent that was carried out to its end."""
        return is_carried_out(self)

    @property
    def shares_memory(self) -> bool:
        """Whether attacks learned from each other."""
        return self.settings.get("memory", "shared") == "shared"


def is_carried_out(measured: AdaptiveCard | AdaptiveRecords) -> bool:
    """Tell whether each try of an attack is a case of an agent that was carried out to its end."""
    return "reading" in measured.settings


def analyse_adaptive(reader: RecordReader, settings: AnalysisSettings) -> tuple[AdaptiveCard, ...]:
    """Compute what adaptive measurements say, from the stored tries alone."""
    from guardmark.store.columns import sample_columns

    samples = sample_columns(reader)
    is_attack = samples.is_attack
    crossing = None if samples.crossing is None else samples.crossing.codes
    measured = read_adaptive(reader)
    strata = None
    if any(is_carried_out(records) for records in measured):
        strata = samples.source.codes  # suites share neither a task nor an injection
    rates = SampleRates(
        samples.group.codes,
        settings.confidence,
        samples.group.names,
        crossing=crossing,
        strata=strata,
    )
    target_rows = read_target(reader)
    cards = []
    for records in measured:
        mask = AttackMask(records, is_attack, rates)
        proofs = Proofs(records, is_attack.tolist())
        target = None
        if target_rows is not None:
            target = measure_target(target_rows, mask)
        card = replace(
            _card(mask, is_attack, lengths=samples.length),
            target=target,
            attacker=read_attacker(reader, records, rates),
            gradient=measure_gradient(mask),
            resting=len(proofs.resting()),
            audit=read_audit_card(reader, proofs, rates=rates, seed=settings.seed),
            repaired=read_repaired(mask, is_attack, rates),
        )
        cards.append(card)
    return tuple(cards)


def _card(mask: AttackMask, is_attack: Flags, *, lengths: Ints) -> AdaptiveCard:
    records, budget, rates = mask.records, mask.records.budget, mask.rates
    tries = _up_to(budget, _STEPS)
    survival, mean_tries = _survival(mask, budget)
    asr_at, extrapolated, ahead = _blind(mask, tries)
    rounds = _rounds_reached(mask)
    at_the_end = mask.bypassed(rounds[-1], FULL)
    return AdaptiveCard(
        name=records.name,
        settings=records.settings,
        findings=records.findings,
        attacks=len(mask.places),
        missing=int(is_attack.sum()) - len(mask.places),
        rounds=tuple(_round_rate(mask, name) for name in rounds),
        arms=_curves(mask, tries),
        at_calls=tuple((k, mask.rate(mask.by(ADAPTIVE, k))) for k in _up_to(budget, _TOLD)),
        asr_at=asr_at,
        gains=_gains(mask, tries),
        gain_in_all=_gain_in_all(mask),
        null_gain=_null_gain(mask),
        delta=mask.difference(at_the_end, mask.static),
        battery_strict=mask.rate(mask.bypassed("R1", STRICT)),
        battery_full=mask.rate(mask.bypassed("R1", FULL)),
        survival=survival,
        mean_tries=mean_tries,
        area=measure_area(mask, last=at_the_end),
        reliability=_reliability(mask),
        operators=read_operators(records, rates, lengths=lengths),
        repairs=read_repairs(records, is_attack, rates),
        transfers=read_transfers(records, rates),
        calls=dict(records.calls),
        costs=read_costs(records.usage, bypasses=int(at_the_end.sum()), attacks=len(mask.places)),
        extrapolated=extrapolated,
        extrapolated_at=ahead,
        unanswered=records.unanswered,
        seeds=measure_seeds(mask, tries),
        over_turns=_over_turns(mask),
    )


def _over_turns(mask: AttackMask) -> Estimate | None:
    """Count the attacks that a conversation got through, where conversations were tried."""
    marks = []
    for sample, history in mask.records.arms[ADAPTIVE].items():
        is_tried, is_through = False, False
        for attempt in history.tries:
            if attempt.leads_up or attempt.is_last_turn:
                is_tried = True
            if attempt.is_last_turn and history.holds(attempt):
                is_through = True
        if is_tried:
            marks.append((sample, is_through))
    if not marks:
        return None
    return mask.rates.of(marks)


def _up_to(budget: int, steps: Sequence[int]) -> list[int]:
    """Return the numbers of tries up to the budget, the budget included."""
    return [k for k in sorted({*steps, budget}) if k <= budget]


def _rounds_reached(mask: AttackMask) -> list[str]:
    """Name the rounds that some attack came to, in order."""
    reached = mask.rounds | {"R0", "R1"}
    if mask.records.attacker:
        reached.add("R5")
    return [name for name in ROUNDS if name in reached]


def _round_rate(mask: AttackMask, name: str) -> RoundRate:
    return RoundRate(
        name=name,
        strict=mask.rate(mask.bypassed(name, STRICT)),
        full=mask.rate(mask.bypassed(name, FULL)),
    )


def _curves(mask: AttackMask, tries: Sequence[int]) -> tuple[ArmCurve, ...]:
    """Return the success of each arm by tries; of the adaptive one alone without controls."""
    curves = []
    for name, arm in NAMED_ARMS:
        if arm != ADAPTIVE and not mask.records.has_controls:
            continue
        points: list[tuple[int, float]] = []
        if mask.places:
            points = [(k, float(mask.by(arm, k).mean())) for k in tries]
        at_budget = mask.rate(mask.by(arm, mask.records.budget))
        curves.append(ArmCurve(arm=name, points=tuple(points), at_budget=at_budget))
    return tuple(curves)


def _reliability(mask: AttackMask) -> Estimate | None:
    """Estimate how often a pass passed again, of attacks that count."""
    if not mask.records.again:
        return None
    counted = set(mask.places)
    return mask.rates.of(
        (sample, passed) for sample, passed in mask.records.again if sample in counted
    )


def _survival(mask: AttackMask, budget: int) -> tuple[SurvivalCurve | None, RestrictedMean | None]:
    """Estimate how many tries a bypass takes, of attacks that were blocked at first."""
    spent = SearchTimes(mask)
    if not spent.times.size:
        return None, None
    curve = kaplan_meier(
        spent.times, spent.bypassed, groups=spent.groups, confidence=mask.confidence
    )
    mean = restricted_mean(
        spent.times,
        spent.bypassed,
        horizon=min(float(budget), float(spent.times.max())),
        groups=spent.groups,
        confidence=mask.confidence,
    )
    return curve, mean


def _gains(mask: AttackMask, tries: Sequence[int]) -> tuple[tuple[int, Difference], ...]:
    """Compare the adaptive arm with the blind one at equal tries."""
    if not mask.records.has_controls:
        return ()
    gains = []
    for k in tries_compared(tries):
        gains.append((k, mask.difference(mask.by(ADAPTIVE, k), mask.by(BLIND, k))))
    return tuple(gains)


def _gain_in_all(mask: AttackMask) -> Difference | None:
    """Compare the two within as many calls, those that taught the search included."""
    if not mask.records.has_controls:
        return None
    budget = mask.records.budget
    return mask.difference(mask.within(budget), mask.by(BLIND, budget))


def _null_gain(mask: AttackMask) -> Difference | None:
    """Say what sending the same text again brings."""
    if not mask.records.has_controls:
        return None
    return mask.difference(mask.by(NULL, mask.records.budget), mask.static)


def _blind(
    mask: AttackMask, tries: Sequence[int]
) -> tuple[tuple[tuple[int, Ratio], ...], Extrapolation | None, int]:
    """Estimate success of exchangeable tries; an attack that passes as it is always passes."""
    counts = mask.blind_counts()
    if not counts or min(tried for tried, _ in counts) < 1:
        return (), None, 0
    tried, wins = np.array(counts).T
    ahead = _AHEAD * mask.records.budget
    groups, confidence = mask.groups, mask.confidence
    rates = []
    for k in tries:
        rate = attack_success_at(tried, wins, k=k, groups=groups, confidence=confidence)
        rates.append((k, rate))
    guess = extrapolate_success(tried, wins, k=ahead, groups=groups, confidence=confidence)
    return tuple(rates), guess, ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptivePair:
    """Two defenses under the same attacker, over the attacks that both answered.

    Attributes:
        first: Name of one.
        second: Name of the other.
        attacks: Attacks that both answered as they are.
        area: First minus second; above 0 the first is bypassed sooner. Its test permutes groups.
        outcome: Share bypassed by the end, first minus second. Its test: McNemar's, or its form for
            groups.
        area_adjusted: P of the area, Holm over all pairs of the run, or None without a test.
        outcome_adjusted: The same for the outcome.
    """

    first: str
    second: str
    attacks: int
    area: Difference
    outcome: Difference
    area_adjusted: float | None = None
    outcome_adjusted: float | None = None


def compare_adaptive(
    cards: Sequence[AdaptiveCard], *, confidence: float
) -> tuple[AdaptivePair, ...]:
    """Compare every two defenses that the same attacker attacked, attack by attack."""
    pairs = [_pair(*both, confidence=confidence) for both in combinations(cards, 2)]
    areas = holm([pair.area.p_value for pair in pairs])
    outcomes = holm([pair.outcome.p_value for pair in pairs])
    adjusted = []
    for pair, area, outcome in zip(pairs, areas, outcomes, strict=True):
        adjusted.append(replace(pair, area_adjusted=area, outcome_adjusted=outcome))
    return tuple(adjusted)


def _pair(one: AdaptiveCard, other: AdaptiveCard, *, confidence: float) -> AdaptivePair:
    """Compare two defenses over the attacks that both answered."""
    by_sample = {time.sample: time for time in other.area.fates}
    of_one, of_other = [], []
    for time in one.area.fates:
        if time.sample in by_sample:
            of_one.append(time)
            of_other.append(by_sample[time.sample])
    groups = [time.group for time in of_one]
    area = area_difference(
        _areas(of_one, one.budget),
        _areas(of_other, one.budget),
        groups=groups,
        confidence=confidence,
    )
    return AdaptivePair(
        first=one.name,
        second=other.name,
        attacks=area.pairs,
        area=area,
        outcome=grouped_difference(
            [time.bypassed for time in of_one],
            [time.bypassed for time in of_other],
            groups=groups,
            confidence=confidence,
        ),
    )


def _areas(times: Sequence[SurvivalTime], budget: int) -> NDArray[np.float64]:
    """Return the area of each attack: how soon it passed within the budget."""
    tries = [time.adaptive or 0 for time in times]
    bypassed = [time.adaptive is not None for time in times]
    return areas_of(tries, bypassed, budget=budget)
