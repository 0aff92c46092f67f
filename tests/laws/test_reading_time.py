"""Reading an answer takes time in proportion to its length: a hostile answer keeps nobody waiting."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from guardmark.adaptive.attacker_models import read_candidates, read_closeness, read_sameness
from guardmark.defenses.http.answer import AnswerRules, read_answer
from guardmark.defenses.http.values import compile_path
from guardmark.models.tool_agent import read_text_calls
from guardmark.net.chat import read_chat
from guardmark.net.service import Exchange
from guardmark.parsing.guard import read_allow_block, read_safe_unsafe, read_yes_no
from guardmark.parsing.guard_fields import LabelWords, read_fields, read_final, read_tag, read_word
from guardmark.parsing.refusals import begins_refusing
from guardmark.parsing.thoughts import split_thoughts
from guardmark.parsing.verdicts import read_verdict, verdict_key

WORDS = LabelWords(risky={"yes"}, harmless={"no"})
KEY = verdict_key(0, "")
RULES = AnswerRules(
    blocked=compile_path("$.a", where="test"),
    categories=compile_path("$.b", where="test"),
    reason=compile_path("$.c", where="test"),
)


def read_service(text: str) -> object:
    """The answer of a service, whose text is hostile."""
    body = json.dumps({"a": True, "b": [text], "c": text}).encode()
    return read_answer(RULES, Exchange(status=200, body=body, service_ns=1))


def read_chat_body(text: str) -> object:
    """The answer of a chat server, whose text is hostile."""
    body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
    return read_chat(Exchange(status=200, body=body, service_ns=1))


READERS: dict[str, Callable[[str], object]] = {
    "allow_block": read_allow_block,
    "safe_unsafe": read_safe_unsafe,
    "yes_no": read_yes_no,
    "tag": lambda text: read_tag(text, WORDS),
    "word": lambda text: read_word(text, WORDS),
    "final": lambda text: read_final(text, WORDS, field="harmful"),
    "fields": lambda text: read_fields(text, WORDS, field="harmful"),
    "thoughts": split_thoughts,
    "tool calls": lambda text: read_text_calls(text, 0),
    "closeness": lambda text: read_closeness(text, material=text),
    "sameness": lambda text: read_sameness(text, material=text),
    "candidates": lambda text: read_candidates(text, strategies=()),
    "service": read_service,
    "chat": read_chat_body,
    "refusal": begins_refusing,
    "verdict": lambda text: read_verdict(text, key=KEY, material=text),
}
PIECES = (
    *(
        " ",
        "\n",
        "<score> ",
        "<score>",
        "</score>",
        "<confidence>",
        "Yes\n<confidence> ",
        "a b",
        "```\n",
        "\n```",
    ),
    *(
        "<|channel|> final ",
        "<|channel|>",
        "<think>",
        "</think>",
        "'</think>",
        "{",
        "[",
        '{"label":',
        '"',
        "\\",
    ),
    *(
        "label:",
        f"{KEY}: {{",
        f'"{KEY}": ',
        "safe\n",
        "ALLOW ",
        "Harmful: no\n",
        "*_ ",
        "S1 ",
        "no. ",
        "CALL {}\n",
        "\n\n CALL ",
        "<",
        "</",
    ),
)
STARTS = (
    "",
    "<score>",
    "Yes\n<confidence>",
    "safe\n",
    "ALLOW",
    "<think>",
    "{",
    "```\n",
    "Harmful:",
)
SHORT = 20_000
TIMES = 8
_SLOWER = 4 * TIMES
"""How much longer a text eight times as long may take: a quadratic reader takes 64 times as long."""
_NOTHING_S = 0.02
"""What is too short to be compared."""


def seconds(read: Callable[[str], object], text: str, *, readings: int = 3) -> float:
    """CPU time of the fastest of some readings."""
    best = float("inf")
    for _ in range(readings):
        before = time.process_time()
        read(text)
        best = min(best, time.process_time() - before)
    return best


MEGABYTE = 1_000_000
MOST_STEPS = 2_500_000
"""Steps of an empty loop that a megabyte may take: some fiftieth of a second for each million.

Longer, and other answers would miss their deadline. Steps are counted in place of seconds, as
a machine that is busy or slow slows both.
"""


def count_steps(text: str) -> None:
    """Do nothing, as often as a megabyte may cost."""
    for _ in range(MOST_STEPS):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_megabyte_is_read_in_a_twentieth_of_a_second(name: str) -> None:
    """Whatever is repeated in it; the fastest of several readings, as a busy machine only adds."""
    read = READERS[name]
    most = seconds(count_steps, "")
    for start in STARTS:
        for piece in PIECES:
            text = start + piece * (MEGABYTE // len(piece))
            if seconds(read, text, readings=1) > most:
                best = min(
                    seconds(read, text, readings=1) / seconds(count_steps, "", readings=1)
                    for _ in range(9)
                )
                assert best <= 1, (start, piece)


@pytest.mark.parametrize("name", READERS)
def test_time_grows_no_faster_than_the_text(name: str) -> None:
    """For every repeated piece, behind every beginning."""
    read = READERS[name]
    for start in STARTS:
        for piece in PIECES:
            count = SHORT // len(piece)
            # One reading is enough to see that there is nothing to compare.
            long = seconds(read, start + piece * (TIMES * count), readings=1)
            if long > _NOTHING_S:
                long = min(long, seconds(read, start + piece * (TIMES * count), readings=2))
                short = seconds(read, start + piece * count)
                assert long <= _SLOWER * max(short, _NOTHING_S / TIMES), (start, piece)
