"""Which call of a part a request belongs to, and what was sent and spent for it.

A part knows nothing of the run that asks it. So whoever makes a call opens an account for it, and
the client of services finds that of the task it works for.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from contextvars import Token

AskedAbout = tuple[str, int, int]
"""Name of the part that is asked, repeat, and position of the sample."""

_PRESENT: ContextVar[CallAccount | None] = ContextVar("_PRESENT", default=None)


def present_account() -> CallAccount | None:
    """Return the account of the call that the present task makes, or None outside of any."""
    return _PRESENT.get()


class CallAccount:
    """What one call of a part sends and costs; present while its block runs.

    Attributes:
        asked_about: What the call asks about, or None for one that belongs to no sample.
        requests: Requests sent for it.
        cost: What they cost, as far as it is known.
        beside: What parts in this process cost for it, such as members of a chain.
        unpriced: Requests whose cost is not known, or not yet.
    """

    __slots__ = ("_token", "asked_about", "beside", "cost", "requests", "unpriced")

    def __init__(self, asked_about: AskedAbout | None = None) -> None:
        self.asked_about = asked_about
        self.requests = 0
        self.cost = 0.0
        self.beside = 0.0
        self.unpriced = 0
        self._token: Token[CallAccount | None] | None = None

    def __enter__(self) -> Self:
        """Take the place of the account that was open before."""
        self._token = _PRESENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        if self._token is not None:
            _PRESENT.reset(self._token)
