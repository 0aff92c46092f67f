"""`guardmark plan`: how many samples a claim needs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guardmark.cli.terminal import echo, echo_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.app.planning import SizePlan
    from guardmark.stats.planning import Layout


_PATH = click.Path(path_type=Path)

_COUNT = click.IntRange(min=1)


class Share(click.FloatRange):
    """A share between 0 and 1; the error on points says what they are as a share."""

    def __init__(self) -> None:
        super().__init__(min=0, max=1, min_open=True, max_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a share."""
        try:
            stated = float(value)
        except (TypeError, ValueError):
            return super().convert(value, param, ctx)
        if 1 <= stated <= _POINTS:
            self.fail(
                f"{stated:g} is no share: {stated:g} points are {stated / 100:g}.", param, ctx
            )
        return super().convert(value, param, ctx)


_POINTS = 100

_SHARE = Share()


@click.command(
    help=(
        "Work out how many samples a claim needs, and how often a run of that size "
        "shows it. Choose one claim: --margin, --zero-events, --difference or "
        "--non-inferiority. With --variants, runs in groups are simulated and "
        "analysed as a run is."
    )
)
@click.option("--margin", type=_SHARE, help="Half-width of the interval of one rate.")
@click.option("--rate", type=_SHARE, help="True rate assumed; for --margin the worst case, 0.5.")
@click.option("--zero-events", type=_SHARE, help="Claim a rate below this from zero events.")
@click.option("--difference", type=_SHARE, help="Difference of two paired rates to detect.")
@click.option(
    "--non-inferiority", type=_SHARE, help="Largest difference that still counts as not worse."
)
@click.option("--discordance", type=_SHARE, help="Share of samples two defenses differ on.")
@click.option(
    "--power",
    type=_SHARE,
    help=(
        "Wanted chance that a run confirms the claim; 0.95 for --margin and 0.8 for "
        "pairs, if not given."
    ),
)
@click.option(
    "--confidence", type=_SHARE, default=0.95, show_default=True, help="Confidence of the claim."
)
@click.option(
    "--tests",
    type=_COUNT,
    default=2,
    show_default=True,
    help="Tests in all, with --difference: 6 for 3 defenses.",
)
@click.option(
    "--variants",
    metavar="N|FROM-TO",
    help="Variants in each group: a number, or a range such as 1-9.",
)
@click.option(
    "--icc", type=click.FloatRange(0, 1), help="Correlation within a group. [default: 0.5]"
)
@click.option(
    "--like",
    metavar="RUN",
    type=_PATH,
    help=(
        "Take sizes of groups and correlation from a run: of its attacks, or with "
        "--non-inferiority of its benign samples."
    ),
)
@click.option(
    "--tasks",
    "agent_tasks",
    type=click.IntRange(min=2, max=2_000),
    help=(
        "Of agents: how many injections are needed beside this many tasks, for "
        "attack success known to --margin."
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan_command(
    *,
    variants: str | None,
    icc: float | None,
    like: Path | None,
    agent_tasks: int | None,
    as_json: bool,
    **claim: Any,
) -> None:
    """Plan a size."""
    from guardmark.app.planning import USUAL_ICC, Claim, layout_of, plan_size

    if agent_tasks is not None:
        _plan_injections(agent_tasks, claim, as_json=as_json)
        return
    source = ""
    if like is not None:
        if variants is not None or icc is not None:
            raise click.UsageError(
                "--like takes sizes and ICC of a run: leave out --variants, --icc."
            )
        from guardmark.app.results.group_layout import read_layout

        is_attack = claim["non_inferiority"] is None  # which is about false positives
        layout, source = read_layout(like, is_attack=is_attack), str(like)
    elif icc is not None:
        layout = layout_of(variants, icc)
    else:
        layout = layout_of(variants, USUAL_ICC)
    planned = plan_size(Claim(**claim), layout)
    if as_json:
        document = asdict(planned) | {"like": source or None}
        document["promise"]["rows"] = planned.promise.rows
        echo_json(json.dumps(document, indent=2))
    else:
        echo(*_plan_lines(planned, source))


def _plan_injections(tasks: int, claim: dict[str, Any], *, as_json: bool) -> None:
    """Say how many injections are needed beside so many tasks."""
    from guardmark.analysis.agents.planning import plan_injections

    if claim["margin"] is None:
        raise click.UsageError("--tasks plans injections for a width: add --margin.")
    planned = plan_injections(
        tasks, claim["margin"], rate=claim["rate"] or 0.5, confidence=claim["confidence"]
    )
    if as_json:
        echo_json(json.dumps(asdict(planned), indent=2))
        return
    margin = f"±{100 * planned.margin:g} points"
    if planned.injections is None:
        echo(
            f"No number of injections: with {tasks:,} tasks attack success is known to "
            f"±{100 * planned.half_width:.1f} points at best, not to {margin}.",
            "Next: more tasks, or a wider margin.",
        )
        return
    echo(
        f"{planned.injections:,} injections beside {tasks:,} tasks: half of all runs know attack "
        f"success to {margin}.",
        f"Simulated and analysed, {planned.runs} runs a size, at a true rate of "
        f"{100 * planned.rate:g} %; tasks and injections differ as in suites of agents.",
    )


def _plan_lines(planned: SizePlan, source: str) -> Iterator[str]:
    """Say how many samples are needed, and what they promise."""
    promise = planned.promise
    layout = promise.layout
    if layout.is_alone:
        yield f"{promise.rows:,} {planned.unit}: {planned.claim}."
    else:
        rows = f"{promise.rows:,}"
        if layout.is_mixed:
            rows = f"about {rows}"
        yield f"{promise.groups:,} groups, {rows} {planned.unit} in all: {planned.claim}."
    if promise.chance is not None:
        how = "enumerated"
        if promise.runs:
            how = f"± {100 * promise.error:.1f}, {promise.runs:,} runs simulated and analysed"
        yield f"{100 * promise.chance:.1f} % of such runs show it ({how})."
    yield planned.assumption
    if layout.is_alone:
        yield "This counts independent samples. Variants of one prompt are worth less than as many"
        yield "prompts. Add --variants 5 --icc 0.5, or --like RUN, to plan for groups of them."
        return
    yield f"Assumes {_sizes_text(layout)} and ICC {layout.icc:.2g}{_like_text(source)}."
    if layout.is_mixed:
        yield "Groups of unequal size are worth less than as many rows in equal ones."
    yield "More groups help more than more variants of the same groups."


def _sizes_text(layout: Layout) -> str:
    """Say which sizes of groups a plan assumes."""
    if not layout.is_mixed:
        return f"{layout.known_sizes[0]:,} variants in every group"
    sizes = sorted(layout.sizes)
    middle = sizes[len(sizes) // 2]
    return (
        f"groups of {sizes[0]:,} to {sizes[-1]:,} variants (mean {layout.mean_size:.2g}, "
        f"median {middle:,})"
    )


def _like_text(source: str) -> str:
    if source:
        return f", as in {source}"
    return ""
