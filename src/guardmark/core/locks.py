"""A lock on an open file that goes with its process, however that ends."""

from __future__ import annotations

import os
from typing import IO, Any


def try_lock(file: IO[Any]) -> bool:
    """Take the lock on a file, unless somebody has it."""
    try:
        if os.name == "nt":
            import msvcrt

            # Beyond the content: Windows would also keep others from reading locked bytes.
            file.seek(1 << 20)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]  # Windows only
        else:
            import fcntl

            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
