"""A JSON object somewhere in a model's text, by a ladder of ever bolder readings."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LONGEST = 50_000
_TRIES = 64


class ParseMethod(StrEnum):
    """Which rung of the ladder read an answer."""

    DIRECT = "direct"
    EXTRACTED = "extracted"
    REPAIRED = "repaired"
    RETRY = "retry"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReading:
    """An object found in a text."""

    fields: Mapping[str, object] | None
    method: ParseMethod


FAILED = ObjectReading(fields=None, method=ParseMethod.FAILED)


class AmbiguousJson(ValueError):
    """A key appears twice with different values: nobody can say which is meant."""


def read_object(text: str, *, key: str) -> ObjectReading:
    """Find the JSON object with a key: the whole text, within it, or repaired, in this order."""
    text = text[:_LONGEST].strip()
    try:
        whole = _loads(text)
        if isinstance(whole, dict):
            return _reading(whole, key, ParseMethod.DIRECT)
        inside = [each for each in _objects(text) if key in each]
    except AmbiguousJson:
        return FAILED
    if inside:
        values = {json.dumps(each[key], sort_keys=True) for each in inside}
        return _reading(inside[0], key, ParseMethod.EXTRACTED) if len(values) == 1 else FAILED
    return _repaired(text, key)


def _reading(fields: dict[str, object], key: str, method: ParseMethod) -> ObjectReading:
    return ObjectReading(fields=fields, method=method) if key in fields else FAILED


def _loads(text: str) -> object:
    try:
        return _DECODER.decode(text)
    except AmbiguousJson:
        raise
    except (ValueError, RecursionError):
        return None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for key, value in pairs:
        if key in fields and fields[key] != value:
            raise AmbiguousJson(f"the key {key!r:.60} appears twice with different values")
        fields[key] = value
    return fields


def read_json(body: bytes) -> object:
    """Read the JSON of a service; two values of one key raise `AmbiguousJson`, a `ValueError`."""
    return _DECODER.decode(body.decode(json.detect_encoding(body), "surrogatepass"))


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once)  # made once: it is asked every answer


def word_of(value: object) -> str:
    """Return a text as words of ours are written, `one_word` for ` One-word`; else nothing."""
    if not isinstance(value, str):
        return ""
    return value.strip().lower().replace(" ", "_").replace("-", "_")


def _objects(text: str) -> Iterator[dict[str, object]]:
    """Every outermost object in a text, from left to right."""
    position = text.find("{")
    for _ in range(_TRIES):
        if position < 0:
            return
        try:
            value, end = _DECODER.raw_decode(text, position)
        except AmbiguousJson:
            raise
        except (ValueError, RecursionError):
            position = text.find("{", position + 1)
        else:
            if isinstance(value, dict):
                yield value
            position = text.find("{", end)


def _repaired(text: str, key: str) -> ObjectReading:
    start = text.find("{")
    if start < 0 or key not in text[start:]:
        return FAILED
    if len(re.findall(rf'"{re.escape(key)}"\s*:', text[start:])) > 1:
        return FAILED  # the last would silently win
    from json_repair import repair_json

    try:
        mended = repair_json(text[start:], return_objects=True, skip_json_loads=True)
    except (ValueError, RecursionError, IndexError):
        return FAILED
    if isinstance(mended, list):  # prose after the object makes json-repair see a list
        carrying = [one for one in mended if isinstance(one, dict) and key in one]
        mended = carrying[0] if len(carrying) == 1 else None
    return _reading(mended, key, ParseMethod.REPAIRED) if isinstance(mended, dict) else FAILED
