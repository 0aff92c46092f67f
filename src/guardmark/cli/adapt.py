"""`guardmark adapt`: does the defense hold against someone who watches it?"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.adaptive.card import AdaptiveCard

_PATH = click.Path(path_type=Path)
_EXIT_INTERRUPTED = 130
_NARROWEST = 60
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

        cards, files = carry_out(subject, AsTyped(**said))
        if cards is None:
            return _EXIT_INTERRUPTED
        if as_json:
            from guardmark.reports.adaptive.card_json import adaptive_json

            click.echo(json.dumps(adaptive_json(cards), ensure_ascii=False))
        else:
            click.echo("\n".join(_fitted(_lines(cards, files))))
        return 0

    return adapt


def _fitted(lines: Iterator[str]) -> Iterator[str]:
    """Break lines on a terminal; leave them whole for a file or another program."""
    if not sys.stdout.isatty():
        return lines
    from guardmark.reports.adaptive.text import wrapped_lines

    return wrapped_lines(lines, max(_NARROWEST, shutil.get_terminal_size((100, 24)).columns))


def _lines(cards: Sequence[AdaptiveCard], files: Sequence[tuple[str, Path]]) -> Iterator[str]:
    from guardmark.analysis.adaptive.pairs import compare_adaptive
    from guardmark.reports.adaptive.text import adaptive_lines
    from guardmark.reports.chapters.adaptive.attack_success import pair_lines
    from guardmark.reports.document.safe_text import clean

    for card in cards:
        for line in adaptive_lines(card):
            yield clean(line)
        yield ""
    pairs = compare_adaptive(cards, confidence=cards[0].area.adaptive.confidence) if cards else ()
    for line in pair_lines(pairs):
        yield clean(line)
    if pairs:
        yield ""
    for label, path in files:
        yield clean(f"{label:<10}{path}")
