"""`guardmark report`: the reports of a run, written again from its records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from guardmark.cli.run_argument import RunPath, last_if_none
from guardmark.cli.terminal import (
    drawn,
    echo,
    echo_drawn,
    echo_json,
    echo_text,
    tell_output,
)
from guardmark.core.errors import ConfigError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


_FORMATS = ("html", "md", "json", "csv", "junit", "sarif")


@click.command(
    help=(
        "Write the reports of RUNs again from their records. Nothing is called; with "
        "--threshold, decisions are made again from the stored scores."
    )
)
@click.argument("runs", nargs=-1, type=RunPath(), callback=last_if_none)
@click.option(
    "-f",
    "--format",
    "formats",
    help="Formats, separated by commas: html, md, json, csv, junit, sarif.",
)
@click.option(
    "--threshold",
    multiple=True,
    metavar="NAME=X",
    help=("Block at scores of X and above; such reports are written to a folder of their own."),
)
@click.option(
    "--choose",
    multiple=True,
    metavar="NAME=FPR",
    help=(
        "Print the threshold that blocks most within this false positive rate, as a "
        "fragment of a configuration, and keep it as thresholds.yaml. "
        "NAME:CATEGORY=FPR chooses for one of the categories that a service scores "
        "itself."
    ),
)
@click.option(
    "--guarantee",
    multiple=True,
    metavar="LIMIT",
    help=(
        "As --choose, for every defense with scores: the threshold whose upper "
        "confidence bound keeps fpr<=0.01 or asr<=0.1."
    ),
)
@click.option(
    "--crosswalk",
    metavar="FRAMEWORK",
    help=(
        "Print which figures are evidence for which item of a framework: ailuminate, "
        "atlas, eu-ai-act, nist-ai-rmf, owasp-agentic, owasp-llm, or one of your own (a "
        ".toml file). Says of nothing that it conforms."
    ),
)
@click.option("--no-texts", is_flag=True, help="Leave prompt texts out: hashes only.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def report_command(
    runs: tuple[Path, ...],
    *,
    formats: str | None,
    threshold: tuple[str, ...],
    choose: tuple[str, ...],
    guarantee: tuple[str, ...],
    crosswalk: str | None,
    no_texts: bool,
    as_json: bool,
) -> None:
    """Write reports again."""
    if crosswalk is not None:
        from guardmark.app.results.crosswalks import crosswalk_of_run, crosswalk_rows

        for path in runs:
            if as_json:
                echo_json(json.dumps(crosswalk_rows(path, crosswalk), indent=2))
            else:
                echo_drawn(drawn(crosswalk_of_run(path, crosswalk)))
        return
    from guardmark.app.results.reporting import report as write_report

    chosen = _formats(formats)
    for path in runs:
        if choose or guarantee:
            from guardmark.app.results.threshold_choice import choose_thresholds

            limits = _parse_thresholds(choose, option="--choose", meaning="FPR")
            fragment = choose_thresholds(path, limits, guarantee)
            echo_text(fragment.read_text(encoding="utf-8"))
            echo(f"thresholds {fragment}", err=True)
            continue
        thresholds = _parse_thresholds(threshold)
        tell_output(
            write_report(path, formats=chosen, thresholds=thresholds, texts=not no_texts),
            as_json=as_json,
        )


def _parse_thresholds(
    words: Sequence[str], *, option: str = "--threshold", meaning: str = "X"
) -> tuple[tuple[str, float], ...]:
    """Read thresholds, or limits for them, written as NAME=X."""
    thresholds = []
    for word in words:
        name, equals, number = word.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not equals or not name or not 0 <= value <= 1:
            example = 0.8
            if meaning == "FPR":
                example = 0.01
            raise ConfigError(
                f"{option} {word!r} is not of the form NAME={meaning} with {meaning} in [0, 1].\n"
                f"For example: {option} granite={example}"
            )
        thresholds.append((name, value))
    return tuple(thresholds)


def _formats(words: str | None) -> tuple[str, ...]:
    chosen = tuple(word.strip() for word in (words or "").split(",") if word.strip())
    for word in chosen:
        if word not in _FORMATS:
            raise UnknownName("report format", word, _FORMATS)
    return chosen
