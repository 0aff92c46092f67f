"""What a run needs of its process: an event loop, the folder it began in, few threads of numpy."""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, TypeVar, cast

from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

Result = TypeVar("Result")


def run_on_loop(work: Coroutine[object, object, Result], *, uvloop: bool | None = False) -> Result:
    """Run a coroutine to its end on a loop of its own, also where a loop runs already.

    `uvloop` says whether on that loop; None means where it can be imported.
    """
    factory = None
    if uvloop or uvloop is None:
        try:
            factory = _uvloop_factory()
        except ConfigError:
            if uvloop:
                work.close()
                raise
    if _is_on_loop():
        return _run_in_thread(work, factory)
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_in_thread(
    work: Coroutine[object, object, Result], factory: Callable[[], asyncio.AbstractEventLoop] | None
) -> Result:
    """Run a coroutine in a thread, as the cells of a notebook are run by a loop themselves."""
    started: Future[Callable[[], object]] = Future()

    async def stoppable() -> Result:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        started.set_result(lambda: task and loop.call_soon_threadsafe(task.cancel))
        return await work

    def to_the_end() -> Result:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(stoppable())

    with ThreadPoolExecutor(max_workers=1) as thread:
        done = thread.submit(copy_context().run, to_the_end)
        try:
            return done.result()
        except KeyboardInterrupt:  # the cell was interrupted: what was answered is stored
            started.result()()
            raise


def _uvloop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        return cast(
            "Callable[[], asyncio.AbstractEventLoop]", resolve_name("uvloop:new_event_loop")
        )
    except ImportError as error:
        raise ConfigError(
            f"run.uvloop is true, but uvloop cannot be imported: {error}.\n"
            "Next: pip install uvloop (not for Windows), or take run.uvloop out."
        ) from error


@contextmanager
def keep_working_directory() -> Iterator[None]:
    """Come back, when a block ends, to the folder it began in: a part may change it."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # removed by somebody; then there is nothing to come back to
        yield
        return
    try:
        yield
    finally:
        os.chdir(here)


_THREADS = "OPENBLAS_NUM_THREADS"
_PRODUCT = 128  # rows; smaller ones take no buffer


def load_numpy_for_reports() -> None:
    """Import numpy with one linear-algebra thread, unless it is loaded already.

    A report multiplies no matrices, and idle threads of OpenBLAS cost a tenth of a short run. Only
    for a process that asks no defense any more, since those keep every thread they would have.
    """
    if "numpy" in sys.modules or _THREADS in os.environ:
        return
    os.environ[_THREADS] = "1"
    try:
        import numpy  # noqa: F401, ICN001 - for its effect: the threads are chosen here
    finally:
        del os.environ[_THREADS]


def load_numpy_within_limit() -> None:
    """Import all of numpy that is needed, where memory is limited and before it is taken.

    OpenBLAS ends the process, with its own code, where it gets no memory for a thread or for its
    first product: so it has one thread, and makes that product now.
    """
    load_numpy_for_reports()
    import numpy.random as _random  # noqa: F401 - for its effect: its libraries are loaded now
    from numpy import ones

    side = ones((_PRODUCT, _PRODUCT))
    side @ side
