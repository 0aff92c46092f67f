"""What may reach a terminal: no control sequences from data, no carriage returns in logs."""

from __future__ import annotations

import sys
from contextlib import suppress

from guardmark.core.controls import clean


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
