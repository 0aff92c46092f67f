"""`guardmark stability`: how far a small slice of a run would have misled."""

from __future__ import annotations

from pathlib import Path

import click


def stability_command() -> click.Command:
    """Return the command."""

    @click.command(
        help="Draw small slices of RUN, one for each seed, and lay their figures beside those of "
        "the whole run. Nothing is called; slice_stability.json and .md are written into RUN."
    )
    @click.argument("run", type=click.Path(path_type=Path))
    @click.option(
        "--attacks",
        type=click.IntRange(min=1),
        default=12,
        show_default=True,
        help="Attacks of each variant.",
    )
    @click.option(
        "--benign",
        type=click.IntRange(min=1),
        default=6,
        show_default=True,
        help="Benign samples of each variant.",
    )
    @click.option(
        "--seeds",
        type=click.IntRange(min=2, max=1000),
        default=10,
        show_default=True,
        help="How many slices: seeds 1 to N.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    def stability(run: Path, attacks: int, benign: int, seeds: int, as_json: bool) -> None:
        from guardmark.analysis.pipeline.small_slices import SliceRequest
        from guardmark.app.results.comparing import slice_run
        from guardmark.reports.chapters.slices import stability_document
        from guardmark.reports.render.json.documents import stability_json
        from guardmark.reports.render.terminal import render_terminal

        request = SliceRequest(attacks=attacks, benign=benign, seeds=tuple(range(1, seeds + 1)))
        folder, found = slice_run(run, request)
        if as_json:
            click.echo(stability_json(found), nl=False)
            return
        click.echo(render_terminal(stability_document(found)), nl=False)
        click.echo(f"by variant: {folder.slice_stability_md}")

    return stability
