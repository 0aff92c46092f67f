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
    """One data set as named by the user."""

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
