"""A lock on a file, which goes with the process that has it, however that ends."""

from __future__ import annotations

import os
import time
from typing import IO, TYPE_CHECKING, Any, Final

from guardmark.core.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

_PATIENCE_S: Final = 10.0


def try_lock(file: IO[Any]) -> bool:
    """Take the lock on a file, and tell whether it was free."""
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


def wait_for_lock(file: IO[bytes], path: Path) -> None:
    """Take the lock on a file; wait up to ten seconds for another process to let go of it."""
    end = time.monotonic() + _PATIENCE_S
    while not try_lock(file):
        if time.monotonic() > end:
            raise StorageError(f"{path} is in use by another process.\nNext: try again later.")
        time.sleep(0.002)
