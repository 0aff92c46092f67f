"""The verb `plan`: how many samples a claim needs, and how often the analysis then carries it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.errors import ConfigError
from guardmark.core.values import dataclass
from guardmark.stats.planning import (
    ALONE,
    Layout,
    plan_difference,
    plan_margin,
    plan_noninferiority,
    plan_zero_events,
)

if TYPE_CHECKING:
    from guardmark.stats.planning import Promise


_MOST_ROWS: Final = 10_000
USUAL_ICC: Final = 0.5
"""How alike variants of one wording are taken to be where nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The claim that a measurement is to carry; exactly one of the first four.

    Attributes:
        power: Chance that it comes out; None: the usual one of the claim.
    """

    margin: float | None = None
    zero_events: float | None = None
    difference: float | None = None
    non_inferiority: float | None = None
    rate: float | None = None
    discordance: float | None = None
    power: float | None = None
    confidence: float = 0.95
    tests: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePlan:
    """How many samples a claim needs."""

    claim: str
    unit: str
    assumption: str
    promise: Promise


def plan_size(claim: Claim, layout: Layout = ALONE) -> SizePlan:
    """Say how many samples a claim needs, whose groups are laid out so."""
    kinds = ("margin", "zero_events", "difference", "non_inferiority")
    named = [kind for kind in kinds if getattr(claim, kind) is not None]
    if len(named) != 1:
        came = " and ".join(f"--{name.replace('_', '-')}" for name in named) or "none"
        raise ConfigError(
            "Name one claim: --margin, --zero-events, --difference or --non-inferiority; "
            f"found {came}.\nFor example: guardmark plan --margin 0.05"
        )
    of_kind = _of_a_rate if named[0] in {"margin", "zero_events"} else _of_pairs
    try:
        return of_kind(claim, named[0], layout)
    except ValueError as error:
        raise ConfigError(f"This cannot be planned: {error}.") from error


def layout_of(variants: str | None, icc: float) -> Layout:
    """Read the sizes of groups that a person names: one, such as `5`, or a range, such as `1-9`."""
    if variants is None:
        return Layout(icc=icc)
    least, dash, most = variants.partition("-")
    numbers = [least, most] if dash else [least]
    if not all(each.strip().isdecimal() and 0 < int(each) <= _MOST_ROWS for each in numbers):
        raise ConfigError(
            f"--variants must be a number such as 5 or a range such as 1-9, found {variants!r}."
        )
    if not dash:
        return Layout(rows_per_group=int(least), icc=icc)
    if int(least) > int(most):
        raise ConfigError(f"--variants {variants} ends before it begins.\nNext: {most}-{least}")
    return Layout(icc=icc, sizes=tuple(range(int(least), int(most) + 1)))


def _of_a_rate(claim: Claim, name: str, layout: Layout) -> SizePlan:
    value, rate, confidence = float(getattr(claim, name)), claim.rate, claim.confidence
    points, share = f"{100 * value:g}", f"{confidence:.0%}"
    if name == "zero_events":
        seen = ""
        if rate is not None:
            seen = f" at a true rate of {100 * rate:g} %"
        return SizePlan(
            claim=f"no event among them keeps the interval at or below {points} %",
            unit="samples",
            assumption=f"The two-sided {share} interval of a run; a single event breaks the claim. "
            f"The chance is that of no event{seen}"
            + ("; state the true rate with --rate." if rate is None else "."),
            promise=plan_zero_events(value, rate=rate, layout=layout, confidence=confidence),
        )
    true = "50 % (the worst case)" if rate is None else f"{100 * rate:g} %"
    rate, chance = 0.5 if rate is None else rate, claim.power or 0.95
    return SizePlan(
        claim=f"a rate known to ±{points} points at {share} confidence",
        unit="samples",
        assumption=f"Assumes a true rate of {true}; for each side apart.",
        promise=plan_margin(value, rate, layout=layout, chance=chance, confidence=confidence),
    )


def _of_pairs(claim: Claim, name: str, layout: Layout) -> SizePlan:
    if claim.discordance is None:
        raise ConfigError(
            "A paired claim needs --discordance: the share of samples on which the two differ.\n"
            "A pilot run shows it (guardmark compare); 0.1 is a usual guess."
        )
    value, differing = float(getattr(claim, name)), claim.discordance
    chance, alpha, points = claim.power or 0.8, 1 - claim.confidence, f"{100 * value:g}"
    on, error = f"differing on {100 * differing:g} % of the samples", f"error {alpha:.2g}"
    if name == "difference":
        return SizePlan(
            claim=f"a difference of {points} points found",
            unit="pairs",
            assumption=f"Both answer the same samples, {on}. Found is what a report calls found: "
            f"two-sided {error} after Holm over {claim.tests} tests, and an interval without 0.",
            promise=plan_difference(
                value, differing, layout=layout, chance=chance, alpha=alpha, tests=claim.tests
            ),
        )
    return SizePlan(
        claim=f"not worse by more than {points} points, shown",
        unit="pairs",
        assumption=f"One-sided {error}, no true difference, {on}.",
        promise=plan_noninferiority(value, differing, layout=layout, chance=chance, alpha=alpha),
    )
