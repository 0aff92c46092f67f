"""The rule that ends a run early, and what may be said of a run that it ended.

Samples are asked about in a seeded random order of whole groups. A look is taken each time the
first one, two, ... hundredths of the groups are answered without a gap, and counts these groups
alone. So neither which answer is faster nor where a run was interrupted moves a decision.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import numpy as np

from guardmark.analysis.stopping.rules import StopKind, statements_for
from guardmark.core.estimate import Difference, Estimate
from guardmark.stats.drawing import order_groups
from guardmark.stats.sequential import (
    beta_mixture_sequence,
    betting_e_value,
    betting_sequence,
    mcnemar_e_value,
)
from guardmark.store.columns import record_columns, sample_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.stopping.rules import StopStatement
    from guardmark.stats.sequential import EValue
    from guardmark.store.columns import SampleColumns
    from guardmark.store.reader import RecordReader


_MISSING: Final = -1
_BLOCK: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StopVerdict:
    """How a rule was decided for a defense.

    Attributes:
        statement: The rule.
        answer: `yes`, `no` or `reached`.
        look: After which look, from 0.
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
        about = "" if rule.startswith((f"{name}.", f"{name}!")) else f"{name}: "
        return f"{about}{rule} {self.answer} after {self.groups:,} groups"


class _Running(NamedTuple):
    look: int
    low: float
    high: float


class EarlyStop:
    """Watches the answers of a run and says which defense needs no more.

    Attributes:
        schedule: Order of samples, and looks.
        statements: The rules, spelled out by defense.
        verdicts: What was decided so far.
    """

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
        self._running: dict[tuple[str, bool], _Running] = {}
        self._single = {label: schedule.is_single(is_attack=label) for label in (True, False)}

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

    def load(self, defense: str, positions: NDArray[np.int64], outcomes: NDArray[np.int8]) -> None:
        """Take note of everything a defense decided before."""
        known = np.frombuffer(self._outcomes[defense], dtype=np.int8)
        known[positions] = outcomes
        gaps = np.flatnonzero(known[self._positions] == _MISSING)
        self._filled[defense] = int(gaps[0]) if gaps.size else len(self._positions)
        self._look(defense)

    def is_done(self, defense: str) -> bool:
        """Tell whether every rule about a defense is decided; without a rule it never is."""
        about = [rule for rule in self.statements if defense in {rule.defense, rule.other}]
        return bool(about) and all(rule in self.verdicts for rule in about)

    def reason(self) -> str:
        """Say why the run may end: every defense is done; empty while one is not."""
        if not all(self.is_done(name) for name in self._outcomes):
            return ""
        return "; ".join(verdict.sentence for verdict in self.verdicts.values())

    def stopped(self, defense: str) -> tuple[StopVerdict, ...]:
        """Return why a defense was not asked to the end."""
        if self._filled[defense] == len(self._positions) or not self.is_done(defense):
            return ()
        return tuple(
            verdict
            for rule, verdict in self.verdicts.items()
            if defense in {rule.defense, rule.other}
        )

    def estimate(self, defense: str, *, is_attack: bool) -> Estimate:
        """Estimate an error rate of a stopped defense, with an interval that holds at any look."""
        look = self._last_look(defense)
        return self._estimate(defense, look, is_attack=is_attack)

    def difference(self, first: str, second: str, *, is_attack: bool) -> Difference:
        """Compare two defenses on the groups both have answered, valid at any look."""
        look = min(self._last_look(first), self._last_look(second))
        pairs, groups = self._pairs(first, second, is_attack=is_attack, look=look)
        only = (int((pairs > 0).sum()), int((pairs < 0).sum()))
        means = _means(pairs, groups)
        found = betting_sequence((means + 1) / 2, confidence=self._confidence)
        evidence = self._evidence(pairs, groups, is_attack=is_attack)
        low, high = found.low, found.high
        return Difference(
            value=float(means.mean()) if means.size else None,
            low=None if low is None else 2 * low - 1,
            high=None if high is None else 2 * high - 1,
            confidence=self._confidence,
            method="betting sequence on the differences of groups",
            p_value=evidence.p_value if pairs.size else None,
            test="paired e-value" if pairs.size else "",
            pairs=len(pairs),
            groups=len(means),
            first_only=only[0],
            second_only=only[1],
            reason="" if pairs.size else "no pairs",
        )

    def _last_look(self, defense: str) -> int:
        """Return the look that decided the last rule of a stopped defense, else the latest."""
        looks = [verdict.look for verdict in self.stopped(defense)]
        return max(looks, default=self._looked[defense] - 1)

    # --- looking ---------------------------------------------------------------------------

    def _look(self, defense: str) -> None:
        bounds = self.schedule.bounds
        while (look := self._looked[defense]) < len(bounds):
            if self._filled[defense] < bounds[look]:
                return
            self._looked[defense] = look + 1
            for rule in self.statements:
                if rule not in self.verdicts and defense in {rule.defense, rule.other}:
                    self._ask(rule, look)

    def _ask(self, rule: StopStatement, look: int) -> None:
        if rule.kind is StopKind.DIFFERENT:
            look = min(self._looked[rule.defense], self._looked[rule.other]) - 1
            answer = self._differ(rule, look) if look >= 0 else ""
        else:
            answer = _answer(rule, self._estimate(rule.defense, look, is_attack=rule.is_attack))
        if answer:
            groups = int(self.schedule.groups[self.schedule.order[self._end(look) - 1]]) + 1
            self.verdicts[rule] = StopVerdict(
                statement=rule, answer=answer, look=look, groups=groups
            )

    def _differ(self, rule: StopStatement, look: int) -> str:
        pairs, groups = self._pairs(rule.defense, rule.other, is_attack=True, look=look)
        evidence = self._evidence(pairs, groups, is_attack=True)
        return "yes" if evidence.p_value <= 1 - self._confidence else ""

    def _end(self, look: int) -> int:
        return self.schedule.bounds[look] if look >= 0 else 0

    def _estimate(self, defense: str, look: int, *, is_attack: bool) -> Estimate:
        erred, groups = self._errors(defense, is_attack=is_attack, look=look)
        if not self._single[is_attack]:
            return self._group_estimate(erred, groups)
        found = self._at(int(erred.sum()), len(erred))
        key = (defense, is_attack)
        before = self._running.get(key, _Running(-1, 0.0, 1.0))
        if before.look > look:
            before = _Running(-1, 0.0, 1.0)
        for earlier in range(before.look + 1, look):
            seen, _ = self._errors(defense, is_attack=is_attack, look=earlier)
            before = _narrowed(before, self._at(int(seen.sum()), len(seen)), earlier)
        if found.value is None:
            return found
        now = _narrowed(before, found, look)
        self._running[key] = now
        # Where looks rule each other out the limits change places: they then still cover.
        return replace(found, low=min(now.low, now.high), high=max(now.low, now.high))

    def _at(self, successes: int, trials: int) -> Estimate:
        return beta_mixture_sequence(successes, trials, confidence=self._confidence)

    def _group_estimate(self, erred: NDArray[np.bool_], groups: NDArray[np.int64]) -> Estimate:
        found = betting_sequence(
            _means(erred.astype(np.float64), groups), confidence=self._confidence
        )
        return Estimate(
            successes=int(erred.sum()),
            trials=len(erred),
            low=found.low,
            high=found.high,
            confidence=self._confidence,
            method=found.method,
            groups=found.groups,
            group_mean=found.value,
            reason=found.reason,
        )

    def _errors(
        self, defense: str, *, is_attack: bool, look: int
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return who erred, among the answered samples of a label, and their groups."""
        at = self._positions[: self._end(look)]
        at = at[self.schedule.is_attack[at] == is_attack]
        outcome = np.frombuffer(self._outcomes[defense], dtype=np.int8)[at]
        answered = (outcome >= 0) & (outcome <= _BLOCK)
        at, outcome = at[answered], outcome[answered]
        return (outcome == _BLOCK) != is_attack, self.schedule.groups[at]

    def _pairs(
        self, first: str, second: str, *, is_attack: bool, look: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return 1, 0 or -1 for each sample both answered: who alone erred; and the groups."""
        at = self._positions[: self._end(look)]
        at = at[self.schedule.is_attack[at] == is_attack]
        one, two = (
            np.frombuffer(self._outcomes[name], dtype=np.int8)[at] for name in (first, second)
        )
        both = (one >= 0) & (one <= _BLOCK) & (two >= 0) & (two <= _BLOCK)
        blocked = (one[both] == _BLOCK).astype(float) - (two[both] == _BLOCK)
        return -blocked if is_attack else blocked, self.schedule.groups[at[both]]

    def _evidence(
        self, pairs: NDArray[np.float64], groups: NDArray[np.int64], *, is_attack: bool
    ) -> EValue:
        if self._single[is_attack]:
            return mcnemar_e_value(int((pairs > 0).sum()), int((pairs < 0).sum()))
        return betting_e_value((_means(pairs, groups) + 1) / 2)


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


def _means(values: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean of each group that has values, in the order of groups."""
    if not values.size:
        return np.empty(0)
    sizes = np.bincount(groups)
    sums = np.bincount(groups, weights=values)
    has = sizes > 0
    means: NDArray[np.float64] = sums[has] / sizes[has]
    return means


def _narrowed(before: _Running, found: Estimate, look: int) -> _Running:
    if found.low is None or found.high is None:
        return _Running(look, before.low, before.high)
    return _Running(look, max(before.low, found.low), min(before.high, found.high))


def _answer(rule: StopStatement, found: Estimate) -> str:
    if found.low is None or found.high is None:
        return ""
    if rule.kind is StopKind.WIDTH:
        return "reached" if (found.high - found.low) / 2 <= rule.limit else ""
    if found.high < rule.limit:
        return "yes"
    return "no" if found.low >= rule.limit else ""


_LOOKS: Final = 100


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
    groups: NDArray[np.int64]
    is_attack: NDArray[np.bool_]
    bounds: tuple[int, ...]

    def is_single(self, *, is_attack: bool) -> bool:
        """Tell whether no two samples of a label share a group."""
        counts = np.bincount(self.groups[self.is_attack == is_attack])
        return bool(counts.max(initial=0) <= 1)


def make_schedule(samples: SampleColumns, *, seed: int) -> Schedule:
    """Put whole groups in a seeded random order, a look after each hundredth of them."""
    names = samples.group.names
    rank = {name: at for at, name in enumerate(order_groups(names, seed=seed))}
    groups = np.array([rank[name] for name in names], dtype=np.int64)[samples.group.codes]
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups, minlength=len(rank)))
    step = max(1, len(rank) // _LOOKS)
    at = [*range(step, len(rank), step), len(rank)]
    return Schedule(
        order=array("q", order.astype(np.int64).tobytes()),
        groups=groups,
        is_attack=np.asarray(samples.is_attack),
        bounds=tuple(int(ends[groups_seen - 1]) for groups_seen in at) if rank else (),
    )
