"""Values in a service's answer: found by JSONPath, read as blocked, allowed, or a score."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TypeGuard

from guardmark.core.errors import ConfigError
from guardmark.core.limits import MOST_SEARCHED_LEVELS, MOST_SEARCHED_VALUES
from guardmark.core.outcome import CategoryFinding
from guardmark.core.values import dataclass

BlockedRule = Callable[[list[object]], bool | None]
"""Values found at the path -> blocked, allowed, or None when they cannot be understood."""


_PLAIN = re.compile(r"\$(?:\.[A-Za-z_]\w*|\[\d+\]|\['[^'\\]*'\])*", re.ASCII)
_STEP = re.compile(r"\.(?P<name>\w+)|\[(?P<index>\d+)\]|\['(?P<quoted>[^'\\]*)'\]", re.ASCII)
_SLACK = 1e-6  # sums of probabilities miss 1 by a little


def is_true(values: list[object]) -> bool | None:
    """Read booleans: blocked when any is true; anything else is not understood."""
    if not values:
        return None
    is_any = False
    for value in values:
        if not isinstance(value, bool):
            return None
        is_any = is_any or value
    return is_any


def is_one_of(blocked: Sequence[object], *, allowed: Sequence[object] = ()) -> BlockedRule:
    """Make a rule that knows the values that mean blocked."""
    blocks = {_typed(value) for value in blocked}
    allows = {_typed(value) for value in allowed}
    kinds = {kind for kind, _ in blocks}

    def rule(values: list[object]) -> bool | None:
        if not values:
            return None
        is_blocked = False
        for value in map(_typed, values):
            if value in blocks:
                is_blocked = True
            elif allows:
                if value not in allows:
                    return None
            elif value[0] not in kinds:
                return None
        return is_blocked

    return rule


def is_at_least(level: float) -> BlockedRule:
    """Make a rule for numbers: blocked when the highest reaches a level."""

    def rule(values: list[object]) -> bool | None:
        numbers = [value for value in values if _is_number(value)]
        if not numbers or len(numbers) != len(values):
            return None
        return max(numbers) >= level

    return rule


def is_there(values: list[object]) -> bool:
    """Read presence: blocked when the path leads to anything (a finding, a span)."""
    return bool(values)


def is_filled(values: list[object]) -> bool | None:
    """Read lists of findings: blocked when any has one; an answer without lists is no allow."""
    lists = [value for value in values if isinstance(value, list)]
    if not lists or len(lists) != len(values):
        return None
    has_entry = False
    for entries in lists:
        for entry in entries:
            if not isinstance(entry, dict):
                return None
            has_entry = True
    return has_entry


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreScale:
    """How a service's score becomes a risk in [0, 1]."""

    lowest: float = 0.0
    highest: float = 1.0
    labels: Mapping[str, float] = field(default_factory=dict)

    def risk(self, value: object) -> float | None:
        """Return the risk a value stands for."""
        if isinstance(value, str):
            return self.labels.get(value)
        if not _is_number(value):
            return None
        share = (value - self.lowest) / (self.highest - self.lowest)
        if not -_SLACK <= share <= 1.0 + _SLACK:
            return None
        if share < 0.0:
            return 0.0
        return min(1.0, share)


def findings(values: list[object], scale: ScoreScale) -> tuple[CategoryFinding, ...]:
    """Read the categories of an answer, in the shapes services give them.

    Of more than `_MOST_FINDINGS` the first ones are read.
    """
    categories: list[CategoryFinding] = []
    waiting = values[::-1]
    while waiting and len(categories) < _MOST_FINDINGS:
        value = waiting.pop()
        if isinstance(value, str):
            categories.append(CategoryFinding(name=value[:_LONGEST_NAME], flagged=True))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
        elif isinstance(value, dict):
            categories.extend(_of_mapping(value, scale))
    return _merged(categories[:_MOST_FINDINGS])


def _merged(categories: Sequence[CategoryFinding]) -> tuple[CategoryFinding, ...]:
    """Join what two tables of an answer say of one category, such as flags and scores."""
    by_name: dict[str, CategoryFinding] = {}
    for category in categories:
        known = by_name.get(category.name)
        if known is None:
            by_name[category.name] = category
            continue
        flagged, score = known.flagged, known.score
        if category.flagged is not None:
            flagged = bool(flagged) or category.flagged
        if score is None or (category.score is not None and category.score > score):
            score = category.score
        by_name[category.name] = CategoryFinding(name=category.name, flagged=flagged, score=score)
    return tuple(by_name.values())


_LONGEST_NAME = 200  # characters of a category
_MOST_FINDINGS = 2_000
"""Categories that are read of one answer; fewer are kept."""
_NAMES = ("category", "name", "type", "detector_type", "entity_type")
_FLAGS = ("flagged", "detected")
_SCORES = ("score", "severityScore", "severity", "confidence")


def _of_mapping(value: dict[str, object], scale: ScoreScale) -> list[CategoryFinding]:
    """Read an object: one category that is named in it, or a table of flags or scores by name."""
    for key in _NAMES:
        name = value.get(key)
        if isinstance(name, str):
            return [_of_entry(name, value, scale)]
    categories = []
    for key, member in value.items():
        name = key[:_LONGEST_NAME]
        if isinstance(member, bool):
            categories.append(CategoryFinding(name=name, flagged=member))
        elif _is_number(member) or (isinstance(member, str) and member in scale.labels):
            categories.append(CategoryFinding(name=name, score=scale.risk(member)))
    return categories


def _of_entry(name: str, entry: dict[str, object], scale: ScoreScale) -> CategoryFinding:
    """Read one category of a list: its name, whether it was flagged, and its score."""
    flagged = score = None
    for key in _FLAGS:
        value = entry.get(key)
        if flagged is None and isinstance(value, bool):
            flagged = value
    for key in _SCORES:
        if score is None:
            score = scale.risk(entry.get(key))
    return CategoryFinding(name=name[:_LONGEST_NAME], flagged=flagged, score=score)


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False  # an integer beyond every float


def _typed(value: object) -> tuple[str, object]:
    """Tell true from 1, and keep what is no scalar apart from everything."""
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, int | float):
        return "number", value
    if isinstance(value, str):
        return "text", value
    if value is None:
        return "null", None
    return "structure", id(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonPath:
    """A path into JSON values."""

    text: str
    find: Callable[[object], list[object]]
    is_singular: bool


def compile_path(text: str, *, where: str) -> JsonPath:
    """Read a JSONPath."""
    if _PLAIN.fullmatch(text):
        return JsonPath(text=text, find=_plain(text), is_singular=True)
    from jsonpath import JSONPath, JSONPathError
    from jsonpath import compile as compile_any

    try:
        if not text.startswith("$"):
            raise ConfigError(f"{where}: {text!r} is not a JSONPath: it must begin with $.")
        path = compile_any(text)
    except (JSONPathError, re.error, ValueError, OverflowError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ConfigError(f"{where}: {text!r} is not a JSONPath: {reason}.") from error

    def find(value: object) -> list[object]:
        _require_searchable(value)
        try:
            return list(path.findall(value))  # type: ignore[arg-type]
        except JSONPathError as error:
            raise ValueError(str(error)) from error

    singular = isinstance(path, JSONPath) and path.singular_query()
    return JsonPath(text=text, find=find, is_singular=singular)


def _require_searchable(document: object) -> None:
    """Refuse a document that a path with `..` or a condition would search for long.

    The library notes the way to each value that it looks at.
    """
    level, levels, values = [document], 0, 0
    while level:
        values += len(level)
        levels += 1
        if values > MOST_SEARCHED_VALUES or levels > MOST_SEARCHED_LEVELS:
            raise ValueError(
                f"the answer has more than {MOST_SEARCHED_VALUES:,} values or "
                f"{MOST_SEARCHED_LEVELS} levels, which a path is not searched through"
            )
        below: list[object] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
        level = below


def _plain(text: str) -> Callable[[object], list[object]]:
    """Return what finds the one value of a path of names and indices, without the library."""
    steps: list[str | int] = []
    for match in _STEP.finditer(text):
        if match["index"]:
            steps.append(int(match["index"]))
        else:
            steps.append(match["name"] or match["quoted"] or "")

    def find(value: object) -> list[object]:
        for step in steps:
            if isinstance(step, str):
                if not isinstance(value, dict) or step not in value:
                    return []
                value = value[step]
            else:
                if not isinstance(value, list) or step >= len(value):
                    return []
                value = value[step]
        return [value]

    return find
