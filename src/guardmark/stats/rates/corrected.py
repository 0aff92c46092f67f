"""A rate that rests on a judge that errs, corrected by what people say.

`judged_unsafe` of `trials` responses were called unsafe by the judge, `labels` say how the judge
fared where people labelled too, `confidence` is in (0, 1); what is out of range raises
`ValueError`.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from guardmark.core.values import dataclass
from guardmark.stats.arguments import require_count, require_fraction, require_part
from guardmark.stats.distributions import two_sided_z
from guardmark.stats.figures import Ratio
from guardmark.stats.rates.double_sampling import NO_JUDGED, JudgedStrata, sample_twice
from guardmark.stats.rates.proportion import NO_TRIALS, ONE_GROUP, wilson, wilson_limits

if TYPE_CHECKING:
    from guardmark.core.estimate import Estimate
    from guardmark.stats.drawing import DrawPlan

_NO_LABELS = "human labels of both safe and unsafe responses are needed"
_CHANCE = (
    "the judge is not shown to be better than chance: "
    "the lower limit of sensitivity + specificity - 1 is not above 0"
)
_NOTHING_LEFT = "the limits rule out nothing, or all, of 0 to 1: the labels cannot correct the rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeLabels:
    """How a judge fared on responses that people labelled.

    Attributes:
        caught: Unsafe responses judged unsafe.
        missed: Unsafe responses judged safe.
        accused: Safe responses judged unsafe.
        cleared: Safe responses judged safe.
    """

    caught: int
    missed: int
    accused: int
    cleared: int

    def __post_init__(self) -> None:
        """Raise `ValueError` for a count that is negative or not whole."""
        for field in fields(self):
            require_count(field.name, getattr(self, field.name))

    @property
    def unsafe(self) -> int:
        """Responses people called unsafe."""
        return self.caught + self.missed

    @property
    def safe(self) -> int:
        """Responses people called safe."""
        return self.accused + self.cleared

    @property
    def total(self) -> int:
        """All labelled responses."""
        return self.unsafe + self.safe


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedRate:
    """An unsafe rate corrected for the judge's errors.

    Attributes:
        value: The rate clipped to [0, 1], or None when undefined or refused.
        low: Lower limit clipped to [0, 1], or None.
        high: Upper limit clipped to [0, 1], or None.
        raw: The rate as computed, possibly outside [0, 1]; kept also where it is refused.
        raw_low: Lower limit as computed, or None.
        raw_high: Upper limit as computed, or None.
        trials: All judged responses.
        labelled: Responses with a human label.
        confidence: Nominal coverage, in (0, 1).
        method: Name of estimator and interval.
        reason: Why something is undefined or refused, or empty.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    raw: float | None = None
    raw_low: float | None = None
    raw_high: float | None = None
    trials: int
    labelled: int
    confidence: float
    method: str
    reason: str = ""


class JudgedWorth(NamedTuple):
    """Independent trials that rows which share groups are worth (`EffectiveCounts.worth`).

    `judged` are the judged responses, `unsafe` and `safe` those that people called so.
    """

    judged: float
    unsafe: float
    safe: float


def rogan_gladen(
    judged_unsafe: int,
    trials: int,
    *,
    labels: JudgeLabels,
    worth: JudgedWorth | None = None,
    confidence: float = 0.95,
) -> CorrectedRate:
    """Correct a rate for the judge's sensitivity and specificity.

    `trials` are all judged responses. The labels need not come from the same run, but the judge
    must err on them as it does on the run: measure them on the defense at hand. Returns the rate
    with Lang and Reiczigel's interval, on `worth` where responses share groups (None: each stands
    alone). Undefined without judged responses or without labels of both kinds; refused (only `raw`
    is kept) where the lower limit of sensitivity + specificity - 1 is not above 0, and where the
    limits leave [0, 1] on both ends or lie outside of it.
    Source: Rogan & Gladen (1978), doi:10.1093/oxfordjournals.aje.a112510; Lang & Reiczigel (2014),
    doi:10.1016/j.prevetmed.2013.09.015.
    """
    z = two_sided_z(confidence)
    positive, total = require_part(judged_unsafe, trials, name="judged_unsafe")
    bare = CorrectedRate(
        trials=total,
        labelled=labels.total,
        confidence=confidence,
        method="rogan-gladen, lang-reiczigel",
    )
    raw, reason = None, NO_JUDGED if not total else ""
    if not reason and not (labels.unsafe and labels.safe):
        reason = _NO_LABELS
    if not reason:
        youden = labels.caught / labels.unsafe + labels.cleared / labels.safe - 1
        specificity = labels.cleared / labels.safe
        raw = (positive / total + specificity - 1) / youden if youden else None
        worth = worth or JudgedWorth(total, labels.unsafe, labels.safe)
        reason = "" if _youden_lower_limit(labels, worth, z) > 0 else _CHANCE
    if raw is None or worth is None or reason:
        return replace(bare, raw=raw, reason=reason)
    low, high = _lang_reiczigel(positive / total, worth, labels=labels, z=z)
    return _bounded(bare, raw, low=low, high=high)


def corrected_rate(
    judged_unsafe: int,
    trials: int,
    *,
    labels: JudgeLabels,
    labels_from_run: bool,
    confidence: float = 0.95,
) -> CorrectedRate:
    """Correct a rate of independent responses by the method that the labels can carry.

    `trials` are the judged responses without a human label; `labels_from_run` says whether the
    labelled ones are responses of this very run, judged like the others. If they are, it is double
    sampling (`double_sampled`), else Rogan and Gladen's correction over `trials` alone.
    """
    if not labels_from_run:
        return rogan_gladen(judged_unsafe, trials, labels=labels, confidence=confidence)
    positive, rest = require_part(judged_unsafe, trials, name="judged_unsafe")
    called = labels.caught + labels.accused

    def rate(hits: int, of: int) -> Estimate:
        return wilson(hits, of, confidence=confidence)

    strata = JudgedStrata(
        judged_unsafe=rate(positive + called, rest + labels.total),
        of_unsafe=rate(labels.caught, called),
        of_safe=rate(labels.missed, labels.total - called),
        labels=rate(labels.unsafe, labels.total),
    )
    return double_sampled(strata, confidence=confidence)


def double_sampled(strata: JudgedStrata, *, confidence: float = 0.95) -> CorrectedRate:
    """Correct a rate by the labels of some of the judged responses; see `sample_twice`."""
    rate = sample_twice(strata, confidence=confidence)
    return CorrectedRate(
        value=rate.value,
        low=rate.low,
        high=rate.high,
        raw=rate.value,
        raw_low=rate.low,
        raw_high=rate.high,
        trials=strata.judged_unsafe.trials,
        labelled=strata.labels.trials,
        confidence=confidence,
        method=rate.method,
        reason=rate.reason,
    )


def audited_rate(full: Estimate, judged: Estimate, valid: Estimate, *, drawing: DrawPlan) -> Ratio:
    """Estimate a rate whose judged part counts only as far as people confirm it.

    With f the rate, s the share of its successes that rest on a judgement and v the share of
    audited ones that people call valid, the rate is f (1 - s (1 - v)). Each of the three is drawn
    from Beta(x + 1/2, m - x + 1/2), where m is what its trials are worth as independent ones
    (`effective_n`, so groups count) and x its rate times m; the limits are quantiles of the
    product. Unlike resampling rows, this leaves doubt also where all of few trials agree.

    Args:
        full: The rate, judged successes among them.
        judged: Of its successes: those that rest on a judgement.
        valid: Of judged successes that people looked at: those they call valid.
        drawing: Seed and number of draws.

    Returns:
        The rate, never above `full`. Undefined without trials, or where something rests on a
        judgement and nobody audited; without an interval where one group is all there is.

    Source: Efron & Tibshirani (1993), An Introduction to the Bootstrap, 6.5 (parametric bootstrap);
    Brown, Cai & DasGupta (2001), doi:10.1214/ss/1009213286 (Jeffreys' prior).
    """
    require_fraction("confidence", full.confidence)
    bare = Ratio(
        value=None,
        low=None,
        high=None,
        confidence=full.confidence,
        method="audited, parametric bootstrap",
        trials=full.trials,
        groups=full.groups,
    )
    if full.value is None:
        return replace(bare, reason=NO_TRIALS)
    if not judged.successes:
        return replace(bare, value=full.value, low=full.low, high=full.high)
    if valid.value is None or judged.value is None:
        return replace(bare, reason="nobody labelled any of them yes or no")
    value = full.value * (1 - judged.value * (1 - valid.value))
    shapes = [shape for shape in map(_shape, (full, judged, valid)) if shape is not None]
    if len(shapes) < 3:
        return replace(bare, value=value, reason=ONE_GROUP)
    low, high = _drawn_limits(shapes, drawing, full.confidence)
    low, high = min(low, value), max(high, value)
    return replace(bare, value=value, low=low, high=high, replicates=drawing.replicates)


def times_share(corrected: CorrectedRate, share: Estimate) -> CorrectedRate:
    """Return a corrected rate times a share, such as of what was let through, as one figure.

    The limits carry the uncertainty of both: those of each are squared and added, to first order
    in each. Where only limits of the rate are known, they are multiplied with those of the share;
    without limits of the rate or trials of the share only the product is known, or nothing.

    Source: the recovery of variances from limits of Zou & Donner (2008), doi:10.1002/sim.3095.
    """
    rate, part = corrected.value, share.value
    method = f"{corrected.method}, times the share allowed"
    if part is None or corrected.low is None or corrected.high is None:
        value = None
        if rate is not None and part is not None:
            value = part * rate
        return replace(corrected, value=value, raw=None, raw_low=None, raw_high=None, method=method)
    least, most = share.low or 0.0, 1.0
    if share.high is not None:
        most = share.high
    if rate is None:
        low, high = least * corrected.low, most * corrected.high
        return replace(corrected, low=low, high=high, raw_low=low, raw_high=high, method=method)
    low = part * rate - math.hypot(part * (rate - corrected.low), rate * (part - least))
    high = part * rate + math.hypot(part * (corrected.high - rate), rate * (most - part))
    raw = corrected.raw
    if raw is not None:
        raw = part * raw
    return replace(
        corrected,
        value=part * rate,
        low=max(0.0, low),
        high=min(1.0, high),
        raw=raw,
        raw_low=low,
        raw_high=high,
        method=method,
    )


def _youden_lower_limit(labels: JudgeLabels, worth: JudgedWorth, z: float) -> float:
    """Return Newcombe's lower limit of sensitivity less false positive rate."""
    if not worth.unsafe or not worth.safe:
        return -1.0
    sensitivity, false_rate = labels.caught / labels.unsafe, labels.accused / labels.safe
    below = sensitivity - wilson_limits(sensitivity, worth.unsafe, z=z).low
    above = wilson_limits(false_rate, worth.safe, z=z).high - false_rate
    return sensitivity - false_rate - math.hypot(below, above)


def _lang_reiczigel(
    rate: float, worth: JudgedWorth, *, labels: JudgeLabels, z: float
) -> tuple[float, float]:
    n = worth.judged + z * z
    p = (worth.judged * rate + z * z / 2) / n
    n_unsafe, n_safe = worth.unsafe + 2, worth.safe + 2
    sensitivity = (labels.caught / labels.unsafe * worth.unsafe + 1) / n_unsafe
    specificity = (labels.cleared / labels.safe * worth.safe + 1) / n_safe
    youden = sensitivity + specificity - 1
    centre = (p + specificity - 1) / youden
    var_unsafe = sensitivity * (1 - sensitivity) / n_unsafe
    var_safe = specificity * (1 - specificity) / n_safe
    shift = 2 * z * z * (centre * var_unsafe - (1 - centre) * var_safe)
    spread = p * (1 - p) / n + centre**2 * var_unsafe + (1 - centre) ** 2 * var_safe
    half = z * math.sqrt(spread) / abs(youden)
    return centre + shift - half, centre + shift + half


def _bounded(bare: CorrectedRate, raw: float, *, low: float, high: float) -> CorrectedRate:
    if low >= 1 or high <= 0 or (low <= 0 and high >= 1):
        return replace(bare, raw=raw, raw_low=low, raw_high=high, reason=_NOTHING_LEFT)
    value = _clip(raw)
    return replace(
        bare,
        value=value,
        low=min(_clip(low), value),
        high=max(_clip(high), value),
        raw=raw,
        raw_low=low,
        raw_high=high,
    )


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))


def _shape(estimate: Estimate) -> tuple[float, float] | None:
    """Return both parameters of the distribution a rate is drawn from."""
    if estimate.value is None or estimate.effective_n is None:
        return None
    hits = estimate.value * estimate.effective_n
    return hits + 0.5, estimate.effective_n - hits + 0.5


def _drawn_limits(
    shapes: list[tuple[float, float]], drawing: DrawPlan, confidence: float
) -> tuple[float, float]:
    draw = Random(drawing.seed)
    values = []
    for _ in range(drawing.replicates):
        rate, judged, valid = (draw.betavariate(a, b) for a, b in shapes)
        values.append(rate * (1 - judged * (1 - valid)))
    values.sort()
    return _quantile(values, (1 - confidence) / 2), _quantile(values, (1 + confidence) / 2)


def _quantile(values: list[float], share: float) -> float:
    """Return a quantile, linear between neighbours (Hyndman & Fan type 7)."""
    depth = (len(values) - 1) * share
    below = int(depth)
    above = min(below + 1, len(values) - 1)
    return values[below] + (depth - below) * (values[above] - values[below])
