"""Guards that are asked while an answer grows: which prefixes of it they see, and where it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engine.parts import Inline, Remote, number_of
from tests.engine.test_arms import OpenWriter, arms, rows
from tests.engine.test_rewriting import Chat, Reading

from guardmark.core.chunks import ChunkRule
from guardmark.core.errors import BudgetReached
from guardmark.core.manifest import Policy
from guardmark.core.outcome import ALLOWED, BLOCKED, Decision, ErrorKind, Outcome, Response
from guardmark.core.place import NO_GUARD
from guardmark.core.record import Stage
from guardmark.core.sample import Prompt, View
from guardmark.engine.plan import Budget, Pipeline, Plan
from guardmark.engine.runner import Ending, run
from guardmark.store.reader import RecordReader

ANSWER = "0123456789ABCDEFGHIJKLMNO"  # 25 characters: chunks of ten end at 10, 20 and the whole


class Watch:
    """A guard behind the model that notes what it is shown."""

    def __init__(self, rule: Callable[[str], Decision], name: str = "watch") -> None:
        self.shown: Counter[tuple[int, str]] = Counter()
        self.part = Remote(name, rule=self.decide, view=View.RESPONSE, delay_s=0.0002)
        self.rule = rule

    def decide(self, prompt: Prompt) -> Decision:
        """Note the answer, as far as it is shown, and follow the rule."""
        text = prompt.messages[-1].content
        self.shown[number_of(prompt), text] += 1
        return self.rule(text)

    def of(self, number: int) -> list[str]:
        """What it was shown of one answer, the shortest first."""
        return sorted((text for n, text in self.shown if n == number), key=len)


def streams(model: Chat, judge: Reading | None = None, **every: int | None) -> Pipeline:
    """An arm for each distance at which a guard is asked."""
    return Pipeline(
        arms=tuple(every),
        model=model,
        judges=() if judge is None else (judge,),
        places=arms(**{name: {"output": ("watch",)} for name in every}),
        chunks={name: ChunkRule(every=size) for name, size in every.items()},
    )


def answers(text: str) -> Chat:
    """A model that always says one thing."""
    return Chat(rule=lambda _: Response(text=text))


def names(path: Path) -> set[str]:
    """The names under which decisions are stored."""
    with RecordReader(path) as reader:
        return {record.key.defense for record in reader.records(stage=Stage.DEFENSE)}


async def test_equal_begins_are_asked_about_once_and_the_whole_by_all(
    open_writer: OpenWriter,
) -> None:
    """Arms at 5 and 10 characters share 10 and 20; with a plain arm they share the whole."""
    watch, model = Watch(lambda _: ALLOWED), answers(ANSWER)
    flow = streams(model, five=5, ten=10, whole=None)
    writer = open_writer(6)
    summary = await run(Plan(defenses=(watch.part,), pipeline=flow), writer)
    assert watch.of(3) == [ANSWER[:n] for n in (5, 10, 15, 20, 25)]
    assert set(watch.shown.values()) == {1}
    assert len(model.texts) == 6
    stored = {"watch@output", *(f"watch@output after {n} characters" for n in (5, 10, 15, 20))}
    assert names(writer.path) == stored
    assert summary.stored == summary.planned == 6 * (1 + 5)


async def test_the_first_block_ends_it_and_the_judge_reads_what_had_gone_out(
    open_writer: OpenWriter,
) -> None:
    """A block at 20 comes after 10 characters; the chunk that it is about was held back."""
    watch = Watch(lambda text: BLOCKED if "B" in text else ALLOWED)
    model, judge = answers(ANSWER), Reading()
    writer = open_writer(4)
    await run(Plan(defenses=(watch.part,), pipeline=streams(model, judge, ten=10)), writer)
    assert watch.of(1) == [ANSWER[:10], ANSWER[:20]]
    assert {answer for _, answer in judge.seen} == {ANSWER[:10], ANSWER}
    assert set(judge.seen.values()) == {1}
    judged = rows(writer.path, Stage.JUDGE, f"{NO_GUARD} after 10 characters")
    assert sorted(judged) == [0, 1, 2, 3]


async def test_a_block_in_the_first_chunk_lets_nothing_out(open_writer: OpenWriter) -> None:
    """So there is nothing to judge beside the whole answer."""
    watch, judge = Watch(lambda _: BLOCKED), Reading()
    writer = open_writer(4)
    flow = streams(answers(ANSWER), judge, ten=10)
    await run(Plan(defenses=(watch.part,), pipeline=flow), writer)
    assert watch.of(1) == [ANSWER[:10]]
    assert {answer for _, answer in judge.seen} == {ANSWER}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", [""]),
        ("short", ["short"]),
        ("ten as is.", ["ten as is."]),
        ("   padded for a bit", ["   padded ", "   padded for a bit"]),
        ("          and then", ["          ", "          and then"]),
        ("🍑" * 11, ["🍑" * 10, "🍑" * 11]),
    ],
)
async def test_short_and_odd_answers(open_writer: OpenWriter, text: str, shown: list[str]) -> None:
    """An answer within one chunk is shown once, whole; characters are counted, not bytes."""
    watch = Watch(lambda _: ALLOWED)
    writer = open_writer(2)
    await run(Plan(defenses=(watch.part,), pipeline=streams(answers(text), ten=10)), writer)
    assert watch.of(1) == shown


async def test_without_an_answer_it_is_skipped(open_writer: OpenWriter) -> None:
    """A model that fails leaves nothing to ask about, as in any arm."""
    watch = Watch(lambda _: ALLOWED)
    model = Chat(rule=lambda _: Response(text=None, error_kind=ErrorKind.TIMEOUT))
    writer = open_writer(3)
    summary = await run(Plan(defenses=(watch.part,), pipeline=streams(model, ten=10)), writer)
    assert not watch.shown
    behind = rows(writer.path, Stage.DEFENSE, "watch@output")
    assert {row.error_kind for row in behind.values()} == {ErrorKind.SKIPPED}
    assert summary.stored == summary.planned


@pytest.mark.parametrize(
    ("policy", "shown"), [(Policy.RECORD, 3), (Policy.BLOCK, 3), (Policy.ALLOW, 5)]
)
async def test_an_error_at_the_third_call_follows_the_policy(
    open_writer: OpenWriter, policy: Policy, shown: int
) -> None:
    """Where it lets through, the answer goes on to the next call; elsewhere it ends there."""
    failed = Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.TIMEOUT)
    watch = Watch(lambda text: failed if len(text) == 15 else ALLOWED)
    flow = streams(answers(ANSWER), five=5)
    writer = open_writer(2)
    await run(Plan(defenses=(watch.part,), pipeline=flow, on_error=policy), writer)
    assert len(watch.of(1)) == shown


async def test_a_rewriting_ends_it(open_writer: OpenWriter) -> None:
    """What has gone out cannot be written anew, so nobody is asked what comes of it."""
    watch = Watch(
        lambda text: Decision(outcome=Outcome.ALLOW, text="[gone]") if "B" in text else ALLOWED
    )
    judge = Reading()
    writer = open_writer(2)
    flow = streams(answers(ANSWER), judge, ten=10)
    await run(Plan(defenses=(watch.part,), pipeline=flow), writer)
    assert watch.of(1) == [ANSWER[:10], ANSWER[:20]]
    assert {answer for _, answer in judge.seen} == {ANSWER}


async def test_an_answer_that_takes_too_many_calls_is_not_asked_about(
    open_writer: OpenWriter,
) -> None:
    """The limit is that of the arm; another arm asks on."""
    watch = Watch(lambda _: ALLOWED)
    flow = streams(answers(ANSWER), one=1, ten=10)
    object.__setattr__(flow, "chunks", {**flow.chunks, "one": ChunkRule(every=1, most_calls=24)})
    writer = open_writer(2)
    summary = await run(Plan(defenses=(watch.part,), pipeline=flow), writer)
    assert watch.of(1) == [ANSWER[:10], ANSWER[:20], ANSWER]
    assert summary.ending is Ending.COMPLETE


async def test_the_answer_to_a_masked_request_grows_too(open_writer: OpenWriter) -> None:
    """What two masks write alike is answered once, and each prefix of it asked about once."""

    def hides(_prompt: Prompt) -> Decision:
        return Decision(outcome=Outcome.ALLOW, text="text 0 hidden")

    watch = Watch(lambda text: BLOCKED if "hidden" in text else ALLOWED)
    model, judge = Chat(), Reading()
    masks = [Inline(name=name, rule=hides) for name in ("mask", "hide")]
    flow = Pipeline(
        arms=("one", "two"),
        model=model,
        judges=(judge,),
        places=arms(
            one={"input": ("mask",), "output": ("watch",)},
            two={"input": ("hide",), "output": ("watch",)},
        ),
        chunks=dict.fromkeys(("one", "two"), ChunkRule(every=5)),
    )
    writer = open_writer(3)
    await run(Plan(defenses=(*masks, watch.part), pipeline=flow), writer)
    whole = "echo text 0 hidden"
    assert model.texts == {"text 0 hidden": 3}
    assert watch.shown == {(0, whole[:n]): 3 for n in (5, 10, 15)} | {(0, whole): 3}
    # Three requests, whose whole answer and what had gone out of it are each judged once.
    assert Counter(answer for _, answer in judge.seen.elements()) == {whole: 3, whole[:15]: 3}


@pytest.mark.parametrize("budget", [1, 7])
async def test_a_run_goes_on_with_what_is_stored(open_writer: OpenWriter, budget: int) -> None:
    """Stopped after every few calls, each call is made once in the end."""
    watch = Watch(lambda text: BLOCKED if "K" in text else ALLOWED)
    model, judge = answers(ANSWER), Reading()
    flow = streams(model, judge, five=5, ten=10, whole=None)
    plan = Plan(
        defenses=(watch.part,),
        pipeline=flow,
        budget=Budget(calls=budget),
        concurrency=2,
        repeats=2,
    )
    for _ in range(200):
        try:
            summary = await run(plan, open_writer(4))
        except BudgetReached:
            continue
        break
    assert summary.ending is Ending.COMPLETE
    assert summary.stored == summary.planned
    assert set(model.texts.values()) == {2}
    # K is in the fifth chunk of five and in the third of ten, which are the whole answer.
    assert watch.of(1) == [ANSWER[:n] for n in (5, 10, 15, 20, 25)]
    assert set(watch.shown.values()) == {2}
    assert {answer for _, answer in judge.seen} == {ANSWER, ANSWER[:20]}
    assert set(judge.seen.values()) == {2}
