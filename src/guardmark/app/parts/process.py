"""What a run needs of its process: an event loop, the folder it began in, few threads of numpy."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, TypeVar, cast

from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from guardmark.app.settings import RunSettings

Result = TypeVar("Result")


def run_on_loop(work: Coroutine[object, object, Result], settings: RunSettings) -> Result:
    """Run a coroutine to its end on a loop of its own."""
    try:
        factory = _factory(settings)
    except ConfigError:
        work.close()
        raise
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def _factory(settings: RunSettings) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not settings.uvloop:
        return None
    try:
        return cast(
            "Callable[[], asyncio.AbstractEventLoop]", resolve_name("uvloop:new_event_loop")
        )
    except ImportError as error:
        raise ConfigError(
            f"run.uvloop is true, but uvloop cannot be imported: {error}.\n"
            "Next: pip install 'guardmark[uvloop]' (not for Windows), or set run.uvloop to false."
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
