"""`guardmark card`: one file that says what was measured of one defense or arm."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from guardmark.cli.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Sequence


_PATH = click.Path(path_type=Path)


@click.command(
    help=(
        "Write a card of each defense of RUN (or arm of a pipeline) that is no "
        "baseline, or of NAMES: what was measured, on what, with which figures and "
        "intervals, known blind spots, what was not measured, and what its maker "
        "claims beside it. Nothing is called. A card can be signed with minisign, "
        "and checked: `guardmark verify CARD`."
    )
)
@click.argument("run", type=_PATH)
@click.argument("names", nargs=-1)
@click.option(
    "--to",
    "formats",
    default="json,html",
    help=("Formats, separated by commas: json, html, markdown, badge; json and html if not given."),
)
@click.option(
    "--claims",
    type=_PATH,
    help=(
        "YAML file of what makers claim: `claims: {my-guard: [{figure: "
        "true_positive_rate, value: 0.98, source: where it was said}]}`."
    ),
)
@click.option(
    "-o",
    "--out",
    type=_PATH,
    help="Folder for the files; `cards` in the folder of RUN if not given.",
)
@click.option(
    "--again",
    metavar="COMMAND",
    default="",
    help=(
        "Command that the card names as the one that repeats the measurement; that of the run if "
        "not given."
    ),
)
@click.option(
    "--sign",
    metavar="KEY",
    type=_PATH,
    help="Secret key of minisign: signs each card in JSON, in a file beside it.",
)
@click.option(
    "--password-env",
    metavar="NAME",
    default="GUARDMARK_SIGN_PASSWORD",
    show_default=True,
    help="Environment variable that holds the password of that key.",
)
def card_command(
    run: Path,
    names: Sequence[str],
    *,
    formats: str,
    claims: Path | None,
    out: Path | None,
    again: str,
    sign: Path | None,
    password_env: str,
) -> None:
    """Write guard cards."""
    from guardmark.app.results.cards import SigningKey, write_cards

    wanted = tuple(each.strip() for each in formats.split(",") if each.strip())
    key = None
    if sign:
        key = SigningKey(path=sign, password=os.environ.get(password_env, ""))
    written = write_cards(run, names, formats=wanted, claims=claims, out=out, again=again, key=key)
    for each in written:
        answer = each.card.answer or "baseline"
        echo(f"{each.card.subject.name}: {answer}", *(f"  {path}" for path in each.files))
