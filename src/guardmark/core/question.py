"""Which question of a run a call belongs to, so that what is recorded of it can be told apart."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Question = tuple[str, int, int]
"""Name of the part that is asked, repeat, and position of the sample."""

_PRESENT: ContextVar[Question | None] = ContextVar("_PRESENT", default=None)


def present_question() -> Question | None:
    """Return the question that the present task asks, or None outside of any."""
    return _PRESENT.get()


@contextmanager
def asking_about(part: str, repeat: int, position: int) -> Iterator[None]:
    """Let everything that is called meanwhile belong to a question."""
    token = _PRESENT.set((part, repeat, position))
    try:
        yield
    finally:
        _PRESENT.reset(token)
