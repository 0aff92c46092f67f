"""Plain samples: one user message, in the form in which it is stored."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from guardmark.core.sample import Label

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.core.sample import Sample

Kind = tuple[int, str, str, str, str, str, str, str]
"""What samples have in common: whether they are attacks (1 or 0), category, subcategory,
severity, language, variant, technique, source; empty words for what is absent."""


class PlainSample(NamedTuple):
    """A sample of one user message that needs no prompt before it is stored.

    A tuple, since a run of a million samples makes a million of them and lets each go at once.

    Attributes:
        id: Unique within the data.
        kind: What it has in common with others.
        group: What it was derived from, or None when it stands alone.
        text: The text under test; valid Unicode.
        digest: Its content hash, as `Prompt.digest` gives it.
        rest: Whatever else is known of it, as `rest_of` writes it, or None.
    """

    id: str
    kind: Kind
    group: str | None
    text: str
    digest: bytes
    rest: str | None


def kind_of(sample: Sample) -> Kind:
    """Return what a sample has in common with others."""
    return (
        1 if sample.label is Label.ATTACK else 0,
        sample.category,
        sample.subcategory,
        sample.severity or "",
        sample.language,
        sample.variant,
        sample.technique,
        sample.source,
    )


def rest_of(
    *, expected: str, metadata: Mapping[str, object], must_keep: tuple[str, ...] = ()
) -> str | None:
    """Write what of a sample is neither text nor facet."""
    said: dict[str, object] = {}
    if expected:
        said["expected"] = expected
    if must_keep:
        said["must_keep"] = must_keep
    if metadata:
        said["metadata"] = dict(metadata)
    return json.dumps(said, separators=(",", ":")) if said else None
