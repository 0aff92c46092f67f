"""The verb `plan`: how many samples a claim needs, and in how many groups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from guardmark.core.errors import ConfigError
from guardmark.stats.planning import (
    groups_for,
    pairs_for_difference,
    pairs_for_noninferiority,
    trials_for_half_width,
    trials_for_zero_events,
)

if TYPE_CHECKING:
    from guardmark.stats.planning import GroupPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What somebody wants to be able to say; exactly one of the first four."""

    margin: float | None = None
    zero_events: float | None = None
    difference: float | None = None
    non_inferiority: float | None = None
    rate: float | None = None
    discordance: float | None = None
    power: float = 0.8
    confidence: float = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePlan:
    """How many samples a claim needs."""

    claim: str
    samples: int
    unit: str
    assumption: str
    groups: GroupPlan | None = None


def plan_size(claim: Claim, *, variants: int | None = None, icc: float = 0.5) -> SizePlan:
    """Say how many samples a claim needs."""
    kinds = ("margin", "zero_events", "difference", "non_inferiority")
    named = [kind for kind in kinds if getattr(claim, kind) is not None]
    if len(named) != 1:
        came = " and ".join(f"--{name.replace('_', '-')}" for name in named) or "none"
        raise ConfigError(
            "Name one claim: --margin, --zero-events, --difference or --non-inferiority; "
            f"found {came}.\nFor example: guardmark plan --margin 0.05"
        )
    try:
        size = _size(claim, named[0])
    except ValueError as error:
        raise ConfigError(f"This cannot be planned: {error}.") from error
    if not variants:
        return size
    return replace(size, groups=groups_for(size.samples, rows_per_group=variants, icc=icc))


def _size(claim: Claim, name: str) -> SizePlan:
    value, confidence = float(getattr(claim, name)), claim.confidence
    points, share = f"{100 * value:g}", f"{confidence:.0%}"
    if name == "margin":
        rate = 0.5 if claim.rate is None else claim.rate
        worst = " (the worst case)" if claim.rate is None else ""
        return SizePlan(
            claim=f"a rate known to ±{points} points at {share} confidence",
            samples=trials_for_half_width(value, rate=rate, confidence=confidence),
            unit="samples",
            assumption=f"Assumes a rate of {100 * rate:g} %{worst} and the Wilson interval; for "
            "each side apart.",
        )
    if name == "zero_events":
        return SizePlan(
            claim=f"no event among them shows a rate below {points} % at {share} confidence",
            samples=trials_for_zero_events(value, confidence=confidence),
            unit="samples",
            assumption="One-sided Clopper-Pearson bound; a single event breaks the claim.",
        )
    if claim.discordance is None:
        raise ConfigError(
            "A paired claim needs --discordance: the share of samples on which the two differ.\n"
            "A pilot run tells it (guardmark compare); 0.1 is a usual guess."
        )
    differing, power = claim.discordance, f"{claim.power:.0%} power"
    on, error = f"on {100 * differing:g} % of", f"error {1 - confidence:.2g}"
    alpha = 1 - confidence
    if name == "difference":
        return SizePlan(
            claim=f"a difference of {points} points found with {power}",
            samples=pairs_for_difference(value, differing, power=claim.power, alpha=alpha),
            unit="pairs",
            assumption=f"McNemar mid-p by enumeration, two-sided {error}; both defenses answer "
            f"the same samples and differ {on} them.",
        )
    return SizePlan(
        claim=f"not worse by more than {points} points, shown with {power}",
        samples=pairs_for_noninferiority(value, differing, power=claim.power, alpha=alpha),
        unit="pairs",
        assumption=f"One-sided {error}, no true difference, differing {on} the samples.",
    )
