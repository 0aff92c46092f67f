"""A threshold whose error rates are shown to keep limits, not only seen to.

A threshold chosen *at* a limit exceeds it on other samples in half of all runs. Here it is moved
until an upper confidence bound of the error rate keeps the limit, at it and at every safer one.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.core.values import dataclass
from guardmark.stats.arguments import group_column, require_fraction, scored_samples
from guardmark.stats.distributions import incomplete_beta
from guardmark.stats.rates.clustered import effective_counts, summarise

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Flags, Floats, Ints

_LEVELS: Final = 200  # thresholds tried for each limit; between two of them the safer one is taken
_WRITTEN: Final = re.compile(r"\s*(fpr|asr)\s*<=\s*(0?\.\d+)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLimits:
    """Limits on both error rates, at least one of them, each in (0, 1).

    Attributes:
        fpr: On the share of benign samples blocked.
        asr: On the share of attacks allowed.
    """

    fpr: float | None = None
    asr: float | None = None

    def __post_init__(self) -> None:
        """Refuse limits that limit nothing."""
        limits = [limit for limit in (self.fpr, self.asr) if limit is not None]
        for limit in limits:
            require_fraction("limit", limit)
        if not limits:
            raise ValueError("a guarantee must limit fpr, asr or both")

    @classmethod
    def read(cls, words: list[str]) -> ErrorLimits:
        """Read limits written as `fpr<=0.01`."""
        limits: dict[str, float] = {}
        for word in words:
            written = _WRITTEN.fullmatch(word)
            if written is None or written[1].lower() in limits:
                raise ValueError(f"a guarantee must be one fpr<=0.01 or asr<=0.1, got {word!r}")
            limits[written[1].lower()] = float(written[2])
        return cls(**limits)

    def __str__(self) -> str:
        """Write the limits as they are read."""
        both = (("fpr", self.fpr), ("asr", self.asr))
        return ", ".join(f"{name}<={limit:g}" for name, limit in both if limit is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuaranteedThreshold:
    """The threshold that blocks most among those shown to keep every limit.

    Attributes:
        threshold: Score from which to block; None: none is shown to.
        reason: Why not, or empty.
    """

    threshold: float | None = None
    reason: str = ""


def guarantee_threshold(
    labels: ArrayLike,
    scores: ArrayLike,
    *,
    limits: ErrorLimits,
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
) -> GuaranteedThreshold:
    """Choose a threshold so that its error rates keep limits with a stated confidence.

    With at least `confidence` the rates on samples drawn as these are keep all limits: the
    Clopper-Pearson bound at effective counts is at or below the limit at this threshold and at all
    safer ones, so nothing is to be paid for having looked at many. Several limits share the error
    probability. Measure the threshold on other samples.

    Args:
        labels: True for an attack, shape (n,).
        scores: Higher for what is more like an attack, shape (n,).
        limits: What is to be kept.
        groups: Group of each sample; None: every sample its own.
        confidence: One-sided, in (0, 1).

    Returns:
        The threshold, or the reason why none is shown to keep the limits.

    Source: Bates, Angelopoulos, Lei, Malik & Jordan (2021), doi:10.1145/3478535 (a monotone risk);
    Angelopoulos, Bates, Candes, Jordan & Lei (2021), arXiv:2110.01052 (learn then test); Korn &
    Graubard (1998) for effective counts.
    """
    require_fraction("confidence", confidence)
    attack, score = scored_samples(labels, scores)
    codes = group_column(groups, len(score))
    asked = (limits.fpr is not None) + (limits.asr is not None)
    error = (1.0 - confidence) / asked
    lowest, highest = -np.inf, np.inf
    if limits.fpr is not None:
        # The benign score from which on too many would be blocked; the threshold lies above it.
        first = _first_lost(-score[~attack], codes[~attack], limit=limits.fpr, error=error)
        if first is None:
            return GuaranteedThreshold(reason=_too_few("benign samples", limits.fpr))
        lowest = -first
    if limits.asr is not None:
        first = _first_lost(score[attack], codes[attack], limit=limits.asr, error=error)
        if first is None:
            return GuaranteedThreshold(reason=_too_few("attacks", limits.asr))
        highest = first
    above = score[(score > lowest) & (score <= highest)]
    if not above.size:
        fewer = "no score lies above all benign samples that may not be blocked"
        reason = fewer if limits.asr is None else f"no threshold is shown to keep {limits}"
        return GuaranteedThreshold(reason=reason)
    return GuaranteedThreshold(threshold=float(above.min()))


def _too_few(what: str, limit: float) -> str:
    return f"the {what} are too few to show {100 * limit:g} %, even without any error among them"


def _first_lost(values: Floats, groups: Ints, *, limit: float, error: float) -> float | None:
    """Return the first value, from the lowest, that may not be an error.

    Errors are all values below a level. Infinite if all may be; None if not even none is shown to
    keep the limit.
    """
    distinct, places = np.unique(values, return_inverse=True)
    codes = np.unique(groups, return_inverse=True)[1]
    sizes = np.bincount(codes)
    below = np.concatenate(([0], np.cumsum(np.bincount(places)))) if len(values) else np.zeros(1)
    # Past the limit itself no bound can keep it.
    reach = int(np.searchsorted(below, limit * len(values), side="right"))
    levels = np.unique(np.linspace(0, reach, _LEVELS).astype(int)).tolist() if len(values) else []
    shown = [
        *takewhile(
            lambda level: _is_shown(places < level, codes, sizes, limit=limit, error=error), levels
        )
    ]
    if not shown:
        return None
    kept = shown[-1]
    return float(distinct[kept]) if kept < len(distinct) else np.inf


def _is_shown(lost: Flags, codes: Ints, sizes: Ints, *, limit: float, error: float) -> bool:
    """Tell whether the upper bound of a share is at or below a limit."""
    counts = effective_counts(summarise(np.bincount(codes[lost], minlength=len(sizes)), sizes))
    if not counts.n_eff:
        return False
    worth = counts.worth(1.0 - 2.0 * error)
    hits = counts.rate * worth
    return hits < worth and incomplete_beta(limit, hits + 1.0, worth - hits) >= 1.0 - error
