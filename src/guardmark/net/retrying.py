"""Trying again what may go better next time, and how long is waited before."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from guardmark.core.outcome import Attempt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from guardmark.net.service import ServiceAnswer, ServiceLimits

_LONGEST_BACKOFF_S = 30.0


class _Failed(Exception):
    """An attempt that may go better next time; carries no word of the service."""

    def __init__(self, wait_s: float | None) -> None:
        super().__init__("the attempt failed")
        self.wait_s = wait_s


async def try_again(
    first: ServiceAnswer, attempt: Callable[[], Awaitable[ServiceAnswer]], *, limits: ServiceLimits
) -> list[ServiceAnswer]:
    """Repeat an attempt that failed until one goes well or the retries are used up."""
    import stamina

    logger = logging.getLogger("stamina")
    if not logger.handlers:  # its warnings stay off stderr unless somebody has set up logging
        logger.addHandler(logging.NullHandler())
    answers = [first]
    try:
        async for turn in stamina.retry_context(
            on=_wait_before_next,
            attempts=limits.retries + 1,
            timeout=None,
            wait_initial=limits.backoff_s,
            wait_max=_LONGEST_BACKOFF_S,
            wait_jitter=limits.backoff_s,
        ):
            with turn:
                if turn.num > 1:
                    answers.append(await attempt())
                if answers[-1].worth_retrying:
                    raise _Failed(answers[-1].retry_after_s)  # noqa: TRY301 - makes stamina go on
    except _Failed:
        pass  # the last answer says what went wrong
    return answers


def as_attempts(answers: list[ServiceAnswer]) -> tuple[Attempt, ...]:
    """Write down every try, with the wait before it."""
    ends = [answers[0].started_ns, *(a.started_ns + a.service_ns for a in answers)]
    return tuple(
        Attempt(
            service_ns=answer.service_ns,
            status=answer.status,
            error=answer.error,
            wait_ns=answer.started_ns - end_ns,
        )
        for answer, end_ns in zip(answers, ends, strict=False)
    )


def _wait_before_next(error: Exception) -> bool | float:
    """Tell stamina whether to go on, and how long to wait if the service has said so."""
    if not isinstance(error, _Failed):
        return False
    return True if error.wait_s is None else error.wait_s
