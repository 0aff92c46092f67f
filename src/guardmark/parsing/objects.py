"""A JSON object somewhere in a model's text, by a ladder of ever bolder readings."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.values import dataclass

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
    WITHOUT_KEY = "without key"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReading:
    """An object found in a text.

    Attributes:
        fields: The members of the object.
        method: How it was found.
    """

    fields: Mapping[str, object] | None
    method: ParseMethod


FAILED = ObjectReading(fields=None, method=ParseMethod.FAILED)


class AmbiguousJson(ValueError):
    """A key appears twice with different values, so it cannot be told which is meant."""


def read_object(text: str, *, key: str, material: str = "") -> ObjectReading:
    """Find the JSON object with a key: the whole text, within it, or repaired, in this order.

    Where the material that the answer is about holds the key itself, an object within the answer
    may be a quotation: then only an answer that is the object, and nothing else, counts.
    """
    text = without_fence(text[:_LONGEST])
    try:
        whole = _loads(text)
        if isinstance(whole, dict):
            return _reading(whole, key, ParseMethod.DIRECT)
        if _holds_key(material, key):
            return FAILED
        inside = [fields for fields in find_objects(text) if key in fields]
    except AmbiguousJson:
        return FAILED
    if inside:
        values = {json.dumps(fields[key], sort_keys=True) for fields in inside}
        if len(values) > 1:
            return FAILED
        return _reading(inside[0], key, ParseMethod.EXTRACTED)
    return _repaired(text, key)


def _holds_key(material: str, key: str) -> bool:
    named = re.compile(rf"{re.escape(key)}[\"'`\\\s]{{0,10}}[:=]", re.IGNORECASE)
    return named.search(material) is not None


def _reading(fields: dict[str, object], key: str, method: ParseMethod) -> ObjectReading:
    if key not in fields:
        return FAILED
    return ObjectReading(fields=fields, method=method)


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
    # UTF-16 and UTF-32 have a zero byte beside the first brace; asking which costs six calls.
    is_usual = body[:1] == b"{" and body[1:2] != b"\0"
    encoding = "utf-8" if is_usual else json.detect_encoding(body)
    text = body.decode(encoding, "surrogatepass").strip(_SPACE)
    value, end = _DECODER.raw_decode(text)
    if end != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return value


_DEEPEST: Final = 100
"""Levels of lists and objects in a call of a tool: what is deeper cannot be written again."""


def read_json_or_none(text: str) -> Any:
    """Read JSON that a model wrote, such as a call of a tool; None where it is none.

    What is nested deeper than anybody nests is none either: Python would refuse to write it.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    level = [value]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below.extend(each.values())
            elif isinstance(each, list):
                below.extend(each)
        if not below:
            return value
        level = below
    return None


_SPACE: Final = " \t\n\r"
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once)  # made once: it is asked every answer


def word_of(value: object) -> str:
    """Return a text as words of ours are written, `one_word` for ` One-word`; else nothing."""
    if not isinstance(value, str):
        return ""
    return value.strip().lower().replace(" ", "_").replace("-", "_")


def without_fence(text: str) -> str:
    """Return what stands in one fence of Markdown around all of a text, else the text."""
    body = text.strip()
    first, _, rest = body.partition("\n")
    if first.rstrip().lower() not in {"```", "```json"} or not rest.endswith("```"):
        return body
    return rest.removesuffix("```").strip()


def decode_at(text: str, at: int, *, is_all: bool = False) -> dict[str, object] | str | None:
    """Read the object or the quoted text that begins at a place; return None where neither does.

    With `is_all` nothing may follow it.
    """
    if text[at : at + 1] not in {"{", '"'}:
        return None
    try:
        value, end = _DECODER.raw_decode(text, at)
    except AmbiguousJson:
        raise
    except (ValueError, RecursionError):
        return None
    if is_all and text[end:].strip():
        return None
    if isinstance(value, dict | str):
        return value
    return None


def find_objects(text: str) -> Iterator[dict[str, object]]:
    """Yield every outermost object in a text, from left to right."""
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
    if text.count(f'"{key}"', start) > 1:
        return FAILED  # the last would silently win
    mended = repair_object(text[start:], key=key)
    if mended is None:
        return FAILED
    return _reading(mended, key, ParseMethod.REPAIRED)


_LONGEST_REPAIRED: Final = 8_000
"""Characters that are repaired: the library takes more than linear time."""


def repair_object(text: str, *, key: str = "") -> dict[str, object] | None:
    """Repair the object that a text begins with; return None if it begins with something else."""
    if not text.startswith("{"):
        return None
    from json_repair import repair_json

    try:
        mended = repair_json(text[:_LONGEST_REPAIRED], return_objects=True, skip_json_loads=True)
    except (ValueError, RecursionError, IndexError):
        return None
    if isinstance(mended, list):  # prose after the object makes json-repair see a list
        objects = [one for one in mended if isinstance(one, dict) and (not key or key in one)]
        if key and len(objects) != 1:
            return None
        if not objects:
            return None
        mended = objects[0]
    if isinstance(mended, dict):
        return mended
    return None
