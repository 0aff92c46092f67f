"""What ends a command from outside is told from a fault of ours, however it is said."""

from __future__ import annotations

import errno

import pytest

from guardmark.cli.outside import outside_cause


def _caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


SHORT = {
    "Python": MemoryError(),
    "the loader of libraries": ImportError("a.so: failed to map segment from shared object"),
    "the loader, otherwise": ImportError("a.so: cannot allocate memory in static TLS block"),
    "a thread": RuntimeError("can't start new thread"),
    "the system": OSError(errno.ENOMEM, "Cannot allocate memory"),
    "what was raised instead": _caused(SystemError("returned NULL"), MemoryError()),
}


@pytest.mark.parametrize("who", SHORT)
def test_whoever_has_too_little_memory_ends_the_command_with_7(who: str) -> None:
    """The message says that memory was short, and what to do."""
    cause = outside_cause(SHORT[who])
    assert cause is not None
    assert cause.exit_code == 7
    assert cause.message.startswith("There is not enough memory for this.\nNext: ")


@pytest.mark.parametrize(
    "error", [ImportError("No module named 'x'"), RuntimeError("no loop"), SystemError("NULL")]
)
def test_the_same_kinds_of_error_for_other_reasons_are_ours(error: Exception) -> None:
    """Without a limit of memory, an error of C code is no sign of too little of it."""
    assert outside_cause(error) is None
