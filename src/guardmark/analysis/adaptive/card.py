"""Whether a defense holds against an attacker who watches it, and what people confirm of that."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from guardmark.analysis.adaptive.attacker import AttackerCard, read_attacker
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
from guardmark.stats.attempts.extrapolation import Extrapolation, extrapolate_success
from guardmark.stats.attempts.success_area import area_difference, areas_of
from guardmark.stats.attempts.survival import (
    RestrictedMean,
    SurvivalCurve,
    attack_success_at,
    kaplan_meier,
    restricted_mean,
)
from guardmark.stats.drawing import DrawPlan
from guardmark.stats.multiplicity import holm
from guardmark.stats.rates.corrected import audited_rate
from guardmark.stats.rates.proportion import wilson
from guardmark.store.layers import ADAPTIVE, AUDIT_PREFIX, BLIND, NULL
from guardmark.store.tries import read_tries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.analysis.adaptive.rows import AdaptiveRecords, Try
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Difference, Estimate
    from guardmark.stats.arguments import Flags, Ints
    from guardmark.stats.figures import Ratio
    from guardmark.store.reader import RecordReader

_STEPS: Final = (1, 2, 5, 10, 16, 20, 50, 64, 100, 200, 512)
_TOLD: Final = (1, 16, 64)  # search calls of which a summary tells, beside the budget
_AHEAD: Final = 4  # times the budget, as far as blind tries are extrapolated
YES: Final = "yes"
NO: Final = "no"
UNSURE: Final = "unsure"
_REPLICATES: Final = 4000
BY_RULE: Final = frozenset({"V0", "V1", "V2"})  # tiers that a rule proves
BY_WORD: Final = FULL - BY_RULE  # the other proved tiers: they rest on a judge or on a table


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

    @property
    def flags(self) -> tuple[str, ...]:
        """`RANDOMISED`, `STATEFUL`, `RATE_LIMITED`, `ERRORS_AS_BLOCK`."""
        return words_of(self.findings, "flags")

    def shares_of(self, findings: str) -> dict[str, Estimate]:
        """Return shares of the examined attacks, by what was found: `labels` or `signs`."""
        counts, every = self.findings.get(findings), int(str(self.findings.get("examined", 0)))
        pairs = counts.items() if isinstance(counts, dict) else ()
        of = {name: n if isinstance(n, list) else (min(n, every), every) for name, n in pairs}
        return {name: wilson(*each) for name, each in of.items()}

    @property
    def budget(self) -> int:
        """Search calls an attack was worth."""
        return int(str(self.settings.get("budget", 0)))

    @property
    def shares_memory(self) -> bool:
        """Whether attacks learned from each other."""
        return self.settings.get("memory", "shared") == "shared"


def analyse_adaptive(reader: RecordReader, settings: AnalysisSettings) -> tuple[AdaptiveCard, ...]:
    """Compute what adaptive measurements say, from the stored tries alone."""
    from guardmark.store.columns import sample_columns

    samples = sample_columns(reader)
    attack, group, rows = samples.is_attack, samples.group, read_target(reader)
    rates = SampleRates(group.codes, settings.confidence, group.names)
    cards = []
    for records in read_adaptive(reader):
        view, proofs = AttackMask(records, attack, rates), Proofs(records, attack.tolist())
        cards.append(
            replace(
                _card(view, attack, lengths=samples.length),
                target=None if rows is None else measure_target(rows, view),
                attacker=read_attacker(reader, records, rates),
                gradient=measure_gradient(view),
                resting=len(proofs.resting()),
                audit=read_audit_card(reader, proofs, rates=rates, seed=settings.seed),
                repaired=read_repaired(view, attack, rates),
            )
        )
    return tuple(cards)


def _card(view: AttackMask, attack: Flags, *, lengths: Ints) -> AdaptiveCard:
    records, budget, rates = view.records, view.records.budget, view.rates
    ks = [k for k in sorted({*_STEPS, budget}) if k <= budget]
    told = [k for k in sorted({*_TOLD, budget}) if k <= budget]
    reached = view.rounds | {"R0", "R1"} | ({"R5"} if records.attacker else set())
    rounds = [name for name in ROUNDS if name in reached]
    survival, mean_tries = _survival(view, budget)
    at_k, extrapolated, ahead = _blind(view, ks)
    last = view.bypassed(rounds[-1], FULL)
    counted = set(view.places)
    again = ((place, passed) for place, passed in records.again if place in counted)
    return AdaptiveCard(
        name=records.name,
        settings=records.settings,
        findings=records.findings,
        attacks=len(view.places),
        missing=int(attack.sum()) - len(view.places),
        rounds=tuple(
            RoundRate(
                name=name,
                strict=view.rate(view.bypassed(name, STRICT)),
                full=view.rate(view.bypassed(name, FULL)),
            )
            for name in rounds
        ),
        arms=tuple(
            ArmCurve(
                arm=name,
                points=tuple((k, float(view.by(arm, k).mean())) for k in ks if view.places),
                at_budget=view.rate(view.by(arm, budget)),
            )
            for name, arm in (NAMED_ARMS if records.has_controls else NAMED_ARMS[:1])
        ),
        at_calls=tuple((k, view.rate(view.by(ADAPTIVE, k))) for k in told),
        asr_at=at_k,
        gains=_gains(view, ks),
        gain_in_all=_gain_in_all(view),
        null_gain=_null_gain(view),
        delta=view.difference(last, view.static),
        battery_strict=view.rate(view.bypassed("R1", STRICT)),
        battery_full=view.rate(view.bypassed("R1", FULL)),
        survival=survival,
        mean_tries=mean_tries,
        area=measure_area(view, last=last),
        reliability=view.rates.of(again) if records.again else None,
        operators=read_operators(records, rates, lengths=lengths),
        repairs=read_repairs(records, attack, rates),
        transfers=read_transfers(records, rates),
        calls=dict(records.calls),
        costs=read_costs(records.usage, bypasses=int(last.sum()), attacks=len(view.places)),
        extrapolated=extrapolated,
        extrapolated_at=ahead,
        unanswered=records.unanswered,
        seeds=measure_seeds(view, ks),
    )


def _survival(view: AttackMask, budget: int) -> tuple[SurvivalCurve | None, RestrictedMean | None]:
    spent = SearchTimes(view)
    if not spent.times.size:
        return None, None
    horizon = min(float(budget), float(spent.times.max()))
    return (
        kaplan_meier(spent.times, spent.bypassed, groups=spent.groups, confidence=view.confidence),
        restricted_mean(
            spent.times,
            spent.bypassed,
            horizon=horizon,
            groups=spent.groups,
            confidence=view.confidence,
        ),
    )


def _gains(view: AttackMask, ks: Sequence[int]) -> tuple[tuple[int, Difference], ...]:
    """Compare the adaptive arm with the blind one at equal tries."""
    if not view.records.has_controls:
        return ()
    return tuple(
        (k, view.difference(view.by(ADAPTIVE, k), view.by(BLIND, k))) for k in tries_compared(ks)
    )


def _gain_in_all(view: AttackMask) -> Difference | None:
    """Compare the two within as many calls, those that taught the search included."""
    budget = view.records.budget
    if not view.records.has_controls:
        return None
    return view.difference(view.within(budget), view.by(BLIND, budget))


def _null_gain(view: AttackMask) -> Difference | None:
    """Say what sending the same text again brings."""
    if not view.records.has_controls:
        return None
    return view.difference(view.by(NULL, view.records.budget), view.static)


def _blind(
    view: AttackMask, ks: Sequence[int]
) -> tuple[tuple[tuple[int, Ratio], ...], Extrapolation | None, int]:
    """Estimate success of exchangeable tries; an attack that passes as it is always passes."""
    counted, ahead = view.blind_counts(), _AHEAD * view.records.budget
    if not counted or min(n for n, _ in counted) < 1:
        return (), None, 0
    tries, wins = np.array(counted).T
    groups, confidence = view.groups, view.confidence
    rates = tuple(
        (k, attack_success_at(tries, wins, k=k, groups=groups, confidence=confidence)) for k in ks
    )
    guess = extrapolate_success(tries, wins, k=ahead, groups=groups, confidence=confidence)
    return rates, guess, ahead


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
    return tuple(
        replace(pair, area_adjusted=area, outcome_adjusted=outcome)
        for pair, area, outcome in zip(pairs, areas, outcomes, strict=True)
    )


def _pair(one: AdaptiveCard, other: AdaptiveCard, *, confidence: float) -> AdaptivePair:
    by_sample = {fate.sample: fate for fate in other.area.fates}
    both = [(fate, by_sample[fate.sample]) for fate in one.area.fates if fate.sample in by_sample]
    groups = [fate.group for fate, _ in both]
    sides = [[fates[at] for fates in both] for at in (0, 1)]
    areas = [
        areas_of(
            [fate.adaptive or 0 for fate in side],
            [fate.adaptive is not None for fate in side],
            budget=one.budget,
        )
        for side in sides
    ]
    area = area_difference(*areas, groups=groups, confidence=confidence)
    bypassed = [[fate.bypassed for fate in side] for side in sides]
    return AdaptivePair(
        first=one.name,
        second=other.name,
        attacks=area.pairs,
        area=area,
        outcome=grouped_difference(*bypassed, groups=groups, confidence=confidence),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedRound:
    """What had got through by the end of a round, as far as people confirm it.

    Attributes:
        name: `R0` to `R5`.
        resting: Attacks that got through by somebody's word alone (V3, V3-table).
        valid: Of the audited ones among these: those that ask for the same.
        full: The rate of all proved tiers, its part by somebody's word times `valid`.
    """

    name: str = field(metadata={"json": "round"})
    resting: int
    valid: Estimate
    full: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCard:
    """What people say of the bypasses of one defense that rest on a judgement.

    Attributes:
        source: Name of the file they filled in.
        resting: Attacks that fell by somebody's word alone: what the sheet was drawn from.
        drawn: Of these on the sheet.
        valid: Of those answered with yes or no: those that ask for the same.
        unsure: Answered with unsure; they count in no rate.
        blank: Not answered; they count in no rate.
        tiers: `valid` for each of these tiers.
        rounds: Every round by whose end something rested on a judgement.
    """

    DERIVED: ClassVar = ("least", "most")

    source: str
    resting: int
    drawn: int
    valid: Estimate
    unsure: int
    blank: int
    tiers: tuple[tuple[str, Estimate], ...]
    rounds: tuple[AuditedRound, ...]

    @property
    def least(self) -> float | None:
        """The share of valid ones if every open item were none, or None without items."""
        return self.valid.successes / self.drawn if self.drawn else None

    @property
    def most(self) -> float | None:
        """The share of valid ones if every open item were one, or None without items."""
        rest = self.unsure + self.blank
        return (self.valid.successes + rest) / self.drawn if self.drawn else None

    def of(self, name: str) -> AuditedRound | None:
        """Return what is said of a round, or None where nothing rests on a judgement."""
        return next((each for each in self.rounds if each.name == name), None)


class Proofs:
    """How each attack that was answered at first got through: by a rule, or by somebody's word."""

    def __init__(self, records: AdaptiveRecords, is_attack: Sequence[bool]) -> None:
        self.defense = records.name
        self._by_rule: dict[int, int] = {}
        self._by_word: dict[int, Try] = {}
        for index, passed in sorted(records.baseline.items()):
            if is_attack[index]:
                histories = (records.battery.get(index), records.arms[ADAPTIVE].get(index))
                tries = [(one, each) for one in histories if one for each in one.tries]
                rounds = [ROUNDS.index(t.round) for one, t in tries if one.holds(t, BY_RULE)]
                self._by_rule[index] = 0 if passed else min(rounds, default=len(ROUNDS))
                words = ((index, each) for one, each in tries if one.holds(each, BY_WORD))
                self._by_word.update(islice(words, 1))

    def resting(self, until: int = len(ROUNDS) - 1) -> dict[int, Try]:
        """Return what got through by the end of a round, but by somebody's word alone."""
        return {
            index: each
            for index, each in self._by_word.items()
            if ROUNDS.index(each.round) <= until < self._by_rule[index]
        }

    def full(self, until: int) -> dict[int, bool]:
        """Tell what had got through, at any counted tier, by the end of a round."""
        words = self.resting(until)
        return {index: by <= until or index in words for index, by in self._by_rule.items()}


def read_audit_card(
    reader: RecordReader, proofs: Proofs, *, rates: SampleRates, seed: int
) -> AuditCard | None:
    """Count what people said of one defense's bypasses."""
    source, labels = _read(reader, proofs.defense)
    if not labels:
        return None
    resting = proofs.resting()
    items = {i: labels[i, each.text] for i, each in resting.items() if (i, each.text) in labels}
    answered = {index: word == YES for index, word in items.items() if word in {YES, NO}}
    drawing = DrawPlan(seed=seed, replicates=_REPLICATES)
    return AuditCard(
        source=source,
        resting=len(resting),
        drawn=len(items),
        valid=rates.of(answered.items()),
        unsure=sum(word == UNSURE for word in items.values()),
        blank=sum(not word for word in items.values()),
        tiers=tuple(
            (tier, rates.of((p, hit) for p, hit in answered.items() if resting[p].tier == tier))
            for tier in sorted({each.tier for each in resting.values()})
        ),
        rounds=tuple(
            AuditedRound(
                name=name,
                resting=len(held),
                valid=(valid := rates.of((p, hit) for p, hit in answered.items() if p in held)),
                full=audited_rate(
                    rates.of(proofs.full(number).items()),
                    rates.of((p, p in held) for p, fell in proofs.full(number).items() if fell),
                    valid,
                    drawing=drawing,
                ),
            )
            for number, name in enumerate(ROUNDS)
            if (held := proofs.resting(number))
        ),
    )


def _read(reader: RecordReader, defense: str) -> tuple[str, dict[tuple[int, str], str]]:
    """Return the newest sheet on a defense: its file, and place and text to what was said."""
    for layer in reversed([each for each in reader.layers() if each.startswith(AUDIT_PREFIX)]):
        labels = {
            (record.sample, record.subject.digest): str(record.subject.details["same"])
            for record in read_tries(reader, defense=defense, layer=layer)
        }
        if labels:
            return str(reader.layer_settings(layer).get("file", "")), labels
    return "", {}
