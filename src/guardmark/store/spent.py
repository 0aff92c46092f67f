"""What a command has spent of its limits, kept beside the records until it ends by itself.

A command that is killed leaves it there. The next one goes on from that sum, so that both together
stay within the limit. Like the lines of calls under way it survives a kill, not a power cut.
"""

from __future__ import annotations

import os
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from guardmark.store.file_errors import errors_of_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from guardmark.core.budget import SpendingMeter

SPENT: Final = ".spent"
"""Name of the file beside the records."""
_FORM: Final = struct.Struct("<qd")
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


@contextmanager
def keep_spending(path: Path, meter: SpendingMeter, *, is_new: bool = False) -> Iterator[bool]:
    """Note what a limited meter counts; tell whether a command that was killed had spent some."""
    if not meter.is_limited:
        yield False
        return
    earlier = None if is_new else _read(path)
    if earlier is not None:
        meter.count(*earlier)
    with errors_of_files(path):
        file = os.open(path, _FLAGS, 0o666)

    def note(calls: int, cost: float) -> None:
        with errors_of_files(path):
            os.lseek(file, 0, os.SEEK_SET)
            os.write(file, _FORM.pack(calls, cost))

    meter.note = note
    note(meter.calls, meter.cost)
    try:
        yield earlier is not None
    finally:
        meter.note = None
        os.close(file)
        path.unlink(missing_ok=True)


def _read(path: Path) -> tuple[int, float] | None:
    """Read what a command that was killed had spent; what is damaged says nothing."""
    if path.is_symlink() or not path.is_file():
        return None
    with errors_of_files(path), path.open("rb") as file:
        content = file.read(_FORM.size + 1)
    if len(content) != _FORM.size:
        return None
    calls, cost = _FORM.unpack(content)
    is_sound = calls >= 0 and 0 <= cost < float("inf")
    return (calls, cost) if is_sound else None
