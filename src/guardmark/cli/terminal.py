"""What may reach a terminal: no control sequences from data, no carriage returns in logs."""

from __future__ import annotations

import sys
from contextlib import suppress

from guardmark.reports.document.safe_text import clean

EXIT_INTERRUPTED = 130


def one_line(text: str, width: int) -> str:
    """Return a text on one line, cut to a width with an ellipsis."""
    squeezed = " ".join(clean(text).split())
    return squeezed if len(squeezed) <= width else squeezed[: width - 1] + "…"


def tell(text: str) -> None:
    """Write to stderr, if anybody still reads it.

    A terminal that was closed and a pipe whose reader is gone are no reason to end a run.
    """
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def tell_line(text: str) -> None:
    """Write a line to stderr, in place of a progress line where there may be one."""
    line_start = "\r\x1b[2K" if sys.stderr.isatty() else ""
    tell(f"{line_start}{clean(text)}\n")
