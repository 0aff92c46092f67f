"""The rule that ends a run early, and what may be said of a run that it ended.

A look is taken after each hundredth of the groups, which are asked about in a seeded random order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from guardmark.config.stop_rules import StopKind, statements_for
from guardmark.core.estimate import Difference, Estimate
from guardmark.core.values import dataclass
from guardmark.stats.drawing import order_groups
from guardmark.stats.sequential import (
    beta_mixture_sequence,
    betting_e_value,
    betting_sequence,
    mcnemar_e_value,
)
from guardmark.stats.stopped_value import LookBounds, median_unbiased
from guardmark.store.columns import record_columns, sample_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from guardmark.config.stop_rules import StopStatement
    from guardmark.stats.arguments import Flags, Floats, Ints
    from guardmark.stats.sequential import EValue
    from guardmark.store.columns import SampleColumns
    from guardmark.store.reader import RecordReader

_MISSING: Final = -1
_BLOCK: Final = 1
_LOOKS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StopVerdict:
    """How a rule was decided for a defense.

    Attributes:
        statement: The rule.
        answer: `yes`, `no` or `reached`.
        groups: Groups seen by then.
    """

    DERIVED: ClassVar = ("sentence",)

    statement: StopStatement = field(metadata={"json": {"rule": "said"}})
    answer: str
    look: int = field(metadata={"json": False})
    groups: int

    @property
    def sentence(self) -> str:
        """The decision in words."""
        rule, name = self.statement.said, self.statement.defense
        about = ""
        if not rule.startswith((f"{name}.", f"{name}!")):
            about = f"{name}: "
        return f"{about}{rule} {self.answer} after {self.groups:,} groups"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """In which order samples are asked about, and when one looks.

    Attributes:
        order: Positions of samples, whole groups in seeded random order.
        groups: Number of each sample's group in that order, by position.
        is_attack: Labels, by position.
        bounds: How many samples of the order each look covers, rising.
    """

    order: array[int]
    groups: Ints
    is_attack: Flags
    bounds: tuple[int, ...]


class EarlyStop:
    """Says which defense needs no more answers; neither speed nor interruptions move a decision."""

    def __init__(
        self,
        schedule: Schedule,
        statements: Sequence[StopStatement],
        *,
        defenses: Sequence[str],
        confidence: float = 0.95,
    ) -> None:
        self.schedule = schedule
        self.statements = tuple(statements)
        self.verdicts: dict[StopStatement, StopVerdict] = {}
        self._confidence = confidence
        self._positions = np.frombuffer(schedule.order, dtype=np.int64)
        blank = bytes([255]) * len(schedule.order)
        self._outcomes = {name: array("b", blank) for name in defenses}
        self._filled = dict.fromkeys(defenses, 0)
        self._looked = dict.fromkeys(defenses, 0)
        self._limits: defaultdict[tuple[str, bool], list[tuple[float, float]]] = defaultdict(list)
        self._largest = {}  # samples of the largest group, of attacks and of benign samples
        for label in (True, False):
            sizes = np.bincount(schedule.groups[schedule.is_attack == label])
            self._largest[label] = int(sizes.max(initial=0))

    @property
    def order(self) -> Sequence[int]:
        """Positions of samples in the order in which they must be asked about."""
        return self.schedule.order

    def observe(self, defense: str, position: int, outcome: int) -> None:
        """Take note of one decision."""
        outcomes, order = self._outcomes[defense], self.schedule.order
        outcomes[position] = outcome
        at = self._filled[defense]
        if order[at] != position:
            return
        while at < len(order) and outcomes[order[at]] != _MISSING:
            at += 1
        self._filled[defense] = at
        self._look(defense)

    def load(self, defense: str, positions: Ints, outcomes: NDArray[np.int8]) -> None:
        """Take note of everything a defense decided before."""
        known = np.frombuffer(self._outcomes[defense], dtype=np.int8)
        known[positions] = outcomes
        gaps = np.flatnonzero(known[self._positions] == _MISSING)
        self._filled[defense] = len(self._positions)
        if gaps.size:
            self._filled[defense] = int(gaps[0])
        self._look(defense)

    def is_done(self, defense: str) -> bool:
        """Tell whether every rule about a defense is decided; without a rule it never is."""
        about = self._about(defense)
        return bool(about) and all(rule in self.verdicts for rule in about)

    def watches(self, defense: str) -> bool:
        """Tell whether a rule could end a defense: then only what holds at any look covers."""
        return bool(self._about(defense))

    def _about(self, defense: str) -> list[StopStatement]:
        return [rule for rule in self.statements if rule.is_about(defense)]

    def reason(self) -> str:
        """Say why the run may end: every defense is done; empty while one is not."""
        if not all(self.is_done(name) for name in self._outcomes):
            return ""
        return "; ".join(verdict.sentence for verdict in self.verdicts.values())

    def stopped(self, defense: str) -> tuple[StopVerdict, ...]:
        """Return why a defense was not asked to the end."""
        if self._filled[defense] == len(self._positions) or not self.is_done(defense):
            return ()
        return tuple(self.verdicts[rule] for rule in self.verdicts if rule.is_about(defense))

    def estimate(self, defense: str, *, is_attack: bool, look: int | None = None) -> Estimate:
        """Estimate an error rate of a watched defense, with an interval that holds at any look."""
        if look is None:
            look = self._last_look(defense)
        estimate = self._at(defense, look, is_attack=is_attack)
        if self._largest[is_attack] > 1 or estimate.value is None:
            return estimate
        limits = self._limits[defense, is_attack]
        while len(limits) <= look:  # what a look covers does not change any more
            at = self._at(defense, len(limits), is_attack=is_attack)
            low, high = 0.0, 1.0
            if limits:
                low, high = limits[-1]
            if at.low is not None and at.high is not None:
                low, high = max(low, at.low), min(high, at.high)
            limits.append((low, high))
        # Where looks rule each other out the limits change places: they then still cover.
        return replace(estimate, low=min(limits[look]), high=max(limits[look]))

    def final_estimate(self, defense: str, *, is_attack: bool) -> Estimate:
        """Estimate an error rate as a report tells it: limits of any look, a value without lean.

        Where one rule about this rate could end the defense, the share that was seen leans away
        from its limit, and the median-unbiased value stands for it. Groups of several samples keep
        the share: bets leave no table of endings to count.
        """
        rate = self.estimate(defense, is_attack=is_attack)
        rule = self._only_rule(defense, is_attack=is_attack)
        if rule is None or rate.low is None or rate.high is None or self._largest[is_attack] > 1:
            return rate
        last, first = self._last_look(defense), 0
        for other in self._about(defense):  # nothing ends it before they all are decided
            if other != rule:
                first = max(first, self.verdicts[other].look)
        value = median_unbiased(
            [self._bounds(defense, rule, look) for look in range(last + 1)],
            rate.successes,
            between=(rate.low, rate.high),
            first=min(first, last),
        )
        return replace(rate, unbiased=value, method=f"{rate.method}, median-unbiased value")

    def _only_rule(self, defense: str, *, is_attack: bool) -> StopStatement | None:
        """Return the one rule about a rate that could end a defense, or None.

        While another rule about the defense stays open nothing ends it, and the share has no lean.
        """
        about = self._about(defense)
        of_rate = [rule for rule in about if rule.is_attack == is_attack]
        if len(of_rate) != 1 or of_rate[0].kind is not StopKind.BELOW:
            return None
        only = of_rate[0]
        if any(rule not in self.verdicts for rule in about if rule != only):
            return None
        is_at_end = self._filled[defense] == len(self._positions)
        if only in self.verdicts or is_at_end:
            return only
        return None

    def _bounds(self, defense: str, rule: StopStatement, look: int) -> LookBounds:
        """Return with how many errors a look decides a rule."""
        trials = self._decided(defense, is_attack=rule.is_attack, look=look)[0].shape[1]

        def is_not_below(errors: int) -> bool:
            rate = beta_mixture_sequence(errors, trials, confidence=self._confidence)
            return rate.high is None or rate.high >= rule.limit

        def is_above(errors: int) -> bool:
            rate = beta_mixture_sequence(errors, trials, confidence=self._confidence)
            return rate.low is not None and rate.low >= rule.limit

        counts = range(trials + 1)
        low = bisect_left(counts, x=True, key=is_not_below) - 1
        return LookBounds(trials, low, bisect_left(counts, x=True, key=is_above))

    def difference(self, first: str, second: str, *, is_attack: bool) -> Difference:
        """Compare two defenses on the groups both have answered, valid at any look."""
        look = min(self._last_look(first), self._last_look(second))
        pairs, groups, evidence = self._paired(first, second, is_attack=is_attack, look=look)
        gaps, sizes = _by_group(pairs, groups)
        sequence = betting_sequence(
            (gaps + sizes) / 2, sizes, largest=self._largest[is_attack], confidence=self._confidence
        )
        low, high = sequence.low, sequence.high
        if low is not None and high is not None:
            low, high = 2 * low - 1, 2 * high - 1
        difference = Difference(
            value=None,
            low=low,
            high=high,
            confidence=self._confidence,
            method="betting sequence on paired differences",
            p_value=None,
            test="",
            pairs=len(pairs),
            groups=len(sizes),
            first_only=int((pairs > 0).sum()),
            second_only=int((pairs < 0).sum()),
            reason="no pairs",
        )
        if not pairs.size:
            return difference
        value, p_value = float(pairs.mean()), evidence.p_value
        return replace(difference, value=value, p_value=p_value, test="paired e-value", reason="")

    def _last_look(self, defense: str) -> int:
        """Return the look that decided the last rule of a stopped defense, else the latest."""
        looks = [verdict.look for verdict in self.stopped(defense)]
        return max(looks, default=self._looked[defense] - 1)

    def _look(self, defense: str) -> None:
        """Take every look at a defense that its answers reach by now."""
        bounds = self.schedule.bounds
        for look in range(self._looked[defense], len(bounds)):
            if self._filled[defense] < bounds[look]:
                return
            self._looked[defense] = look + 1
            for rule in self._about(defense):
                if rule not in self.verdicts:
                    self._ask(rule, look)

    def _ask(self, rule: StopStatement, look: int) -> None:
        """Decide a rule at a look, if the look decides it."""
        if rule.kind is StopKind.DIFFERENT:
            look = min(self._looked[rule.defense], self._looked[rule.other]) - 1
            _, _, evidence = self._paired(rule.defense, rule.other, is_attack=True, look=look)
            answer = ""
            if evidence.p_value <= 1 - self._confidence:
                answer = "yes"
        else:
            answer = _answer(rule, self.estimate(rule.defense, is_attack=rule.is_attack, look=look))
        if answer:
            seen = int(self.schedule.groups[self._seen(look)[-1]]) + 1
            self.verdicts[rule] = StopVerdict(statement=rule, answer=answer, look=look, groups=seen)

    def _seen(self, look: int) -> Ints:
        """Return the positions that a look covers; look -1 covers none."""
        if look < 0:
            return self._positions[:0]
        return self._positions[: self.schedule.bounds[look]]

    def _at(self, defense: str, look: int, *, is_attack: bool) -> Estimate:
        """Estimate an error rate from what a look covers, with an interval for any look."""
        (erred,), groups = self._decided(defense, is_attack=is_attack, look=look)
        successes, largest = int(erred.sum()), self._largest[is_attack]
        confidence = self._confidence
        if largest <= 1:
            return beta_mixture_sequence(successes, len(erred), confidence=confidence)
        events, sizes = _by_group(erred.astype(np.float64), groups)
        rate = betting_sequence(events, sizes, largest=largest, confidence=confidence)
        group_mean = None
        if sizes.size:
            group_mean = float((events / sizes).mean())
        return Estimate(
            successes=successes,
            trials=len(erred),
            low=rate.low,
            high=rate.high,
            confidence=confidence,
            method=rate.method,
            groups=rate.groups,
            group_mean=group_mean,
            reason=rate.reason,
        )

    def _decided(self, *defenses: str, is_attack: bool, look: int) -> tuple[Flags, Ints]:
        """Return who erred on the samples of a label that all decided, a row each; the groups."""
        at = self._seen(look)
        at = at[self.schedule.is_attack[at] == is_attack]
        outcomes = np.empty((len(defenses), len(at)), dtype=np.int8)
        for row, name in enumerate(defenses):
            outcomes[row] = np.frombuffer(self._outcomes[name], dtype=np.int8)[at]
        decided = ((outcomes >= 0) & (outcomes <= _BLOCK)).all(axis=0)
        return (outcomes[:, decided] == _BLOCK) != is_attack, self.schedule.groups[at[decided]]

    def _paired(
        self, first: str, second: str, *, is_attack: bool, look: int
    ) -> tuple[Floats, Ints, EValue]:
        """Return 1, 0 or -1 for each sample both decided: who alone erred; groups; the evidence."""
        (one, two), groups = self._decided(first, second, is_attack=is_attack, look=look)
        pairs, largest = one.astype(np.float64) - two, self._largest[is_attack]
        if largest <= 1:
            return pairs, groups, mcnemar_e_value(int((pairs > 0).sum()), int((pairs < 0).sum()))
        return pairs, groups, betting_e_value((_by_group(pairs, groups)[0] / largest + 1) / 2)


def open_early_stop(reader: RecordReader, rules: Sequence[str]) -> EarlyStop:
    """Make the rule of a run; what is stored already is counted in."""
    manifest = reader.manifest()
    defenses = [part.name for part in manifest.parts if part.kind == "defense"]
    rule = EarlyStop(
        make_schedule(sample_columns(reader), seed=manifest.seed),
        statements_for(rules, defenses),
        defenses=defenses,
        confidence=manifest.confidence,
    )
    stored = set(reader.defenses())
    for name in defenses:
        if name in stored:
            records = record_columns(reader, name)
            rule.load(name, records.sample, records.outcome)
    return rule


def _by_group(values: Floats, groups: Ints) -> tuple[Floats, Floats]:
    """Return the sum and the number of values of each group that has any, in their order."""
    sizes, sums = np.bincount(groups), np.bincount(groups, weights=values)
    return sums[sizes > 0].astype(np.float64), sizes[sizes > 0].astype(np.float64)


def _answer(rule: StopStatement, rate: Estimate) -> str:
    """Return how a rate decides a rule about it; empty while it does not."""
    if rate.low is None or rate.high is None:
        return ""
    if rule.kind is StopKind.WIDTH:
        if (rate.high - rate.low) / 2 <= rule.limit:
            return "reached"
        return ""
    if rate.high < rule.limit:
        return "yes"
    if rate.low >= rule.limit:
        return "no"
    return ""


def make_schedule(samples: SampleColumns, *, seed: int) -> Schedule:
    """Put whole groups in a seeded random order, a look after each hundredth of them."""
    names = samples.group.names
    rank = {name: at for at, name in enumerate(order_groups(names, seed=seed))}
    groups = np.array([rank[name] for name in names], dtype=np.int64)[samples.group.codes]
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups, minlength=len(rank)))
    step = max(1, len(rank) // _LOOKS)
    bounds = [int(ends[groups_seen - 1]) for groups_seen in range(step, len(rank), step)]
    if rank:  # the last look covers everything
        bounds.append(int(ends[-1]))
    return Schedule(
        order=array("q", order.astype(np.int64).tobytes()),
        groups=groups,
        is_attack=np.asarray(samples.is_attack),
        bounds=tuple(bounds),
    )
