"""What may reach a terminal: no control sequences from data, no carriage returns in logs."""

from __future__ import annotations

import re
import sys
from contextlib import suppress

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI sequences: colours, cursor movement
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC sequences: titles, links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS and the like
    r"|\x1b."
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # control characters but tab and line feed
    r"|[\u202a-\u202e\u2066-\u2069\u200e\u200f]",  # direction marks that reorder a line
    re.DOTALL,
)


def clean(text: str) -> str:
    """Strip everything that could steer a terminal.

    Args:
        text: Words that may come from data, from a service or from an exception.

    Returns:
        The text without escape sequences, control characters and direction marks; tabs and
        line feeds stay.
    """
    return _CONTROL.sub("", text)


def one_line(text: str, width: int) -> str:
    """Return a text on one line, cut to a width with an ellipsis.

    Args:
        text: Words that may come from data.
        width: Most characters, at least 1.

    Returns:
        The cleaned text, white space squeezed.
    """
    squeezed = " ".join(clean(text).split())
    return squeezed if len(squeezed) <= width else squeezed[: width - 1] + "…"


def tell(text: str) -> None:
    """Write to stderr, if anybody still reads it.

    A terminal that was closed and a pipe whose reader is gone are no reason to end a run.

    Args:
        text: Written as it is.
    """
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
