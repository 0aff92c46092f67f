"""`guardmark view`: many runs as pages in a browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guardmark.cli.terminal import (
    echo,
    echo_json,
    tell_note,
)
from guardmark.core.errors import counted

if TYPE_CHECKING:
    from guardmark.view.server import Serving


_PATH = click.Path(path_type=Path)

_PORT = click.IntRange(0, 65535)


@click.command(
    help=(
        "Show the runs below FOLDER as pages in a browser: state, progress, reports, "
        "comparisons, a defense over time. The printed address carries a token: "
        "other machines, and other users of this one, cannot open them. Ctrl-C ends."
    )
)
@click.argument("folder", type=_PATH, default="runs")
@click.option(
    "--port", type=_PORT, default=8765, show_default=True, help="Port; 0 takes a free one."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--allow-remote", is_flag=True, help="Let other machines in; needs a token.")
@click.option(
    "--token-env",
    default="",
    metavar="NAME",
    help="Variable that holds a token, in place of one made anew.",
)
@click.option(
    "--no-token",
    is_flag=True,
    help="Ask for no token: opens the runs to every user of this machine.",
)
@click.option("--name", "names", multiple=True, help="Another host name that browsers may use.")
@click.option("--no-texts", is_flag=True, help="Leave prompt texts out: hashes only.")
@click.option("--json", "as_json", is_flag=True, help="Print the address as JSON.")
def view_command(folder: Path, *, no_texts: bool, as_json: bool, **options: Any) -> None:
    """Show runs in a browser."""
    from guardmark.view.server import ViewOptions, serve

    tell_note(f"Reading the runs below {folder}")
    serve(
        ViewOptions(root=folder, texts=not no_texts, **options),
        on_ready=lambda serving: _tell_address(serving, as_json=as_json),
    )


def _tell_address(serving: Serving, *, as_json: bool) -> None:
    if as_json:
        echo_json(json.dumps({"url": serving.url, "runs": serving.runs}))
        return
    echo(f"{counted(serving.runs, 'run')}: {serving.url}")
    if serving.needs_token:
        echo("Open it once with ?token=... behind the address. Ctrl-C ends.")
    elif serving.is_open:
        echo("Without a token: every user of this machine can read these runs. Ctrl-C ends.")
    else:
        echo("The token in the address keeps other users of this machine out. Ctrl-C ends.")
