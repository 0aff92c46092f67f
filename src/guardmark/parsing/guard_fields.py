"""Answers of guards that name several judgements: fields of JSON or lines, tags, final words."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from guardmark.core.outcome import Outcome
from guardmark.parsing.guard import MALFORMED, GuardReading, read_answer, take_tags
from guardmark.parsing.objects import AmbiguousJson, read_json, without_fence

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_LONGEST: Final = 20_000
"""Characters of the final part of a reasoning model."""
_MOST_LINES: Final = 1_000
"""Lines that may state the fields: a text that states them more often has no single answer."""
_SCORE: Final = "score"
_NO_CATEGORY = frozenset({"", "none", "n/a", "safe", "[]"})


class LabelWords(NamedTuple):
    """The words that decide, in lower case."""

    risky: Collection[str]
    harmless: Collection[str]


def read_fields(text: str, labels: LabelWords, *, field: str, categories: str = "") -> GuardReading:
    """Read the field of the stage under test; without exactly one the contract is broken."""

    def read(answer: str) -> GuardReading:
        fields = _fields(answer, [field, categories])
        return _of_fields(fields, labels, field=field, categories=categories)

    return read_answer(text, read)


def _of_fields(
    fields: Mapping[str, str], labels: LabelWords, *, field: str, categories: str
) -> GuardReading:
    reading = _reading(fields.get(field.lower(), ""), labels)
    if reading is MALFORMED:
        return MALFORMED
    if not categories:
        return reading
    codes = []
    for name in re.split(r"[,;]", fields.get(categories.lower(), "")):
        code = name.strip()
        if code.lower() not in _NO_CATEGORY:
            codes.append(code)
    return replace(reading, categories=tuple(codes))


def read_tag(text: str, labels: LabelWords) -> GuardReading:
    """Read the `<score>` tag; two that differ, and what stands in a thought, never count."""

    def read(answer: str) -> GuardReading:
        if "<think>" in answer.lower():
            return MALFORMED
        words = set(take_tags(answer, _SCORE)[0])
        if len(words) != 1:
            return MALFORMED
        return _reading(words.pop(), labels)

    return read_answer(text, read)


def read_word(text: str, labels: LabelWords) -> GuardReading:
    """Read an answer that is one of the words, and nothing else."""
    return read_answer(text, lambda answer: _reading(_plain(answer), labels))


def read_final(text: str, labels: LabelWords, *, field: str) -> GuardReading:
    """Read the final part of a reasoning model: a field of JSON, or a word on the last line."""

    def read(answer: str) -> GuardReading:
        answer = answer[-_LONGEST:]
        value = _fields(answer, [field]).get(field.lower())
        if value is not None:
            return _reading(value, labels)
        lines = answer.rstrip().splitlines()
        if not lines:
            return MALFORMED
        return _reading(_plain(lines[-1]), labels)

    return read_answer(text, read)


def _reading(value: str, labels: LabelWords) -> GuardReading:
    word = value.strip().lower()
    if word in labels.risky:
        return GuardReading(outcome=Outcome.BLOCK)
    if word in labels.harmless:
        return GuardReading(outcome=Outcome.ALLOW)
    return MALFORMED


def _plain(text: str) -> str:
    return text.strip(" \t\r\n*_`\"'.!")


def _fields(answer: str, names: Sequence[str]) -> dict[str, str]:
    """Return the values of some fields, by names in lower case; a name with two values has none.

    All of the answer is read: the guard's own word may come after twenty pages of quotation.
    """
    body = without_fence(answer)
    if body.lstrip().startswith("{"):
        try:
            document = read_json(body.encode())
        except (AmbiguousJson, ValueError, RecursionError):
            return {}
        if not isinstance(document, dict):
            return {}
        return {key.lower(): _value(value) for key, value in document.items()}
    fields: dict[str, str] = {}
    lines = _lines_of(tuple(filter(None, names))).finditer(body)
    for line in islice(lines, _MOST_LINES + 1):
        key = line[1].lower()
        value = line[2].strip(" \t\r*_.")
        if fields.setdefault(key, value) != value:
            fields[key] = _CONTRADICTED
    if next(lines, None) is not None:
        return {}
    return fields


_CONTRADICTED: Final = "\0"
"""Stands for the value of a field that has two; no guard has such a word."""


@cache
def _lines_of(names: tuple[str, ...]) -> re.Pattern[str]:
    """Match a line that states one of the fields."""
    listed = "|".join(re.escape(name) for name in names)
    return re.compile(rf"^[ \t*_]*({listed})[ \t*_]*:(.*)$", re.MULTILINE | re.IGNORECASE)


def _value(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return str(int(value))
    return str(value).strip()
