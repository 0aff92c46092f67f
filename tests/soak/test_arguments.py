"""Fuzzing the command line: no words that a person can type are a fault of guardmark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guardmark.cli.commands import build

pytestmark = pytest.mark.soak

WORDS = (
    *("", "-", "--", ".", "..", "/", "nowhere", "x" * 300, "a\tb", "é" * 130, "\ud800", "{}"),
    *("0", "-1", "1e-320", "nan", "inf", "9" * 5000, "99999999999999999999", "0.9999999999999999"),
    *("/dev/null", "/dev/full", "/dev/zero", "pipe", "broken.yaml", "data.jsonl", "run", "key"),
    *("a=b", "a>=1", "asr<0.1", "1/2", "$.a", "[", "http://127.0.0.1:9/", "--json", "--limit"),
)
GROUP = build()
CONTEXT = click.Context(GROUP)
COMMANDS = sorted(set(GROUP.list_commands(CONTEXT)) - {"view", "watch"})  # those have no end


@st.composite
def typed(draw: st.DrawFn) -> list[str]:
    """A command with options that it has and words that it may not expect."""
    name = draw(st.sampled_from(COMMANDS))
    command = GROUP.get_command(CONTEXT, name)
    assert command is not None
    options = [each for param in command.params for each in param.opts if each.startswith("-")]
    word = st.sampled_from(WORDS)
    option = st.sampled_from(options) if options else word
    return [name, *draw(st.lists(st.one_of(word, option), max_size=5))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with things to stumble over."""
    path = tmp_path_factory.mktemp("typed")
    os.mkfifo(path / "pipe")
    (path / "broken.yaml").write_bytes(b"version: [\xff")
    (path / "data.jsonl").write_text('{"text": "a", "label": "attack"}\n', encoding="utf-8")
    (path / "run").mkdir()
    (path / "run" / "records.sqlite").write_bytes(b"SQLite format 3\0" + bytes(200))
    return path


@given(typed())
@settings(
    max_examples=int(os.environ.get("GUARDMARK_TYPED", "600")),
    deadline=None,
    derandomize=False,
    suppress_health_check=list(HealthCheck),
)
def test_no_words_are_a_fault_of_guardmark(folder: Path, words: list[str]) -> None:
    """No exit 70, no endless wait, and at most a few lines."""
    encoded = [word.encode("utf-8", "surrogatepass") for word in words]
    done = subprocess.run(
        [sys.executable.encode(), b"-m", b"guardmark", *encoded],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=120,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert done.returncode != 70, (words, done.stderr)
    assert done.returncode >= 0, (words, done.stderr)
    assert not list(folder.glob("guardmark-fault-*"))
