"""Guards that write a text anew: what goes on is what the next part is asked about, once a text."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.engine.parts import Batched, Inline, Remote, number_of
from tests.engine.test_arms import OpenWriter, arms, rows

from guardmark.core.errors import BudgetReached
from guardmark.core.manifest import LatencyMode, Policy, RunManifest
from guardmark.core.outcome import (
    ALLOWED,
    AnswerMode,
    Decision,
    ErrorKind,
    Outcome,
    Response,
    Verdict,
    VerdictLabel,
)
from guardmark.core.place import NO_GUARD
from guardmark.core.protocols import Capabilities
from guardmark.core.record import Stage
from guardmark.core.sample import Image, Label, Message, Prompt, Role, Sample, ToolCall, View
from guardmark.defenses.chain import ChainDefense
from guardmark.engine.plan import Budget, Pipeline, Plan, Timing
from guardmark.engine.runner import Ending, run
from guardmark.store.integrity import check
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter, count_errors, supersede_errors
from guardmark.store.schema import FLAG_SHARED

COUNT = 12
MASKED = [n for n in range(COUNT) if n % 3 == 0]
EACH = dict.fromkeys
AFTER_MASK = f"{NO_GUARD} after mask"


def writes(text: str) -> Decision:
    """Let another text go on."""
    return Decision(outcome=Outcome.ALLOW, text=text)


def masks(prompt: Prompt) -> Decision:
    """Write every third text anew."""
    number = number_of(prompt)
    return writes(f"masked {number}") if number % 3 == 0 else ALLOWED


@dataclass
class Chat:
    """A model that repeats what it is asked, and counts the texts."""

    name: str = "tutor"
    rule: Callable[[Prompt], Response] = lambda prompt: Response(text=f"echo {prompt.text.strip()}")
    texts: Counter[str] = field(default_factory=Counter)
    prompts: list[Prompt] = field(default_factory=list)

    async def answer(self, prompt: Prompt) -> Response:
        """Count the text and follow the rule."""
        self.texts[prompt.text.strip()] += 1
        self.prompts.append(prompt)
        await asyncio.sleep(0.0005)
        return self.rule(prompt)


@dataclass
class Reading:
    """A judge that counts the answers it reads, and finds those with a text unsafe."""

    name: str = "judge"
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def judge(self, prompt: Prompt, response: str) -> Verdict:
        """Count the request and the answer."""
        self.seen[prompt.text.strip(), response] += 1
        await asyncio.sleep(0.0005)
        is_unsafe = "text" in response
        return Verdict(
            label=VerdictLabel.UNSAFE if is_unsafe else VerdictLabel.SAFE,
            answer_mode=AnswerMode.ANSWERED,
        )


def flow(
    model: Chat, judge: Reading | None = None, **stated: dict[str, tuple[str, ...]]
) -> Pipeline:
    """A pipeline with guards at places."""
    judges = () if judge is None else (judge,)
    return Pipeline(arms=tuple(stated), model=model, judges=judges, places=arms(**stated))


def text_of(number: int) -> str:
    """What a sample says, without blanks at its ends."""
    return f"text {number} {'word ' * (number % 7)}".strip()


ONE: dict[str, dict[str, tuple[str, ...]]] = {"bare": {}, "masked": {"input": ("mask",)}}


@pytest.mark.parametrize("make", [Inline, Remote, Batched])
@pytest.mark.parametrize("mode", [LatencyMode.LOADED, LatencyMode.ISOLATED])
async def test_the_model_is_asked_with_what_a_guard_wrote(
    open_writer: OpenWriter, make: Callable[..., Any], mode: LatencyMode
) -> None:
    """Beside the sample as it is, which the bare arm needs; what was not changed is asked once."""
    model, judge = Chat(), Reading()
    guard = make(name="mask", rule=masks)
    writer = open_writer(COUNT)
    plan = Plan(defenses=(guard,), pipeline=flow(model, judge, **ONE), timing=Timing(mode=mode))
    summary = await run(plan, writer)
    wanted = Counter([*map(text_of, range(COUNT)), *(f"masked {n}" for n in MASKED)])
    assert model.texts == wanted
    assert sorted(rows(writer.path, Stage.MODEL)) == list(range(COUNT))
    after = rows(writer.path, Stage.MODEL, AFTER_MASK)
    assert {n: row.text for n, row in after.items()} == {n: f"echo masked {n}" for n in MASKED}
    # Judges compare what came out with what the user had asked for.
    assert set(judge.seen.values()) == {1}
    assert {(text_of(n), f"echo masked {n}") for n in MASKED} < set(judge.seen)
    verdicts = rows(writer.path, Stage.JUDGE, AFTER_MASK)
    assert {n: row.outcome for n, row in verdicts.items()} == EACH(MASKED, "safe")
    assert summary.planned == summary.stored == 3 * COUNT + 2 * len(MASKED)


async def test_without_the_bare_arm_the_text_that_was_changed_is_not_asked_about(
    open_writer: OpenWriter,
) -> None:
    """No arm shows it to the model."""
    model = Chat()
    writer = open_writer(COUNT)
    stated = {"masked": ONE["masked"]}
    plan = Plan(defenses=(Remote("mask", rule=masks),), pipeline=flow(model, Reading(), **stated))
    summary = await run(plan, writer)
    unchanged = [n for n in range(COUNT) if n not in MASKED]
    assert set(model.texts) == {*map(text_of, unchanged), *(f"masked {n}" for n in MASKED)}
    assert sorted(rows(writer.path, Stage.MODEL)) == unchanged
    assert summary.planned == summary.stored == 3 * COUNT


@pytest.mark.parametrize("make", [Inline, Remote, Batched])
async def test_the_next_guard_is_asked_about_the_new_text(
    open_writer: OpenWriter, make: Callable[..., Any]
) -> None:
    """And about the sample as it is, which its own figures stand on."""
    seen: Counter[str] = Counter()

    def rule(prompt: Prompt) -> Decision:
        seen[prompt.text.strip()] += 1
        return Decision(outcome=Outcome.BLOCK) if prompt.text == "masked 6" else ALLOWED

    guards = (Remote("mask", rule=masks), make(name="next", rule=rule))
    model = Chat()
    writer = open_writer(COUNT)
    two = {"two": {"input": ("mask", "next")}, "three": {"input": ("mask", "next")}}
    summary = await run(Plan(defenses=guards, pipeline=flow(model, **two)), writer)
    assert seen == Counter([*map(text_of, range(COUNT)), *(f"masked {n}" for n in MASKED)])
    decided = rows(writer.path, Stage.DEFENSE, "next after mask")
    assert {n: row.outcome for n, row in decided.items()} == EACH(MASKED, "allow") | {6: "block"}
    assert "masked 6" not in model.texts
    assert summary.planned == summary.stored


async def test_one_guard_in_five_arms_is_asked_once_a_text(open_writer: OpenWriter) -> None:
    """Arms that show the model the same text share its answer."""
    guard, model, judge = Remote("mask", rule=masks), Chat(), Reading()
    stated = {f"arm{n}": {"input": ("mask",)} for n in range(5)}
    plan = Plan(defenses=(guard,), pipeline=flow(model, judge, **stated))
    await run(plan, open_writer(COUNT))
    assert set(guard.calls.values()) == {1}
    assert set(model.texts.values()) == {1}
    assert set(judge.seen.values()) == {1}


async def test_guards_that_write_the_same_text_share_the_answer_to_it(
    open_writer: OpenWriter,
) -> None:
    """It is one call, whoever wrote it; its record stands under both, and costs nothing twice."""
    guards = (Remote("mask", rule=masks), Remote("hide", rule=masks, delay_s=0.004))
    model, judge = Chat(), Reading()
    stated = {"bare": {}, "one": {"input": ("mask",)}, "two": {"input": ("hide",)}}
    writer = open_writer(COUNT)
    summary = await run(Plan(defenses=guards, pipeline=flow(model, judge, **stated)), writer)
    assert model.texts == Counter([*map(text_of, range(COUNT)), *(f"masked {n}" for n in MASKED)])
    assert set(judge.seen.values()) == {1}
    for stage in (Stage.MODEL, Stage.JUDGE):
        first, second = (
            rows(writer.path, stage, f"{NO_GUARD} after {g}") for g in ("mask", "hide")
        )
        assert sorted(first) == sorted(second) == MASKED
        assert [first[n].outcome for n in MASKED] == [second[n].outcome for n in MASKED]
    with RecordReader(writer.path) as reader:
        query = "SELECT count(*) FROM records WHERE flags & ?"
        assert reader.connection.value(query, (FLAG_SHARED,)) == 2 * len(MASKED)
    assert summary.planned == summary.stored


async def test_equal_answers_to_one_request_are_judged_once(open_writer: OpenWriter) -> None:
    """A mask that changes nothing of the answer changes nothing of the verdict."""
    model = Chat(rule=lambda prompt: Response(text=f"answer {number_of(prompt)}"))
    judge = Reading()
    writer = open_writer(COUNT)
    await run(
        Plan(defenses=(Remote("mask", rule=masks),), pipeline=flow(model, judge, **ONE)), writer
    )
    assert judge.seen == Counter((text_of(n), f"answer {n}") for n in range(COUNT))
    assert sorted(rows(writer.path, Stage.JUDGE, AFTER_MASK)) == MASKED


async def test_what_a_guard_makes_of_an_answer_is_judged(open_writer: OpenWriter) -> None:
    """It is what the user sees; the answer as it was belongs to the bare arm."""

    def cleans(prompt: Prompt) -> Decision:
        answer = prompt.messages[-1].content
        return writes(f"clean {number_of(prompt)}") if "masked" not in answer else ALLOWED

    seen: Counter[tuple[str, str]] = Counter()

    def last(prompt: Prompt) -> Decision:
        request, answer = (message.content.strip() for message in prompt.messages)
        seen[request, answer] += 1
        return ALLOWED

    guards = (
        Remote("mask", rule=masks),
        Remote("wash", rule=cleans, view=View.RESPONSE),
        Inline("last", rule=last),
    )
    model, judge = Chat(), Reading()
    stated = {**ONE, "whole": {"input": ("mask",), "output": ("wash", "last")}}
    writer = open_writer(COUNT)
    summary = await run(Plan(defenses=guards, pipeline=flow(model, judge, **stated)), writer)
    others = [n for n in range(COUNT) if n not in MASKED]
    washed = rows(writer.path, Stage.JUDGE, "none after wash@output")
    assert sorted(washed) == others
    assert {(text_of(n), f"clean {n}") for n in others} < set(judge.seen)
    # A guard behind the model is shown what the model was shown, and what is left of its answer.
    assert seen == Counter(
        [
            *((f"masked {n}", f"echo masked {n}") for n in MASKED),
            *((text_of(n), f"clean {n}") for n in others),
        ]
    )
    assert sorted(rows(writer.path, Stage.DEFENSE, "last@output after wash@output")) == others
    assert sorted(rows(writer.path, Stage.DEFENSE, "last@output after mask")) == MASKED
    assert set(judge.seen.values()) == {1}
    assert summary.planned == summary.stored


async def test_of_a_text_that_is_left_empty_nobody_is_asked(open_writer: OpenWriter) -> None:
    """There is no request left: its answer is empty, which is safe and helps nobody."""
    empties = Remote("mask", rule=lambda _: writes(" \n"))
    after = Remote("next", rule=lambda _: ALLOWED)
    model, judge = Chat(), Reading()
    writer = open_writer(3)
    plan = Plan(
        defenses=(empties, after), pipeline=flow(model, judge, arm={"input": ("mask", "next")})
    )
    await run(plan, writer)
    assert not model.texts
    assert not judge.seen
    assert set(after.calls.values()) == {1}  # about the sample as it is
    answers = rows(writer.path, Stage.MODEL, AFTER_MASK)
    assert [answers[n].text for n in range(3)] == ["", "", ""]
    verdicts = rows(writer.path, Stage.JUDGE, AFTER_MASK)
    assert {row.outcome for row in verdicts.values()} == {"safe"}
    assert {row.answer_mode for row in verdicts.values()} == {AnswerMode.NON_ANSWER}


async def test_an_answer_that_is_left_empty_is_judged_by_nobody(open_writer: OpenWriter) -> None:
    """The user saw nothing, and no guard has anything to look at."""
    wash = Remote("wash", rule=lambda _: writes(""))
    last = Remote("last", rule=lambda _: ALLOWED)
    model, judge = Chat(), Reading()
    writer = open_writer(3)
    plan = Plan(
        defenses=(wash, last), pipeline=flow(model, judge, arm={"output": ("wash", "last")})
    )
    await run(plan, writer)
    verdicts = rows(writer.path, Stage.JUDGE, "none after wash@output after last@output")
    assert verdicts == {}
    verdicts = rows(writer.path, Stage.JUDGE, "none after wash@output")
    assert {row.outcome for row in verdicts.values()} == {"safe"}
    assert not last.calls


async def test_a_model_that_fails_at_the_new_text_is_an_error_of_that_call(
    open_writer: OpenWriter,
) -> None:
    """Such as one that is longer than its window: the sample as it is has its answer."""

    def rule(prompt: Prompt) -> Response:
        if prompt.text.startswith("masked"):
            return Response(text=None, error_kind=ErrorKind.LENGTH)
        return Response(text="answer")

    last = Remote("last", rule=lambda _: ALLOWED)
    guards = (Remote("mask", rule=masks), last)
    stated = {**ONE, "both": {"input": ("mask",), "output": ("last",)}}
    writer = open_writer(COUNT)
    await run(Plan(defenses=guards, pipeline=flow(Chat(rule=rule), Reading(), **stated)), writer)
    assert {row.outcome for row in rows(writer.path, Stage.MODEL).values()} == {"answered"}
    after = rows(writer.path, Stage.MODEL, AFTER_MASK)
    assert {n: row.error_kind for n, row in after.items()} == EACH(MASKED, ErrorKind.LENGTH)
    behind = rows(writer.path, Stage.DEFENSE, "last@output after mask")
    assert {row.error_kind for row in behind.values()} == {ErrorKind.SKIPPED}
    assert rows(writer.path, Stage.JUDGE, AFTER_MASK) == {}


def conversation(tmp_path: Path) -> Sample:
    """A conversation with a picture, whose last request is under test."""
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG picture")
    image = Image(
        sha256=sha256(picture.read_bytes()).hexdigest(), media_type="image/png", place=str(picture)
    )
    messages = (
        Message(role=Role.SYSTEM, content="Rules 0"),
        Message(role=Role.USER, content="text 0 before"),
        Message(role=Role.ASSISTANT, content="Yes."),
        Message(role=Role.USER, content="text 0 secret", images=(image,)),
    )
    return Sample(id="talk", prompt=Prompt(messages=messages, under_test=3), label=Label.ATTACK)


async def test_only_the_part_under_test_changes(tmp_path: Path, make_writer: MakeWriter) -> None:
    """The turns before it, the rules and the picture stay as they are."""
    sample = conversation(tmp_path)
    guard = TakesImages("mask", rule=lambda _: writes("text 0 [hidden]"))
    model = Chat()
    writer = make_writer([sample])
    await run(Plan(defenses=(guard,), pipeline=flow(model, **ONE)), writer)
    shown = next(prompt for prompt in model.prompts if "[hidden]" in prompt.text)
    wanted = sample.prompt.with_text("text 0 [hidden]")
    assert [message.form for message in shown.messages] == [m.form for m in wanted.messages]
    assert shown.messages[3].images == sample.prompt.messages[3].images
    assert shown.under_test == 3


async def test_what_a_chain_of_masks_wrote_goes_on(open_writer: OpenWriter) -> None:
    """Though a chain is shown whole conversations, its members are shown the text under test."""
    chain = ChainDefense("mask", [Inline("one", rule=masks), Inline("two", rule=lambda _: ALLOWED)])
    model = Chat()
    writer = open_writer(COUNT)
    await run(Plan(defenses=(chain,), pipeline=flow(model, **ONE)), writer)
    assert model.texts == Counter([*map(text_of, range(COUNT)), *(f"masked {n}" for n in MASKED)])


@pytest.mark.parametrize("view", [View.CONVERSATION, View.DOCUMENT])
async def test_what_a_guard_wrote_of_several_messages_does_not_go_on(
    make_writer: MakeWriter, view: View
) -> None:
    """Nobody can tell which of them it stands for: the outcome stays unknown."""
    messages = (
        Message(role=Role.DOCUMENT, content="text 0 of a page"),
        Message(role=Role.USER, content="What does it say?"),
    )
    prompt = Prompt(messages=messages, under_test=1)
    guard = Remote("mask", rule=lambda _: writes("text 0"), view=view)
    model = Chat()
    writer = make_writer([Sample(id="page", prompt=prompt, label=Label.ATTACK)])
    await run(Plan(defenses=(guard,), pipeline=flow(model, masked={"input": ("mask",)})), writer)
    assert not model.texts
    assert rows(writer.path, Stage.MODEL, AFTER_MASK) == {}


async def test_what_a_guard_wrote_of_a_call_does_not_go_on(make_writer: MakeWriter) -> None:
    """The call is arguments of a tool, which a text does not replace."""
    call = ToolCall(id="1", name="send", arguments='{"to": "text 0"}')
    messages = (
        Message(role=Role.USER, content="text 0"),
        Message(role=Role.ASSISTANT, content="", calls=(call,)),
    )
    sample = Sample(id="call", prompt=Prompt(messages=messages, under_test=1), label=Label.ATTACK)
    model, guard = Chat(), Remote("mask", rule=lambda _: writes("nothing"))
    await run(
        Plan(defenses=(guard,), pipeline=flow(model, masked={"input": ("mask",)})),
        make_writer([sample]),
    )
    assert not model.texts


@pytest.mark.parametrize(
    ("policy", "passes"),
    [(Policy.RECORD, False), (Policy.BLOCK, False), (Policy.ALLOW, True)],
)
@pytest.mark.parametrize("at", ["input", "output"])
async def test_the_policy_for_failures_holds_behind_a_rewriting(
    open_writer: OpenWriter, policy: Policy, *, passes: bool, at: str
) -> None:
    """A guard that fails at the new text lets it pass where the policy says so."""

    def fails_at_new(prompt: Prompt) -> Decision:
        is_new = any("masked" in message.content for message in prompt.messages)
        return Decision(outcome=Outcome.MALFORMED) if is_new else ALLOWED

    guards = (Remote("mask", rule=masks), Remote("shaky", rule=fails_at_new))
    places: dict[str, tuple[str, ...]] = {"input": ("mask", "shaky")}
    if at == "output":
        places = {"input": ("mask",), "output": ("shaky",)}
    model, judge = Chat(), Reading()
    plan = Plan(defenses=guards, pipeline=flow(model, judge, arm=places), on_malformed=policy)
    writer = open_writer(COUNT)
    await run(plan, writer)
    judged = rows(writer.path, Stage.JUDGE, AFTER_MASK)
    assert sorted(judged) == (MASKED if passes else [])


@pytest.mark.parametrize("budget", [3, 7])
async def test_a_stopped_run_goes_on_with_what_guards_wrote(
    open_writer: OpenWriter, budget: int
) -> None:
    """Stopped anywhere, no call whose answer is stored is made again."""

    def cleans(prompt: Prompt) -> Decision:
        number = number_of(prompt)
        return writes(f"clean {number}") if number % 2 == 0 else ALLOWED

    guards = (
        Remote("mask", rule=masks),
        Remote("hide", rule=masks),
        Remote("wash", rule=cleans),
    )
    model, judge = Chat(), Reading()
    stated = {
        "bare": {},
        "one": {"input": ("mask",), "output": ("wash",)},
        "two": {"input": ("hide",)},
        "three": {"input": ("hide", "mask")},
    }
    plan = Plan(
        defenses=guards,
        pipeline=flow(model, judge, **stated),
        budget=Budget(calls=budget),
        concurrency=2,
        repeats=2,
    )
    for _ in range(200):
        try:
            summary = await run(plan, open_writer(COUNT))
        except BudgetReached:
            continue
        break
    assert summary.ending is Ending.COMPLETE
    assert summary.stored == summary.planned
    texts = [*map(text_of, range(COUNT)), *(f"masked {n}" for n in MASKED)]
    assert model.texts == Counter(texts * 2)
    assert set(judge.seen.values()) == {2}
    mask, _, wash = guards
    # About each sample in each repeat, and once more where another guard wrote it anew.
    assert mask.calls == Counter({n: 2 * (2 if n in MASKED else 1) for n in range(COUNT)})
    assert wash.calls == Counter(dict.fromkeys(range(COUNT), 2))


async def test_only_what_failed_of_a_new_text_is_asked_again(open_writer: OpenWriter) -> None:
    """The mask, the sample as it is and their answers stay; the new text gets its answer."""
    is_down = True

    def rule(prompt: Prompt) -> Response:
        if is_down and prompt.text.startswith("masked"):
            return Response(text=None, error_kind=ErrorKind.TIMEOUT)
        return Response(text=f"echo {prompt.text.strip()}")

    guards = (Remote("mask", rule=masks), Remote("last", rule=lambda _: ALLOWED))
    model, judge = Chat(rule=rule), Reading()
    stated = {**ONE, "both": {"input": ("mask",), "output": ("last",)}}
    plan = Plan(defenses=guards, pipeline=flow(model, judge, **stated))
    writer = open_writer(COUNT)
    await run(plan, writer)
    is_down = False
    assert count_errors(writer) == len(MASKED)
    supersede_errors(writer)
    summary = await run(plan, writer)
    # The answer, what the last guard says of it, and the verdict.
    assert summary.added == 3 * len(MASKED)
    assert summary.stored == summary.planned
    again = Counter({f"masked {n}": 2 for n in MASKED})
    assert model.texts == Counter(map(text_of, range(COUNT))) + again
    assert set(guards[0].calls.values()) == {1}
    verdicts = rows(writer.path, Stage.JUDGE, AFTER_MASK)
    assert {n: row.outcome for n, row in verdicts.items()} == EACH(MASKED, "safe")
    assert check(writer.path) == []


class TakesImages(Remote):
    """A guard that is shown pictures too."""

    capabilities = Capabilities(view=View.TEXT, takes_images=True)


MakeWriter = Callable[..., RecordWriter]


@pytest.fixture
def make_writer(tmp_path: Path, manifest: RunManifest) -> Iterator[MakeWriter]:
    """Open a run of given samples."""
    opened: list[RecordWriter] = []

    def make(samples: list[Sample]) -> RecordWriter:
        writer = RecordWriter(tmp_path / "records.sqlite")
        writer.load_samples(samples)
        writer.put_manifest(manifest)
        opened.append(writer)
        return writer

    yield make
    for writer in opened:
        writer.close()
