"""`guardmark init`: a commented configuration to start from."""

from __future__ import annotations

from importlib.resources import files

import click

_TEMPLATES = ("http", "openai", "hf", "pipeline", "python")


def command() -> click.Command:
    """Return the command."""

    @click.command(help="Print a commented configuration to start from.")
    @click.option(
        "--template",
        type=click.Choice(_TEMPLATES),
        default="python",
        show_default=True,
        help="What is to be measured.",
    )
    def init(template: str) -> None:
        folder = files("guardmark.app") / "templates"
        click.echo((folder / f"{template}.yaml").read_text(encoding="utf-8"), nl=False)

    return init
