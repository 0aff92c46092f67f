"""F1, F8: how letters are set, and words taken apart or run together."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from guardmark.attacks.operators.characters import blend, exchange_table
from guardmark.attacks.tables import OperatorRules
from guardmark.canon.steps import skeleton

if TYPE_CHECKING:
    from guardmark.attacks.contract import Use

_LEET = {"a": "4", "b": "8", "e": "3", "g": "9", "i": "1", "o": "0", "s": "5", "t": "7"}
_CAPITALS = {letter.upper(): digit for letter, digit in _LEET.items()}
_TO_LEET = exchange_table(_LEET | _CAPITALS)
_FROM_LEET = exchange_table({digit: letter for letter, digit in _LEET.items()})
_MIXED = {
    "a": "4@", "b": "8", "e": "3\u20ac", "g": "9", "i": "1!|", "l": "1|", "o": "0", "s": "5$",
    "t": "7+", "z": "2",
}  # fmt: skip


def _from_mixed() -> dict[int, int]:
    """Map every sign to the letter it may stand for; l and i share theirs."""
    letters = {}
    for letter, images in _MIXED.items():
        for image in images:
            letters[image] = letter
    for sign in "1!|lL":
        letters[sign] = "i"
    return exchange_table(letters)


_FROM_MIXED = _from_mixed()
_GAPS = ("  ", "   ", "\t", " \t ")
_MARKS = ",;:.-*~|"


def _squeezed(text: str) -> str:
    """Write every run of one character once."""
    return "".join([char for char, _ in groupby(skeleton(text))])


def _has_words(text: str) -> bool:
    """Say whether there is anything that a canonical form could be compared by."""
    return bool(skeleton(text))


def _random_case(text: str, use: Use) -> str:
    bound, draws = use.threshold("p"), use.draws(len(text))
    if text.isascii():
        return blend(text.lower(), text.upper(), draws, bound)
    written = []  # outside ASCII a capital may be two letters, and depend on its neighbours
    for char, draw in zip(text, draws, strict=True):
        if draw < bound:
            written.append(char.upper())
        else:
            written.append(char.lower())
    return "".join(written)


def _leet(text: str, use: Use) -> str:
    written = text.translate(_TO_LEET)
    if use.number("p") >= 1:
        return written
    return blend(text, written, use.draws(len(text)), use.threshold("p"))


def _mix_leet(text: str, use: Use) -> str:
    bound = use.threshold("p")
    draws = use.draws(2 * len(text))
    written = list(text)
    for index, char in enumerate(text):
        images = _MIXED.get(char.lower())
        if images is not None and draws[2 * index] < bound:
            written[index] = images[draws[2 * index + 1] % len(images)]
    return "".join(written)


def _unmixed(text: str) -> str:
    """Read every sign as the letter it may stand for; l and i share theirs."""
    return skeleton(text.translate(_FROM_MIXED))


def _repeat_letters(text: str, use: Use) -> str:
    bound = use.threshold("p")
    most = use.count("most")
    written = list(text)
    for index, draw in enumerate(use.draws(len(text))):
        char = text[index]
        if draw < bound and char.isalpha() and char.isascii():
            written[index] = char * (2 + draw % most)
    return "".join(written)


def _widen_spaces(text: str, use: Use) -> str:
    words = text.split(" ")
    draws = use.draws(len(words))
    written = []
    for word, draw in zip(words[:-1], draws, strict=False):
        written += [word, _GAPS[draw & 3]]
    return "".join(written + words[-1:])


def _insert_marks(text: str, use: Use) -> str:
    bound = use.threshold("p")
    words = text.split(" ")
    draws = use.draws(2 * len(words))
    for index, word in enumerate(words):
        if word and draws[2 * index] < bound:
            words[index] = word + _MARKS[draws[2 * index + 1] % len(_MARKS)]
    return " ".join(words)


_WORD = re.compile(r"([A-Za-z]{4,})")
_HYPHEN = re.compile(r"(?<=[A-Za-z])-(?=[A-Za-z])")
_BREAK = re.compile(r"(?<=[A-Za-z])\n(?=[A-Za-z])")


def _in_middle(text: str, mark: str) -> str:
    """Put a mark into the middle of every longer word."""
    pieces = _WORD.split(text)
    for index in range(1, len(pieces), 2):  # every other piece is a word
        word = pieces[index]
        middle = len(word) // 2
        pieces[index] = word[:middle] + mark + word[middle:]
    return "".join(pieces)


def _break_lines(text: str, use: Use) -> str:
    """Put a line break in place of every blank, or of some."""
    words = text.split(" ")
    every = use.count("every")
    lines = [" ".join(words[at : at + every]) for at in range(0, len(words), every)]
    return "\n".join(lines)


def _emoji(use: Use) -> str:
    return chr(int(use.word("emoji"), 16)) + "\ufe0f"


_EMOJI = "\u2764\u2728"
RULES = {
    "case_upper": OperatorRules(rewrite=lambda text, _: text.upper(), domain=str.isascii),
    "case_random": OperatorRules(rewrite=_random_case, domain=str.isascii),
    "leet": OperatorRules(rewrite=_leet, canon=lambda text: skeleton(text).translate(_FROM_LEET)),
    "leet_mix": OperatorRules(rewrite=_mix_leet, canon=_unmixed, domain=str.isascii),
    "letter_repeat": OperatorRules(rewrite=_repeat_letters, canon=_squeezed),
    "whitespace_runs": OperatorRules(rewrite=_widen_spaces, domain=_has_words),
    "punct_insert": OperatorRules(rewrite=_insert_marks, domain=_has_words),
    "letters_spaced": OperatorRules(
        rewrite=lambda text, _: " ".join(text), restore=lambda text, _: text[::2]
    ),
    "hyphen_split": OperatorRules(
        rewrite=lambda text, _: _in_middle(text, "-"),
        restore=lambda text, _: _HYPHEN.sub("", text),
        domain=lambda text: not _HYPHEN.search(text),
    ),
    "line_split": OperatorRules(
        rewrite=lambda text, _: _in_middle(text, "\n"),
        restore=lambda text, _: _BREAK.sub("", text),
        domain=lambda text: not _BREAK.search(text),
    ),
    "line_words": OperatorRules(
        rewrite=_break_lines,
        restore=lambda text, _: text.replace("\n", " "),
        domain=lambda text: "\n" not in text,
    ),
    "emoji_join": OperatorRules(
        rewrite=lambda text, use: text.replace(" ", _emoji(use)),
        restore=lambda text, use: text.replace(_emoji(use), " "),
        domain=lambda text: not any(emoji in text for emoji in _EMOJI),
    ),
    "dot_join": OperatorRules(
        rewrite=lambda text, _: text.replace(" ", "."),
        restore=lambda text, _: text.replace(".", " "),
        domain=lambda text: "." not in text,
    ),
}
"""What the operators of F1 and F8 do."""
