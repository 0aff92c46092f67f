"""What is printed: no key that this process read, on either stream."""

from __future__ import annotations

import json

import pytest

from guardmark.cli.terminal import echo, echo_raw, echo_text, tell
from guardmark.net.redaction import KNOWN, REDACTED

KEY = "made-up-0f3b9c-for-the-terminal"


@pytest.mark.parametrize("print_it", [echo, echo_text, echo_raw, tell])
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
