"""The words of guards and judges, read by their contracts; what breaks one is malformed."""

from __future__ import annotations

import re
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from guardmark.core.outcome import Outcome
from guardmark.core.values import dataclass
from guardmark.parsing.thoughts import split_thoughts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OPEN = r"[\s*_`\"'#>\[(]{0,20}"
_CLOSE = r"[*_`\"'\])]{0,6}"
_ALLOW_BLOCK = re.compile(
    rf"{_OPEN}(ALLOW|BLOCK)\b{_CLOSE}"
    rf"(?:\s*\Z|[ \t]*(?::|[.!](?=[\s*]|\Z)|\n)|[ \t]+[-\u2013\u2014]+[ \t]|[ \t]*(?=\()){_CLOSE}",
    re.IGNORECASE,
)
_YES_NO = re.compile(rf"{_OPEN}(YES|NO)\b{_CLOSE}(?:\s*\Z|[ \t]*[.:,!;\n]|\s*(?=<))", re.IGNORECASE)
_LINE_BREAKS = r"\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
_BLANK = rf"[^\S{_LINE_BREAKS}]"


def _as_an_answer(word: str, *, behind: str = "") -> re.Pattern[str]:
    """Match a word that stands as an answer of its own, at the start of a line."""
    return re.compile(
        rf"{behind}(?:{_BLANK}|[*_`\"'#>\[(]){{0,20}}{word}\b{_CLOSE}"
        rf"(?:{_BLANK}*(?:[{_LINE_BREAKS}]|\Z|<)|[ \t]*[.:,!;])",
        re.IGNORECASE,
    )


_OTHER_WORD: Final = {"yes": "no", "no": "yes"}
_AT_FIRST: Final = {word: _as_an_answer(word) for word in ("yes", "no")}
# A search that begins with a sign is several times as fast as one that begins with a look behind.
_AT_A_LATER_LINE: Final = {
    word: _as_an_answer(word, behind=f"[{_LINE_BREAKS}]") for word in ("yes", "no")
}
_CONFIDENCE: Final = "confidence"
_SAFE_UNSAFE = re.compile(rf"{_OPEN}(SAFE|UNSAFE)\b{_CLOSE}[.!]?[ \t]*(?:\n|\Z)", re.IGNORECASE)
_NEXT_YES_NO = re.compile(r"\W{0,200}\b(?:yes|no)\b", re.IGNORECASE)
# A search that begins with a letter is five times as fast as one that begins with an edge.
_CODE = re.compile(r"[SO](?<!\w[SO])\d{1,2}\b")
_MOST_CODES: Final = 200
_UNSAFE = re.compile(r"unsafe(?<!\wunsafe)\b", re.IGNORECASE)
_BLOCK = re.compile(r"block(?<!\wblock)\b", re.IGNORECASE)
_ALLOW_IN_CAPITALS = re.compile(r"ALLOW(?<!\wALLOW)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReading:
    """What a guard's text says.

    Attributes:
        outcome: Allow, block, or malformed.
        reason: What the guard says of it, or what could not be read.
        confidence: What stands behind the word, as it is written; or empty.
        categories: Codes of the categories that it names.
    """

    outcome: Outcome
    reason: str = ""
    confidence: str = ""
    categories: tuple[str, ...] = ()


MALFORMED = GuardReading(outcome=Outcome.MALFORMED)


def read_allow_block(text: str) -> GuardReading:
    """Read `ALLOW` or `BLOCK: reason`: the word stands first and alone, else it is prose."""
    return read_answer(text, _allow_block)


def _allow_block(answer: str) -> GuardReading:
    match = _ALLOW_BLOCK.match(answer)
    if match is None:
        return MALFORMED
    rest = answer[match.end() :]
    if match.group(1).upper() == "ALLOW":
        contradicts = _BLOCK.search(rest)
        outcome = Outcome.ALLOW
    else:
        # A reason may well say that something is not to be allowed; only the label itself,
        # in capitals, contradicts.
        contradicts = _ALLOW_IN_CAPITALS.search(rest)
        outcome = Outcome.BLOCK
    if contradicts:
        return MALFORMED
    return GuardReading(outcome=outcome, reason=rest.strip())


def read_yes_no(text: str, *, risky: str = "yes") -> GuardReading:
    """Read the contract yes or no, with or without a confidence tag."""
    return read_answer(text, partial(_yes_no, risky=risky))


def _yes_no(answer: str, *, risky: str) -> GuardReading:
    match = _YES_NO.match(answer)
    if match is None:
        return MALFORMED
    word = match.group(1).lower()
    rest = answer[match.end() :]
    if _NEXT_YES_NO.match(rest):
        return MALFORMED
    # The first word may be that of a quotation, with the guard's own word behind it.
    other = _OTHER_WORD[word]
    if other in rest.casefold() and (
        _AT_FIRST[other].match(rest) or _AT_A_LATER_LINE[other].search(rest)
    ):
        return MALFORMED
    values, reason = take_tags(rest, _CONFIDENCE)
    return GuardReading(
        outcome=Outcome.BLOCK if word == risky else Outcome.ALLOW,
        reason=reason.strip(),
        confidence=values[0] if values else "",
    )


def read_safe_unsafe(text: str) -> GuardReading:
    """Read the contract safe or unsafe, with category codes on the lines below."""
    return read_answer(text, _safe_unsafe)


def _safe_unsafe(answer: str) -> GuardReading:
    match = _SAFE_UNSAFE.match(answer)
    if match is None:
        return MALFORMED
    rest = answer[match.end() :]
    codes = tuple(match[0] for match in islice(_CODE.finditer(rest), _MOST_CODES))
    if match.group(1).lower() == "unsafe":
        return GuardReading(outcome=Outcome.BLOCK, reason=rest.strip(), categories=codes)
    if codes or _UNSAFE.search(rest):
        return MALFORMED
    return GuardReading(outcome=Outcome.ALLOW, reason=rest.strip())


def read_answer(text: str, read: Callable[[str], GuardReading]) -> GuardReading:
    """Read what stands behind the thoughts; two readings of it that differ are malformed."""
    readings = [read(answer) for answer in split_thoughts(text).answers]
    last = readings[-1]
    for reading in readings:
        if reading.outcome is not last.outcome:
            return MALFORMED
    return last


def take_tags(text: str, name: str) -> tuple[list[str], str]:
    """Return what stands in the tags of a name, and the text without them.

    Each search begins where the one before it ended: an expression for both tags and the blanks
    within them would take cubic time on an answer that never closes its tag.
    """
    if "<" not in text or f"{name}>" not in text.casefold():
        return [], text
    opening = re.compile(f"<{name}>", re.IGNORECASE)
    closing = re.compile(f"</{name}>", re.IGNORECASE)
    values: list[str] = []
    rest: list[str] = []
    kept_to = 0
    while opened := opening.search(text, kept_to):
        closed = closing.search(text, opened.end())
        if closed is None:
            break
        values.append(text[opened.end() : closed.start()].strip())
        rest.append(text[kept_to : opened.start()])
        kept_to = closed.end()
    return values, "".join([*rest, text[kept_to:]])


READERS: Final[Mapping[str, Callable[[str], GuardReading]]] = {
    "allow_block": read_allow_block,
    "safe_unsafe": read_safe_unsafe,
    "yes_no": read_yes_no,
}
"""Name of a contract whose words are fixed to what reads it."""
