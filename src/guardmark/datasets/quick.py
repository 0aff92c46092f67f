"""The short way for plain rows: what was checked once is not checked again."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final

from guardmark.core.sample import Prompt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.core.sample import Sample
    from guardmark.datasets.fields import FieldPlan
    from guardmark.datasets.spec import DatasetSpec

_FACETS: Final = (
    "label",
    "category",
    "subcategory",
    "severity",
    "expected",
    "technique",
    "language",
    "variant",
    "source",
)
"""Fields whose values recur from row to row; each combination is read the long way once."""

_NOTHING: Final[dict[str, object]] = {}
_SIMPLE: Final = (str, bool)
"""Kinds of facet values that are learned. Words never equal a value of another kind; True equals
1, but as a label, the one facet that may be a boolean, both mean the same."""


class QuickRows:
    """Reads rows of one shape whose facets have been seen before.

    A million rows have a few hundred combinations of label, category, language and so on. The
    long way (`RowReader.read`) reads and checks each combination once and hands the sample
    over by `learn`; afterwards only id, group and text are looked at. Whatever is unusual in a
    row sends it the long way.

    Attributes:
        is_usable: Whether rows of this shape may go the short way at all.
    """

    __slots__ = ("_facets", "_group", "_id", "_known", "_rest", "_text", "is_usable")

    def __init__(self, plan: FieldPlan, spec: DatasetSpec, names: frozenset[str]) -> None:
        paths = plan.paths
        self.is_usable = (
            "text" in paths
            and "id" in paths
            and not {"messages", "must_keep"} & set(paths)
            and not spec.defaults
            and "metadata" not in names
            and all(path in names for path in paths.values())
        )
        self._text, self._id = paths.get("text", ""), paths.get("id", "")
        self._group = paths.get("group", "")
        present = [paths[field] for field in _FACETS if field in paths]
        # itemgetter of one name gives the bare value; asking twice makes it a tuple, too.
        self._facets = itemgetter(*present, present[0]) if present else _no_facets
        self._rest = tuple(name for name in names if name not in plan.taken)
        self._known: dict[tuple[object, ...], Sample] = {}

    def learn(self, row: Mapping[str, object], sample: Sample) -> None:
        """Remember what the facets of a row mean.

        Args:
            row: The row.
            sample: What the long way made of it.
        """
        facets = self._facets(row)
        if all(value is None or type(value) in _SIMPLE for value in facets):
            self._known.setdefault(facets, sample)

    def read(self, row: Mapping[str, object]) -> Sample | None:
        """Read a row the short way.

        Args:
            row: A row of this shape.

        Returns:
            The sample, or None when the row has to go the long way.
        """
        text, sample_id = row[self._text], row[self._id]
        if type(text) is not str or type(sample_id) is not str or not sample_id:
            return None
        if not text or text.isspace():
            return None
        try:
            known = self._known.get(self._facets(row))
        except TypeError:
            return None  # a list or an object where a word was expected
        group = row[self._group] if self._group else ""
        if known is None or (group and type(group) is not str):
            return None
        if not group and sample_id.endswith(f"-{known.variant}"):
            return None
        return known.alike(
            sample_id=sample_id,
            prompt=Prompt.of_text(text),
            group=group or "",  # type: ignore[arg-type]  # a text, or None: checked above
            metadata={name: row[name] for name in self._rest} if self._rest else _NOTHING,
        )


def _no_facets(_row: Mapping[str, object]) -> tuple[object, ...]:
    return ()
