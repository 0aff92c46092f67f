"""Reading an answer takes time in proportion to its length: a hostile answer keeps nobody waiting."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from guardmark.parsing.guard import read_allow_block, read_safe_unsafe, read_yes_no
from guardmark.parsing.guard_fields import LabelWords, read_fields, read_final, read_tag, read_word
from guardmark.parsing.refusals import begins_refusing
from guardmark.parsing.thoughts import split_thoughts
from guardmark.parsing.verdicts import read_verdict, verdict_key

WORDS = LabelWords(risky={"yes"}, harmless={"no"})
KEY = verdict_key(0, "")
READERS: dict[str, Callable[[str], object]] = {
    "allow_block": read_allow_block,
    "safe_unsafe": read_safe_unsafe,
    "yes_no": read_yes_no,
    "tag": lambda text: read_tag(text, WORDS),
    "word": lambda text: read_word(text, WORDS),
    "final": lambda text: read_final(text, WORDS, field="harmful"),
    "fields": lambda text: read_fields(text, WORDS, field="harmful"),
    "thoughts": split_thoughts,
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


def seconds(read: Callable[[str], object], text: str) -> float:
    """CPU time of the fastest of three readings."""
    best = float("inf")
    for _ in range(3):
        before = time.process_time()
        read(text)
        best = min(best, time.process_time() - before)
    return best


@pytest.mark.parametrize("name", READERS)
def test_time_grows_no_faster_than_the_text(name: str) -> None:
    """For every repeated piece, behind every beginning."""
    read = READERS[name]
    for start in STARTS:
        for piece in PIECES:
            count = SHORT // len(piece)
            long = seconds(read, start + piece * (TIMES * count))
            if long > _NOTHING_S:
                short = seconds(read, start + piece * count)
                assert long <= _SLOWER * max(short, _NOTHING_S / TIMES), (start, piece)
