"""Names of classes that Parquet keeps beside its numbers, as Hugging Face's `datasets` writes.

A column of `ClassLabel` holds numbers, and which number means what stands only in the metadata of
the schema: 1 is *safe* in one file and *unsafe* in the next.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY: Final = b"huggingface"
_KIND: Final = "ClassLabel"


def class_names(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[str]]:
    """Return the columns of classes with the names of their numbers; nothing where none is told."""
    features: Any = {}
    with suppress(ValueError, RecursionError, AttributeError, TypeError):
        stated = json.loads((metadata or {}).get(_KEY, b"{}"))
        features = stated.get("info", {}).get("features") or stated.get("features") or {}
    if not isinstance(features, dict):
        return {}
    known: dict[str, list[str]] = {}
    for column, feature in features.items():
        names = _names(feature)
        if names:
            known[column] = names
    return known


def _names(feature: Any) -> list[str]:
    """Return the names of a column, or of what its lists hold."""
    if isinstance(feature, list) and len(feature) == 1:
        return _names(feature[0])
    if not isinstance(feature, dict):
        return []
    if feature.get("_type") != _KIND:
        return _names(feature.get("feature"))
    names = feature.get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return []
    return names


def with_names(row: dict[str, Any], names: Mapping[str, list[str]]) -> dict[str, Any]:
    """Put names in place of the numbers of a row; a number without one is left as it is."""
    for column, known in names.items():
        if column in row:
            row[column] = _named(row[column], known)
    return row


def _named(cell: Any, names: list[str]) -> Any:
    """Return the name of a number, or of each number of a list."""
    if isinstance(cell, list):
        return [_named(member, names) for member in cell]
    if not isinstance(cell, int) or isinstance(cell, bool):
        return cell
    if cell == -1:  # a row of a test set whose class is not told
        return None
    if 0 <= cell < len(names):
        return names[cell]
    return cell
