"""How files of others are decoded, and their tables read: what is ambiguous is refused.

UTF-8, or UTF-16 where the first bytes say so; no character is replaced. A member that appears twice
in an object with two values, a column that appears twice, and a row of another length than its
header are no data: nobody can say what was meant.
"""

from __future__ import annotations

import csv
from io import StringIO
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import DatasetError, counted
from guardmark.core.limits import LONGEST_DATA_LINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_DELIMITERS: Final = ",;\t"
_SPREADSHEET: Final = "sep="
"""How the line begins by which a spreadsheet tells itself the delimiter."""


class DoubledMember(ValueError):
    """A member of a JSON object appears twice, with two values."""


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its members, as `object_pairs_hook`; refuse two values of one name."""
    made = dict(pairs)
    if len(made) < len(pairs):
        for name, value in pairs:
            if not _is_same(made[name], value):
                raise DoubledMember(f"the member {name[:40]!r} appears twice with two values")
    return made


def _is_same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def is_utf16(data: bytes) -> bool:
    """Tell whether a file begins as UTF-16 does."""
    return data.startswith(_UTF_16)


def decode_text(data: bytes, shown_as: str) -> str:
    """Decode a file of another tool: UTF-8, or UTF-16 where its first bytes say so."""
    encoding = "utf-16" if is_utf16(data) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        name = "UTF-16, as its first bytes say" if is_utf16(data) else "UTF-8"
        raise DatasetError(
            f"{shown_as} is not {name} (byte {error.start:,}: {error.reason}).\n"
            "Next: save it as UTF-8, so that no letter is changed on the way."
        ) from error


def delimiter_of(header: str) -> str:
    """Return what parts the cells: of comma, semicolon and tab the one the header has most of."""
    return max(_DELIMITERS, key=header.count)


def is_for_spreadsheets(line: str) -> bool:
    """Tell whether a line is a spreadsheet's own, which stands before the header."""
    return line.lower().startswith(_SPREADSHEET)


def doubled_columns(names: Sequence[str]) -> list[str]:
    """Return the names that more than one column has, capitals and blanks aside."""
    plain = [name.strip().lower() for name in names]
    return sorted({name for name in plain if name and plain.count(name) > 1})


class BrokenTable(ValueError):
    """A file is no table, from some line on or as a whole."""


class TableReader:
    """Reads a table line by line, for data sets and for imports.

    The delimiter is the one that the header has most of. A line that only names the delimiter to
    a spreadsheet is passed over. Only the row that is being read is held.

    Attributes:
        names: The columns, as the header writes them; empty where the file is empty.
        line: Number of the line in the file that was read last.
    """

    def __init__(self, lines: Iterable[str], *, tabs: bool = False) -> None:
        # A limit of the process. The usual one, 131,072 characters, would cut long texts off.
        csv.field_size_limit(max(csv.field_size_limit(), LONGEST_DATA_LINE))
        self._lines = iter(lines)
        self._lines_before = 0
        header = next(self._lines, "")
        if is_for_spreadsheets(header):
            self._lines_before = 1
            header = next(self._lines, "")
        self._delimiter = "\t" if tabs else delimiter_of(header)
        # Strict: a quote that is never closed would swallow the rest of the file unseen.
        self._rows = csv.reader(
            chain([header], self._lines), delimiter=self._delimiter, strict=True
        )
        try:
            self.names: tuple[str, ...] = tuple(next(self._rows, []))
        except csv.Error as error:
            raise BrokenTable(f"is not CSV: {error}, in the header") from error
        doubled = doubled_columns(self.names)
        if doubled:
            raise BrokenTable(f"has more than one column called {', '.join(doubled)}")

    @property
    def line(self) -> int:
        """Number of the line in the file that was read last."""
        return self._lines_before + self._rows.line_num

    def __iter__(self) -> Iterator[list[str]]:
        """Yield the cells of each row that is not empty; their count may be wrong."""
        while True:
            first_line = self.line + 1
            try:
                cells = next(self._rows, None)
            except csv.Error as error:
                message = f"is not CSV: {error}, in the record from line {first_line} on"
                raise BrokenTable(message) from error
            if cells is None:
                return
            if cells:
                yield cells

    def why_unfit(self, cells: Sequence[str]) -> str:
        """Say why a row does not fit the header, or return nothing where it does."""
        if len(cells) == len(self.names):
            return ""
        if len(cells) > len(self.names):
            return (
                f"has more cells than the header has names ({len(cells)}, {len(self.names)}); "
                f"a text that holds {self._delimiter!r} needs quotes around it"
            )
        return f"has {counted(len(cells), 'cell')} where the header has {len(self.names)} names"


def table_records(
    text: str, shown_as: str, warnings: list[str], *, tabs: bool = False
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line and the cells of each row of a table, by the names of its header.

    Names are given in small letters. A last row that breaks off is left out, with a warning.
    """
    try:
        table = TableReader(StringIO(text, newline=""), tabs=tabs)
        names = [name.strip().lower() for name in table.names]
        for cells in table:
            why_unfit = table.why_unfit(cells)
            if len(cells) < len(names) and _is_last(table, text):
                warnings.append(f"the last row of {shown_as} breaks off and was left out")
                return
            if why_unfit:
                raise DatasetError(f"{shown_as}:{table.line}: {why_unfit}.")
            yield table.line, dict(zip(names, cells, strict=True))
    except BrokenTable as error:
        raise DatasetError(f"{shown_as} {error}.") from error


def _is_last(table: TableReader, text: str) -> bool:
    """Tell whether a file ends in the row that was read last, without an end of its line."""
    return not text.endswith("\n") and table.line > text.count("\n")
