"""Every command and every setting that a page shows is one that this version knows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from guardmark.app.parts.loading import parse_config
from guardmark.app.settings import Config, GateSettings
from guardmark.cli.commands import build
from guardmark.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name != "decisions"),
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"\s*(?:\$ )?(?:[A-Z_]+=\S+ )*guardmark (.*)")
ANOTHER = re.compile(r"\s[|>;<]|&&|\s2>")  # where the next program, or a file, begins
USUAL: dict[str, Any] = {
    "version": 1,
    "data": [{"builtin": "core"}],
    "defenses": {"words": {"type": "pattern", "builtin": True}},
}


def blocks(language: str = "") -> Iterator[tuple[str, str]]:
    """What stands in fences of a language, or in any, with the name of its page."""
    for page in PAGES:
        for named, text in FENCE.findall(page.read_text(encoding="utf-8")):
            if language in {"", named}:
                yield page.name, text


def commands() -> Iterator[tuple[str, list[str]]]:
    """What follows the word guardmark in each line that begins with it."""
    for page, text in blocks():
        for line in text.replace("\\\n", " ").splitlines():
            if found := COMMAND.match(line):
                yield page, shlex.split(ANOTHER.split(found[1])[0], comments=True)


def parsed(words: list[str]) -> str:
    """Name the command that takes these words; refuse an unknown command or option."""
    command: click.Command = build()
    context, left = click.Context(command), list(words)
    while isinstance(command, click.Group) and left and not left[0].startswith("-"):
        found = command.get_command(context, left.pop(0))
        assert found is not None, words
        command, context = found, click.Context(found, parent=context)
    command.make_parser(context).parse_args(left)
    return command.name or ""


def test_every_command_of_the_pages_is_known_with_its_options() -> None:
    """A reader who copies a line gets no usage error."""
    mistakes, names = [], set[str]()
    for page, words in commands():
        try:
            names.add(parsed(words))
        except (click.UsageError, AssertionError) as error:
            mistakes.append(f"{page}: guardmark {' '.join(words)}: {error}")
    assert mistakes == []
    assert len(names) > 20


def test_an_option_that_is_gone_would_be_seen() -> None:
    """The test above can fail."""
    with pytest.raises(click.NoSuchOption):
        parsed(["run", "bench.yaml", "--gone"])
    with pytest.raises(AssertionError):
        parsed(["gone"])


def as_configuration(settings: dict[str, Any]) -> str:
    """Put a part of a configuration, or one defense, among what every configuration has."""
    given = {"defenses": {"mine": settings}} if "type" in settings else settings
    usual = dict(USUAL)
    if "agent" in given:  # its suite takes the place of data
        del usual["data"]
    return yaml.safe_dump({**usual, **given}, sort_keys=False)


def test_every_setting_of_the_pages_is_read(tmp_path: Path) -> None:
    """Configurations, their sections, single defenses, and policies of gates."""
    mistakes, read = [], 0
    for page, text in blocks("yaml"):
        settings = yaml.safe_load(text)
        try:
            if isinstance(settings, dict) and (
                set(settings) <= set(Config.model_fields) or "type" in settings
            ):
                parse_config(as_configuration(settings), folder=tmp_path, shown_as=page)
            elif isinstance(settings, dict) and set(settings) <= gate_keys():
                GateSettings.model_validate(settings)
            else:
                continue
        except (ConfigError, ValueError) as error:
            mistakes.append(f"{page}: {error}")
        read += 1
    assert mistakes == []
    assert read > 40


def gate_keys() -> set[str]:
    """What a policy may say, by the names that its file has for it."""
    return {field.alias or name for name, field in GateSettings.model_fields.items()}
