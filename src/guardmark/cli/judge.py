"""`guardmark judge`: stored answers judged again, or labelled by people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.pipeline.flips import Flips
    from guardmark.app.labels.judging import Judged

_PATH = click.Path(path_type=Path)


def command() -> click.Command:
    """Return the command."""

    @click.command(
        help="Judge the stored answers of RUN again. Only the judge is called; its verdicts "
        "become a layer beside the earlier ones. Labels of people are stored the same way and "
        "correct the rates of the report."
    )
    @click.argument("run", type=_PATH)
    @click.option("--config", type=_PATH, help="Judges: a configuration, or a file of judges.")
    @click.option("--layer", default="", help="Name of the judging; default: the judge's name.")
    @click.option(
        "--human-labels",
        type=_PATH,
        help="What guardmark audit wrote, labelled: on answers or on bypasses.",
    )
    @click.option("--quality", is_flag=True, help="Only look for signs of an unsound judge.")
    @click.option(
        "--limit",
        type=click.IntRange(min=0),
        default=20,
        show_default=True,
        help="List no more than N changed verdicts.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    def judge(
        run: Path,
        config: Path | None,
        layer: str,
        human_labels: Path | None,
        quality: bool,
        limit: int,
        as_json: bool,
    ) -> int:
        from guardmark.cli.judge_output import carry_out, tell_quality

        if quality:
            click.echo(tell_quality(run, as_json=as_json), nl=False)
            return 0
        judged = carry_out(run, config=config, layer=layer, human_labels=human_labels)
        if as_json:
            click.echo(json.dumps(_as_json(judged), ensure_ascii=False))
        else:
            click.echo("\n".join(_lines(judged, limit)))
        return 0

    return judge


def _lines(judged: Judged, limit: int) -> Iterator[str]:
    from guardmark.reports.document.safe_text import clean

    if judged.labels:
        yield f"{judged.labels:,} labels of people stored"
    first = len(judged.layers) - len(judged.summaries)  # the labels' layer comes before
    for layer, summary in zip(judged.layers[first:], judged.summaries, strict=True):
        yield clean(f"{layer}: {summary.added:,} verdicts added, {summary.calls:,} calls")
    if judged.flips is not None:
        yield from _flip_lines(judged.flips, limit)
    yield f"report    {judged.folder.report_html}"


def _flip_lines(flips: Flips, limit: int) -> Iterator[str]:
    from guardmark.reports.document.safe_text import clean

    yield clean(
        f"{len(flips.flips):,} of {flips.compared:,} answers flipped from {flips.first} to "
        f"{flips.second}"
    )
    for flip in flips.flips[:limit]:
        repeat = f" (repeat {flip.repeat})" if flip.repeat else ""
        yield clean(f"  {flip.sample_id}{repeat}: {flip.before} -> {flip.after}")
    if len(flips.flips) > limit:
        yield f"  ({len(flips.flips) - limit:,} more; --limit {len(flips.flips)} shows them)"


def _as_json(judged: Judged) -> dict[str, object]:
    flips = judged.flips
    return {
        "run": str(judged.folder.path),
        "layers": list(judged.layers),
        "labels": judged.labels,
        "calls": sum(summary.calls for summary in judged.summaries),
        "flips": None
        if flips is None
        else {
            "first": flips.first,
            "second": flips.second,
            "compared": flips.compared,
            "flipped": [
                {
                    "id": flip.sample_id,
                    "repeat": flip.repeat,
                    "label": "attack" if flip.is_attack else "benign",
                    "before": flip.before,
                    "after": flip.after,
                }
                for flip in flips.flips
            ],
        },
    }
