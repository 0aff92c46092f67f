"""`guardmark stability`: what small slices of a run would have said."""

from __future__ import annotations

from pathlib import Path

import click

from guardmark.cli.terminal import (
    drawn,
    echo,
    echo_drawn,
    echo_json,
)

_PATH = click.Path(path_type=Path)

_COUNT = click.IntRange(min=1)

_SLICES = click.IntRange(min=2, max=1000)


@click.command(
    help=(
        "Draw small slices of RUN, one for each seed, and show their figures beside "
        "those of the whole run. Nothing is called; slice_stability.json and .md are "
        "written into RUN."
    )
)
@click.argument("run", type=_PATH)
@click.option(
    "--attacks",
    type=_COUNT,
    default=12,
    show_default=True,
    help="Number of attacks of each variant.",
)
@click.option(
    "--benign",
    type=_COUNT,
    default=6,
    show_default=True,
    help="Number of benign samples of each variant.",
)
@click.option("--seeds", type=_SLICES, default=10, show_default=True, help="Number of slices.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stability_command(run: Path, attacks: int, benign: int, seeds: int, as_json: bool) -> None:
    """Draw small slices of a run."""
    from guardmark.analysis.pipeline.small_slices import SliceRequest
    from guardmark.app.results.reading import slice_run
    from guardmark.reports.chapters.small_slices import stability_document
    from guardmark.reports.render.json.documents import stability_json

    request = SliceRequest(attacks=attacks, benign=benign, seeds=tuple(range(1, seeds + 1)))
    folder, slices = slice_run(run, request)
    if as_json:
        echo_json(stability_json(slices))
        return
    echo_drawn(drawn(stability_document(slices)))
    echo(f"by variant: {folder.slice_stability_md}")
