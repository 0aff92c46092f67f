"""The short way for plain rows: what was checked once is not checked again."""

from __future__ import annotations

from hashlib import sha256
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from guardmark.core.sample import Prompt, Sample
from guardmark.store.samples import Kind, PlainSample, kind_of, rest_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

_new: Final = tuple.__new__
_OWN: Final = 3  # id, text and group stand before the facets
_NOTHING: Final[dict[str, object]] = {}
_SIMPLE: Final = (str, bool)
"""Kinds of facet values that are learned. Words never equal a value of another kind; True equals
1, but as a label, the one facet that may be a boolean, both mean the same."""


class _Known(NamedTuple):
    """What a combination of facets means."""

    like: Sample
    kind: Kind
    suffix: str


_Found = tuple[_Known, str, str, str]


class QuickRows:
    """Reads rows of one shape whose facets have been seen before.

    A million rows have a few hundred combinations of label, category, language and so on. The
    long way (`RowReader.read`) reads and checks each combination once and hands the sample
    over by `learn`; afterwards only id, group and text are looked at. Whatever is unusual in a
    row sends it the long way.
    """

    __slots__ = ("_has_group", "_known", "_rest", "_said", "is_usable", "width")

    def __init__(self, plan: FieldPlan, spec: DatasetSpec, names: Sequence[str]) -> None:
        paths = plan.paths
        self.is_usable = (
            "text" in paths
            and "id" in paths
            and not {"messages", "must_keep"} & set(paths)
            and not spec.defaults
            and "metadata" not in names
            and all(path in names for path in paths.values())
        )
        self.width = len(names)
        self._has_group = "group" in paths
        own = (paths.get("id", ""), paths.get("text", ""), paths.get("group", ""))
        facets = [paths[field] for field in _FACETS if field in paths]
        self._said = itemgetter(*own[:2], own[2] or own[0], *facets)
        self._rest = tuple(name for name in names if name not in plan.taken)
        self._known: dict[tuple[object, ...], _Known] = {}

    def learn(self, row: Mapping[str, object], sample: Sample) -> None:
        """Remember what the facets of a row mean."""
        facets = self._said(row)[_OWN:]
        if all(value is None or type(value) in _SIMPLE for value in facets):
            known = _Known(like=sample, kind=kind_of(sample), suffix=f"-{sample.variant}")
            self._known.setdefault(facets, known)

    def read(self, row: Mapping[str, object]) -> Sample | None:
        """Read a row the short way."""
        found = self._find(row)
        if found is None:
            return None
        known, sample_id, text, group = found
        like = known.like
        return Sample(
            id=sample_id,
            prompt=Prompt.of_text(text),
            label=like.label,
            category=like.category,
            subcategory=like.subcategory,
            severity=like.severity,
            expected=like.expected,
            technique=like.technique,
            language=like.language,
            variant=like.variant,
            group=group,
            source=like.source,
            metadata=self._metadata(row) if self._rest else _NOTHING,
        )

    def plain(self, row: Mapping[str, object]) -> PlainSample | None:
        """Read a row the short way, into no more than is stored of it."""
        try:
            found = self._find(row)
            metadata = self._metadata(row) if self._rest else _NOTHING
        except KeyError:
            return None  # as many fields, but others
        if found is None:
            return None
        known, sample_id, text, group = found
        rest, expected = None, known.like.expected
        if metadata or expected:
            rest = rest_of(expected=expected, metadata=metadata)
        digest = sha256(text.encode()).digest()
        # By the tuple's own constructor: that of a named one is a call more a sample.
        return _new(PlainSample, (sample_id, known.kind, group or None, text, digest, rest))

    def _find(self, row: Mapping[str, object]) -> _Found | None:
        said = self._said(row)
        sample_id, text = said[0], said[1]
        if type(text) is not str or type(sample_id) is not str or not sample_id:
            return None
        if not text or text.isspace():
            return None
        try:
            known = self._known.get(said[_OWN:])
        except TypeError:
            return None  # a list or an object where a word was expected
        if known is None:
            return None
        group = said[2] if self._has_group else ""
        if not group:
            return None if sample_id.endswith(known.suffix) else (known, sample_id, text, "")
        return (known, sample_id, text, group) if type(group) is str else None

    def _metadata(self, row: Mapping[str, object]) -> Mapping[str, object]:
        return {name: row[name] for name in self._rest}
