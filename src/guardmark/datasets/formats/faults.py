"""What is wrong with rows of data, all of it at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from guardmark.core.errors import DatasetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing wrong with one row."""

    file: str
    row: int
    field: str
    message: str
    value: str = ""

    def __str__(self) -> str:
        """Return the message in full."""
        return self.message.replace("{value}", self.value)


_MOST_VALUES = 8
_MOST_SPANS = 500  # whoever has more has one mistake, and the line must stay readable
_NEXT = "Mend these rows; or name the fields, under map: in the configuration, or with --map."


class BadRows(DatasetError):
    """Rows that cannot be used; the message lists every one, up to hundreds of each kind."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = tuple(faults)
        rows = {(fault.file, fault.row) for fault in self.faults}
        count = f"{len(rows)} bad row{'s' * (len(rows) != 1)}"
        head = f"The data cannot be used: {count}. Nothing was run."
        super().__init__("\n".join([head, *_lines(self.faults), _NEXT]))


def _lines(faults: Sequence[Fault]) -> list[str]:
    """Return one line for each (file, field, kind of fault), naming every row it holds for."""
    grouped: dict[tuple[str, str, str], list[Fault]] = {}
    for fault in faults:
        grouped.setdefault((fault.file, fault.field, fault.message), []).append(fault)
    lines = []
    for (file, field, template), alike in grouped.items():
        rows = [fault.row for fault in alike]
        values = list(dict.fromkeys(fault.value for fault in alike))
        left = len(values) - _MOST_VALUES
        words = ", ".join(values[:_MOST_VALUES]) + (f" and {left:,} more" if left > 0 else "")
        message = template.replace("{value}", words)
        where = f"  {file}"
        if rows != [0]:
            where += f" row{'s' * (len(rows) > 1)} {_ranges(rows)}"
        lines.append(f"{where}{f', field {field}' if field else ''}: {message}")
    return lines


def _ranges(rows: Sequence[int]) -> str:
    """Write row numbers compactly: 3, 7, 9-12."""
    spans: list[list[int]] = []
    for row in sorted(set(rows)):
        if spans and row == spans[-1][1] + 1:
            spans[-1][1] = row
        else:
            spans.append([row, row])
    left = sum(b - a + 1 for a, b in spans[_MOST_SPANS:])
    shown = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans[:_MOST_SPANS])
    return f"{shown} and {left:,} more" if left else shown
