"""Every sample goes through every defense exactly once, whatever happens."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine.parts import Batched, Inline, Limits, Remote, built, number_of, thirds

from guardmark.core.errors import (
    BudgetReached,
    ConfigError,
    ServiceRefused,
    ServiceTimeout,
    UntrustworthyRun,
)
from guardmark.core.manifest import LatencyMode, Policy, RunManifest
from guardmark.core.outcome import (
    ALLOWED,
    BLOCKED,
    Attempt,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
)
from guardmark.core.record import Stage
from guardmark.core.sample import Prompt, Sample, View
from guardmark.core.usage import Usage
from guardmark.engine.plan import Budget, BuiltPart, Plan, Timing, Workers
from guardmark.engine.run_monitor import Progress
from guardmark.engine.runner import Ending, run
from guardmark.engine.supervision import StopSignal
from guardmark.inference.runtime import HALVED
from guardmark.store.columns import record_columns
from guardmark.store.reader import RecordReader, RunState
from guardmark.store.records import RecordWriter
from guardmark.store.schema import FLAG_AMORTISED, FLAG_COLD, FLAG_PLANNED

OpenWriter = Callable[..., RecordWriter]


def decided(path: Path, name: str, repeat: int = 0) -> dict[int, str]:
    """Position to outcome of one defense, each position once."""
    with RecordReader(path) as reader:
        records = [
            r for r in reader.records(defense=name, stage=Stage.DEFENSE) if r.key.repeat == repeat
        ]
    assert len(records) == len({record.key for record in records})
    return {record.key.sample: record.outcome for record in records}


def expected(count: int) -> dict[int, str]:
    """What the rule of thirds says."""
    return {n: "block" if n % 3 == 0 else "allow" for n in range(count)}


async def test_memory_that_ran_out_is_told_once_when_the_run_is_over(
    open_writer: OpenWriter,
) -> None:
    """Each record says it, and one line names the part."""
    halved = Decision(outcome=Outcome.ALLOW, evidence=Evidence(message=HALVED))
    plan = Plan(defenses=(Batched(rule=lambda _prompt: halved),))
    summary = await run(plan, open_writer())
    assert summary.notes == (f"batched: {HALVED}",)


@pytest.mark.parametrize("make", [Inline, Remote, Batched])
@pytest.mark.parametrize("mode", [LatencyMode.LOADED, LatencyMode.ISOLATED, LatencyMode.OPEN])
async def test_every_kind_of_defense_gives_the_same_records(
    open_writer: OpenWriter, make: Callable[[], Any], mode: LatencyMode
) -> None:
    """How a defense is called changes no decision."""
    writer = open_writer()
    timing = Timing(mode=mode, rate_per_s=5000 if mode is LatencyMode.OPEN else None)
    summary = await run(Plan(defenses=(make(),), timing=timing, repeats=2), writer)
    assert (summary.ending, summary.planned, summary.stored, summary.added) == (
        Ending.COMPLETE,
        80,
        80,
        80,
    )
    for repeat in range(2):
        assert decided(writer.path, make().name, repeat) == expected(40)
    with RecordReader(writer.path) as reader:
        assert reader.status().state is RunState.COMPLETE
        columns = record_columns(reader, make().name)
    assert (columns.latency_ns > 0).all()
    assert ((columns.flags & FLAG_PLANNED) > 0).all() == (mode is LatencyMode.OPEN)
    assert ((columns.flags & FLAG_COLD) > 0).sum() >= 1


async def test_several_defenses_share_one_run(open_writer: OpenWriter) -> None:
    """Paired comparison needs the same samples in one file."""
    writer = open_writer()
    progress = Progress()
    parts = (Remote(), Inline(), Batched())
    await run(Plan(defenses=parts), writer, progress=progress)
    for part in parts:
        assert decided(writer.path, part.name) == expected(40)
    assert {pulse.name: (pulse.done, pulse.planned) for pulse in progress.parts} == {
        "remote": (40, 40),
        "inline": (40, 40),
        "batched": (40, 40),
    }
    (pulse,) = [p for p in progress.parts if p.name == "inline"]
    assert pulse.blocked(is_attack=True) == pulse.blocked(is_attack=False) == (7, 20)


@pytest.mark.parametrize("make", [Inline, Remote, Batched])
async def test_a_complete_run_calls_nothing_again(
    open_writer: OpenWriter, make: Callable[[], Any]
) -> None:
    """The same command twice costs the calls of one."""
    await run(Plan(defenses=(make(),)), open_writer())

    def never(prompt: Prompt) -> Decision:
        raise AssertionError

    plan = Plan(defenses=(make().__class__(rule=never),), timing=Timing(warmup=5))
    summary = await run(plan, open_writer())
    assert (summary.added, summary.calls, summary.stored) == (0, 0, 40)


@pytest.mark.parametrize("make", [Inline, Remote, Batched])
async def test_a_stopped_run_goes_on_where_it_was(
    open_writer: OpenWriter, make: Callable[..., Any]
) -> None:
    """Stopped ten times, every sample is still stored once."""
    for limit in range(1, 11):
        stop, seen = StopSignal(), Counter[int]()

        def rule(
            prompt: Prompt,
            *,
            stop: StopSignal = stop,
            seen: Counter[int] = seen,
            limit: int = limit,
        ) -> Decision:
            seen[number_of(prompt)] += 1
            if sum(seen.values()) >= limit:
                stop.set("SIGINT")
            return thirds(prompt)

        summary = await run(Plan(defenses=(make(rule=rule),)), open_writer(), stop=stop)
        if summary.ending is Ending.COMPLETE:
            break
        assert summary.reason == "SIGINT"
        with RecordReader(open_writer().path) as reader:
            assert reader.status().state is RunState.INTERRUPTED
    await run(Plan(defenses=(make(),)), open_writer())
    assert decided(open_writer().path, make().name) == expected(40)


async def test_a_stop_does_not_wait_for_slow_calls(open_writer: OpenWriter) -> None:
    """What is finished is stored; what is in flight is dropped."""
    stop = StopSignal()
    asked: list[int] = []

    class Mixed(Remote):
        async def decide(self, prompt: Prompt) -> Decision:
            asked.append(number_of(prompt))
            if len(asked) > 10:
                stop.set()
                await asyncio.sleep(3600)
            return ALLOWED

    writer = open_writer()
    summary = await asyncio.wait_for(run(Plan(defenses=(Mixed(),)), writer, stop=stop), 30)
    assert summary.ending is Ending.INTERRUPTED
    assert set(decided(writer.path, "remote")) == set(asked[:10])


async def test_cancelling_the_run_keeps_what_is_finished(open_writer: OpenWriter) -> None:
    """A caller's timeout is an interruption like any other."""
    asked: list[int] = []

    class Mixed(Remote):
        async def decide(self, prompt: Prompt) -> Decision:
            asked.append(number_of(prompt))
            if len(asked) > 10:
                task.cancel()
                await asyncio.sleep(3600)
            return ALLOWED

    writer = open_writer()
    task = asyncio.ensure_future(run(Plan(defenses=(Mixed(),)), writer))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert set(decided(writer.path, "remote")) == set(asked[:10])
    with RecordReader(writer.path) as reader:
        assert reader.status().state is RunState.INTERRUPTED


async def test_no_more_calls_in_flight_than_allowed(open_writer: OpenWriter) -> None:
    """The service's limit is kept, and used."""
    part = Remote(delay_s=0.005)
    await run(
        Plan(defenses=(part,), concurrency=16, concurrency_of={"remote": 7}), open_writer(100)
    )
    assert part.most == 7
    single = Remote(name="single")
    timing = Timing(mode=LatencyMode.ISOLATED)
    other = Remote(name="other")
    await run(Plan(defenses=(single, other), timing=timing), open_writer(100))
    assert (single.most, other.most) == (1, 1)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("boom\nline"), ErrorKind.CRASH),
        (ServiceTimeout("slow"), ErrorKind.TIMEOUT),
        (TimeoutError(), ErrorKind.TIMEOUT),
        (ServiceRefused("401"), ErrorKind.REFUSED),
    ],
)
@pytest.mark.parametrize("make", [Inline, Remote, Batched])
async def test_what_a_defense_raises_is_an_error_and_no_decision(
    open_writer: OpenWriter, make: Callable[..., Any], error: Exception, kind: ErrorKind
) -> None:
    """A crash is neither an allow nor a block, and harms no neighbour."""

    def rule(prompt: Prompt) -> Decision:
        if number_of(prompt) == 4:
            raise error
        return thirds(prompt)

    writer = open_writer(10)
    await run(Plan(defenses=(make(rule=rule),)), writer)
    assert decided(writer.path, make().name) == {**expected(10), 4: "error"}
    with RecordReader(writer.path) as reader:
        (record,) = [r for r in reader.records() if r.key.sample == 4]
        assert record.error_kind is kind
        assert record.evidence is not None
        assert type(error).__name__ in record.evidence.message
        assert record.latency_ns is not None


@pytest.mark.parametrize("make", [Inline, Remote, Batched])
async def test_an_answer_of_the_wrong_type_is_an_error(
    open_writer: OpenWriter, make: Callable[..., Any]
) -> None:
    """A plug-in that returns a bool breaks the contract, loudly but alone."""
    writer = open_writer(3)
    await run(Plan(defenses=(make(rule=lambda _: True),)), writer)
    assert decided(writer.path, make().name) == dict.fromkeys(range(3), "error")


async def test_a_batch_of_the_wrong_length_is_an_error(open_writer: OpenWriter) -> None:
    """Answers that cannot be assigned are not guessed."""

    class Short(Batched):
        async def decide_batch(self, prompts: Any) -> list[Decision]:
            return [ALLOWED] * 2 if len(prompts) > 1 else []

    writer = open_writer(5)
    await run(Plan(defenses=(Short(),)), writer)
    assert decided(writer.path, "batched") == dict.fromkeys(range(5), "error")


@pytest.mark.parametrize("make", [Inline, Remote, Batched])
async def test_what_a_view_cannot_show_is_skipped_never_allowed(
    open_writer: OpenWriter, make: Callable[..., Any]
) -> None:
    """A filter for documents says nothing about a chat line; that is no failure either."""
    writer = open_writer(3)
    part = make(view=View.DOCUMENT)
    await run(Plan(defenses=(part,), max_errors=0), writer)
    assert decided(writer.path, part.name) == dict.fromkeys(range(3), "error")
    with RecordReader(writer.path) as reader:
        assert {r.error_kind for r in reader.records()} == {ErrorKind.SKIPPED}


async def test_batches_hold_samples_of_like_length(
    open_writer: OpenWriter, sample: Callable[[int], Sample]
) -> None:
    """Padding is what makes naive batches slow."""
    part = Batched(batch_limits=Limits(max_count=5, max_tokens=40))
    writer = open_writer(50)
    await run(Plan(defenses=(part,)), writer)
    sizes = [[1 + len(sample(n).prompt.text) // 3 for n in batch] for batch in part.batches]
    assert sorted(n for batch in part.batches for n in batch) == list(range(50))
    assert all(len(batch) <= 5 and len(batch) * max(batch) <= 40 for batch in sizes)
    flat = [size for batch in sizes for size in batch]
    assert flat == sorted(flat)
    with RecordReader(writer.path) as reader:
        columns = record_columns(reader, "batched")
    alone = sum(len(batch) == 1 for batch in part.batches)
    assert ((columns.flags & FLAG_AMORTISED) == 0).sum() == alone


async def test_warm_up_calls_are_kept_apart(open_writer: OpenWriter) -> None:
    """A cold start is measured and excluded, in every process anew."""
    for session in range(2):
        part = Inline()
        stop = StopSignal()
        writer = open_writer()
        plan = Plan(defenses=(part,), timing=Timing(warmup=5), budget=Budget(calls=15))
        with pytest.raises(BudgetReached):
            await run(plan, writer, stop=stop)
        with RecordReader(writer.path) as reader:
            warm = [r.key for r in reader.records(stage=Stage.WARMUP)]
            assert [(k.sample, k.repeat) for k in warm] == [
                (n, s) for s in range(session + 1) for n in range(5)
            ]
            assert len(decided(writer.path, "inline")) == 10 * (session + 1)
            columns = record_columns(reader, "inline")
            assert not (columns.flags & FLAG_COLD).any()
            warmups = record_columns(reader, "inline", stage=Stage.WARMUP)
            assert ((warmups.flags & FLAG_COLD) > 0).tolist() == ([True] + [False] * 4) * (
                session + 1
            )


@pytest.mark.parametrize("make", [Inline, Remote, Batched])
async def test_a_budget_of_calls_is_never_exceeded_and_the_run_goes_on_later(
    open_writer: OpenWriter, make: Callable[..., Any]
) -> None:
    """Every invocation may spend its budget; nothing is asked twice."""
    part = make()
    for done in (15, 30):
        writer = open_writer()
        with pytest.raises(BudgetReached, match="15 of 15 calls") as caught:
            await run(Plan(defenses=(part,), budget=Budget(calls=15)), writer)
        assert caught.value.exit_code == 6
        assert len(decided(writer.path, part.name)) == done
    summary = await run(Plan(defenses=(part,), budget=Budget(calls=15)), open_writer())
    assert (summary.ending, summary.stored, summary.calls) == (Ending.COMPLETE, 40, 10)


async def test_tokens_and_money_stop_a_run(open_writer: OpenWriter) -> None:
    """What services report is counted, tries included."""
    usage = Usage(prompt_tokens=8, completion_tokens=2, cost=0.25)
    tries = (Attempt(service_ns=1, status=500, error="http"), Attempt(service_ns=1, status=200))
    spent = Decision(outcome=Outcome.ALLOW, evidence=Evidence(usage=usage, attempts=tries))
    for budget, said in ((Budget(tokens=50), "50 of 50 tokens"), (Budget(cost=1.0), "1 of 1 cost")):
        writer = open_writer(name=f"{said[:2].strip()}.sqlite")
        with pytest.raises(BudgetReached, match=said):
            await run(
                Plan(defenses=(Remote(rule=lambda _: spent),), concurrency=1, budget=budget), writer
            )
        assert len(decided(writer.path, "remote")) == (5 if budget.tokens else 4)
    summary = await run(
        Plan(defenses=(Remote(rule=lambda _: spent),)), open_writer(name="free.sqlite")
    )
    assert (summary.tokens, summary.cost, summary.calls) == (400, 10.0, 80)


async def test_time_stops_a_run(open_writer: OpenWriter) -> None:
    """A run that must fit a window leaves what it has."""
    with pytest.raises(BudgetReached, match="seconds are up"):
        await run(
            Plan(defenses=(Remote(delay_s=3600),), budget=Budget(seconds=0.05)), open_writer()
        )


@pytest.mark.parametrize("make", [Inline, Remote, Batched])
async def test_too_many_errors_stop_a_run(
    open_writer: OpenWriter, make: Callable[..., Any]
) -> None:
    """A dead service is not asked to the end of the data."""

    def broken(prompt: Prompt) -> Decision:
        raise ServiceTimeout("dead")

    writer = open_writer(500)
    with pytest.raises(UntrustworthyRun, match="5 are allowed") as caught:
        await run(Plan(defenses=(make(rule=broken),), max_errors=5, concurrency=2), writer)
    assert caught.value.exit_code == 5
    found = decided(writer.path, make().name)
    assert 5 < len(found) < 300
    assert set(found.values()) == {"error"}
    with RecordReader(writer.path) as reader:
        assert reader.status().state is RunState.FAILED


@pytest.mark.parametrize("outcome", [Outcome.MALFORMED, Outcome.ERROR])
async def test_the_policy_stop_stops(open_writer: OpenWriter, outcome: Outcome) -> None:
    """Stop means stop, and the answer that did it is stored."""
    decision = Decision(
        outcome=outcome, error_kind=ErrorKind.HTTP if outcome is Outcome.ERROR else None
    )
    asked: list[int] = []

    def rule(prompt: Prompt) -> Decision:
        asked.append(number_of(prompt))
        return decision if len(asked) == 8 else ALLOWED

    part = Remote(rule=rule)
    plan = Plan(defenses=(part,), concurrency=1, on_malformed=Policy.STOP, on_error=Policy.STOP)
    writer = open_writer()
    with pytest.raises(UntrustworthyRun, match="policy is to stop"):
        await run(plan, writer)
    assert decided(writer.path, "remote") == {
        **dict.fromkeys(asked[:7], "allow"),
        asked[7]: outcome.value,
    }


async def _first_asked(writer: RecordWriter, manifest: RunManifest, calls: int) -> list[int]:
    part = Inline(rule=thirds)
    with writer:
        writer.put_manifest(manifest)
        with pytest.raises(BudgetReached):
            await run(Plan(defenses=(part,), budget=Budget(calls=calls)), writer)
    return sorted(decided(writer.path, part.name))


async def test_a_run_that_is_cut_short_has_seen_a_random_part_in_whole_groups(
    tmp_path: Path, manifest: RunManifest, sample: Callable[[int], Sample]
) -> None:
    """Data come sorted: their first part would say nothing of the rest."""
    parts = []
    for name, seed in (("first", 0), ("again", 0), ("other", 1)):
        writer = RecordWriter(tmp_path / f"{name}.sqlite")
        writer.load_samples(replace(sample(n), group=f"origin {n // 4}") for n in range(400))
        parts.append(await _first_asked(writer, replace(manifest, seed=seed), 100))
    first, again, other = parts
    assert first == again != other
    assert len({n // 4 for n in first}) == 25
    assert 25 < sum(n < 200 for n in first) < 75  # within five standard errors of 50


async def test_large_data_are_asked_about_in_random_blocks(
    tmp_path: Path, manifest: RunManifest, sample: Callable[[int], Sample]
) -> None:
    """One by one, rows out of order would cost as much as the run."""
    writer = RecordWriter(tmp_path / "large.sqlite")
    writer.load_samples(sample(n) for n in range(20_000))
    asked = await _first_asked(writer, manifest, 4_000)
    assert len({n // 50 for n in asked}) == 80
    assert 1_000 < sum(n < 10_000 for n in asked) < 3_000  # within five standard errors


class AfterTen:
    """Ends a defense when it has made ten decisions, in an order of its own."""

    def __init__(self, count: int, names: Sequence[str]) -> None:
        self.ends = set(names)
        self.order = random.Random(7).sample(range(count), count)
        self.seen: dict[str, list[tuple[int, int]]] = {name: [] for name in names}

    def observe(self, defense: str, position: int, outcome: int) -> None:
        """Note one."""
        self.seen[defense].append((position, outcome))

    def is_done(self, defense: str) -> bool:
        """Ten are enough."""
        return defense in self.ends and len(self.seen[defense]) >= 10

    def reason(self) -> str:
        """Ten of each are enough."""
        return "ten are enough" if all(map(self.is_done, self.seen)) else ""


@pytest.mark.parametrize("make", [Inline, Remote])
async def test_a_rule_ends_a_run_early_over_shuffled_samples(
    open_writer: OpenWriter, make: Callable[..., Any]
) -> None:
    """Data come sorted by label; a rule that stops early must see them mixed."""
    rule, writer = AfterTen(5000, [make().name]), open_writer(5000)
    summary = await run(Plan(defenses=(make(),)), writer, stop_rule=rule)
    assert (summary.ending, summary.reason) == (Ending.EARLY, "ten are enough")
    found = decided(writer.path, make().name)
    assert 10 <= len(found) < 200
    assert max(found) > 2500 > min(found)
    assert summary.planned == summary.stored == len(found)


async def test_a_rule_decided_for_one_defense_ends_that_one_alone(open_writer: OpenWriter) -> None:
    """The others go on; the run says that it was not complete for all."""
    writer = open_writer(900)
    parts: list[Any] = [Inline(name="a"), Inline(name="b"), Remote(name="c"), Remote(name="d")]
    rule = AfterTen(900, [part.name for part in parts])
    rule.ends = {"a", "c"}
    summary = await run(Plan(defenses=tuple(parts)), writer, stop_rule=rule)
    counts = {part.name: len(decided(writer.path, part.name)) for part in parts}
    assert counts["b"] == counts["d"] == 900
    assert max(counts["a"], counts["c"]) < 200
    assert summary.ending is Ending.EARLY
    assert "a, c" in summary.reason


async def test_a_defense_that_was_ended_early_is_not_asked_again(open_writer: OpenWriter) -> None:
    """Continued runs start from a rule that knows the stored answers."""
    writer, part = open_writer(900), Remote(name="c")
    rule = AfterTen(900, ["c"])
    rule.seen["c"] = [(0, 0)] * 10
    summary = await run(Plan(defenses=(part,)), writer, stop_rule=rule)
    assert (summary.ending, summary.added, summary.reason) == (Ending.EARLY, 0, "ten are enough")


async def test_the_order_of_samples_changes_no_record(open_writer: OpenWriter) -> None:
    """A shuffled run of all samples gives the figures of an ordered one."""
    for make in (Inline, Remote):
        writer = open_writer(2500, name=f"{make.__name__}.sqlite")
        part: Any = make(delay_s=0) if make is Remote else make()
        rule = AfterTen(2500, [part.name])
        rule.ends = set()
        await run(Plan(defenses=(part,)), writer, stop_rule=rule)
        assert decided(writer.path, part.name) == expected(2500)
        assert set(part.calls.values()) == {1}


def slow_rule(prompt: Prompt) -> Decision:
    """Block every third sample, after a moment."""
    time.sleep(0.0005)
    if number_of(prompt) == 5:
        raise ValueError
    return thirds(prompt)


@pytest.mark.parametrize("workers", [Workers.THREADS, Workers.PROCESSES])
async def test_workers_give_the_same_records(
    open_writer: OpenWriter, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads and processes change speed, nothing else."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))  # where a process finds this file
    writer = open_writer(200)
    make = functools.partial(built, functools.partial(Inline, rule=slow_rule))
    plan = Plan(
        defenses=(make().part,), workers=workers, worker_count=2, factories={"inline": make}
    )
    await run(plan, writer)
    assert decided(writer.path, "inline") == {**expected(200), 5: "error"}
    with RecordReader(writer.path) as reader:
        latency = record_columns(reader, "inline").latency_ns
    assert (latency >= 500_000).all()


def die() -> BuiltPart:
    """End the process that builds it."""
    os._exit(1)


async def test_a_process_that_dies_ends_the_run_in_words(
    open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that runs out in a worker is no traceback, and nothing stored is lost."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    writer = open_writer(200)
    plan = Plan(
        defenses=(Remote(), Inline()),
        workers=Workers.PROCESSES,
        worker_count=1,
        factories={"inline": die},
    )
    with pytest.raises(UntrustworthyRun, match="process that ran inline died"):
        await run(plan, writer)
    with RecordReader(writer.path) as reader:
        assert reader.status().state is RunState.FAILED


async def test_processes_need_a_maker(open_writer: OpenWriter) -> None:
    """A defense that lives in this process only is refused, in words."""
    plan = Plan(defenses=(Inline(),), workers=Workers.PROCESSES)
    with pytest.raises(ConfigError, match="cannot run in processes"):
        await run(plan, open_writer())


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(defenses=(Inline(), Inline())), "same name"),
        (Plan(defenses=(Inline(),), repeats=0), "repeats"),
        (Plan(defenses=(Inline(),), timing=Timing(mode=LatencyMode.OPEN)), "needs a rate"),
        (Plan(defenses=(Inline(),), timing=Timing(warmup=-1)), "warmup"),
    ],
)
async def test_a_plan_that_cannot_be_done_is_refused_before_any_call(
    open_writer: OpenWriter, plan: Plan, said: str
) -> None:
    """Usage errors cost nothing."""
    with pytest.raises(ConfigError, match=said):
        await run(plan, open_writer())


async def test_a_latency_of_the_part_itself_wins_except_in_open_mode(
    open_writer: OpenWriter,
) -> None:
    """The part times its wire; only planned send times count from outside."""
    part = Remote(rule=lambda _: Decision(outcome=Outcome.BLOCK, latency_ns=42))
    writer = open_writer(5)
    await run(Plan(defenses=(part,)), writer)
    with RecordReader(writer.path) as reader:
        assert set(record_columns(reader, "remote").latency_ns.tolist()) == {42}
    writer = open_writer(5, name="open.sqlite")
    timing = Timing(mode=LatencyMode.OPEN, rate_per_s=1000)
    await run(Plan(defenses=(part,), timing=timing), writer)
    with RecordReader(writer.path) as reader:
        assert (record_columns(reader, "remote").latency_ns > 1_000_000).all()


async def test_open_mode_counts_the_wait_behind_a_slow_answer(open_writer: OpenWriter) -> None:
    """A stall delays the calls planned meanwhile; leaving that out would flatter the service."""
    asked: list[int] = []

    class Stalls(Remote):
        async def decide(self, prompt: Prompt) -> Decision:
            asked.append(number_of(prompt))
            await asyncio.sleep(0.3 if len(asked) == 1 else 0)
            return BLOCKED

    writer = open_writer(20)
    timing = Timing(mode=LatencyMode.OPEN, rate_per_s=1000)
    await run(Plan(defenses=(Stalls(),), timing=timing, concurrency=1), writer)
    with RecordReader(writer.path) as reader:
        assert (record_columns(reader, "remote").latency_ns > 200_000_000).all()


@pytest.mark.parametrize(("make", "is_service"), [(Remote, True), (Inline, False)])
async def test_how_busy_this_machine_was_is_kept_of_calls_to_services(
    open_writer: OpenWriter, make: Callable[[], Any], *, is_service: bool
) -> None:
    """A defense that answers here is busy by its nature; one that is waited for is not."""
    writer = open_writer()
    await run(Plan(defenses=(make(),)), writer)
    with RecordReader(writer.path) as reader:
        load = reader.status().load
    assert (load.share is not None) is is_service
    assert 0 <= (load.share or 0.0) <= 1
