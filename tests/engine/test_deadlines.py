"""A call in this process that does not come back is an error of its sample, and the run goes on."""

from __future__ import annotations

import asyncio
import ctypes
import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, cast

import pytest
from tests.engine.parts import Inline, Remote, built, number_of, thirds

from guardmark.app.parts import building
from guardmark.app.parts.loading import parse_config
from guardmark.config.deadline import CallAlarm, Overrun
from guardmark.core.errors import BudgetReached, UntrustworthyRun
from guardmark.core.manifest import LatencyMode
from guardmark.core.outcome import Decision, ErrorKind
from guardmark.core.protocols import Capabilities
from guardmark.core.record import Stage
from guardmark.core.sample import Prompt
from guardmark.defenses.chain import ChainDefense
from guardmark.defenses.classifier import ClassifierDefense
from guardmark.defenses.function import defense_from
from guardmark.defenses.guard import as_guard
from guardmark.defenses.pattern import CompiledRule, PatternDefense
from guardmark.engine import runner
from guardmark.engine.calls import attempt, decide_all, decide_batch
from guardmark.engine.execution.inline import InlineExecutor
from guardmark.engine.plan import Budget, Plan, Timing, Workers
from guardmark.engine.supervision import StopSignal
from guardmark.inference.classifier import ClassScore
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

if TYPE_CHECKING:
    from guardmark.core.protocols import ChatModel, Judge
    from guardmark.defenses.calls.failure import Failure
    from guardmark.engine.plan import BuiltPart
    from guardmark.inference.classifier import SequenceClassifier

OpenWriter = Callable[..., RecordWriter]
HOPELESS = re.compile("(a+)+$")
LATE = (3, 17)


def search_for_ever(prompt: Prompt) -> Decision:
    """Search with a pattern of exponential time in two samples."""
    if number_of(prompt) in LATE:
        HOPELESS.search("a" * 60 + "b")
    return thirds(prompt)


def sleep_long(prompt: Prompt) -> Decision:
    """Sleep in two samples."""
    if number_of(prompt) in LATE:
        time.sleep(60)
    return thirds(prompt)


def wait_in_a_library(prompt: Prompt) -> Decision:
    """Wait, in one sample, in code that looks at no signal."""
    if number_of(prompt) == LATE[0]:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        ctypes.PyDLL(None).sleep(60)  # holds the interpreter meanwhile
    return thirds(prompt)


@dataclass
class Timed(Inline):
    """Has a time for each call."""

    timeout_s: float = 1.0

    @property
    def capabilities(self) -> Capabilities:
        """Its time."""
        return Capabilities(view=self.view, timeout_s=self.timeout_s)


def outcomes(writer: RecordWriter, name: str = "inline") -> dict[int, tuple[str, str]]:
    """Position to outcome and kind of error."""
    writer.flush()
    with RecordReader(writer.path) as reader:
        rows = list(reader.records(defense=name, stage=Stage.DEFENSE))
    return {row.key.sample: (row.outcome, row.error_kind or "") for row in rows}


def expected(late: tuple[int, ...] = LATE) -> dict[int, tuple[str, str]]:
    """What a run with two late samples stores, whoever makes the calls."""
    usual = {n: ("allow" if n % 3 else "block", "") for n in range(40)}
    return usual | dict.fromkeys(late, ("error", "timeout"))


@pytest.mark.parametrize("rule", [search_for_ever, sleep_long])
@pytest.mark.parametrize("mode", [LatencyMode.LOADED, LatencyMode.OPEN])
async def test_in_line_the_sample_is_an_error_and_the_next_is_asked(
    open_writer: OpenWriter, rule: Callable[[Prompt], Decision], mode: LatencyMode
) -> None:
    """A regular expression holds the interpreter, and ends all the same."""
    guard, writer = Timed(rule=rule), open_writer()
    rate = 1000.0 if mode is LatencyMode.OPEN else None
    await runner.run(Plan(defenses=(guard,), timing=Timing(mode=mode, rate_per_s=rate)), writer)
    assert outcomes(writer) == expected()
    assert all(count == 1 for count in guard.calls.values())


async def test_the_latency_of_the_others_is_their_own(open_writer: OpenWriter) -> None:
    """A late call takes its time and no more, and its neighbours nothing of it."""
    writer = open_writer()
    await runner.run(Plan(defenses=(Timed(rule=search_for_ever),)), writer)
    writer.flush()
    with RecordReader(writer.path) as reader:
        rows = list(reader.records(defense="inline", stage=Stage.DEFENSE))
    took = {row.key.sample: row.latency_ns or 0 for row in rows}
    assert all(1.0e9 <= took[n] < 2.0e9 for n in LATE)
    others = sorted(took[n] for n in took if n not in LATE)
    assert others[len(others) // 2] < 0.05e9
    assert others[-1] < 1.0e9  # a busy machine may hold one up


RULES = """\
version: 1
data: [{builtin: core}]
pipeline:
  model: {type: scripted, rules: [{when: '(a+)+$', answer: found}]}
  judges:
    - {type: rules, name: one, unsafe: ['(a+)+$']}
    - type: panel
      name: three
      judges:
        - {type: rules, name: first, unsafe: [x]}
        - {type: rules, name: second, unsafe: ['(a+)+$']}
"""


async def test_rules_of_a_model_and_of_a_judge_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern of exponential time is an error of its sample, whoever searches with it."""
    monkeypatch.setattr(building, "PATTERN_TIMEOUT_S", 0.2)
    loaded = parse_config(RULES, folder=Path(), shown_as="rules.yaml")
    parts, text = building.build_parts(loaded, None), "a" * 60 + "b"
    model = cast("ChatModel", cast("BuiltPart", parts.model).part)
    judges, prompt = [cast("Judge", each.part) for each in parts.judges], Prompt.of_text(text)
    late = [await attempt(model.answer, prompt)]
    late += [await attempt(each.judge, prompt, text) for each in judges]
    assert [cast("Failure", each).kind for each in late] == [ErrorKind.TIMEOUT] * 3
    assert [(await each.judge(prompt, "x")).label for each in judges] == ["safe", "malformed"]


@pytest.mark.slow
@pytest.mark.parametrize("rule", [search_for_ever, sleep_long, wait_in_a_library])
async def test_a_process_that_does_not_come_back_is_ended_and_another_started(
    open_writer: OpenWriter,
    monkeypatch: pytest.MonkeyPatch,
    rule: Callable[[Prompt], Decision],
) -> None:
    """Also one that is in code of a library; the figures are those of calls in line."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    plan = Plan(
        defenses=(Timed(rule=rule),),
        workers=Workers.PROCESSES,
        worker_count=2,
        factories={"inline": partial(built, partial(Timed, rule=rule))},
    )
    writer = open_writer()
    await asyncio.wait_for(runner.run(plan, writer), 60)
    assert outcomes(writer) == expected(LATE[:1] if rule is wait_in_a_library else LATE)


async def test_a_thread_that_does_not_come_back_is_left_behind(open_writer: OpenWriter) -> None:
    """Nothing that was answered is lost, and what comes late is not listened to."""
    until = time.monotonic() + 4

    def rule(prompt: Prompt) -> Decision:
        if number_of(prompt) in LATE:
            time.sleep(max(0.0, until - time.monotonic()))
        return thirds(prompt)

    writer = open_writer()
    plan = Plan(defenses=(Timed(rule=rule),), workers=Workers.THREADS, worker_count=2)
    await runner.run(plan, writer)
    assert outcomes(writer) == expected()


async def test_too_many_threads_left_behind_end_the_run(open_writer: OpenWriter) -> None:
    """It says what to do; what was answered is stored."""
    until, calls = time.monotonic() + 4, count()

    def rule(prompt: Prompt) -> Decision:
        if next(calls) > 5:
            time.sleep(max(0.0, until - time.monotonic()))
        return thirds(prompt)

    writer = open_writer()
    plan = Plan(
        defenses=(Timed(rule=rule, timeout_s=0.3),), workers=Workers.THREADS, worker_count=1
    )
    with pytest.raises(
        UntrustworthyRun, match=r"4 calls of inline have not come back(?s:.*)processes"
    ):
        await runner.run(plan, writer)
    assert len(outcomes(writer)) >= 6


def test_a_pattern_is_searched_for_in_line_where_there_are_threads() -> None:
    """In a thread it would hold all others up, and could not be ended."""
    pattern = PatternDefense("p", [CompiledRule(name="r", search=HOPELESS.search)])
    plan = Plan(defenses=(pattern,), workers=Workers.THREADS, worker_count=2)
    for defense in (pattern, ChainDefense("c", [pattern])):
        assert type(runner.choose_executor(as_guard(defense), plan)) is InlineExecutor


async def test_a_pattern_has_ten_seconds_and_a_chain_the_time_of_its_members() -> None:
    """A function has sixty, awaited or not."""

    async def late(text: str) -> bool:
        await asyncio.sleep(60)
        return bool(text)

    pattern = PatternDefense("p", [CompiledRule(name="r", search=HOPELESS.search)])
    function = defense_from(lambda _: True, name="f")
    assert (pattern.timeout_s, function.timeout_s) == (10, 60)
    assert ChainDefense("c", [pattern, function]).capabilities.timeout_s == 70
    assert ChainDefense("c", [pattern, Inline()]).capabilities.timeout_s is None
    awaited = defense_from(late, timeout_s=0.05)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        await awaited.decide(Prompt.of_text("x"))  # type: ignore[union-attr]


async def test_a_late_call_does_not_spend_more_of_a_budget(open_writer: OpenWriter) -> None:
    """It is one call."""
    writer = open_writer()
    plan = Plan(defenses=(Timed(rule=search_for_ever),), budget=Budget(calls=10))
    with pytest.raises(BudgetReached):
        await runner.run(plan, writer)
    assert len(outcomes(writer)) == 10


async def test_a_warm_up_call_that_is_late_is_over_in_time(open_writer: OpenWriter) -> None:
    """It is measured no more than the others of the warm-up."""
    writer = open_writer()
    plan = Plan(defenses=(Timed(rule=search_for_ever),), timing=Timing(warmup=5))
    await asyncio.wait_for(runner.run(plan, writer), 20)
    assert outcomes(writer) == expected()


async def test_a_part_that_swallows_the_alarm_hears_it_again(open_writer: OpenWriter) -> None:
    """Until it lets go."""
    heard = 0

    def rule(prompt: Prompt) -> Decision:
        nonlocal heard
        while number_of(prompt) == 3 and heard < 2:
            try:
                time.sleep(60)
            except BaseException:  # noqa: BLE001 - as a careless part does
                heard += 1
        return thirds(prompt)

    writer = open_writer()
    await runner.run(Plan(defenses=(Timed(rule=rule),)), writer)
    assert heard == 2
    assert outcomes(writer)[4] == ("allow", "")


def test_somebody_elses_alarm_is_set_again() -> None:
    """With the time that is left of it, and only in the main thread."""
    calls = list[int]()
    before = signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(Overrun), CallAlarm(0.1):
            time.sleep(5)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 0.91
        time.sleep(1.1)
        assert calls == [1]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_the_time_of_calls_that_are_done_is_not_counted_against_the_next() -> None:
    """One alarm stands for calls within each other: it is set again for what it has left."""
    began = time.monotonic()
    with (
        pytest.raises(Overrun, match=r"no answer within 0\.05 s"),
        CallAlarm(0.05, finished_s=lambda: 0.15),
    ):
        time.sleep(5)
    assert 0.2 <= time.monotonic() - began < 2


def test_the_kind_of_an_overrun() -> None:
    """It is an error of the kind timeout, with the setting to change in its message."""
    prompts = [Prompt.of_text("text 3"), Prompt.of_text("text 4")]
    decisions, _ = decide_all(search_for_ever, prompts, timeout_s=0.2, stop=StopSignal())
    assert [each.error_kind for each in decisions] == [ErrorKind.TIMEOUT, None]
    assert "timeout_s" in (decisions[0].evidence.message if decisions[0].evidence else "")


async def test_a_classifier_that_does_not_come_back_is_late_and_others_are_asked() -> None:
    """Its thread is left behind; after four of them none is begun any more."""
    over = Event()

    class Stuck:
        def scores(self, texts: Sequence[str]) -> list[ClassScore]:
            if "stuck" in texts[0]:
                over.wait(30)
            return [ClassScore(probability=0.9, tokens=3, truncated=False) for _ in texts]

    guard = ClassifierDefense(
        "c", cast("SequenceClassifier", Stuck()), threshold=0.5, timeout_s=0.1
    )
    stuck, sound = Prompt.of_text("stuck"), Prompt.of_text("sound")
    try:
        for _ in range(3):
            (late,) = await decide_batch(as_guard(guard), [stuck])
            assert late.error_kind is ErrorKind.TIMEOUT
        assert [each.outcome for each in await decide_batch(as_guard(guard), [sound, sound])] == [
            "block"
        ] * 2
        await decide_batch(as_guard(guard), [stuck])
        (refused,) = await decide_batch(as_guard(guard), [sound])
        assert refused.error_kind is ErrorKind.TIMEOUT
    finally:
        over.set()
        await guard.close()


async def test_a_classifier_that_came_back_late_by_its_own_word_is_asked_on() -> None:
    """A timeout that it raised itself leaves no call behind, however often that happens."""

    class Impatient:
        def scores(self, texts: Sequence[str]) -> list[ClassScore]:
            if "late" in texts[0]:
                raise TimeoutError("the model was busy")
            return [ClassScore(probability=0.9, tokens=3, truncated=False) for _ in texts]

    guard = ClassifierDefense("c", cast("SequenceClassifier", Impatient()), threshold=0.5)
    for _ in range(9):
        (late,) = await decide_batch(as_guard(guard), [Prompt.of_text("late")])
        assert late.error_kind is ErrorKind.TIMEOUT
        assert late.evidence is not None
        assert "the model was busy" in late.evidence.message
    (sound,) = await decide_batch(as_guard(guard), [Prompt.of_text("sound")])
    assert sound.outcome == "block"
    await guard.close()


async def test_no_more_workers_than_samples(open_writer: OpenWriter) -> None:
    """However many calls a service may have in flight."""
    guard, writer = Remote(delay_s=0.05), open_writer(5)
    before = len(asyncio.all_tasks())
    run = asyncio.create_task(runner.run(Plan(defenses=(guard,), concurrency=2000), writer))
    await asyncio.sleep(0.03)
    assert len(asyncio.all_tasks()) - before < 20
    await run
    assert len(guard.calls) == 5
