"""A call of a tool that is under test is shown, whatever the view."""

from __future__ import annotations

import pytest

from guardmark.core.sample import Message, Prompt, Role, ToolCall, View

CALL = ToolCall(id="c0", name="transfer_money", arguments='{"to": "ACC-0"}')
WORDS = 'transfer_money({"to": "ACC-0"})'


def prompt(content: str) -> Prompt:
    """A user's request and a call of the assistant, which is under test."""
    asked = Message(role=Role.USER, content="Please sort out my week.")
    called = Message(role=Role.ASSISTANT, content=content, calls=(CALL,))
    return Prompt(messages=(asked, called), under_test=1)


@pytest.mark.parametrize("view", [View.TEXT, View.RESPONSE, View.CONVERSATION])
@pytest.mark.parametrize("content", ["", "I will call a tool."])
def test_every_view_of_the_message_shows_its_calls(view: View, content: str) -> None:
    """Words beside the call hide nothing, and a call without words is no empty text."""
    shown = prompt(content).shown(view)
    assert shown is not None
    assert shown.endswith(WORDS)
    assert not shown.startswith("\n")


def test_what_is_under_test_in_words() -> None:
    """As reports and near-copies take it."""
    assert prompt("").words == WORDS
    assert prompt("Now.").words == f"Now.\n{WORDS}"
    assert Prompt.of_text("hello").words == "hello"
