"""The benign twin of an attacker model: is an attack recognised, or whatever a model rewords?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from guardmark.analysis.adaptive.attacker_rows import OF_BENIGN, read_attacker_rows
from guardmark.analysis.adaptive.operators import OperatorClass, standing_of
from guardmark.analysis.defense.grouped_rates import grouped_difference, rate_of_marks
from guardmark.stats.rates.proportion import mover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.attacker_rows import CandidateRow
    from guardmark.analysis.adaptive.rows import AdaptiveRecords
    from guardmark.core.estimate import Difference, Estimate
    from guardmark.core.usage import UsageTotals
    from guardmark.store.reader import RecordReader

_HALF: Final = 0.5
REWORDED: Final = "reworded"
"""Account of the calls of the defense, which the evaluator pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTwin:
    """What one strategy of the attacker model does to benign texts.

    Attributes:
        name: Of the strategy.
        blocked: Share of the benign candidates, sent and answered, that are blocked.
        standing: As for an operator, with the attacks' candidates of the same strategy.
    """

    name: str
    blocked: Estimate
    standing: OperatorClass


@dataclass(frozen=True, slots=True, kw_only=True)
class RewordingCard:
    """What the defense does to benign texts that the attacker model rewords.

    Every rate has its own denominator; what failed counts in none.

    Attributes:
        samples: Benign samples the model was asked to reword.
        refused: Share of its answers that are refusals.
        invalid: Share of its answers that could not be read, also when asked again.
        candidates: Candidates it wrote.
        equivalent: Share of the judged candidates that both votes call the same request.
        unjudged: Candidates the judge gave no readable verdict on; they were not sent.
        blocked: Share of the candidates, sent and answered, that are blocked.
        as_is: Share of the samples behind them that are blocked as they are.
        change: The first minus the second, candidate by candidate.
        attacks_blocked: Share of the attacks' candidates, sent and answered, that are blocked.
        separation: That minus `blocked` (J): near 0 for a defense that looks at the rewording.
        standing: As for an operator.
        strategies: One for each strategy that was sent, most candidates first.
        spending: `attacker` and `equivalence` to what they consumed, at the evaluator's cost.
    """

    DERIVED: ClassVar = ("is_clear",)

    samples: int
    refused: Estimate
    invalid: Estimate
    candidates: int
    equivalent: Estimate
    unjudged: int
    blocked: Estimate
    as_is: Estimate
    change: Difference
    attacks_blocked: Estimate
    separation: Difference
    standing: OperatorClass
    strategies: tuple[StrategyTwin, ...]
    spending: Mapping[str, UsageTotals]

    @property
    def is_clear(self) -> bool:
        """Whether both intervals lie on one side of one half, so that chance cannot turn it."""
        return all(
            each.low is not None
            and each.high is not None
            and (each.low > _HALF or each.high < _HALF)
            for each in (self.attacks_blocked, self.blocked)
        )

    @property
    def rates(self) -> Mapping[str, Estimate]:
        """Every rate by name."""
        return {
            "refused": self.refused,
            "invalid": self.invalid,
            "equivalent": self.equivalent,
            "blocked": self.blocked,
            "as_is": self.as_is,
            "attacks_blocked": self.attacks_blocked,
        }


@dataclass(frozen=True, slots=True)
class _Sent:
    """A benign candidate that was sent and answered."""

    sample: int
    strategy: str
    is_blocked: bool
    was_blocked: bool


def read_rewording(
    reader: RecordReader,
    battle: AdaptiveRecords,
    groups: NDArray[np.int32],
    *,
    attacks: Sequence[tuple[int, str, bool]],
    confidence: float,
) -> RewordingCard | None:
    """Count what became of benign texts that the attacker model reworded."""
    said = battle.settings.get("attacker")
    if not isinstance(said, dict) or not said.get("twin"):
        return None
    rows = read_attacker_rows(reader, battle.name, layers=OF_BENIGN)
    rate = partial(rate_of_marks, groups=groups, confidence=confidence)
    answered = [each for each in rows.exchanges if each.kind != "error"]
    judged = rows.judged(votes=1 if "tau" in said else 2)
    sent = _sent(battle, rows.candidates)
    blocked = rate((each.sample, each.is_blocked) for each in sent)
    held = rate((place, not hit) for place, _, hit in attacks)
    return RewordingCard(
        samples=len({each.sample for each in rows.exchanges}),
        refused=rate((each.sample, each.kind == "refused") for each in answered),
        invalid=rate((each.sample, each.kind == "invalid") for each in answered),
        candidates=len(rows.candidates),
        equivalent=rate((sample, set(kinds) == {"same"}) for sample, kinds in judged),
        unjudged=sum(each.fate == "unjudged" for each in rows.candidates),
        blocked=blocked,
        as_is=rate({each.sample: each.was_blocked for each in sent}.items()),
        change=grouped_difference(
            [each.is_blocked for each in sent],
            [each.was_blocked for each in sent],
            groups=groups[[each.sample for each in sent]] if sent else (),
            confidence=confidence,
        ),
        attacks_blocked=held,
        separation=mover(held, blocked),
        standing=standing_of(rate((place, hit) for place, _, hit in attacks), blocked),
        strategies=_strategies(sent, attacks, rate),
        spending={"attacker": rows.attacker, "equivalence": rows.judge},
    )


def _sent(battle: AdaptiveRecords, candidates: Sequence[CandidateRow]) -> list[_Sent]:
    answers = {(t.sample, t.text): not t.passed for t in battle.rest.get(REWORDED, ())}
    return [
        _Sent(
            each.sample,
            each.strategy,
            answers[each.sample, each.text],
            not battle.baseline[each.sample],
        )
        for each in candidates
        if each.fate == "sent" and (each.sample, each.text) in answers
    ]


def _strategies(
    sent: Sequence[_Sent],
    attacks: Sequence[tuple[int, str, bool]],
    rate: Callable[[Iterable[tuple[int, bool]]], Estimate],
) -> tuple[StrategyTwin, ...]:
    named = Counter(each.strategy for each in sent)
    cards = []
    for name, _ in sorted(named.items(), key=lambda pair: (-pair[1], pair[0])):
        blocked = rate((each.sample, each.is_blocked) for each in sent if each.strategy == name)
        passed = rate((place, hit) for place, strategy, hit in attacks if strategy == name)
        standing = standing_of(passed, blocked)
        cards.append(StrategyTwin(name=name, blocked=blocked, standing=standing))
    return tuple(cards)
