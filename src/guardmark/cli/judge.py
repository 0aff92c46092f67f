"""`guardmark judge`: the stored answers of a run, judged again, or by people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guardmark.cli.terminal import (
    echo,
    echo_json,
    echo_text,
    level,
    tell_interrupted,
    tell_line,
    tell_note,
)
from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.pipeline.judges import Flips
    from guardmark.app.labels.judging import Judged


_PATH = click.Path(path_type=Path)

_NUMBER = click.IntRange(min=0)


@click.command(
    help=(
        "Judge the stored answers of RUN again. Only the judge is called; its "
        "verdicts are stored beside the earlier ones. Labels of people are stored "
        "the same way and correct the rates of the report."
    )
)
@click.argument("run", type=_PATH)
@click.option("--config", type=_PATH, help="Judges: a configuration, or a file of judges.")
@click.option("--layer", default="", help="Name of the judging; default: the judge's name.")
@click.option(
    "--human-labels", type=_PATH, help="File that guardmark audit wrote, with labels filled in."
)
@click.option(
    "--as-headline",
    default="",
    metavar="LAYER",
    help=(
        "Base every figure on this judging from now on; the first one is kept. If it "
        "has several judges, name one as JUDGING/JUDGE."
    ),
)
@click.option(
    "--quality",
    is_flag=True,
    help=(
        "Only look for signs of an unreliable judge. With --config, its judges are "
        "also shown planted answers: forged verdicts, orders, cut answers."
    ),
)
@click.option(
    "--limit", type=_NUMBER, default=20, show_default=True, help="List at most this many flips."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def judge_command(
    run: Path, *, as_headline: str, quality: bool, limit: int, as_json: bool, **named: Any
) -> int:
    """Judge again."""
    if quality:
        from guardmark.app.labels.planting import ask_planted_answers, report_quality
        from guardmark.app.run.progress_line import ProgressLine
        from guardmark.app.run.running import Session
        from guardmark.cli.interrupts import interruptible
        from guardmark.reports.chapters.judge_quality import quality_document
        from guardmark.reports.render.json.documents import figures_json
        from guardmark.reports.render.terminal import render_terminal

        if as_headline or named["layer"] or named["human_labels"] is not None:
            raise ConfigError("--quality goes with --config only: it labels nothing.")
        if named["config"] is not None:
            session = Session(announce=tell_note)
            with interruptible(session.stop), ProgressLine(session.progress, quiet=level() < 0):
                warnings = ask_planted_answers(run, named["config"], session)
            for sentence in warnings:
                tell_note(f"Note: {sentence}")
            if session.stop.is_seen:
                return tell_interrupted()
        rated = report_quality(run)
        if as_json:
            echo_json(figures_json(rated))
        else:
            echo_text(render_terminal(quality_document(rated)))
        return 0
    judged = _judged(run, as_headline, named)
    if judged is None:
        return tell_interrupted()
    if as_json:
        echo_json(json.dumps(_judged_json(judged), ensure_ascii=False))
    else:
        echo(*_judged_lines(judged, limit))
    return 0


def _judged(run: Path, headline: str, named: dict[str, Any]) -> Judged | None:
    """Judge again and write the reports of the run again; None when it was interrupted."""
    from guardmark.app.judging_choice import choose_headline
    from guardmark.app.labels.judging import Judged, judge_run
    from guardmark.app.results.opened_run import find_run
    from guardmark.app.results.reporting import report
    from guardmark.app.run.progress_line import ProgressLine
    from guardmark.app.run.running import Session
    from guardmark.cli.interrupts import interruptible

    session, judged = Session(announce=tell_note), Judged(folder=find_run(run))
    if any(named.values()) or not headline:
        with interruptible(session.stop), ProgressLine(session.progress, quiet=level() < 0):
            judged = judge_run(run, session, **named)
    for warning in judged.warnings:
        tell_note(f"Note: {warning}")
    if session.stop.is_seen:
        return None
    headline = headline or judged.headline
    if headline:
        with judged.folder.lock():
            choose_headline(judged.folder.records, headline)
        tell_line(f"Every figure of the run stands on the judging {headline} now.")
    report(judged.folder.path)
    return judged


def _judged_lines(judged: Judged, limit: int) -> Iterator[str]:
    if judged.labels:
        yield f"{judged.labels:,} labels of people stored"
    first = len(judged.layers) - len(judged.summaries)  # the labels' layer comes before
    for layer, summary in zip(judged.layers[first:], judged.summaries, strict=True):
        yield f"layer     {layer}: {summary.added:,} verdicts added, {summary.calls:,} calls"
    if judged.flips is not None:
        yield from _flip_lines(judged.flips, limit)
    yield f"report    {judged.folder.report_html}"


def _flip_lines(flips: Flips, limit: int) -> Iterator[str]:
    """List the answers whose verdict changed, the first ones of many."""
    count, between = len(flips.flips), f"{flips.first} to {flips.second}"
    yield f"{count:,} of {flips.compared:,} answers flipped from {between}"
    for flip in flips.flips[:limit]:
        repeat = ""
        if flip.repeat:
            repeat = f" (repeat {flip.repeat})"
        before = _verdict_words(flip.before, flip.before_mode)
        after = _verdict_words(flip.after, flip.after_mode)
        yield f"  {flip.sample_id}{repeat}: {before} -> {after}"
    if count > limit:
        yield f"  ({count - limit:,} more; --limit {count} shows them)"


_OF_FLIP = ("repeat", "before", "after", "before_mode", "after_mode")


def _verdict_words(verdict: str, mode: str | None) -> str:
    """Name a verdict, and how the answer met the request where that is known."""
    return ", ".join(filter(None, (verdict, mode)))


def _judged_json(judged: Judged) -> dict[str, object]:
    return {
        "run": str(judged.folder.path),
        "layers": list(judged.layers),
        "labels": judged.labels,
        "calls": sum(summary.calls for summary in judged.summaries),
        "flips": _flips_json(judged.flips),
    }


def _flips_json(flips: Flips | None) -> dict[str, object] | None:
    if flips is None:
        return None
    flipped = []
    for flip in flips.flips:
        label = "benign"
        if flip.is_attack:
            label = "attack"
        changes = {name: getattr(flip, name) for name in _OF_FLIP}
        flipped.append({"id": flip.sample_id, "label": label, **changes})
    return {
        "first": flips.first,
        "second": flips.second,
        "compared": flips.compared,
        "flipped": flipped,
    }
