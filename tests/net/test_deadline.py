"""One timer over many calls: each ends in its time, and nobody else's wish is mistaken for it."""

from __future__ import annotations

import asyncio

import pytest

from guardmark.net.deadline import Deadline, start_time


async def _call(deadline: Deadline, seconds: float) -> str:
    with deadline.call():
        start_time()
        await asyncio.sleep(seconds)
    return "in time"


async def test_a_call_in_time_passes() -> None:
    """Again and again over the same timer."""
    deadline = Deadline(5.0)
    assert [await _call(deadline, 0) for _ in range(3)] == ["in time"] * 3


async def test_every_late_call_ends_and_no_other() -> None:
    """Also those that began while others were watched."""
    deadline = Deadline(0.2)

    async def later(wait: float, seconds: float) -> str:
        await asyncio.sleep(wait)
        return await _call(deadline, seconds)

    calls = [later(0.04 * n, 0.0 if n % 2 else 60.0) for n in range(8)]
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(each, TimeoutError) for each in ended] == [n % 2 == 0 for n in range(8)]
    assert await _call(deadline, 0) == "in time"


async def test_a_cancelled_call_is_cancelled_not_late() -> None:
    """An interrupted run must end."""
    task = asyncio.create_task(_call(Deadline(60.0), 60.0))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_call_that_is_late_and_cancelled_is_cancelled() -> None:
    """Who wants the task to end is heard, whatever else happens at the same moment."""
    deadline = Deadline(0.05)

    async def slow() -> None:
        with deadline.call():
            start_time()
            try:
                await asyncio.sleep(60.0)
            except asyncio.CancelledError:
                task.cancel()
                raise

    task = asyncio.create_task(slow())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_after_a_late_call_its_task_goes_on() -> None:
    """The next attempt is made by the same task."""
    deadline = Deadline(0.05)
    with pytest.raises(TimeoutError):
        await _call(deadline, 60.0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert await _call(deadline, 0) == "in time"


def test_a_deadline_serves_one_loop_after_the_other() -> None:
    """A timer of a loop that is gone would watch over nothing."""
    deadline = Deadline(0.05)
    assert asyncio.run(_call(deadline, 0)) == "in time"
    with pytest.raises(TimeoutError):
        asyncio.run(_call(deadline, 60.0))


async def test_an_error_of_the_call_goes_through() -> None:
    """What a network does is named by others."""
    with pytest.raises(ConnectionError), Deadline(1.0).call():
        raise ConnectionError


async def test_no_time_runs_before_there_is_a_connection() -> None:
    """What comes before has a time of its own."""
    deadline = Deadline(0.05)
    with deadline.call():
        await asyncio.sleep(0.2)
        start_time()
    assert await _call(deadline, 0) == "in time"


async def test_a_second_connection_starts_the_time_anew() -> None:
    """A kept connection may turn out to be closed already."""
    deadline = Deadline(1.2)
    with deadline.call():
        for _ in range(3):
            start_time()
            await asyncio.sleep(0.5)
    with pytest.raises(TimeoutError):
        await _call(deadline, 60.0)


async def test_without_a_call_there_is_nothing_to_start() -> None:
    """Others may use the same connections."""
    start_time()
    assert await _call(Deadline(5.0), 0) == "in time"
