"""What a critic of blocked candidates answered; what it guessed enters no figure at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guardmark.analysis.adaptive.attacker_rows import read_exchanges
from guardmark.analysis.defense.grouped_rates import rate_of_marks
from guardmark.core.layers import CRITIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.rows import AdaptiveRecords
    from guardmark.core.estimate import Estimate
    from guardmark.core.usage import UsageTotals
    from guardmark.store.reader import RecordReader


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticCard:
    """How a critic answered. Failed calls count in no rate.

    Attributes:
        model: Which model guessed.
        is_also: Roles the same model has beside, or empty.
        has_scores: Whether the defense tells scores, so that nobody was asked.
        guessed: Share of its answers that hold a figure from 1 to 10.
        refused: Share of its answers that are refusals.
        invalid: Share of its answers that could not be read, also when asked again.
        repairs: Answers that were asked again.
        spending: What it consumed.
    """

    model: str
    is_also: str
    has_scores: bool
    guessed: Estimate
    refused: Estimate
    invalid: Estimate
    repairs: int
    spending: UsageTotals = field(metadata={"json": False})

    @property
    def rates(self) -> Mapping[str, Estimate]:
        """Every rate by name."""
        return {"guessed": self.guessed, "refused": self.refused, "invalid": self.invalid}


def read_critic(
    reader: RecordReader, battle: AdaptiveRecords, groups: NDArray[np.int32], *, confidence: float
) -> CriticCard | None:
    """Count what a critic answered while a defense was attacked."""
    said = battle.settings.get("attacker")
    if not isinstance(said, dict) or "critic" not in said:
        return None
    exchanges, spending = read_exchanges(reader, battle.name, CRITIC)
    answered = [each for each in exchanges if each.kind != "error"]
    shares = {
        kind: rate_of_marks(
            ((each.sample, each.kind == kind) for each in answered), groups, confidence=confidence
        )
        for kind in ("closeness", "refused", "invalid")
    }
    return CriticCard(
        model=str(said["critic"]),
        is_also=str(said.get("critic_is_also", "")),
        has_scores=bool(battle.findings.get("has_scores")),
        guessed=shares["closeness"],
        refused=shares["refused"],
        invalid=shares["invalid"],
        repairs=sum(each.is_repaired for each in exchanges),
        spending=spending,
    )
