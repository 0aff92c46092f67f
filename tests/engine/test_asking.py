"""The one asker: a question is put once, whoever asks."""

from __future__ import annotations

import asyncio

import pytest

from guardmark.core.outcome import ALLOWED, Decision
from guardmark.core.sample import Message, Prompt, Role, View
from guardmark.engine.asking import Asker, Question
from guardmark.engine.plan import Spending

PROMPT = Prompt.of_text("hello")


class Counted:
    """A part that waits until it may answer, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_answer = asyncio.Event()

    async def decide(self, _prompt: Prompt) -> Decision:
        """Answer as soon as that is wished."""
        self.calls += 1
        await self.may_answer.wait()
        return ALLOWED


async def ask(
    asker: Asker, part: Counted, *, case: int = 3, repeat: int = 0, prompt: Prompt = PROMPT
) -> tuple[object, bool]:
    """Ask about one prompt, and say whether the answer is new."""
    question = Question("guard", (prompt,), case, repeat)
    answered, is_new = await asker.ask_once(part.decide, question, case=case)
    return answered.answer, is_new


async def test_who_asks_while_a_question_is_under_way_gets_its_answer() -> None:
    """One call, three who asked; one of them is told that it is new."""
    asker, part = Asker(Spending()), Counted()
    asking = [asyncio.ensure_future(ask(asker, part)) for _ in range(3)]
    await asyncio.sleep(0)
    part.may_answer.set()
    assert await asyncio.gather(*asking) == [(ALLOWED, True), (ALLOWED, False), (ALLOWED, False)]
    assert await ask(asker, part) == (ALLOWED, False)
    assert part.calls == 1


async def test_another_case_or_repeat_is_another_question() -> None:
    """Draws of a model belong to one repeat of one case."""
    asker, part = Asker(Spending()), Counted()
    part.may_answer.set()
    for case, repeat in ((3, 0), (4, 0), (3, 1)):
        assert await ask(asker, part, case=case, repeat=repeat) == (ALLOWED, True)
    assert part.calls == 3


async def test_another_text_is_another_question() -> None:
    """A question is known by what is shown, not by the case alone."""
    asker, part = Asker(Spending()), Counted()
    part.may_answer.set()
    for text in ("hello", "goodbye"):
        assert await ask(asker, part, prompt=Prompt.of_text(text)) == (ALLOWED, True)


async def test_a_guard_that_goes_by_the_text_is_asked_once_in_all_cases_and_repeats() -> None:
    """Its answer can't differ: cases, repeats and what its view leaves out change nothing."""
    asker, part = Asker(Spending(), by_text={"guard": View.TEXT}), Counted()
    part.may_answer.set()
    talk = Message(role=Role.USER, content="before")
    longer = Prompt(messages=(talk, *PROMPT.messages), under_test=1)
    assert await ask(asker, part) == (ALLOWED, True)
    assert await ask(asker, part, case=4, repeat=1, prompt=longer) == (ALLOWED, False)
    assert await ask(asker, part, prompt=Prompt.of_text("goodbye")) == (ALLOWED, True)


async def test_where_the_first_gives_up_the_next_asks() -> None:
    """A case that is cancelled takes no other with it."""
    asker, part = Asker(Spending()), Counted()
    first, second = (asyncio.ensure_future(ask(asker, part)) for _ in range(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    part.may_answer.set()
    assert await second == (ALLOWED, True)
    assert part.calls == 2


async def test_what_is_forgotten_is_asked_again() -> None:
    """Memory holds answers of cases that are under way only."""
    asker, part = Asker(Spending()), Counted()
    part.may_answer.set()
    await ask(asker, part)
    asker.forget(3)
    assert await ask(asker, part) == (ALLOWED, True)


async def test_a_part_that_raises_gives_a_failure_to_all_who_asked() -> None:
    """A failure is an answer: it is stored, and does not end the run."""
    asker = Asker(Spending())

    async def broken(_prompt: Prompt) -> Decision:
        await asyncio.sleep(0)
        raise OSError("no route")

    question = Question("guard", (PROMPT,), 3)
    answers = await asyncio.gather(*(asker.ask_once(broken, question, case=3) for _ in range(2)))
    assert [answered.answer.message for answered, _ in answers] == ["OSError: no route"] * 2
