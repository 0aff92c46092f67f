"""`guardmark view`: pages over many runs, in a browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from guardmark.view.server import Serving


def command() -> click.Command:
    """Return the command."""

    @click.command(
        help="Show the runs below FOLDER as pages in a browser: state, progress, reports, "
        "comparisons, a defense over time. Only this machine can open them; Ctrl-C ends."
    )
    @click.argument("folder", type=click.Path(path_type=Path), default="runs")
    @click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=8765,
        show_default=True,
        help="Port to listen on; 0 for any that is free.",
    )
    @click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
    @click.option("--allow-remote", is_flag=True, help="Let other machines in; needs a token.")
    @click.option("--token-env", default="", metavar="NAME", help="Variable that holds a token.")
    @click.option("--name", "names", multiple=True, help="A further name browsers may use.")
    @click.option("--no-texts", is_flag=True, help="Leave prompt texts out: hashes only.")
    @click.option("--json", "as_json", is_flag=True, help="Print the address as JSON.")
    def view(
        folder: Path,
        port: int,
        host: str,
        allow_remote: bool,
        token_env: str,
        names: tuple[str, ...],
        no_texts: bool,
        as_json: bool,
    ) -> None:
        from guardmark.reports.document.safe_text import clean
        from guardmark.view.server import ViewOptions, serve

        options = ViewOptions(
            root=folder,
            host=host,
            port=port,
            names=names,
            allow_remote=allow_remote,
            token_env=token_env,
            texts=not no_texts,
        )
        click.echo(f"Reading the runs below {clean(str(folder))}", err=True)
        serve(options, on_ready=lambda serving: _tell(serving, as_json=as_json))

    return view


def _tell(serving: Serving, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"url": serving.url, "runs": serving.runs}))
        return
    word = "run" if serving.runs == 1 else "runs"
    click.echo(f"{serving.runs:,} {word}: {serving.url}")
    if serving.needs_token:
        click.echo("Open it once with ?token=... behind the address. Ctrl-C ends.")
    else:
        click.echo("Ctrl-C ends.")
