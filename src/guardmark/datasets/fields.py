"""Which field of a row means what: the usual names, recognised and reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from guardmark.core.sample import Label

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from guardmark.datasets.spec import DatasetSpec

USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id", "sample_id", "uid"),
    "text": ("text", "prompt_text", "prompt", "input", "question"),
    "messages": ("messages", "conversation"),
    "label": ("is_attack", "is_harmful", "label"),
    "category": ("category", "original_category"),
    "subcategory": ("subcategory", "original_subcategory"),
    "severity": ("severity",),
    "expected": ("expected", "expected_behavior", "expected_behaviour"),
    "technique": ("technique", "attack_type"),
    "language": ("language", "lang"),
    "variant": ("variant",),
    "group": ("group", "base_prompt_id", "group_id"),
    "source": ("source", "dataset"),
    "must_keep": ("must_keep",),
}
"""Field of a sample to the names it usually has, best first; looked up in the row, then in
its `metadata`."""

SAMPLE_FIELDS = tuple(USUAL_NAMES)

_ATTACK_WORDS = "attack true 1 1.0 yes malicious harmful unsafe injection jailbreak adversarial"
_BENIGN_WORDS = "benign false 0 0.0 no harmless safe legitimate legit normal clean"
LABEL_WORDS: dict[str, Label] = {
    **dict.fromkeys(_ATTACK_WORDS.split(), Label.ATTACK),
    **dict.fromkeys(_BENIGN_WORDS.split(), Label.BENIGN),
}
"""Lower-cased words read as a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldPlan:
    """Where each field of a sample is found in rows of one shape."""

    paths: Mapping[str, str]
    taken: frozenset[str]


def plan_fields(row: Mapping[str, object], spec: DatasetSpec) -> FieldPlan:
    """Decide where each field of a sample is found.

    The user's map comes first, then the usual names at the top of the row, then the same
    names in its `metadata`.
    """
    inner = row.get("metadata")
    metadata = inner if isinstance(inner, dict) else {}
    paths: dict[str, str] = {}
    for field, names in USUAL_NAMES.items():
        stated = spec.label_field if field == "label" and spec.label_field else spec.map.get(field)
        if stated:
            paths[field] = stated
            continue
        here = next((name for name in names if name in row), None)
        below = next((name for name in names if name in metadata), None)
        if here is not None:
            paths[field] = here
        elif below is not None:
            paths[field] = f"metadata.{below}"
    return FieldPlan(paths=paths, taken=frozenset(path.split(".")[0] for path in paths.values()))


def getter(path: str) -> Callable[[Mapping[str, object]], object]:
    """Return a function that follows a dotted path into a row."""
    if "." not in path:
        return lambda row: row.get(path)
    steps = path.split(".")

    def follow(row: Mapping[str, object]) -> object:
        if path in row:
            return row[path]
        value: object = row
        for step in steps:
            if not isinstance(value, dict):
                return None
            value = value.get(step)
        return value

    return follow


def read_label(value: object, own_words: Mapping[str, str]) -> Label | None:
    """Read a label in the file's or the usual words."""
    word = str(value).strip()
    if word in own_words:
        return Label(own_words[word])
    return LABEL_WORDS.get(word.lower())
