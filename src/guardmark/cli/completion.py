"""`guardmark completion`: words for the shell to complete."""

from __future__ import annotations

import click

from guardmark.cli.terminal import echo_raw


@click.command(help="Print the completion script of SHELL, to be read when it starts.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion_command(shell: str) -> None:
    """Print a completion script."""
    from click.shell_completion import get_completion_class

    from guardmark.cli.commands import build

    of_shell = get_completion_class(shell)
    assert of_shell is not None  # noqa: S101 - click has one for each of the choices
    echo_raw(of_shell(build(), {}, "guardmark", "_GUARDMARK_COMPLETE").source())
