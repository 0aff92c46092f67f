"""From which cosine on two texts ask for the same: chosen on labelled pairs, counted on others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.counts import grouped_rate
from guardmark.core.errors import DatasetError
from guardmark.core.values import dataclass
from guardmark.stats.drawing import split_by_group
from guardmark.stats.rates.proportion import wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.core.estimate import Estimate

_GRID: Final = 10_000  # taus are multiples of a ten-thousandth, so that a file can say them
_LISTED: Final = 12  # taus of the table beside the chosen one


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPair:
    """Two texts with a person's label, how near their vectors are, and their group."""

    cosine: float
    is_same: bool
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TauRow:
    """What a tau calls the same, of the different and of the equal pairs of the counting half."""

    tau: float
    false_same: Estimate
    true_same: Estimate
    is_chosen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TauChoice:
    """A threshold and what speaks for it.

    Attributes:
        tau: Smallest from which on every upper limit of `false_same` keeps the bound when chosen.
        chosen_on: `false_same` on the choosing half, where it was chosen.
        counted: Both rates on the counting half.
        rows: Both rates for other taus too, on the counting half, rising.
    """

    tau: float
    bound: float
    chosen_on: Estimate
    counted: TauRow
    rows: tuple[TauRow, ...]

    @property
    def is_confirmed(self) -> bool:
        """Whether the counting half by itself keeps the upper limit within the bound too."""
        high = self.counted.false_same.high
        return high is not None and high <= self.bound


def choose_tau(
    pairs: Sequence[TextPair], *, bound: float = 0.05, seed: int = 7, confidence: float = 0.95
) -> TauChoice:
    """Choose the smallest tau that can be shown to call few different pairs the same."""
    side = split_by_group([pair.group for pair in pairs], seed=seed)
    choosing: list[TextPair] = []
    counting: list[TextPair] = []
    for pair, is_first in zip(pairs, side, strict=True):
        half = choosing if is_first else counting
        half.append(pair)
    _require(choosing, counting, bound=bound, confidence=confidence)
    tau, chosen_on = _smallest(choosing, bound=bound, confidence=confidence)
    spread = np.quantile([pair.cosine for pair in counting], np.linspace(0, 1, _LISTED))
    taus = {tau}
    taus.update(math.floor(cosine * _GRID) / _GRID for cosine in spread.tolist())
    rows = {}
    for each in sorted(taus):
        rows[each] = TauRow(
            tau=each,
            false_same=_share(counting, each, is_same=False, confidence=confidence),
            true_same=_share(counting, each, is_same=True, confidence=confidence),
            is_chosen=each == tau,
        )
    return TauChoice(
        tau=tau,
        bound=bound,
        chosen_on=chosen_on,
        counted=rows[tau],
        rows=tuple(rows.values()),
    )


def needed_pairs(bound: float, confidence: float) -> int:
    """Return how many different pairs of groups of their own can show a bound without an error."""
    count = 1
    while (wilson(0, count, confidence=confidence).high or 0.0) > bound:
        count += 1
    return count


def _require(
    choosing: Sequence[TextPair], counting: Sequence[TextPair], *, bound: float, confidence: float
) -> None:
    """Refuse pairs that cannot show the bound, however few errors there are."""
    needed = needed_pairs(bound, confidence)
    for name, half in (("choosing", choosing), ("counting", counting)):
        different = [pair for pair in half if not pair.is_same]
        none = _share(different, math.inf, is_same=False, confidence=confidence)
        if none.high is None or none.high > bound:
            groups = len({pair.group for pair in different})
            raise DatasetError(
                f"The {name} half holds {len(different):,} different pairs in {groups:,} groups. "
                f"To show a bound of {100 * bound:g} % it takes {needed:,} in groups of their own, "
                f"even without an error.\nNext: label about {2 * needed:,} different pairs in "
                "all, or take a wider --bound."
            )
        if all(not pair.is_same for pair in half):
            raise DatasetError(
                f"The {name} half holds no pair that asks for the same, so nothing shows what a "
                "tau would miss.\nNext: label such pairs too."
            )


def _smallest(
    pairs: Sequence[TextPair], *, bound: float, confidence: float
) -> tuple[float, Estimate]:
    """Find the smallest tau from which on every upper limit is within the bound."""
    lowest = math.floor(min(pair.cosine for pair in pairs) * _GRID) / _GRID
    above = {(math.floor(pair.cosine * _GRID) + 1) / _GRID for pair in pairs if not pair.is_same}
    taus = sorted(each for each in {lowest, *above} if each <= 1.0)
    best = None
    for tau in reversed(taus):
        estimate = _share(pairs, tau, is_same=False, confidence=confidence)
        if estimate.high is None or estimate.high > bound:
            break
        best = tau, estimate
    if best is None:
        raise DatasetError(
            f"No tau keeps the upper limit of different pairs called the same within "
            f"{100 * bound:g} %: they are as near as equal ones.\nNext: another encoder, more "
            "pairs, or a wider --bound."
        )
    return best


def _share(pairs: Sequence[TextPair], tau: float, *, is_same: bool, confidence: float) -> Estimate:
    """Estimate the share of the equal, or of the different, pairs that a tau calls the same."""
    chosen = [pair for pair in pairs if pair.is_same is is_same]
    _, codes = np.unique([pair.group for pair in chosen], return_inverse=True)
    return grouped_rate([pair.cosine >= tau for pair in chosen], codes, confidence=confidence)
