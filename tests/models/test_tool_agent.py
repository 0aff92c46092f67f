"""How the calls of a model are read: from lines of its text, and as the protocol has them."""

from __future__ import annotations

import json

from guardmark.core.case import FinalAnswer, ToolCalls
from guardmark.core.outcome import ErrorKind
from guardmark.models.tool_agent import read_text_calls


def test_lines_that_are_calls_are_taken_out_of_the_words() -> None:
    """A call stands alone on its line; what else was said stays."""
    words = 'I look.\n  CALL {"name": "read", "arguments": {"file": "a"}}  \nThen: CALL {}\nDone.'
    move = read_text_calls(words, 3)
    assert isinstance(move, ToolCalls)
    assert [(call.id, call.name, call.arguments) for call in move.calls] == [
        ("call-3-0", "read", {"file": "a"})
    ]
    assert move.text == "I look.\n\nThen: CALL {}\nDone."


def test_what_is_no_call_is_an_answer() -> None:
    """No JSON, no name, or nested so deep that nobody could write it again."""
    deep = 'CALL {"name": "x", "arguments": ' + '{"a":' * 500 + "1" + "}" * 500 + "}"
    deeper = "CALL {" + "[" * 100_000 + "}"
    for words in ("CALL {", 'CALL {"arguments": {}}', "RECALL {}", deep, deeper):
        move = read_text_calls(words, 0)
        assert isinstance(move, FinalAnswer)
        assert move.text == words


def test_an_answer_that_calls_hundreds_of_tools_is_an_error() -> None:
    """Each call is shown to guards, which cost money."""
    line = f"CALL {json.dumps({'name': 'read', 'arguments': {}})}\n"
    assert isinstance(read_text_calls(line * 100, 0), ToolCalls)
    move = read_text_calls(line * 101, 0)
    assert isinstance(move, FinalAnswer)
    assert move.error_kind is ErrorKind.CONTRACT
    assert "more than 100 tools" in move.message
