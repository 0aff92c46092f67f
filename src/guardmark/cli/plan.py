"""`guardmark plan`: how many samples a claim needs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.app.results.planning import SizePlan

_SHARE = click.FloatRange(min=0, max=1, min_open=True, max_open=True)


def plan_command() -> click.Command:
    """Return the command."""

    @click.command(
        help="Say how many samples a claim needs. Choose one claim: --margin, --zero-events, "
        "--difference or --non-inferiority. With --variants, what groups of variants cost."
    )
    @click.option("--margin", type=_SHARE, help="Half-width of the interval of one rate.")
    @click.option("--rate", type=_SHARE, help="Rate expected; the worst case, 0.5, if not given.")
    @click.option("--zero-events", type=_SHARE, help="Claim a rate below this from zero events.")
    @click.option("--difference", type=_SHARE, help="Difference of two paired rates to be found.")
    @click.option("--non-inferiority", type=_SHARE, help="Margin of not being worse.")
    @click.option("--discordance", type=_SHARE, help="Share of samples two defenses differ on.")
    @click.option("--power", type=_SHARE, default=0.8, show_default=True, help="Chance to find it.")
    @click.option(
        "--confidence", type=_SHARE, default=0.95, show_default=True, help="Of the claim."
    )
    @click.option("--variants", type=click.IntRange(min=1), help="Variants in each group.")
    @click.option(
        "--icc",
        type=click.FloatRange(0, 1),
        default=0.5,
        show_default=True,
        help="How alike the outcomes of one group's variants are.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    def plan(
        margin: float | None,
        rate: float | None,
        zero_events: float | None,
        difference: float | None,
        non_inferiority: float | None,
        discordance: float | None,
        power: float,
        confidence: float,
        variants: int | None,
        icc: float,
        as_json: bool,
    ) -> None:
        from guardmark.app.results.planning import Claim, plan_size

        claim = Claim(
            margin=margin,
            rate=rate,
            zero_events=zero_events,
            difference=difference,
            non_inferiority=non_inferiority,
            discordance=discordance,
            power=power,
            confidence=confidence,
        )
        planned = plan_size(claim, variants=variants, icc=icc)
        if as_json:
            click.echo(json.dumps(asdict(planned), indent=2))
        else:
            click.echo("\n".join(_lines(planned)))

    return plan


def _lines(planned: SizePlan) -> Iterator[str]:
    yield f"{planned.samples:,} {planned.unit}: {planned.claim}."
    yield planned.assumption
    if planned.groups is None:
        yield (
            "This counts independent samples. Variants of one prompt are not independent: "
            "multiply by the"
        )
        yield (
            "design effect 1 + (variants - 1) x ICC. Five variants a group at ICC 0.5 make it "
            "3 times as many;"
        )
        yield "add --variants 5 --icc 0.5 to see groups and rows."
        return
    yield (
        f"With {planned.groups.rows_per_group} variants a group and ICC {planned.groups.icc:g} the "
        f"design effect is {planned.groups.design_effect:g}:"
    )
    yield f"{planned.groups.groups:,} groups, {planned.groups.rows:,} rows in all."
    if planned.groups.rows_per_group > 1:
        yield "More groups help more than more variants of the same groups."
