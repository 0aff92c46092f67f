"""What a filter asks of rows; values and fields that no row has are named, not passed over."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import DatasetError, did_you_mean, listed
from guardmark.datasets.formats.fields import BadRows, Fault
from guardmark.datasets.formats.files import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from guardmark.datasets.formats.fields import DatasetSpec

    Row = Mapping[str, object]


_SHOWN: Final = 12
_LONGEST: Final = 40


class SampleFilter:
    """One field of rows with the values that pass."""

    __slots__ = ("_met", "_read", "field", "setting", "values")

    def __init__(
        self,
        field: str,
        values: Iterable[object],
        *,
        read: Callable[[Row], object],
        setting: str = "the filter",
    ) -> None:
        self.field = field
        self.setting = setting
        self.values = frozenset(map(_comparable, values))
        self._read = read
        self._met: set[object] = set()

    def value(self, row: Row) -> object:
        """Return what a row has in the field; None for nothing."""
        return _comparable(self._read(row))

    def passes(self, row: Row) -> bool:
        """Tell whether a row passes, and remember by which value."""
        value = self.value(row)
        if value not in self.values:
            return False
        self._met.add(value)
        return True

    @property
    def unmet(self) -> frozenset[object]:
        """Values that passed no row so far."""
        return self.values - self._met


def check_filters(sources: Sequence[tuple[DatasetSpec, Sequence[SampleFilter]]]) -> tuple[str, ...]:
    """Look for what filters ask for in vain, after all rows went by.

    Files of one data entry share a filter: what one of them has is not missing.
    """
    together: dict[tuple[tuple[str, frozenset[object]], ...], list[int]] = {}
    for index, (_, filters) in enumerate(sources):
        key = tuple((wanted.field, wanted.values) for wanted in filters)
        together.setdefault(key, []).append(index)
    warnings: list[str] = []
    for positions in together.values():
        specs = [sources[index][0] for index in positions]
        for same in zip(*(sources[index][1] for index in positions), strict=True):
            if frozenset.intersection(*(wanted.unmet for wanted in same)):
                # Another filter may have turned away the rows that have the value: look again.
                warnings.extend(_missing(specs, same))
    return tuple(warnings)


def _missing(specs: Sequence[DatasetSpec], same: Sequence[SampleFilter]) -> Iterator[str]:
    """Name what no row has: yield it where other values remain, raise it where none does."""
    wanted = same[0]
    fields, values = _census(specs, same)
    if not fields:
        return  # files without rows, which is another complaint
    where = files_text(specs)
    if not any(value is not None for value in values) and None not in wanted.values:
        hint = did_you_mean(wanted.field, fields)
        raise DatasetError(
            f"{where}: no row has the field {wanted.field!r}, which {wanted.setting} names.{hint}\n"
            f"Fields of the rows: {listed(fields)}."
        )
    gone = sorted(str(value) for value in wanted.values if value not in values)
    if not gone:
        return
    missing = ", ".join(repr(value[:_LONGEST]) for value in gone)
    message = (
        f"{where}: no row has {missing} in the field {wanted.field}, as {wanted.setting} asks."
    )
    if len(gone) == 1:
        known = [str(value) for value in values if value is not None]
        message += did_you_mean(gone[0], known)
    known_values = f"Values of {wanted.field}: {_counted(values)}."
    if len(gone) == len(wanted.values):
        raise DatasetError(f"{message}\n{known_values}")
    yield f"{message} {known_values}"


def _census(
    specs: Sequence[DatasetSpec], same: Sequence[SampleFilter]
) -> tuple[set[str], Counter[object]]:
    """Read the files again for the fields of their rows, and the values of one of them."""
    fields: set[str] = set()
    values: Counter[object] = Counter()
    for spec, wanted in zip(specs, same, strict=True):
        try:
            for _, row in read_rows(spec):
                if not isinstance(row, Fault):
                    fields.update(_fields(row))
                    values[wanted.value(row)] += 1
        except BadRows:
            continue  # the file breaks off, which reading its samples reports
    return fields, values


def _fields(row: Row) -> Iterator[str]:
    """Yield the fields of a row, those of inner objects by dotted paths."""
    for name, value in row.items():
        if not isinstance(value, dict):
            yield name
            continue
        for inner in value:
            yield f"{name}.{inner}"


def _counted(values: Counter[object]) -> str:
    """Write the most frequent values with their counts."""
    words = []
    for value, count in values.most_common():
        if value is not None:
            words.append(f"{str(value)[:_LONGEST]!r} ({count:,})")
    text = ", ".join(words[:_SHOWN])
    if len(words) > _SHOWN:
        text += f" and {len(words) - _SHOWN:,} more"
    return text


def files_text(specs: Sequence[DatasetSpec]) -> str:
    """Name files in a message: the first two, and how many others."""
    text = ", ".join(spec.shown_as for spec in specs[:2])
    if len(specs) > 2:
        text += f" and {len(specs) - 2} more"
    return text


def _comparable(value: object) -> object:
    """Make values of JSON, CSV and YAML comparable: all but booleans and null as text."""
    if value is None or isinstance(value, bool):
        return value
    return str(value)
