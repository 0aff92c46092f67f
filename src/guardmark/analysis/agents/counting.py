"""Cases of agents counted: rates over tasks and injections, pairs of arms, and what guards did."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass
from guardmark.stats.paired.amounts import amounts_over_these, crossed_amounts
from guardmark.stats.paired.crossed import crossed_difference
from guardmark.stats.quantiles import estimate_quantiles
from guardmark.stats.rates.crossed import crossed_rate, rate_over_these
from guardmark.stats.time_series import autocorrelation_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from guardmark.analysis.agents.cases import CaseRow, CasesOfArm
    from guardmark.core.estimate import Difference, Estimate
    from guardmark.core.place import Place
    from guardmark.stats.figures import Quantile
    from guardmark.stats.paired.amounts import AmountDifference

    Amounts = Sequence[tuple[float, float]]
    Property = Callable[[CaseRow], bool]

_SHARES: Final = (0.5, 0.95)
NO_GUARD_STOPPED: Final = "no guard"
"""What stopped an attack that nobody blocked: the agent did not follow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardPlace:
    """What one guard did at one place of an arm.

    Attributes:
        place: Where it looks.
        guard: Name of the guard.
        stopped: Attacks that ended here.
        attacks: Attacks that ended without the injection being done.
        false_blocks: Benign cases in which it blocked something here.
        benign_texts: Texts of benign cases that it was shown here and blocked.
        rewritten: Texts that it wrote anew.
        changed: Definitions of tools that it told otherwise than in an earlier list.
        flagged: Texts that it flagged and let on.
        failed: Texts about which it gave no decision.
        calls: How often it was asked.
    """

    place: str
    guard: str
    stopped: int
    attacks: int
    false_blocks: Estimate
    benign_texts: Estimate
    rewritten: int
    changed: int
    flagged: int
    failed: int
    calls: int
    latency_ms: tuple[Quantile, ...] = field(metadata={"json": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCounting:
    """Counts cases at one confidence."""

    confidence: float

    def by_task(self, rows: Sequence[CaseRow], has: Property) -> Estimate:
        """Estimate a rate over tasks like these, and these injections."""
        tasks = number_levels((row.case.suite, row.case.task) for row in rows)
        return rate_over_these([has(row) for row in rows], groups=tasks, confidence=self.confidence)

    def crossed(self, rows: Sequence[CaseRow], has: Property) -> Estimate:
        """Estimate a rate over tasks and injections like these."""
        return crossed_rate(
            [has(row) for row in rows], **_factors(rows), confidence=self.confidence
        )

    def difference(
        self, pairs: Sequence[tuple[CaseRow, CaseRow]], has: Property, *, is_attack: bool
    ) -> Difference:
        """Return how much more often the first of each pair has a property."""
        ours = [has(row) and not has(other) for row, other in pairs]
        theirs = [has(other) and not has(row) for row, other in pairs]
        rows = [row for row, _ in pairs]
        factors = _factors(rows)
        if not is_attack:
            # Tasks alone meet no injection: each is a level of its own, and so is each repeat.
            factors["second"] = number_levels(range(len(rows)))
        return crossed_difference(ours, theirs, **factors, confidence=self.confidence)

    def amounts_by_task(
        self, rows: Sequence[CaseRow], amounts: Amounts, *, in_time: bool
    ) -> AmountDifference:
        """Return how much more the first of two arms spends, over tasks like these."""
        tasks = number_levels((row.case.suite, row.case.task) for row in rows)
        ours, theirs = _columns(amounts)
        return amounts_over_these(
            ours,
            theirs,
            groups=tasks,
            autocorrelation=_alike_in_time(amounts, in_time=in_time),
            confidence=self.confidence,
        )

    def amounts_crossed(
        self, rows: Sequence[CaseRow], amounts: Amounts, *, in_time: bool
    ) -> AmountDifference:
        """Return how much more the first of two arms spends, over tasks and injections like these.

        Times hang together in the order of the cases, so these are worth fewer than they are.
        """
        ours, theirs = _columns(amounts)
        return crossed_amounts(
            ours,
            theirs,
            **_factors(rows),
            autocorrelation=_alike_in_time(amounts, in_time=in_time),
            confidence=self.confidence,
        )

    def quantiles(self, times: Sequence[float]) -> tuple[Quantile, ...]:
        """Return median and 95th percentile of times."""
        return tuple(estimate_quantiles(times, _SHARES, confidence=self.confidence))

    def place(
        self, arm: CasesOfArm, place: Place, guard: str, *, ended: Sequence[CaseRow]
    ) -> GuardPlace:
        """Count what a guard did at a place; `ended` are the attacks that it may have stopped."""
        benign = [row for row in arm.rows if not row.case.is_attack and row.is_decided]
        actions: Counter[str] = Counter()
        times = []
        texts: list[tuple[CaseRow, bool]] = []
        for row in arm.rows:
            for step in row.guard_steps:
                if (step.place, step.guard) != (place, guard):
                    continue
                actions[step.action] += 1
                if step.latency_ns is not None:
                    times.append(step.latency_ns / 1e6)
                if not row.case.is_attack and not step.policy:
                    texts.append((row, step.action == "block"))
        return GuardPlace(
            place=place.value,
            guard=guard,
            stopped=sum(1 for row in ended if _stopped_at(row) == (place.value, guard)),
            attacks=len(ended),
            false_blocks=self.by_task(benign, lambda row: _blocks_at(row, place, guard)),
            benign_texts=self._of_texts(texts),
            rewritten=actions["rewrite"],
            changed=actions["change"],
            flagged=actions["flag"],
            failed=actions["error"] + actions["malformed"],
            calls=sum(actions.values()),
            latency_ms=self.quantiles(times),
        )

    def _of_texts(self, texts: Sequence[tuple[CaseRow, bool]]) -> Estimate:
        tasks = number_levels((row.case.suite, row.case.task) for row, _ in texts)
        return rate_over_these(
            [blocked for _, blocked in texts], groups=tasks, confidence=self.confidence
        )


def pair_cases(
    first: CasesOfArm, second: CasesOfArm, wanted: Property
) -> list[tuple[CaseRow, CaseRow]]:
    """Return the cases that both arms decided, side by side."""
    others = {(row.case.id, row.repeat): row for row in second.rows if row.is_decided}
    pairs = []
    for row in first.rows:
        other = others.get((row.case.id, row.repeat))
        if row.is_decided and other is not None and wanted(row):
            pairs.append((row, other))
    return pairs


def guards_in_order(arm: CasesOfArm) -> list[tuple[Place, str]]:
    """Return the guards of an arm as a case comes by them."""
    return [(place, name) for place, names in arm.guards.items() for name in names]


def number_levels(values: Iterable[object]) -> list[int]:
    """Number values in the order in which they first come."""
    known: dict[object, int] = {}
    return [known.setdefault(value, len(known)) for value in values]


def has_block(row: CaseRow) -> bool:
    """Tell whether any guard blocked something in a case."""
    return row.has_block


def mean(values: Sequence[int]) -> float | None:
    """Return a mean, or None of nothing."""
    if values:
        return sum(values) / len(values)
    return None


def _blocks_at(row: CaseRow, place: Place, guard: str) -> bool:
    return any(
        (step.place, step.guard, step.action) == (place, guard, "block") for step in row.guard_steps
    )


def _stopped_at(row: CaseRow) -> tuple[str, str]:
    step = row.stopped_by
    if step is None or step.place is None:
        return "", NO_GUARD_STOPPED
    return step.place.value, step.guard


def _columns(amounts: Amounts) -> tuple[list[float], list[float]]:
    return [ours for ours, _ in amounts], [theirs for _, theirs in amounts]


def _alike_in_time(amounts: Amounts, *, in_time: bool) -> float:
    if not in_time:
        return 1.0
    return autocorrelation_time([ours - theirs for ours, theirs in amounts])


def _factors(rows: Sequence[CaseRow]) -> dict[str, list[int]]:
    """Number task, injection and suite of each row."""
    return {
        "first": number_levels((row.case.suite, row.case.task) for row in rows),
        "second": number_levels((row.case.suite, row.case.injection) for row in rows),
        "strata": number_levels(row.case.suite for row in rows),
    }
