"""A rate of a run that a judge labelled whole and people labelled in part.

The judge splits the responses into those it calls unsafe and those it calls safe, two strata of
known size; the labels of people say which share of each is unsafe. The judge may err as it likes:
a bad one makes the limits wider and never the rate wrong, and none is refused. Labels may be drawn
at random, or more often from what the judge calls unsafe: within a stratum each response must have
had the same chance, or count with what it stands for.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.core.estimate import Estimate
from guardmark.core.values import dataclass
from guardmark.stats.distributions import log_binomial
from guardmark.stats.rates.clustered import EffectiveCounts
from guardmark.stats.rates.proportion import ONE_GROUP, Limits, exact_limits

if TYPE_CHECKING:
    from guardmark.stats.figures import Ratio

DOUBLE_SAMPLING: Final = "double sampling, square and add"
LABELS_ALONE: Final = "labels alone (the judge is not shown to be better than chance)"
NO_JUDGED: Final = "no judged responses"
NO_LABELS: Final = "no human labels"
_UNSEEN: Final = "nobody labelled any of the {count:,} responses that the judge calls {word}"
_DRAWN_BY_VERDICT: Final = 0.05
"""Labels whose split by verdict is rarer than this in a random draw were drawn by the verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStrata:
    """What the judge says of all responses, and people of some, as rates with their intervals.

    Rates of labels that stand for different numbers of responses are weighted means (`Ratio`).

    Attributes:
        judged_unsafe: Responses the judge calls unsafe, of all judged ones.
        of_unsafe: People call unsafe, of labelled ones that the judge calls so.
        of_safe: People call unsafe, of labelled ones that the judge calls safe.
        labels: People call unsafe, of all labelled ones.
    """

    judged_unsafe: Estimate
    of_unsafe: Estimate | Ratio
    of_safe: Estimate | Ratio
    labels: Estimate | Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class StratifiedRate:
    """An unsafe rate by double sampling, or by the labels alone.

    Attributes:
        value: The rate, or None where a stratum was not looked at.
        low: Lower limit, or None.
        high: Upper limit, or None.
        reason: Why something is undefined, or empty.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    method: str = DOUBLE_SAMPLING
    reason: str = ""


def sample_twice(strata: JudgedStrata, *, confidence: float = 0.95) -> StratifiedRate:
    """Estimate a rate from the verdicts of all responses and the labels of some.

    The rate is w a + (1 - w) b: w the share the judge calls unsafe, a and b what people call unsafe
    in either stratum. Its limits put together the distances of each part's own limits by square
    and add, so groups count as they do in each part. Where the lower limit of a - b is not above 0
    the judge is not shown to be better than chance: then the labels alone are told, with the exact
    interval, unless they were plainly drawn by the verdict (the split of a random draw would be as
    odd in less than 5 %), or stand for different numbers of responses.

    Args:
        strata: The rates of both strata, all at the same confidence.
        confidence: Nominal coverage, in (0, 1).

    Returns:
        The rate. Undefined without judged or labelled responses. A stratum that nobody looked at
        may hold any share: the limits allow for it, and there is no value. No limits where all
        responses come from one group.

    Source: Tenenbein (1970), doi:10.1080/01621459.1970.10481170 (the rate); Zou & Donner (2008),
    doi:10.1002/sim.3095 (the limits).
    """
    split = strata.judged_unsafe
    share = split.value
    if share is None:
        return StratifiedRate(reason=NO_JUDGED)
    if not strata.labels.trials:
        return StratifiedRate(reason=NO_LABELS)
    labels = strata.labels
    if isinstance(labels, Estimate) and _is_at_chance(strata) and not is_drawn_by_verdict(strata):
        return _labels_alone(labels, confidence)
    unseen = _unseen(strata)
    first, second = strata.of_unsafe.value or 0.0, strata.of_safe.value or 0.0
    value = share * first + (1.0 - share) * second
    rate = StratifiedRate(value=None if unseen else value, reason=unseen)
    if split.low is None or split.high is None:
        return replace(rate, reason=unseen or ONE_GROUP)
    a, b = _limits(strata.of_unsafe), _limits(strata.of_safe)
    # Where the judge is right more often than not, a lower share also means a lower rate.
    below, above = share - split.low, split.high - share
    if first < second:
        below, above = above, below
    gap = abs(first - second)
    low = value - math.hypot(share * (first - a.low), (1.0 - share) * (second - b.low), gap * below)
    high = value + math.hypot(
        share * (a.high - first), (1.0 - share) * (b.high - second), gap * above
    )
    return replace(rate, low=max(0.0, min(low, value)), high=min(1.0, max(high, value)))


def is_drawn_by_verdict(strata: JudgedStrata) -> bool:
    """Tell whether labels hold more or fewer of one verdict than a random draw would.

    By the exact test of the hypergeometric split, mid-p, at 5 %. Labels that stand for different
    numbers of responses (a weighted mean) are never taken for a random draw.
    """
    if not isinstance(strata.labels, Estimate):
        return True
    drawn, labels = strata.of_unsafe.trials, strata.labels.trials
    unsafe, total = strata.judged_unsafe.successes, strata.judged_unsafe.trials
    below = sum(_draw_chance(k, labels, unsafe, total) for k in range(drawn))
    here = _draw_chance(drawn, labels, unsafe, total)
    tail = min(below, max(0.0, 1.0 - below - here)) + here / 2.0
    return 2.0 * tail < _DRAWN_BY_VERDICT


def _labels_alone(labels: Estimate, confidence: float) -> StratifiedRate:
    """Return what the labels say by themselves.

    By the exact interval at what they are worth: with few labels and a rare harm Wilson's covers
    .92, and who comes here has passed a test that rare labels pass more often.
    """
    rate = StratifiedRate(value=labels.value, method=LABELS_ALONE)
    counts = EffectiveCounts.of(labels)
    if not counts.n_eff:
        return replace(rate, reason=counts.reason)
    limits = exact_limits(counts.rate, counts.worth(confidence), confidence=confidence)
    return replace(rate, low=limits.low, high=limits.high)


def _is_at_chance(strata: JudgedStrata) -> bool:
    """Tell whether nothing shows that more is unsafe where the judge says so."""
    first, second = strata.of_unsafe.value, strata.of_safe.value
    if first is None or second is None:
        return True
    a, b = _limits(strata.of_unsafe), _limits(strata.of_safe)
    return first - second <= math.hypot(first - a.low, b.high - second)


def _draw_chance(hits: int, draws: int, part: int, total: int) -> float:
    """Return the chance of so many of a part among draws without replacement."""
    if hits > part or draws - hits > total - part:
        return 0.0
    log_chance = log_binomial(part, hits) + log_binomial(total - part, draws - hits)
    return math.exp(log_chance - log_binomial(total, draws))


def _unseen(strata: JudgedStrata) -> str:
    """Say which stratum holds responses and no label; empty where none does."""
    unsafe = strata.judged_unsafe.successes
    safe = strata.judged_unsafe.trials - unsafe
    for part, count, word in ((strata.of_unsafe, unsafe, "unsafe"), (strata.of_safe, safe, "safe")):
        if count and part.value is None:
            return _UNSEEN.format(count=count, word=word)
    return ""


def _limits(part: Estimate | Ratio) -> Limits:
    """Return the limits of a part; from 0 to 1 where none or one of its groups was looked at."""
    if part.low is None or part.high is None:
        return Limits(0.0, 1.0)
    return Limits(part.low, part.high)
