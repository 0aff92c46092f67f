"""The table of commands: names to the files that hold them, loaded only when typed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

_COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("run", "See a first measurement: built-in data, offline."),
    "run": ("run", "Measure defenses; nothing named: built-in data, offline."),
    "init": ("run", "Print a commented configuration to start from."),
    "check": ("run", "Check a configuration, its data, its price, before a run."),
    "data": ("data", "List, check and describe data sets."),
    "plan": ("decide", "How many samples a claim needs."),
    "attacks": ("attacks", "List, describe and apply the attack operators."),
    "adapt": ("adapt", "Attack defenses by rewriting and watching the answers."),
    "judge": ("labels", "Judge the stored answers of a run again."),
    "matrix": ("run", "Run several configurations of one file."),
    "merge": ("run", "Join shards of a run, or runs of different defenses."),
    "audit": ("labels", "Draw answers of a run for people to label."),
    "compare": ("decide", "Compare defenses on the same samples."),
    "gate": ("decide", "Check a run against limits; for a release or CI."),
    "report": ("read", "Write the reports of a finished run again."),
    "stability": ("read", "How far a small slice of a run would have misled."),
    "import": ("read", "Read a finished run of another tool."),
    "export": ("read", "Write the records of a run for other tools."),
    "verify": ("tools", "Compute every figure of a run again; find tampering."),
    "show": ("read", "List bypasses, false alarms, errors in the terminal."),
    "view": ("read", "Show many runs as pages in a browser."),
    "schema": ("tools", "Print the JSON Schema of a configuration."),
    "plugins": ("tools", "List every type of defense, model and judge."),
    "doctor": ("tools", "Check this installation."),
}
"""Command to its file, with NAME_command in it, and its help, in the order of `--help`."""

_HELP = "Measure whether an AI defense works, and how sure you can be of it."


class _Lazy(click.Group):
    """A group that imports a command's module only when that command is typed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        """Return the commands in the order of the table."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the signature is click's
        """Load one command, or None when it does not exist."""
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"guardmark.cli.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        command.name = cmd_name
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, with a hint when it is misspelt."""
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            from guardmark.core.errors import UnknownName

            raise UnknownName("command", name, _COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - the signature is click's
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


def build() -> Callable[..., object]:
    """Return the command line as one callable."""

    @click.group(
        cls=_Lazy,
        help=_HELP,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        epilog="Add --debug to any command for a traceback. Documentation: docs/ in the project.",
    )
    @click.version_option(package_name="guardmark", message="guardmark %(version)s")
    def guardmark() -> None:
        """Hold the commands."""

    return guardmark
