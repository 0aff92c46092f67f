"""The commands of `commands.toml`, each loaded from its file only when typed."""

from __future__ import annotations

import tomllib
from functools import cache, partial, update_wrapper
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

_HELP = "Measure whether an AI defense works, and how sure you can be of it."


_FIRST_STEPS = """\
guardmark measures whether an AI defense works, and how sure you can be of it.

  guardmark demo                        see a first measurement, offline, in a minute
  guardmark run --url ADDRESS           measure a service of yours
  guardmark init -o bench.yaml          write a configuration to edit
  guardmark show                        read what got through in the last run
  guardmark gate --policy limits.yaml   hold it against limits
  guardmark --help                      list every command"""


class _Lazy(click.Group):
    """A group that imports a command's module only when that command is typed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read `guardmark help run` as `guardmark run --help`."""
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        """Return the commands in the order of `--help`."""
        return list(_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the signature is click's
        """Load one command, or None when it does not exist."""
        known = _commands().get(cmd_name)
        if known is None:
            return None
        module = import_module(f"guardmark.cli.{known.get('file', cmd_name)}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        command.name = cmd_name
        if "calls" in known and _ENV_FILE not in command.params:
            command.params.append(_ENV_FILE)
        if _QUIET not in command.params:
            if "levels" in known or "quiet" in known:
                command.params.append(_QUIET)
            if "levels" in known:
                command.params.append(_VERBOSE)
        carry_out = command.callback
        if "figures" in known and carry_out and not isinstance(carry_out, _OneThread):
            command.callback = _OneThread(carry_out)
        command.format_epilog = partial(_format_examples, cmd_name)  # type: ignore[method-assign]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, with a hint when it is misspelt."""
        name, known = args[0], _commands()
        if name not in known and not name.startswith("-"):
            from guardmark.core.errors import UnknownName

            raise UnknownName("command", name, known)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - the signature is click's
        """List the commands in their groups without importing them."""
        texts = _commands().items()
        for group, listed in groupby(texts, key=lambda each: each[1]["group"]):
            with formatter.section(group):
                formatter.write_dl([(name, text["help"]) for name, text in listed])


class _OneThread:
    """A command that computes with one thread: several would wait for each other, awake."""

    def __init__(self, carry_out: Callable[..., Any]) -> None:
        self._carry_out = carry_out
        update_wrapper(self, carry_out)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Load numpy for one thread, then carry the command out."""
        from guardmark.engine.execution.process import load_numpy_for_reports

        load_numpy_for_reports()
        return self._carry_out(*arguments, **options)


def _set_variables(_context: click.Context, _option: click.Parameter, path: Path | None) -> None:
    from guardmark.cli.terminal import tell_line
    from guardmark.config.mistakes import names_secret
    from guardmark.config.source import read_text
    from guardmark.net.redaction import read_variables

    text = ""
    if path:
        text = read_text(path, str(path))
    for name in read_variables(text, str(path), names_secret):
        tell_line(f"Note: {name} is set already: what {path} says of it is not taken.")


_ENV_FILE = click.Option(
    ["--env-file"],
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_set_variables,
    help=(
        "Read variables (keys, base URLs) from this file of NAME=VALUE lines; those "
        "that are set already stay."
    ),
)


def _set_level(context: click.Context, option: click.Parameter, value: bool) -> None:
    from guardmark.cli.terminal import LEVEL

    if not value:
        return
    if LEVEL in context.meta:
        raise click.UsageError("-q says little and -v says all: give one of them.")
    context.meta[LEVEL] = 1
    if option.name == "quiet":
        context.meta[LEVEL] = -1


_QUIET = click.Option(
    ["-q", "--quiet"],
    is_flag=True,
    expose_value=False,
    callback=_set_level,
    help="Say the answer only: no progress, no notes.",
)
_VERBOSE = click.Option(
    ["-v", "--verbose"],
    is_flag=True,
    expose_value=False,
    callback=_set_level,
    help="Say all of it, chapter by chapter, not the first screen only.",
)


@cache
def _commands() -> dict[str, Any]:
    """Read what `guardmark --help` lists, without importing a command."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _format_examples(name: str, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write examples and exit codes below the help of a command."""
    text = _commands()[name]
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
        invoke_without_command=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        epilog="Add --debug to any command for a traceback; help COMMAND says what one does.",
    )
    @click.version_option(
        None, "-V", "--version", package_name="guardmark", message="guardmark %(version)s"
    )
    @click.pass_context
    def guardmark(context: click.Context) -> None:
        """Hold the commands."""
        if context.invoked_subcommand is None:
            click.echo(_FIRST_STEPS)

    return guardmark
