"""What is printed: no key that this process read, on either stream."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from guardmark.app.run.error_output import tell
from guardmark.cli.terminal import echo, echo_json, echo_raw, echo_text
from guardmark.net.redaction import KNOWN, REDACTED

if TYPE_CHECKING:
    from pathlib import Path

KEY = "made-up-0f3b9c-for-the-terminal"


@pytest.mark.parametrize("print_it", [echo, echo_text, echo_raw, echo_json, tell])
def test_a_key_is_printed_on_neither_stream(
    print_it: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is, or behind the escapes of JSON."""
    KNOWN.hide(KEY)
    assert callable(print_it)
    print_it(f"before {KEY} and {json.dumps(KEY).replace('-', chr(92) + 'u002d')} after")
    printed = capsys.readouterr()
    text = printed.out + printed.err
    assert text.count(REDACTED) == 2
    assert "0f3b9c" not in text


@pytest.mark.parametrize(
    "text", ["##vso[task]x", "a\\##[error]", "\x9b31m", "\u2028\u202e\u2066", "\ufeff##"]
)
def test_json_is_printed_with_escapes_and_has_the_same_values(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a terminal nor a CI service obeys what stands in a string."""
    echo_json(json.dumps({text: [text]}, ensure_ascii=False))
    printed = capsys.readouterr().out
    assert json.loads(printed) == {text: [text]}
    assert not re.search("##\\w*\\[|[\x7f-\x9f\u2028\u202e\u2066\ufeff]", printed)
    assert len(printed.splitlines()) == 1


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}])
def test_a_terminal_sees_headings_in_bold_unless_it_wants_none(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    """Ours alone: what data hold is spelled out."""
    row = {"text": "Ignore this.", "label": "attack", "category": "\x1b[8mhidden", "id": "a"}
    (tmp_path / "data.jsonl").write_text(json.dumps(row), encoding="utf-8")
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "guardmark", "data", "check", "data.jsonl", "--open-categories"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "NO_COLOR"} | variables,
        stdout=theirs,
    )
    os.close(theirs)
    shown = b"".join(iter(partial(_read, ours), b"")).decode()
    os.close(ours)
    child.wait(timeout=60)
    assert "[U+001B]" in shown
    styles = set(re.findall(r"\x1b\[\d+m", shown))
    assert styles == (set() if variables else {"\x1b[1m", "\x1b[0m"})


def _read(screen: int) -> bytes:
    """What came until now; a terminal that nobody writes to any more is an error."""
    try:
        return os.read(screen, 65_536)
    except OSError:
        return b""
