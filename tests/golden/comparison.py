"""What counts as the same: figures by value and by the keys that name them; words by line."""

from __future__ import annotations

import csv
import io
import json
import re
from difflib import unified_diff
from itertools import islice
from math import isclose
from typing import TYPE_CHECKING, Any, Final

from guardmark.store.schema import FLAG_COLD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIGURE_FILES: Final = (".json", ".jsonl", ".csv")
"""Ends of the names of files that carry figures."""

_SHOWN_LINES: Final = 40
_SHOWN_CHARACTERS: Final = 300

_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
"""A number in a line of words."""

_DIGEST: Final = re.compile(r"[0-9a-f]{12,64}")
"""A digest or a fingerprint of settings, which a new setting changes without any figure."""

_NOT_ANSWERS: Final = frozenset({"latency_ns", "service_ns", "started_ns", "part", "data"})
"""Keys of a record that say how long something took, or whose answer it is; at any depth."""

_EXPECTED: Final = re.compile(r"; expected .*$")
"""What a message says could have been returned: it grows with the shapes that are read."""


def figure_differences(frozen: Mapping[str, bytes], made: Mapping[str, bytes]) -> list[str]:
    """Compare the figures of files; return one line for each file or figure that differs.

    Files and keys that were not frozen yet are passed over: they move no figure.
    """
    found = []
    for name in sorted(frozen):
        if name not in made:
            found.append(f"{name}: is not made any more")
        else:
            old = read_figures(name, frozen[name])
            new = read_figures(name, made[name])
            found += islice(_differing(name, old, new), _SHOWN_LINES)
    return found


def read_figures(name: str, content: bytes) -> Any:
    """Read a JSON document, lines of JSON, or a table as one object a row."""
    text = content.decode()
    if name.endswith(".json"):
        return json.loads(text)
    if name.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    rows = csv.DictReader(io.StringIO(text, newline=""))
    return [{title: _cell(cell) for title, cell in row.items()} for row in rows]


def _cell(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _differing(where: str, old: Any, new: Any) -> Iterator[str]:
    """Yield a line for each figure that is gone or has another value."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key in new:
                yield from _differing(f"{where}: {key}", value, new[key])
            else:
                yield f"{where}: {key}: is gone"
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new) and not _are_sentences(old + new):
            yield f"{where}: {len(old)} entries -> {len(new)}"
        for index, (before, now) in enumerate(zip(old, new, strict=False)):
            yield from _differing(f"{where}[{index}]", before, now)
    elif not _is_same(old, new):
        yield f"{where}: {old!r} -> {new!r}"[:_SHOWN_CHARACTERS]


def _are_sentences(values: list[Any]) -> bool:
    return all(isinstance(value, str) and " " in value for value in values)


def _is_same(old: Any, new: Any) -> bool:
    """Compare two values: neither sentences nor digests, and fractions up to their last digits.

    numpy takes other instructions on other processors, and sums then end in other digits.
    """
    if isinstance(old, str) and isinstance(new, str):
        return old == new or (_is_no_figure(old) and _is_no_figure(new))
    if isinstance(old, float) and isinstance(new, int | float) and not isinstance(new, bool):
        return isclose(old, new, rel_tol=1e-9, abs_tol=1e-12)
    return type(old) is type(new) and bool(old == new)


def _is_no_figure(text: str) -> bool:
    return " " in text or _DIGEST.fullmatch(text) is not None


def word_difference(name: str, frozen: bytes, made: bytes) -> str:
    """Compare a file of words; return the first lines of a diff, or nothing when equal.

    Numbers are left to the comparison of figures.
    """
    old = _NUMBER.sub("0", frozen.decode()).splitlines()
    new = _NUMBER.sub("0", made.decode()).splitlines()
    lines = unified_diff(old, new, f"frozen/{name}", f"now/{name}", lineterm="", n=1)
    return "\n".join(line[:_SHOWN_CHARACTERS] for line in islice(lines, _SHOWN_LINES))


def record_differences(frozen: bytes, made: bytes) -> list[str]:
    """Compare results.jsonl of two makings by key, times left out; return what differs."""
    old, new = _by_key(frozen), _by_key(made)
    found = [f"{key}: is not recorded any more" for key in old.keys() - new.keys()]
    found += [f"{key}: was not recorded" for key in new.keys() - old.keys()]
    for key in old.keys() & new.keys():
        for field, before in old[key].items():
            now = new[key].get(field)
            if before != now:
                found.append(f"{key}: {field}: {before!r} -> {now!r}"[:_SHOWN_CHARACTERS])
    return sorted(found)[:_SHOWN_LINES]


def _by_key(content: bytes) -> dict[tuple[str, ...], dict[str, Any]]:
    """Read records by defense, sample id, repeat, stage and layer."""
    rows = [_timeless(json.loads(line)) for line in content.decode().splitlines()]
    keys = ("defense", "id", "repeat", "stage", "layer")
    found = {tuple(str(row[key]) for key in keys): row for row in rows}
    if len(found) < len(rows):
        raise AssertionError("two records have the same key")
    return found


def _timeless(value: Any) -> Any:
    """Leave out times, and the mark of the first call of a part, which depends on them."""
    if isinstance(value, dict):
        kept = {key: _timeless(field) for key, field in value.items() if key not in _NOT_ANSWERS}
        if isinstance(kept.get("flags"), int):
            kept["flags"] &= ~FLAG_COLD
        return kept
    if isinstance(value, list):
        return [_timeless(entry) for entry in value]
    if isinstance(value, str):
        return _EXPECTED.sub("", value)
    return value
