"""`guardmark adapt`: does the defense hold against someone who watches it?"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from guardmark.analysis.run import RunAnalysis

_PATH = click.Path(path_type=Path)
_EXIT_INTERRUPTED = 130
_NARROWEST = 60
_WHOLE = 10_000  # a file or another program gets whole lines
_SEEDS = (
    "Carry the search out N times, each with a seed and a memory of its own (default: "
    "adaptive.seeds of the configuration, else 1). 5 is what figures for others need."
)


def adapt_command() -> click.Command:
    """Return the command."""

    @click.command(
        help="Attack the defenses of a finished RUN, or of a CONFIG (which is run first), by "
        "rewriting its attacks and watching the answers. Nothing named: the built-in run. "
        "Only attack a defense that is yours or that you may test. "
        "Given again on the same RUN, it goes on."
    )
    @click.argument("subject", required=False, type=_PATH, metavar="[RUN|CONFIG]")
    @click.option(
        "--budget",
        default="standard",
        show_default=True,
        help="Search calls for each attack: quick (16), standard (64), thorough (512), or N.",
    )
    @click.option("-o", "--out", type=_PATH, help="Folder of the run that is made first.")
    @click.option(
        "--config", type=_PATH, help="Take the attacker model from this file, section adaptive."
    )
    @click.option("--record", type=_PATH, help="Write all exchanges with services to this file.")
    @click.option(
        "--replay",
        "replays",
        type=_PATH,
        multiple=True,
        help="Answer from this file: a trace.jsonl, or what --record wrote. May be given twice.",
    )
    @click.option(
        "--canaries",
        type=click.IntRange(0, 20),
        default=20,
        show_default=True,
        help="Harmless sentences a target model reads through each operator; 0 for none.",
    )
    @click.option(
        "--no-shared-memory",
        "alone",
        is_flag=True,
        help="Let each attack learn from its own answers only, so that attacks stay independent.",
    )
    @click.option("--seeds", type=click.IntRange(1, 100), help=_SEEDS)
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    def adapt(subject: Path | None, *, as_json: bool, **said: Any) -> int:
        from guardmark.cli.adapt_output import AsTyped, carry_out

        analysis, files = carry_out(subject, AsTyped(**said))
        if analysis is None:
            return _EXIT_INTERRUPTED
        if as_json:
            from guardmark.reports.render.json.documents import adaptive_json

            click.echo(json.dumps(adaptive_json(analysis.adaptive), ensure_ascii=False))
        else:
            click.echo(_drawn(analysis))
            for label, path in files:
                click.echo(f"{label:<10}{path}")
        return 0

    return adapt


def _drawn(analysis: RunAnalysis) -> str:
    from guardmark.reports.chapters.adaptive.chapter import adaptive_document
    from guardmark.reports.render.terminal import render_terminal

    document = adaptive_document(
        analysis.adaptive,
        pairs=analysis.adaptive_pairs,
        left_out=analysis.adaptive_left_out,
        taken=[part.name for part in analysis.manifest.parts],
    )
    if not sys.stdout.isatty():
        return render_terminal(document, width=_WHOLE)
    columns = shutil.get_terminal_size((100, 24)).columns
    return render_terminal(document, width=max(_NARROWEST, columns))
