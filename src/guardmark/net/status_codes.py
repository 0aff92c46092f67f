"""What the status of an answer, such as 429, says: try again, slow down, ask another server."""

from __future__ import annotations

from typing import Final

_TOO_MANY: Final = 429
_UNAVAILABLE: Final = 503
_PASSING: Final = frozenset({408, 409, _TOO_MANY})
_SERVER_AT_FAULT: Final = 500


def may_pass(status: int) -> bool:
    """Tell whether what a status speaks of may be over at the next try."""
    return status in _PASSING or status >= _SERVER_AT_FAULT


def asks_to_slow_down(status: int | None) -> bool:
    """Tell whether a service says that it is asked too often."""
    return status in {_TOO_MANY, _UNAVAILABLE}


def is_overloaded(status: int) -> bool:
    """Tell whether a status speaks against the server, and not against the request."""
    return status == _TOO_MANY or status >= _SERVER_AT_FAULT
