"""The table of commands: names to the files that hold them, loaded only when typed."""

from __future__ import annotations

import tomllib
from functools import partial
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

import click

_COMMANDS: dict[str, str] = {
    name: file
    for file, names in (
        ("run", ("demo", "run", "init", "check", "matrix", "merge")),
        ("labels", ("judge", "audit")),
        ("decide", ("compare", "gate", "plan")),
        ("read", ("report", "stability", "import", "export", "show", "view")),
        ("tools", ("verify", "schema", "plugins", "doctor", "completion")),
        *((name, (name,)) for name in ("data", "attacks", "adapt", "watch")),
    )
    for name in names
}
"""Command to its file, with NAME_command in it; `commands.toml` says how it is listed."""

_CALLING = ("run", "check", "matrix", "judge", "adapt", "doctor")
_HELP = "Measure whether an AI defense works, and how sure you can be of it."


class _Lazy(click.Group):
    """A group that imports a command's module only when that command is typed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        """Return the commands in the order of `--help`."""
        return list(_texts())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the signature is click's
        """Load one command, or None when it does not exist."""
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"guardmark.cli.{_COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        command.name = cmd_name
        if cmd_name in _CALLING and _ENV_FILE not in command.params:
            command.params.append(_ENV_FILE)
        command.format_epilog = partial(_format_examples, cmd_name)  # type: ignore[method-assign]
        words = read_words("options")
        _describe(command, words.get(cmd_name, {}), words["every"])
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
        """List the commands in their groups without importing them."""
        for group, texts in groupby(_texts().items(), key=lambda each: each[1]["group"]):
            with formatter.section(group):
                formatter.write_dl([(name, text["help"]) for name, text in texts])


def _set_variables(_context: click.Context, _option: click.Parameter, path: Path | None) -> None:
    from guardmark.cli.terminal import tell_line
    from guardmark.config.mistakes import names_secret
    from guardmark.config.source import read_text
    from guardmark.net.redaction import read_variables

    text = read_text(path, str(path)) if path else ""
    for name in read_variables(text, str(path), names_secret):
        tell_line(f"Note: {name} is set already: what {path} says of it is not taken.")


_ENV_FILE = click.Option(
    ["--env-file"],
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_set_variables,
)


def _texts() -> dict[str, dict[str, Any]]:
    return read_words("commands")


def read_words(name: str) -> dict[str, Any]:
    """Read a table of what commands say."""
    path = Path(__file__).with_name(f"{name}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _describe(command: click.Command, words: dict[str, Any], every: dict[str, str]) -> None:
    """Give a command, its options and its own commands the words that help shows."""
    command.help = words.get("about", command.help)
    for option in command.params:
        if isinstance(option, click.Option):
            name = max(option.opts, key=len).lstrip("-")
            option.help = words.get(name) or option.help or every.get(name)
    for name, each in getattr(command, "commands", {}).items():
        _describe(each, words.get(name, {}), every)


def _format_examples(name: str, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write examples and exit codes below the help of a command."""
    text = _texts()[name]
    with formatter.section("Examples"):
        for example in text["examples"]:
            formatter.write(f"  {example}\n")
    if "exits" in text:
        with formatter.section("Exit codes"):
            formatter.write_text(text["exits"])


def build() -> click.Command:
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
