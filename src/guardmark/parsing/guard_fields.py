"""Answers of guards that name several judgements: fields of JSON or lines, tags, final words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from guardmark.core.outcome import Outcome
from guardmark.parsing.guard import MALFORMED, GuardReading, read_answer, take_tags
from guardmark.parsing.objects import AmbiguousJson, read_json, without_fence

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_LONGEST = 20_000
_LINE = re.compile(r"^[ \t*_]*([A-Za-z][A-Za-z ]{1,40}?)[ \t*_]*:(.*)$", re.MULTILINE)
_SCORE: Final = "score"
_NO_CATEGORY = frozenset({"", "none", "n/a", "safe", "[]"})


class LabelWords(NamedTuple):
    """The words that decide, in lower case."""

    risky: Collection[str]
    harmless: Collection[str]


def read_fields(text: str, labels: LabelWords, *, field: str, categories: str = "") -> GuardReading:
    """Read the field of the stage under test; without exactly one the contract is broken."""

    def read(answer: str) -> GuardReading:
        return _of_fields(_fields(answer), labels, field=field, categories=categories)

    return read_answer(text, read)


def _of_fields(
    fields: Mapping[str, str], labels: LabelWords, *, field: str, categories: str
) -> GuardReading:
    reading = _reading(fields.get(field.lower(), ""), labels)
    if reading is MALFORMED:
        return MALFORMED
    names = re.split(r"[,;]", fields.get(categories.lower(), "")) if categories else []
    codes = tuple(name.strip() for name in names if name.strip().lower() not in _NO_CATEGORY)
    return replace(reading, categories=codes)


def read_tag(text: str, labels: LabelWords) -> GuardReading:
    """Read the `<score>` tag; two that differ, and what stands in a thought, never count."""

    def read(answer: str) -> GuardReading:
        words = set() if "<think>" in answer.lower() else set(take_tags(answer, _SCORE)[0])
        return _reading(words.pop(), labels) if len(words) == 1 else MALFORMED

    return read_answer(text, read)


def read_word(text: str, labels: LabelWords) -> GuardReading:
    """Read an answer that is one of the words, and nothing else."""
    return read_answer(text, lambda answer: _reading(_plain(answer), labels))


def read_final(text: str, labels: LabelWords, *, field: str) -> GuardReading:
    """Read the final part of a reasoning model: a field of JSON, or a word on the last line."""

    def read(answer: str) -> GuardReading:
        answer = answer[-_LONGEST:]
        value = _fields(answer).get(field.lower())
        if value is not None:
            return _reading(value, labels)
        lines = [line for line in answer.splitlines() if line.strip()]
        return _reading(_plain(lines[-1]), labels) if lines else MALFORMED

    return read_answer(text, read)


def _reading(value: str, labels: LabelWords) -> GuardReading:
    word = value.strip().lower()
    if word in labels.risky:
        return GuardReading(outcome=Outcome.BLOCK)
    return GuardReading(outcome=Outcome.ALLOW) if word in labels.harmless else MALFORMED


def _plain(text: str) -> str:
    return text.strip(" \t\r\n*_`\"'.!")


def _fields(answer: str) -> dict[str, str]:
    """Names in lower case, with their values; a name with two values has none."""
    answer = answer[:_LONGEST]
    body = without_fence(answer)
    if body.lstrip().startswith("{"):
        try:
            document = read_json(body.encode())
        except (AmbiguousJson, ValueError, RecursionError):
            return {}
        pairs = document.items() if isinstance(document, dict) else ()
        return {key.lower(): _value(value) for key, value in pairs}
    fields: dict[str, str] = {}
    for name, rest in _LINE.findall(body):
        key, value = name.lower(), rest.strip(" \t\r*_.")
        fields[key] = value if fields.get(key, value) == value else "\0"
    return fields


def _value(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(int(value)) if isinstance(value, bool) else str(value).strip()
