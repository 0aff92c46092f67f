"""Fuzzing the command line: no words that a person can type are a fault of guardmark."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.cli.forked import Forked

from guardmark.cli.commands import build

pytestmark = pytest.mark.soak

SECONDS = float(os.environ.get("GUARDMARK_TYPED_S", "120"))
"""How long words are drawn."""
MOST_S = 90.0
"""Time that any one command may take on a busy machine; none of these is asked to do much."""

WORDS = (
    *("", "-", "--", ".", "..", "/", "nowhere", "x" * 300, "a\tb", "é" * 130, "\ud800", "{}"),
    *("0", "-1", "1e-320", "nan", "inf", "9" * 5000, "99999999999999999999", "0.9999999999999999"),
    *("/dev/null", "/dev/full", "/dev/zero", "pipe", "broken.yaml", "data.jsonl", "run", "key"),
    *("a=b", "a>=1", "asr<0.1", "1/2", "$.a", "[", "http://127.0.0.1:9/", "--json", "--limit"),
    *("bench.yaml", "measured", "gone/..", "\\", "%s", "2026-01-01", "base64", "promptfoo"),
)
GROUP = build()
CONTEXT = click.Context(GROUP)
ENDLESS = {"view", "watch"}


def commands(
    group: click.Group = GROUP, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that name it, those of groups included."""
    for name in group.list_commands(CONTEXT):
        command = group.get_command(CONTEXT, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))
        elif name not in ENDLESS:
            yield (*above, name), command


COMMANDS = list(commands())


def typed(chance: random.Random) -> list[str]:
    """A command with options that it has and words that it may not expect."""
    name, command = chance.choice(COMMANDS)
    options = [each for param in command.params for each in param.opts if each.startswith("-")]
    drawn = [
        chance.choice(options if options and chance.random() < 0.5 else WORDS)
        for _ in range(chance.randint(0, 5))
    ]
    return [*name, *drawn]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with things to stumble over, and a run that is whole."""
    path = tmp_path_factory.mktemp("typed")
    os.mkfifo(path / "pipe")
    (path / "broken.yaml").write_bytes(b"version: [\xff")
    rows = [
        f'{{"id": "{label}{n}", "text": "text {n} of {label}", "label": "{label}"}}\n'
        for n in range(6)
        for label in ("attack", "benign")
    ]
    (path / "data.jsonl").write_text("".join(rows), encoding="utf-8")
    (path / "bench.yaml").write_text(
        "version: 1\ndata: [{path: data.jsonl}]\ndefenses: {words: {type: pattern, keywords: [secret]}}\n",
        encoding="utf-8",
    )
    (path / "run").mkdir()
    (path / "run" / "records.sqlite").write_bytes(b"SQLite format 3\0" + bytes(200))
    with Forked() as shell:
        measured = shell.run(["run", "bench.yaml", "-o", "measured"], cwd=path)
    assert measured.code == 0, measured.err
    return path


def test_no_words_are_a_fault_of_guardmark(folder: Path) -> None:
    """No exit 70, no endless wait, no word of Python."""
    chance = random.Random(os.environ.get("GUARDMARK_TYPED_SEED") or None)
    until = time.monotonic() + SECONDS
    count = 0
    with Forked() as shell:
        while time.monotonic() < until:
            words = typed(chance)
            ended = shell.run(words, cwd=folder, most_s=MOST_S)
            count += 1
            assert ended.code is not None, (words, "did not end")
            assert ended.code != 70, (words, ended.err)
            assert 0 <= ended.code < 99 or ended.code == 130, (words, ended.code, ended.err)
            assert "Traceback" not in ended.err, (words, ended.err)
            assert not list(folder.glob("guardmark-fault-*")), words
    print(f"{count} commands")  # noqa: T201 - how many is what the run was worth
    assert count > SECONDS / MOST_S
