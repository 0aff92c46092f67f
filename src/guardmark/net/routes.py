"""Several addresses of one service: each request goes where the fewest are in flight."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from guardmark.core.outcome import ErrorKind
from guardmark.net.status_codes import is_overloaded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.net.service import Service, ServiceAnswer
    from guardmark.net.wire import Wire

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


class Route:
    """One of the addresses: its limits, how requests go there, and how it fared lately."""

    __slots__ = ("_failures", "_out_until", "in_flight", "service", "turn", "wire")

    def __init__(self, service: Service, wire: Wire) -> None:
        self.service = service
        self.wire = wire
        self.in_flight = 0
        self.turn = 0
        self._failures = 0
        self._out_until = 0.0

    def rank(self, now: float) -> tuple[bool, float, int]:
        """Order addresses: in order by requests in flight, then those left out by their end."""
        # After a pause a single request tries the address, and the others wait for it.
        is_trying = self._failures > 0 and self.in_flight > 0
        is_out = now < self._out_until or is_trying
        return is_out, self._out_until if is_out else 0.0, self.in_flight

    def note(self, answer: ServiceAnswer, now: float) -> None:
        """Learn from an answer: a server that fails is left out, longer each time."""
        if not _is_unwell(answer):
            self._failures, self._out_until = 0, 0.0
            return
        if now >= self._out_until:  # else it was under way when the failure became known
            self._failures += 1
            self.service.times_left_out += 1
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (self._failures - 1))
        self._out_until = max(self._out_until, now + max(pause_s, answer.retry_after_s or 0.0))


class Routes:
    """All addresses of one service, for requests of one endpoint."""

    __slots__ = ("_turn", "all")

    def __init__(self, routes: Sequence[Route]) -> None:
        self.all = tuple(routes)
        self._turn = 0

    def choose(self) -> Route:
        """Return where the next request goes; of equals, the one that was asked longest ago."""
        now = asyncio.get_running_loop().time()
        chosen = min(self.all, key=lambda route: (route.rank(now), route.turn))
        self._turn += 1
        chosen.turn = self._turn
        return chosen


def _is_unwell(answer: ServiceAnswer) -> bool:
    """Tell whether an answer speaks against the server, and not against the request."""
    if answer.error_kind in {ErrorKind.CONNECTION, ErrorKind.TIMEOUT}:
        return True
    status = answer.status or 0
    return answer.error_kind is not None and is_overloaded(status)
