"""What ends a command and is no fault of guardmark: its exit code, and what to do about it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from guardmark.core.limits import memory_limit
from guardmark.core.values import dataclass

_STORAGE: Final = frozenset(
    getattr(errno, name)
    for name in (
        "ENOSPC",
        "EDQUOT",
        "EFBIG",
        "EROFS",
        "EIO",
        "EBADF",
        "EMFILE",
        "ENFILE",
        "EACCES",
        "EPERM",
        "EBUSY",
        "ETXTBSY",
    )
    if hasattr(errno, name)
)
"""The disk, the output or this machine: exit 7."""
_NAMES: Final = frozenset(
    getattr(errno, name)
    for name in ("ENAMETOOLONG", "ENOTDIR", "EISDIR", "ELOOP", "EILSEQ", "ENXIO", "ENODEV")
    if hasattr(errno, name)
)
"""A name that stands for no file that can be used: exit 2."""
_SHORT: Final = ("failed to map segment", "cannot allocate memory", "can't start new thread")
"""What the loader of libraries says, and Python of a thread, where memory is short."""
_PATHS: Final = frozenset({"pathlib", "posixpath", "ntpath", "genericpath"})
"""Modules of Python that hand the name of a file to the system."""
_LONGEST_NAME: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideCause:
    """Why a command ended, in two lines, and with which exit code."""

    exit_code: int
    message: str


def outside_cause(error: BaseException) -> OutsideCause | None:
    """Return what outside of guardmark ended a command, or None where that is unknown."""
    if is_for_memory(error):
        return OutsideCause(
            exit_code=7,
            message="There is not enough memory for this.\n"
            "Next: allow more, or take fewer samples (--limit). What was stored is safe.",
        )
    if isinstance(error, OSError):
        return _cause_of_files(error)
    if isinstance(error, UnicodeEncodeError) and _is_of_a_name(error):
        return OutsideCause(
            exit_code=2,
            message="The name of a file holds half a character, which no file can have.\n"
            "Next: correct the name in the configuration or the command.",
        )
    if isinstance(error, ValueError) and str(error).startswith("embedded null"):
        return OutsideCause(
            exit_code=2,
            message="The name of a file holds a null character, which no file can have.\n"
            "Next: correct the name in the configuration or the command.",
        )
    return None


def is_for_memory(error: BaseException) -> bool:
    """Tell whether memory was short, whichever library reports it."""
    each: BaseException | None = error
    while each is not None:
        text = str(each).lower()
        if isinstance(each, MemoryError):
            return True
        if isinstance(each, OSError) and each.errno == errno.ENOMEM:
            return True
        if isinstance(each, ImportError | RuntimeError) and any(map(text.__contains__, _SHORT)):
            return True
        if isinstance(each, SystemError) and memory_limit() is not None:
            return True  # so ends what C code makes of memory it was not given
        each = each.__cause__ or each.__context__
    return False


def _cause_of_files(error: OSError) -> OutsideCause | None:
    """Return why a file cannot be used; None where the error says something else."""
    reason = error.strerror or type(error).__name__
    if _is_folder_gone():
        return OutsideCause(
            exit_code=2,
            message="The current folder is gone.\nNext: change into a folder that exists.",
        )
    if error.errno in _NAMES:
        return OutsideCause(
            exit_code=2,
            message=f"{_short(error.filename)} cannot be used: {reason}.\nNext: name another file.",
        )
    if error.errno in _STORAGE:
        file = "The output"
        if error.filename is not None:
            file = _short(error.filename)
        return OutsideCause(
            exit_code=7,
            message=f"{file} cannot be written or read: {reason}.\n"
            "Next: see to the disk and its permissions, or name another place.",
        )
    return None


def _is_of_a_name(error: UnicodeEncodeError) -> bool:
    """Tell whether a name could not be handed to the system, and no text to a file."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and Path(last.tb_frame.f_code.co_filename).stem in _PATHS


def _short(name: object) -> str:
    text = "A file"
    if isinstance(name, str | bytes | os.PathLike):
        text = os.fsdecode(name)
    if len(text) <= _LONGEST_NAME:
        return text
    return f"{text[: _LONGEST_NAME - 1]}…"


def _is_folder_gone() -> bool:
    try:
        Path.cwd()
    except OSError:
        return True
    return False
