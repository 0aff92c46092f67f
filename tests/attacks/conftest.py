"""Texts that every attack test may ask for."""

# ruff: noqa: RUF001 - look-alikes are what is tested here

from __future__ import annotations

import random
import sys

import pytest

TRICKY = " .-_\n\t'\"\\<>&;,%=#(){}[]0123456789\u202e\u202c\u200b\u00ad\u034f\u0301аоеΑⒶａ𝐚ᵃ🇦ɐnubpdq🙂\U000e0041"


def _random_text(draw: random.Random) -> str:
    """Return one text: plain, full of tricky characters, or from all of Unicode."""
    length = draw.randrange(25)
    kind = draw.randrange(3)
    if kind == 0:
        return "".join(chr(draw.randrange(32, 127)) for _ in range(length))
    if kind == 1:
        return "".join(draw.choice(TRICKY) for _ in range(length))
    codes = (draw.randrange(sys.maxunicode + 1) for _ in range(length))
    return "".join(chr(code) for code in codes if not 0xD800 <= code <= 0xDFFF)


@pytest.fixture(scope="session")
def random_texts() -> list[str]:
    """Ten thousand Unicode texts, the same each time."""
    draw = random.Random(20_260_101)
    return [_random_text(draw) for _ in range(10_000)]
