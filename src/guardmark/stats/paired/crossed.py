"""The difference of two arms over crossed rows, such as tasks that meet injections.

What the rows are worth is said by `stats.rates.crossed`; `first`, `second` and `strata` are as
there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from guardmark.core.estimate import Difference
from guardmark.stats.arguments import label_column, require_equal_lengths, require_fraction
from guardmark.stats.distributions import as_p_value, two_sided_t
from guardmark.stats.paired.intervals import cut_limits
from guardmark.stats.rates.crossed import CrossedVariance, crossed_variance
from guardmark.stats.rates.proportion import Limits, wilson_limits

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_HALVINGS: Final = 40


def crossed_difference(
    first_only: ArrayLike,
    second_only: ArrayLike,
    *,
    first: ArrayLike,
    second: ArrayLike,
    strata: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Difference:
    """Estimate how much more often the first of two arms has a property, over the same rows.

    Bonett and Price's interval at the effective number of pairs, with the t of `crossed_variance`:
    each row counts 1 where the first arm alone has the property, -1 where the second alone has it,
    and a level speaks where it has a pair that differs. To each side the limits are at least those
    of the two shares squared and added (Newcombe's method 10), since the difference alone is blind
    where one arm loses whole levels and the other scattered rows: alike arms were told apart in up
    to .20 of runs. The test is the interval, asked at which error it touches 0.

    Args:
        first_only: Whether only the first arm has the property, for each row.
        second_only: Whether only the second arm has it.
        first: Level of the first factor of each row.
        second: Level of the second factor of each row.
        strata: Suite of each row; None: one.
        confidence: Nominal coverage of the interval.

    Returns:
        The difference; without limits, and with the reason, as `crossed_rate` has it.

    Raises:
        ValueError: Also if a row is marked for both arms.

    Source: Bonett & Price (2012), doi:10.3102/1076998611411915, and those of `crossed_rate`.
    """
    require_fraction("confidence", confidence)
    ours = label_column(first_only, name="first_only")
    theirs = label_column(second_only, name="second_only")
    require_equal_lengths(first_only=len(ours), second_only=len(theirs))
    if (ours & theirs).any():
        raise ValueError("a pair cannot have the property in one arm only and in the other only")
    pairs, b, c = len(ours), int(ours.sum()), int(theirs.sum())
    worth, alone, other = (
        crossed_variance(values, speaks, first=first, second=second, strata=strata)
        for values, speaks in (
            (ours.astype(float) - theirs, ours | theirs),
            (ours.astype(float), ours),
            (theirs.astype(float), theirs),
        )
    )
    limits, p_value, test = None, None, ""
    if worth.effective_n:
        gap = _PairedGap(b / pairs, c / pairs, both=worth, parts=(alone, other))
        limits = gap.limits(confidence)
        p_value, test = gap.p_value(), "bonett_price_crossed"
    return Difference(
        value=(b - c) / pairs if pairs else None,
        low=limits.low if limits else None,
        high=limits.high if limits else None,
        confidence=confidence,
        method="bonett_price_crossed",
        p_value=p_value,
        test=test,
        pairs=pairs,
        groups=worth.fewer_levels,
        first_only=b,
        second_only=c,
        reason=worth.reason,
    )


class _PairedGap(NamedTuple):
    """Shares of pairs in which one arm alone has the property, and what the pairs are worth."""

    first: float
    second: float
    both: CrossedVariance  # Of the difference.
    parts: tuple[CrossedVariance, CrossedVariance]  # Of each share.

    def limits(self, confidence: float) -> Limits:
        """Return the limits at a confidence: the wider of two intervals to each side."""
        gap = self.first - self.second
        pairs = self.both.effective_n
        ours = (self.first * pairs + 1.0) / (pairs + 2.0)
        theirs = (self.second * pairs + 1.0) / (pairs + 2.0)
        centre = ours - theirs
        quantile = two_sided_t(confidence, self.both.degrees_of_freedom)
        half = quantile * math.sqrt((ours + theirs - centre**2) / (pairs + 2.0))
        one = _wilson_at(self.first, self.parts[0], confidence)
        other = _wilson_at(self.second, self.parts[1], confidence)
        below = math.hypot(self.first - one.low, other.high - self.second)
        above = math.hypot(one.high - self.first, self.second - other.low)
        low, high = min(centre - half, gap - below), max(centre + half, gap + above)
        return cut_limits(gap, Limits(low, high))

    def p_value(self) -> float:
        """Return the error at which the limits touch 0; 1 where they hold it at any."""
        if self.first == self.second:
            return 1.0
        low, high = 0.0, 1.0  # errors: the limits hold 0 at `low`, and no more at `high`
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            limits = self.limits(1.0 - middle)
            if limits.low <= 0.0 <= limits.high:
                low = middle
            else:
                high = middle
        return as_p_value(high)


def _wilson_at(rate: float, worth: CrossedVariance, confidence: float) -> Limits:
    quantile = two_sided_t(confidence, worth.degrees_of_freedom)
    return wilson_limits(rate, worth.effective_n, z=quantile)
