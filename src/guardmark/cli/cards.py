"""The commands `card` and `board`: what runs show, to be carried elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from guardmark.cli.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("run", type=_PATH)
@click.argument("names", nargs=-1)
@click.option("--to", "formats", default="json,html")
@click.option("--claims", type=_PATH)
@click.option("-o", "--out", type=_PATH)
@click.option("--again", metavar="COMMAND", default="")
@click.option("--sign", metavar="KEY", type=_PATH)
@click.option(
    "--password-env", metavar="NAME", default="GUARDMARK_SIGN_PASSWORD", show_default=True
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
    key = SigningKey(path=sign, password=os.environ.get(password_env, "")) if sign else None
    written = write_cards(run, names, formats=wanted, claims=claims, out=out, again=again, key=key)
    for each in written:
        answer = each.card.answer or "baseline"
        echo(f"{each.card.subject.name}: {answer}", *(f"  {path}" for path in each.files))


@click.command()
@click.argument("cards", type=_PATH, nargs=-1, required=True)
@click.option("-o", "--out", type=_PATH, default=Path("board"), show_default=True)
@click.option("--claimed", type=_PATH, multiple=True)
@click.option("--address", default="")
def board_command(
    cards: Sequence[Path], *, out: Path, claimed: Sequence[Path], address: str
) -> None:
    """Write a board."""
    from guardmark.app.results.boards import write_board

    board = write_board(cards, out=out, claimed=claimed, address=address)
    echo(
        f"{len(board.ranked)} cards in {len(board.cohorts)} cohorts: {board.index}",
        *(f"  {line}" for line in board.notes),
    )
