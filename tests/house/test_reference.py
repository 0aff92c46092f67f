"""The reference pages follow from the code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from guardmark.cli.commands import build

ROOT = Path(__file__).resolve().parents[2]


def test_commands_and_configuration_are_documented_as_they_are() -> None:
    """A new option or key that nobody documented fails here; the script writes the pages."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "write_reference.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nRun scripts/write_reference.py."


def test_every_option_says_what_it_does() -> None:
    """Whoever reads `--help` shall not have to guess from a name."""
    group = build()
    assert isinstance(group, click.Group)
    assert {f"{where} {name}" for where, name in _silent(group, "guardmark")} == set()


def _silent(group: click.Group, where: str) -> Iterator[tuple[str, str]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            if isinstance(command, click.Group):
                yield from _silent(command, f"{where} {name}")
            for each in command.params:
                if isinstance(each, click.Option) and not each.help:
                    yield f"{where} {name}", each.opts[-1]
