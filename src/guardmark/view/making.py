"""Makes pages in threads: a few at once, each within a time limit."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    Handler = Callable[[Request], Response]

MOST_AT_ONCE: Final = 4
"""Pages that are made at the same time; others wait."""
PATIENCE_S: Final = 60.0
"""Time that a page may take, waiting included."""


class PageMaker:
    """Runs the handlers of pages, each in a thread of its own.

    The threads end with the process: who presses Ctrl-C does not wait for a page over a million
    samples. A page that takes longer than its time is given up by whoever asked; its thread still
    counts as one of the few, so that a folder made to be slow takes no more than those.
    """

    def __init__(self, *, most: int = MOST_AT_ONCE, patience_s: float = PATIENCE_S) -> None:
        self._room = asyncio.Semaphore(most)
        self._patience_s = patience_s

    async def make(self, handler: Handler, request: Request) -> Response:
        """Make a page, or say that it takes too long."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self._room.acquire()
                return await asyncio.shield(self._in_thread(handler, request))
        except TimeoutError:
            text = f"This page takes more than {self._patience_s:g} s; it was given up.\n"
            return PlainTextResponse(text, status_code=503)

    def _in_thread(self, handler: Handler, request: Request) -> asyncio.Future[Response]:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[Response] = loop.create_future()

        def finish(page: Response | None, error: BaseException | None) -> None:
            self._room.release()
            if made.cancelled():
                return
            if error is not None:
                made.set_exception(error)
            elif page is not None:
                made.set_result(page)

        def work() -> None:
            page, fault = None, None
            try:
                page = handler(request)
            except BaseException as error:  # noqa: BLE001 - it is raised where the page was asked for
                fault = error
            try:
                loop.call_soon_threadsafe(finish, page, fault)
            except RuntimeError:
                return  # the server has ended

        Thread(target=work, name="page", daemon=True).start()
        return made
