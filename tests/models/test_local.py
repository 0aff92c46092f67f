"""A target model in this process: what it is asked, and what is never asked of it."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from guardmark.core.outcome import ChatAnswer, ErrorKind
from guardmark.core.sample import Image, Message, Prompt, Role
from guardmark.models.local import LocalModelSettings, LocalTarget

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Echo:
    """Answers with the last message, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[Mapping[str, str]], int]] = []
        self.is_closed = False

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, repeat: int = 0
    ) -> ChatAnswer:
        """Answer."""
        self.asked.append((list(messages), repeat))
        return ChatAnswer(text=messages[-1]["content"])

    async def close(self) -> None:
        """Note it."""
        self.is_closed = True


async def test_a_conversation_reaches_the_model_behind_its_system_prompt() -> None:
    """Roles are said in the model's own words, and each repetition is a draw of its own."""
    echo = Echo()
    target = LocalTarget(
        "tutor",
        echo,  # type: ignore[arg-type]
        system_prompt="Be kind.",
        roles={Role.DOCUMENT: "tool"},
    )
    messages = (Message(role=Role.DOCUMENT, content="1"), Message(role=Role.USER, content="2"))
    prompt = Prompt(messages=messages, under_test=0)
    told = [
        {"role": "system", "content": "Be kind."},
        {"role": "tool", "content": "1"},
        {"role": "user", "content": "2"},
    ]
    assert (await target.answer(prompt)).text == "2"
    assert (await target.draw(prompt, repeat=3)).text == "2"
    assert echo.asked == [(told, 0), (told, 3)]
    await target.close()
    assert echo.is_closed


async def test_a_model_of_texts_is_not_asked_about_a_picture() -> None:
    """Words without their picture would be another question: the sample is skipped, and says so."""
    echo = Echo()
    image = Image(sha256=sha256(b"x").hexdigest(), media_type="image/png", place="x.png")
    prompt = Prompt.of_text("What is shown here?").with_text("Read it.", image)
    response = await LocalTarget("tutor", echo).answer(prompt)  # type: ignore[arg-type]
    assert (response.text, response.error_kind) == (None, ErrorKind.SKIPPED)
    assert response.evidence.message == "it is shown an image, and takes texts only"
    assert not echo.asked


@pytest.mark.parametrize("said", [{"top_p": 0.5}, {"seed": 3}])
def test_settings_of_a_draw_need_a_temperature(said: dict[str, object]) -> None:
    """At temperature 0 nothing is drawn, so they would be passed over without a word."""
    with pytest.raises(ValidationError, match="need a temperature above 0"):
        LocalModelSettings.model_validate({"path": "m", **said})
    assert LocalModelSettings.model_validate({"path": "m", "temperature": 0.7, **said})
