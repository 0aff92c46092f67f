"""F2: typos, at most one to a word, first and last letter kept."""

from __future__ import annotations

import re
from string import ascii_letters
from struct import Struct
from typing import TYPE_CHECKING

from guardmark.attacks.application import LEAST_MISTYPED, LEAST_SHORTENED
from guardmark.attacks.operators.characters import blend, exchange_table
from guardmark.attacks.tables import OperatorRules

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.attacks.contract import Use

# A word with nothing but marks around it: no part of an address or of `key=value`.
_WORD = re.compile(
    rf"(?<!\S)[^\w\s]*([A-Za-z]{{{LEAST_MISTYPED},}})(?:['-][A-Za-z]+)*[^\w\s]*(?!\S)"
)
_RANK, _EDIT = Struct(">H4x"), Struct("<2xI")
"""Six drawn bytes a word: two by which words are chosen, four for the edit."""

_OTHER_CASE = exchange_table(dict(zip(ascii_letters, ascii_letters.swapcase(), strict=True)))
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_SCRAMBLE, _CAPITALS, _NOISE = 0.5, 0.5, 3.0
"""Exponents of sigma: word scrambling and capitals at its root, character noise at its cube."""


def _neighbours() -> dict[str, str]:
    """Map each letter to those beside, above and below it on a QWERTY board."""
    near: dict[str, str] = {}
    for row, keys in enumerate(_ROWS):
        for column, key in enumerate(keys):
            near[key] = keys[max(column - 1, 0) : column] + keys[column + 1 : column + 2]
            if row > 0:
                near[key] += _ROWS[row - 1][column : column + 2]
            if row < len(_ROWS) - 1:
                near[key] += _ROWS[row + 1][max(column - 1, 0) : column + 1]
    return near


NEAR = _neighbours()  # each letter to the letters around it on a QWERTY board


def _swap(word: str, draw: int) -> str:
    at = 1 + draw % (len(word) - 3)
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def _delete(word: str, draw: int) -> str:
    at = 1 + draw % (len(word) - 2)
    return word[:at] + word[at + 1 :]


def _press_neighbour(word: str, draw: int) -> str:
    at = 1 + draw % (len(word) - 2)
    near = NEAR[word[at].lower()]
    key = near[(draw >> 8) % len(near)]
    if word[at].isupper():
        key = key.upper()
    return word[:at] + key + word[at + 1 :]


def _edit_words(
    text: str,
    use: Use,
    edit: Callable[[str, int], str],
    share: float,
    *,
    least: int = LEAST_MISTYPED,
) -> str:
    """Edit a share of the words of some length, chosen by draws; at least one, one edit each."""
    words = [match.span(1) for match in _WORD.finditer(text) if len(match[1]) >= least]
    draws = use.draws(_RANK.size * len(words))
    ranks = [rank for (rank,) in _RANK.iter_unpack(draws)]
    wanted = max(1, int(share * len(text.split())))
    chosen = sorted(range(len(words)), key=ranks.__getitem__)[:wanted]
    for index in sorted(chosen, reverse=True):  # from the end, so that positions stay
        start, end = words[index]
        (draw,) = _EDIT.unpack_from(draws, _EDIT.size * index)
        text = text[:start] + edit(text[start:end], draw) + text[end:]
    return text


def _mix(text: str, use: Use) -> str:
    """Scramble, capitalise and add noise as repeated sampling does, within the bounds of V2."""
    sigma = use.number("sigma")
    drawn = use.draws(2 + len(text))
    scramble = drawn[0] < round(256 * sigma**_SCRAMBLE)
    noise = drawn[1] < round(256 * min(1.0, 20 * sigma**_NOISE))
    capitals = round(256 * sigma**_CAPITALS / 2)
    text = blend(text, text.translate(_OTHER_CASE), drawn[2:], capitals)
    if scramble:
        return _edit_words(text, use, _swap, 0.3)
    if noise:
        return _edit_words(text, use, _press_neighbour, 0.3)
    return text


def _typo(edit: Callable[[str, int], str], least: int = LEAST_MISTYPED) -> OperatorRules:
    """Build one of the three plain typos."""
    return OperatorRules(
        rewrite=lambda text, use: _edit_words(text, use, edit, use.number("share"), least=least),
        domain=str.isascii,
    )


RULES = {
    "inner_swap": _typo(_swap),
    "inner_delete": _typo(_delete, LEAST_SHORTENED),
    "key_neighbour": _typo(_press_neighbour),
    "bon_mix": OperatorRules(rewrite=_mix, domain=str.isascii),
}
"""What the operators of F2 do."""
