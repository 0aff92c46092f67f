"""The verb `plan`: how many samples a claim needs, and in how many groups."""

from __future__ import annotations

from dataclasses import dataclass
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

_WORST_RATE = 0.5


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
    groups: GroupPlan | None


def plan_size(claim: Claim, *, variants: int | None = None, icc: float = 0.5) -> SizePlan:
    """Say how many samples a claim needs."""
    named = [
        name
        for name in ("margin", "zero_events", "difference", "non_inferiority")
        if getattr(claim, name) is not None
    ]
    if len(named) != 1:
        came = " and ".join(f"--{name.replace('_', '-')}" for name in named) or "none"
        raise ConfigError(
            "Name one claim: --margin, --zero-events, --difference or --non-inferiority; "
            f"found {came}.\nFor example: guardmark plan --margin 0.05"
        )
    try:
        samples, unit, said, assumption = _PLANNERS[named[0]](claim)
    except ValueError as error:
        raise ConfigError(f"This cannot be planned: {error}.") from error
    groups = groups_for(samples, rows_per_group=variants, icc=icc) if variants else None
    return SizePlan(claim=said, samples=samples, unit=unit, assumption=assumption, groups=groups)


_Planned = tuple[int, str, str, str]


def _for_margin(claim: Claim) -> _Planned:
    margin = claim.margin or 0.0
    rate = _WORST_RATE if claim.rate is None else claim.rate
    worst = " (the worst case)" if claim.rate is None else ""
    return (
        trials_for_half_width(margin, rate=rate, confidence=claim.confidence),
        "samples",
        f"a rate known to ±{100 * margin:g} points at {claim.confidence:.0%} confidence",
        f"Assumes a rate of {100 * rate:g} %{worst} and the Wilson interval; for each side apart.",
    )


def _for_zero_events(claim: Claim) -> _Planned:
    upper = claim.zero_events or 0.0
    return (
        trials_for_zero_events(upper, confidence=claim.confidence),
        "samples",
        (
            f"no event among them shows a rate below {100 * upper:g} % at "
            f"{claim.confidence:.0%} confidence"
        ),
        "One-sided Clopper-Pearson bound; a single event breaks the claim.",
    )


def _for_difference(claim: Claim) -> _Planned:
    difference = claim.difference or 0.0
    discordance = _discordance(claim)
    pairs = pairs_for_difference(
        difference, discordance, power=claim.power, alpha=1 - claim.confidence
    )
    return (
        pairs,
        "pairs",
        f"a difference of {100 * difference:g} points found with {claim.power:.0%} power",
        (
            f"McNemar mid-p by enumeration, two-sided error {1 - claim.confidence:.2g}; both "
            f"defenses answer the same samples and differ on {100 * discordance:g} % of them."
        ),
    )


def _for_non_inferiority(claim: Claim) -> _Planned:
    margin = claim.non_inferiority or 0.0
    discordance = _discordance(claim)
    pairs = pairs_for_noninferiority(
        margin, discordance, power=claim.power, alpha=1 - claim.confidence
    )
    return (
        pairs,
        "pairs",
        f"not worse by more than {100 * margin:g} points, shown with {claim.power:.0%} power",
        (
            f"One-sided error {1 - claim.confidence:.2g}, no true difference, differing on "
            f"{100 * discordance:g} % of the samples."
        ),
    )


def _discordance(claim: Claim) -> float:
    if claim.discordance is None:
        raise ConfigError(
            "A paired claim needs --discordance: the share of samples on which the two differ.\n"
            "A pilot run tells it (guardmark compare); 0.1 is a usual guess."
        )
    return claim.discordance


_PLANNERS = {
    "margin": _for_margin,
    "zero_events": _for_zero_events,
    "difference": _for_difference,
    "non_inferiority": _for_non_inferiority,
}
