"""Executors: whoever makes the calls, each sample is stored once, and the run ends in order."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.engine.parts import Batched, Inline, Limits, Remote, built

from guardmark.core.errors import BudgetReached
from guardmark.core.manifest import LatencyMode
from guardmark.core.outcome import ALLOWED, Decision, Evidence, Outcome
from guardmark.core.record import Stage
from guardmark.core.sample import Prompt
from guardmark.engine import runner
from guardmark.engine.execution.batches import BatchExecutor
from guardmark.engine.execution.executor import DealtSamples, DefenseWork, Executor
from guardmark.engine.execution.inline import InlineExecutor
from guardmark.engine.execution.pool import PoolExecutor
from guardmark.engine.execution.service import ServiceExecutor
from guardmark.engine.plan import AnyDefense, Budget, Plan, Timing, Workers
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

OpenWriter = Callable[..., RecordWriter]
OPEN: Final = Timing(mode=LatencyMode.OPEN, rate_per_s=100.0)
ISOLATED: Final = Timing(mode=LatencyMode.ISOLATED)


class LaterFirst:
    """A plug-in that hands chunks back in the opposite order, and some of them cut short."""

    runs_alone: Final = False

    def __init__(self, rule: Callable[[Prompt], Decision], *, loses: int = 0) -> None:
        self._rule = rule
        self._loses = loses

    async def execute(self, work: DefenseWork) -> None:
        """Take all that is dealt before anything is answered."""
        dealt = list[DealtSamples]()
        while (part := work.deal(7)) is not None:
            dealt.append(part)
            await asyncio.sleep(0)
        for part in reversed(dealt):
            kept = part.chunk.prompts[: len(part.chunk.prompts) - self._loses]
            work.record(part, [self._rule(prompt) for prompt in kept], [5] * len(kept))


def stored(writer: RecordWriter, name: str) -> list[tuple[int, int, str]]:
    """Repeat, position and outcome of every decision."""
    writer.flush()
    with RecordReader(writer.path) as reader:
        found = list(reader.records(defense=name, stage=Stage.DEFENSE))
    return [(each.key.repeat, each.key.sample, each.outcome) for each in found]


async def test_chunks_may_come_back_in_any_order(
    open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each knows its repeat and its samples."""
    guard = Inline()
    monkeypatch.setattr(runner, "choose_executor", lambda *_: LaterFirst(guard.rule))
    writer = open_writer()
    await runner.run(Plan(defenses=(guard,), repeats=2), writer)
    assert stored(writer, "inline") == [
        (repeat, n, "allow" if n % 3 else "block") for repeat in range(2) for n in range(40)
    ]


async def test_what_an_executor_loses_is_asked_by_the_next_invocation(
    open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only that."""
    guard, plan = Inline(), Plan(defenses=(Inline(),))
    writer = open_writer()
    with monkeypatch.context() as patch:
        patch.setattr(runner, "choose_executor", lambda *_: LaterFirst(guard.rule, loses=1))
        await runner.run(plan, writer)
    assert len(stored(writer, "inline")) == 34
    await runner.run(Plan(defenses=(guard,)), open_writer())
    assert len(guard.calls) == 6


async def test_what_is_dealt_out_counts_against_the_budget(
    open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nobody has answered yet."""
    monkeypatch.setattr(runner, "choose_executor", lambda *_: LaterFirst(lambda _: ALLOWED))
    writer = open_writer()
    with pytest.raises(BudgetReached):
        await runner.run(Plan(defenses=(Inline(),), budget=Budget(calls=17)), writer)
    assert len(stored(writer, "inline")) == 17


@pytest.mark.parametrize(
    ("defense", "plan", "wanted"),
    [
        (Inline(), {}, InlineExecutor),
        (Inline(), {"workers": Workers.THREADS}, PoolExecutor),
        (
            Inline(),
            {
                "workers": Workers.PROCESSES,
                "factories": {"inline": functools.partial(built, Inline)},
            },
            PoolExecutor,
        ),
        (Inline(), {"workers": Workers.THREADS, "timing": ISOLATED}, InlineExecutor),
        (Inline(), {"timing": OPEN}, ServiceExecutor),
        (Remote(), {"workers": Workers.THREADS}, ServiceExecutor),
        (Batched(), {}, BatchExecutor),
        (Batched(), {"timing": ISOLATED}, ServiceExecutor),
    ],
)
async def test_the_kind_of_a_defense_and_the_plan_choose(
    *,
    open_writer: OpenWriter,
    monkeypatch: pytest.MonkeyPatch,
    defense: AnyDefense,
    plan: dict[str, object],
    wanted: type[Executor],
) -> None:
    """In one place; each asks about every sample of every repeat once."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))  # where a process finds `Inline`
    whole = Plan(defenses=(defense,), repeats=2, worker_count=2, **plan)  # type: ignore[arg-type]
    assert type(runner.choose_executor(whole.guards[0], whole)) is wanted
    writer = open_writer()
    await runner.run(whole, writer)
    assert [key[:2] for key in stored(writer, defense.name)] == [
        (repeat, n) for repeat in range(2) for n in range(40)
    ]


def where_it_runs(_: Prompt) -> Decision:
    """Name the process and the thread that are asked."""
    place = f"{os.getpid()} {threading.get_ident()}"
    return Decision(outcome=Outcome.ALLOW, evidence=Evidence(raw=place))


@pytest.mark.parametrize("workers", Workers)
async def test_workers_are_what_the_plan_calls_them(
    workers: Workers, open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This thread, other threads of this process, or other processes."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    make = functools.partial(Inline, rule=where_it_runs)
    factories = {"inline": functools.partial(built, make)}
    plan = Plan(defenses=(make(),), workers=workers, worker_count=2, factories=factories)
    writer = open_writer()
    await runner.run(plan, writer)
    writer.flush()
    with RecordReader(writer.path) as reader:
        told = [each.evidence.raw for each in reader.records(defense="inline") if each.evidence]
    assert len(told) == 40
    processes = {int(each.split()[0]) for each in told}
    threads = {int(each.split()[1]) for each in told}
    assert (processes == {os.getpid()}) is (workers is not Workers.PROCESSES)
    if workers is not Workers.PROCESSES:
        assert (threads == {threading.get_ident()}) is (workers is Workers.INLINE)


async def test_a_worker_of_a_service_that_fails_ends_the_others(open_writer: OpenWriter) -> None:
    """A mistake in our machinery is loud, and leaves no task behind."""
    guard = Batched(batch_limits=Limits(max_count=4))
    writer = open_writer()
    plan = Plan(defenses=(guard,), concurrency_of={"batched": 3})
    original = writer.flush_if_due

    def fail(*_: object, **__: object) -> bool:
        original(0)
        raise RuntimeError("out of order")

    writer.flush_if_due = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="out of order"):
        await runner.run(plan, writer)
    assert len(asyncio.all_tasks()) == 1
