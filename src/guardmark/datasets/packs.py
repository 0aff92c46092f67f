"""What the items of a prompt pack are, said outright or only by the name of the pack."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from guardmark.core.sample import Label

if TYPE_CHECKING:
    from collections.abc import Mapping

PACK_MARK = "pack_name"
"""Field that tells the rows of a prompt pack from other rows."""

LABEL_SOURCE = "label_source"
STATED = "configuration"
EXPLICIT = "explicit_is_harmful"
METADATA = "metadata_label"
INFERRED = "inferred_hateful"
UNKNOWN = "unknown"

_TELLING_WORD = "hateful"


class PackLabel(NamedTuple):
    """Where the label of an item stands."""

    value: object
    source: str
    field: str


def resolve_label(row: Mapping[str, object]) -> PackLabel:
    """Find the label of an item of a prompt pack.

    The order is that of the tutor benchmarks whose packs these are: `metadata.is_harmful`;
    `metadata.label`; an original category "hateful"; the word "hateful" anywhere in the
    source, the name or the subset of the pack. The last two only infer: they call a benign
    item harmful when it stands in such a pack, so whoever reads it must be warned.
    """
    inner = row.get("metadata")
    metadata: Mapping[str, object] = inner if isinstance(inner, dict) else {}
    for name, source in (("is_harmful", EXPLICIT), ("label", METADATA)):
        for place, prefix in ((metadata, "metadata."), (row, "")):
            if place.get(name) is not None:
                return PackLabel(place[name], source, prefix + name)
    if str(metadata.get("original_category", "")).strip().lower() == _TELLING_WORD:
        return PackLabel(Label.ATTACK.value, INFERRED, "metadata.original_category")
    origin = (row.get(name) for name in ("source", PACK_MARK, "pack_subset"))
    if any(_TELLING_WORD in str(word or "").lower() for word in origin):
        return PackLabel(Label.ATTACK.value, INFERRED, "")
    return PackLabel(None, UNKNOWN, "")
