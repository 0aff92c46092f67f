"""The working folder stays where it was, whatever a part does to it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def staying() -> Iterator[None]:
    """Come back, when a block ends, to the folder it began in.

    A part that changes the working folder would have reports of a run with a relative path
    written, or the folder of an abandoned run removed, somewhere else.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError:  # removed by somebody; then there is nothing to come back to
        yield
        return
    try:
        yield
    finally:
        os.chdir(here)
