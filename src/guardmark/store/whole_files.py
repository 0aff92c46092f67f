"""Files that are there whole or not at all; in the folder of a run they are sealed first."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from filecmp import cmp
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from guardmark.store.file_errors import errors_of_files
from guardmark.store.locks import try_lock
from guardmark.store.seals import seal_file

if TYPE_CHECKING:
    from collections.abc import Iterator

_PART: Final = ".part"  # how the name of a file ends that is not whole yet
_TURNS: Final = 9
_NEW_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes its name only once it is complete and on the disk.

    A file that has exactly these bytes already is left as it is, its time of change included:
    who writes reports again from the same records changes nothing. In the folder of a run it is
    sealed first.
    """
    with errors_of_files(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        file, part = _begin(path)
        try:
            with file:
                yield file
                file.flush()
                is_known = path.is_file() and cmp(part, path, shallow=False)
                if not is_known:
                    os.fsync(file.fileno())
            seal_file(path, part)
            if is_known:
                part.unlink()
            else:
                part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def _begin(path: Path) -> tuple[IO[bytes], Path]:
    """Open the file that is to become another, locked; again where it was swept away before."""
    for turn in range(_TURNS):
        name = path.parent / f".{path.name}.{secrets.token_hex(6)}{_PART}"
        # Created as any other file is, so that its mode follows the umask.
        number = os.open(name, _NEW_FILE, 0o666)
        file = os.fdopen(number, "wb")
        # A disk without locks knows no sweeping either.
        if (try_lock(file) or turn == _TURNS - 1) and os.fstat(number).st_nlink:
            break
        file.close()
    return file, Path(name)


def _sweep(path: Path) -> None:
    """Remove what writers of a file left half written when they were killed, and what is empty.

    Who still writes holds a lock. A part of another file may be sealed, so it stays.
    """
    for left in path.parent.glob(f".*{_PART}"):
        with suppress(OSError), left.open("rb+") as file:
            is_of_file = left.name.startswith(f".{path.name}.")
            if (is_of_file or not left.stat().st_size) and try_lock(file):
                left.unlink()
