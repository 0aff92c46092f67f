"""What a configuration says of one data set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from guardmark.core.sample import Label


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """One data set as named by the user.

    Attributes:
        name: Name in reports; data sets of equal name share their groups.
        path: File to read; a built-in set is resolved to its files before this.
        shown_as: The path as the user wrote it, for messages.
        version: The set's own version, or empty.
        format: `jsonl`, `json`, `csv`, `tsv`, `parquet`, `prompt_pack`, or empty to go by
            the file's name.
        label: Label of every row, or None to take it from the row.
        label_field: Dotted path of the label, or empty to recognise it.
        labels: The file's own label words to `attack` or `benign`.
        map: Field of a sample to dotted path in a row; fields not named are recognised.
        filter: Dotted path to the values a row must have to be taken.
        include_variants: Variants to take; empty means all.
        exclude_variants: Variants to leave out.
        defaults: Field of a sample to the value of rows that do not state it.
        open_categories: Whether the file may bring categories of its own.
    """

    name: str
    path: Path
    shown_as: str = ""
    version: str = ""
    format: str = ""
    label: Label | None = None
    label_field: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    map: Mapping[str, str] = field(default_factory=dict)
    filter: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    include_variants: frozenset[str] = frozenset()
    exclude_variants: frozenset[str] = frozenset()
    defaults: Mapping[str, str] = field(default_factory=dict)
    open_categories: bool = False

    @property
    def is_filtered(self) -> bool:
        """Whether rows may be left out."""
        return bool(self.filter or self.include_variants or self.exclude_variants)
