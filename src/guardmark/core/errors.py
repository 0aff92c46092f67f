"""The tree of errors we raise on purpose, each with the exit code of the command line.

::

    GuardmarkError                 70
    ├── ConfigError                 2   a setting, an option or a name is wrong; nothing was called
    │   ├── BadSettings             2   found when the part is built, each with its setting
    │   └── UnknownName             2
    ├── DatasetError                3   rows, fields, labels
    ├── StoreError                  3   a foreign, damaged or newer run folder
    │   └── StorageError            7   disk full, folder not writable, folder in use
    ├── IncomparableRuns            3
    ├── ServiceError                4   a defense, model or judge is unreachable or rejects the key
    │   ├── ServiceTimeout          4
    │   └── ServiceRefused          4
    ├── UntrustworthyRun            5   too many errors, too few samples, a key in what was written
    └── BudgetReached               6   can be resumed
"""

from __future__ import annotations

from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MOST_MISTAKES: Final = 4  # with the line that counts the others, five
_MOST_LISTED: Final = 40  # some three lines of a terminal


class GuardmarkError(Exception):
    """Base of everything guardmark raises on purpose."""

    exit_code: ClassVar[int] = 70


class ConfigError(GuardmarkError):
    """A setting, an option or a name is wrong; nothing was called."""

    exit_code = 2


class BadSettings(ConfigError):
    """Settings that proved wrong when their part was built, each with its place below the part."""

    def __init__(self, mistakes: Iterable[tuple[tuple[str, ...], str]]) -> None:
        every = tuple(mistakes)
        self.mistakes = every[:_MOST_MISTAKES]
        self.more: tuple[str, ...] = ()
        left = len(every) - _MOST_MISTAKES
        if left > 0:
            self.more = (f"... and {left:,} more.",)
        lines = []
        for path, message in self.mistakes:
            lines.append(f"{'.'.join(path)}: {message}" if path else message)
        super().__init__("\n".join([*lines, *self.more]))


class UnknownName(ConfigError):
    """A configuration names a part that is not registered."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)  # once: what is given may be an iterator
        hint = f"{did_you_mean(name, names)} Known: {listed(names)}."
        super().__init__(f"No {kind} is called {name!r}.{hint}")


class DatasetError(GuardmarkError):
    """A data set cannot be used as it is; every bad row is named."""

    exit_code = 3


class StoreError(GuardmarkError):
    """A run folder is foreign, damaged or of a newer schema."""

    exit_code = 3


class StorageError(StoreError):
    """A run folder cannot be written: disk full, read-only, in use."""

    exit_code = 7


class IncomparableRuns(GuardmarkError):
    """Two runs do not measure the same thing."""

    exit_code = 3


class ServiceError(GuardmarkError):
    """A defense, model or judge cannot be reached or used."""

    exit_code = 4


class ServiceTimeout(ServiceError):
    """A service did not answer in time."""


class ServiceRefused(ServiceError):
    """A service refused our credentials or our request."""


class UntrustworthyRun(GuardmarkError):
    """Too many errors, too few samples, or a key in what was written."""

    exit_code = 5


class BudgetReached(GuardmarkError):
    """A stated budget is spent; the run can be resumed."""

    exit_code = 6


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest known name, or nothing."""
    near = get_close_matches(name, sorted(known), n=1)
    if not near:
        return ""
    return f" Did you mean {near[0]!r}?"


def as_word(name: str) -> str:
    """Return a name as it stands in a line of ours: quoted where it cannot be printed."""
    if name.isprintable():
        return name
    return repr(name)


def listed(names: Iterable[str]) -> str:
    """Return names sorted and joined by commas, or the word none."""
    ordered = list(map(as_word, sorted(names)))
    left = len(ordered) - _MOST_LISTED
    if left > 0:
        return f"{', '.join(ordered[:_MOST_LISTED])} and {left:,} more"
    return ", ".join(ordered) or "none"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in the plural where it needs one."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}s"


@contextmanager
def needs(what: str, extra: str) -> Iterator[None]:
    """Say which extra brings what a block imports, where that is not installed."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(f"{what}.\nNext: pip install 'guardmark[{extra}]'.") from error
