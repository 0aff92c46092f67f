"""Whether a prompt fails once or always: prompt rows over repeats, base prompts over variants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.stats.rates.clustered import wilson_default

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.pipeline.card import Ends, Rates
    from guardmark.analysis.pipeline.frame import PipelineFrame
    from guardmark.core.estimate import Estimate

PROMPT_ROW: Final = "prompt row"
BASE_PROMPT: Final = "base prompt"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBuckets:
    """How often the answers of one unit were unsafe; intervals stand on base prompts.

    Attributes:
        unit: `prompt row` (one sample over its repeats) or `base prompt` (all variants and
            repeats of one origin).
        is_attack: Whether the units are attacks.
        fully_safe: No known answer was unsafe.
        partially_unsafe: Some known answers were unsafe, some were not.
        consistently_unsafe: Every known answer was unsafe.
        unknown: Units none of whose ends is known; in no bucket.
    """

    unit: str
    is_attack: bool
    fully_safe: Estimate
    partially_unsafe: Estimate
    consistently_unsafe: Estimate
    unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRates:
    """The rates of one arm at scope `system` on one variant.

    Attributes:
        variant: Name of the variant.
        attack_success_rate: Attacks to which an unsafe answer came out.
        over_refusal_rate: Benign samples that were blocked, refused or not answered.
        allowed: Samples the guard let through, of all it was asked.
    """

    variant: str
    attack_success_rate: Estimate
    over_refusal_rate: Estimate
    allowed: Estimate


def sort_rows(
    rates: Rates, pipeline: PipelineFrame, ends: Ends, *, unit: str, is_attack: bool
) -> RowBuckets:
    """Sort the units of one label into three buckets."""
    samples, repeats = pipeline.frame.sample_count, pipeline.frame.manifest.repeats
    groups = pipeline.frame.samples.group.codes
    names = len(pipeline.frame.samples.group.names)
    is_base = unit == BASE_PROMPT
    of_place = np.tile(groups if is_base else np.arange(samples), repeats)
    count = names if is_base else samples
    mine = pipeline.is_attack == is_attack
    known = np.bincount(of_place[mine & ends.is_known], minlength=count)
    unsafe = np.bincount(of_place[mine & ends.is_known & ends.is_unsafe], minlength=count)
    asked = np.bincount(of_place[mine & ends.asked], minlength=count)
    owner = np.arange(names) if is_base else groups
    sizes = np.bincount(owner[known > 0], minlength=names)

    def share(chosen: NDArray[np.bool_]) -> Estimate:
        hits = np.bincount(owner[chosen & (known > 0)], minlength=names)
        return wilson_default(hits, sizes, confidence=rates.settings.confidence)

    return RowBuckets(
        unit=unit,
        is_attack=is_attack,
        fully_safe=share(unsafe == 0),
        partially_unsafe=share((unsafe > 0) & (unsafe < known)),
        consistently_unsafe=share((unsafe > 0) & (unsafe == known)),
        unknown=int(np.count_nonzero((asked > 0) & (known == 0))),
    )


def rate_variants(rates: Rates, pipeline: PipelineFrame, ends: Ends) -> tuple[VariantRates, ...]:
    """Estimate the rates of an arm on each variant, in the order of the data."""
    variant, is_attack = pipeline.frame.samples.variant, pipeline.is_attack
    codes = np.tile(variant.codes, pipeline.frame.manifest.repeats)
    found = []
    for code, name in enumerate(variant.names):
        mine = codes == code
        if not mine.any():
            continue
        found.append(
            VariantRates(
                variant=name or "original",
                attack_success_rate=rates.of(ends.is_unsafe, mine & ends.is_known & is_attack),
                over_refusal_rate=rates.of(~ends.is_helped, mine & ends.is_known & ~is_attack),
                allowed=rates.of(ends.passed, mine & ends.asked),
            )
        )
    return tuple(found)
