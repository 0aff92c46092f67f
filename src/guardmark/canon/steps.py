"""The steps of the canonical form, each of which can be switched on alone.

Two forms come out of them: `canonicalize` keeps words apart and is fit to be shown to a defense
(a repair), `skeleton` keeps letters and digits only and is what two texts are compared by.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import tomllib
import unicodedata
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def _pairs(written: str) -> dict[str, str]:
    """Map look-alikes to what they look like, as the file beside this one holds them."""
    return {pair[0]: pair[1] for pair in written.split()}


def _inverse(table: dict[str, str]) -> dict[str, str]:
    """Map letters to what stands for them."""
    return {letter: image for image, letter in table.items()}


def _letters_from(first: int) -> dict[str, str]:
    """Map a block of signs, one for each letter in order, to the letters."""
    return {chr(code): letter for code, letter in enumerate(ascii_lowercase, start=first)}


def _ranges(name: str) -> tuple[tuple[int, int], ...]:
    """Return the ranges of code points that a table lists."""
    return tuple((first, last) for first, last in _TABLES[name])


_TABLES = tomllib.loads(Path(__file__).with_name("tables.toml").read_text(encoding="utf-8"))
CYRILLIC = _inverse(_pairs(_TABLES["cyrillic"]))
"""ASCII letter to its Cyrillic look-alike."""
GREEK = _inverse(_pairs(_TABLES["greek"]))
"""ASCII letter to its Greek look-alike."""

FOLDED = (
    _pairs(" ".join(_TABLES["read_only"].values()))
    | _inverse(CYRILLIC)
    | _inverse(GREEK)
    # Regional indicators, negative circled and negative squared letters.
    | _letters_from(0x1F1E6)
    | _letters_from(0x1F150)
    | _letters_from(0x1F170)
)
"""Every known look-alike to the ASCII letter or digit it looks like."""

IGNORABLE_RANGES = _ranges("ignorable")
"""Ranges of code points that show nothing."""
MARK_RANGES = _ranges("marks")
"""Ranges of code points that are set on, under or around a letter."""


def char_class(ranges: tuple[tuple[int, int], ...]) -> str:
    """Return ranges as the inside of a regular expression's character class."""
    return "".join(f"\\U{first:08X}-\\U{last:08X}" for first, last in ranges)


def is_within(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    """Say whether a code point lies in one of the ranges."""
    return any(first <= code <= last for first, last in ranges)


_RLO, _PDF = "\u202e", "\u202c"
_PAIR = re.compile(f"{_RLO}(.)(.){_PDF}", re.DOTALL)
_WRAP = re.compile(f"{_RLO}([^{_RLO}{_PDF}]*)(?:{_PDF}|$)")
_TAGS = re.compile("[\U000e0020-\U000e007e]+")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]+")
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_QUOTED = re.compile(r"(?:=[0-9A-F]{2}){4,}")
_ENTITIES = re.compile(r"&#(\d{1,7});")
_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
_HEX = re.compile(r"\b(?:[0-9a-fA-F]{2}){8,}\b")
_BINARY = re.compile(r"\b[01]{8}(?: [01]{8}){3,}\b")
_DECIMAL = re.compile(r"\b\d{2,7}(?: \d{2,7}){5,}\b")
_BASE32 = re.compile(r"\b[A-Z2-7]{16,}={0,6}")
_BASE64 = re.compile(r"(?<![\w+/])[A-Za-z0-9+/]{16,}={0,2}")


def undo_direction(text: str) -> str:
    """Put text behind direction overrides back into reading order."""
    return _WRAP.sub(lambda pair: pair[1][::-1], _PAIR.sub(r"\2\1", text))


def reveal_tags(text: str) -> str:
    """Write tag characters as the ASCII they mirror."""
    return _TAGS.sub(lambda run: "".join(chr(ord(c) - 0xE0000) for c in run[0]), text)


def reveal_selectors(text: str) -> str:
    """Write the bytes that a run of variation selectors spells as text."""

    def spelled(run: re.Match[str]) -> bytes:
        data = bytearray()
        for code in map(ord, run[0]):
            if code < 0xE0000:  # the first 16 selectors stand in a block of their own
                data.append(code - 0xFE00)
            else:
                data.append(code - 0xE0100 + 16)
        return bytes(data)

    return _SELECTORS.sub(lambda run: _text_or(spelled(run), run[0]), text)


def decode_encodings(text: str) -> str:
    """Decode what is recognisably encoded, in place; what is no printable UTF-8 stays."""
    for pattern, decode in _DECODERS:
        text = pattern.sub(lambda run, decode=decode: _decoded(run[0], decode), text)  # type: ignore[misc]
    return text


def _decoded(run: str, decode: Callable[[str], bytes]) -> str:
    try:
        return _text_or(decode(run), run)
    except (ValueError, binascii.Error, OverflowError):
        return run


def _text_or(data: bytes, otherwise: str) -> str:
    """Return the bytes as text when they are printable UTF-8."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return otherwise
    for char in text:
        if not char.isprintable() and char not in "\n\t\r":
            return otherwise
    return text or otherwise


_DECODERS: tuple[tuple[re.Pattern[str], Callable[[str], bytes]], ...] = (
    (_PERCENT, lambda run: bytes.fromhex(run.replace("%", ""))),
    (_QUOTED, lambda run: bytes.fromhex(run.replace("=", ""))),
    (_ENTITIES, lambda run: chr(int(run[2:-1])).encode()),
    (_ESCAPES, lambda run: bytes.fromhex(run.replace("\\u", "")).decode("utf-16-be").encode()),
    (_BINARY, lambda run: bytes(int(word, 2) for word in run.split(" "))),
    (_DECIMAL, lambda run: "".join(chr(int(word)) for word in run.split(" ")).encode()),
    (_HEX, bytes.fromhex),
    (_BASE32, base64.b32decode),
    (_BASE64, lambda run: base64.b64decode(run, validate=True)),
)


CANON_VERSION = "2"  # changes whenever a step makes another text of any text


class Step(StrEnum):
    """One step, in the order in which steps are run."""

    ENCODINGS = "encodings"
    TAGS = "tags"
    SELECTORS = "selectors"
    DIRECTION = "direction"
    NFKD = "nfkd"
    IGNORABLES = "ignorables"
    MARKS = "marks"
    CONFUSABLES = "confusables"
    CASE = "case"
    SPACING = "spacing"
    PUNCTUATION = "punctuation"
    SPACE = "space"


CANON_STEPS = (
    Step.NFKD,
    Step.IGNORABLES,
    Step.MARKS,
    Step.CONFUSABLES,
    Step.CASE,
    Step.PUNCTUATION,
    Step.SPACE,
)
"""The steps of the canonical form."""

REPAIR_STEPS = (
    Step.CASE,
    Step.NFKD,
    Step.IGNORABLES,
    Step.MARKS,
    Step.CONFUSABLES,
    Step.SPACE,
    Step.PUNCTUATION,
    Step.SPACING,
    Step.DIRECTION,
    Step.TAGS,
    Step.SELECTORS,
    Step.ENCODINGS,
)
"""Every step, in the order in which a counterfactual repair tries them one by one."""

_IGNORABLES = re.compile(f"[{char_class(IGNORABLE_RANGES)}]+")
_MARKS = re.compile(f"[{char_class(MARK_RANGES)}]+")
_CONFUSABLES = str.maketrans(FOLDED)
_SPACE = re.compile(r"\s+")
_SPELLED = re.compile(r"(?<!\w)\w(?:[ .*_-]\w(?!\w)){2,}")
_BROKEN = re.compile(r"(?<=[^\W\d_])-\n?(?=[a-z])")
_DOTTED = re.compile(r"(?<=\w)\.(?=\w)")


def _join_spelled(text: str) -> str:
    """Join letters that stand apart and words broken by a hyphen; a line break ends a word."""
    joined = _SPELLED.sub(lambda run: run[0][::2], text)
    return _DOTTED.sub(" ", _BROKEN.sub("", joined))


class _Gaps(dict[int, int]):
    """Code point to itself, or to a blank where it is neither letter, digit nor mark."""

    def __missing__(self, code: int) -> int:
        char = chr(code)
        self[code] = ord(" ")
        if char.isspace() or _carries_meaning(char):
            self[code] = code
        return self[code]


def _carries_meaning(char: str) -> bool:
    """Say whether a character is a letter, a digit, or a mark that spells."""
    return char.isalnum() or unicodedata.category(char)[0] == "M"


_GAPS = _Gaps()

_RUN: dict[Step, Callable[[str], str]] = {
    Step.ENCODINGS: decode_encodings,
    Step.TAGS: reveal_tags,
    Step.SELECTORS: reveal_selectors,
    Step.DIRECTION: undo_direction,
    Step.NFKD: lambda text: unicodedata.normalize("NFKD", text),
    Step.IGNORABLES: lambda text: _IGNORABLES.sub("", text),
    Step.MARKS: lambda text: _MARKS.sub("", text),
    Step.CONFUSABLES: lambda text: text.translate(_CONFUSABLES),
    Step.CASE: str.casefold,
    Step.SPACING: _join_spelled,
    Step.PUNCTUATION: lambda text: text.translate(_GAPS),
    Step.SPACE: lambda text: _SPACE.sub(" ", text).strip(),
}


def apply_steps(text: str, steps: Iterable[Step]) -> str:
    """Run the given steps over a text, in the fixed order of `Step`."""
    wanted = frozenset(steps)
    for step, run in _RUN.items():
        if step in wanted:
            text = run(text)
    return text


def canonicalize(text: str) -> str:
    """Return the canonical form of a text, words kept apart."""
    return apply_steps(text, CANON_STEPS)


def skeleton(text: str) -> str:
    """Return letters and digits of the canonical form, to compare a text with its rewriting."""
    if text.isascii():
        return text.encode("ascii").translate(_LOWER, _NO_LETTERS).decode("ascii")
    return text.translate(_FOLD)


class _Fold(dict[int, int | str]):
    """Code point to its skeleton when first met; equals the steps over the whole text."""

    def __missing__(self, code: int) -> int | str:
        before = ""
        folded = chr(code)
        while folded != before:  # a folded character may itself fold on
            before = folded
            folded = "".join(map(_fold_once, folded))
        self[code] = folded
        if len(folded) == 1:
            self[code] = ord(folded)
        return self[code]


def _fold_once(char: str) -> str:
    kept = []
    for part in unicodedata.normalize("NFKD", char):
        code = ord(part)
        if is_within(code, IGNORABLE_RANGES) or is_within(code, MARK_RANGES):
            continue
        kept.append(FOLDED.get(part, part).casefold())
    return "".join(filter(_carries_meaning, "".join(kept)))


_FOLD = _Fold()
_LOWER = bytes(range(256)).lower()
_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalnum())


def tables_digest() -> str:
    """Return the SHA-256 of every table behind the canonical form, in hex."""
    tables = {
        "confusables": FOLDED,
        "ignorable": IGNORABLE_RANGES,
        "marks": MARK_RANGES,
        "steps": [step.value for step in CANON_STEPS],
    }
    return sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()
