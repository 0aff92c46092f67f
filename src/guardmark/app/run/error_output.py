"""What is said on stderr: without secrets, and to nobody where nobody reads it."""

from __future__ import annotations

import sys
from contextlib import suppress

from guardmark.net.redaction import KNOWN


def tell(text: str) -> None:
    """Write to stderr, if anybody still reads it; if not, that is no reason to end a run."""
    with suppress(OSError):
        sys.stderr.write(KNOWN.text(text))
        sys.stderr.flush()
