"""Refusals at the beginning of an answer, in eight languages."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

BEGINNING: Final = 300
"""Characters of an answer in which a refusal is looked for."""
_QUOTED: Final = re.compile(
    '(?<=.)(?:"[^"\n]*"|\u201c[^\u201d\n]*\u201d|\u201e[^\u201c\n]*\u201c|\u00ab[^\u00bb\n]*\u00bb|'
    "\u300c[^\u300d\n]*\u300d)",
    re.DOTALL,
)
"""Speech of others; an answer that begins with a quotation mark may be a refusal in quotes."""
_APOSTROPHES: Final = str.maketrans("\u2019\u02bc\u2018", "'''")


@cache
def _patterns(kind: str) -> Sequence[re.Pattern[str]]:
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return [re.compile(pattern, re.IGNORECASE) for pattern in tomllib.loads(text)[kind]]


def begins_refusing(answer: str) -> bool:
    """Tell whether an answer refuses within its first words, in eight languages.

    What only sounds like a refusal ("I can't believe", "I won't lie"), and what others are
    quoted as saying, is none.
    """
    text = answer[:BEGINNING].translate(_APOSTROPHES)
    for pattern in (*_patterns("look_alikes"), _QUOTED):
        text = pattern.sub(" ", text)
    return any(pattern.search(text) for pattern in _patterns("refusals"))
