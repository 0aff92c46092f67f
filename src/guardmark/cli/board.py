"""`guardmark board`: cards side by side, as a static site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from guardmark.cli.terminal import echo
from guardmark.core.errors import counted

if TYPE_CHECKING:
    from collections.abc import Sequence


_PATH = click.Path(path_type=Path)


@click.command(
    help=(
        "Make a static site of guard cards: a table for each cohort (same data, "
        "labels, policy and harness), tiers where the data tell guards apart, a page "
        "for each guard, and a feed of changes. Needs no server and no script. What "
        "others published is read with --claimed, and never mixed with what was "
        "measured."
    )
)
@click.argument("cards", type=_PATH, nargs=-1, required=True)
@click.option(
    "-o",
    "--out",
    type=_PATH,
    default=Path("board"),
    show_default=True,
    help="Folder of the site; a site that is there is written anew.",
)
@click.option(
    "--claimed",
    type=_PATH,
    multiple=True,
    help=("Published results of others: a registry file of any-guardrail, or a file of claims."),
)
@click.option("--address", default="", help="Where the site will stand, for links in the feed.")
def board_command(
    cards: Sequence[Path], *, out: Path, claimed: Sequence[Path], address: str
) -> None:
    """Write a board."""
    from guardmark.app.results.boards import write_board

    board = write_board(cards, out=out, claimed=claimed, address=address)
    cards_told, cohorts_told = (
        counted(len(board.ranked), "card"),
        counted(len(board.cohorts), "cohort"),
    )
    echo(
        f"{cards_told} in {cohorts_told}: {board.index}",
        *(f"  {line}" for line in board.notes),
    )
