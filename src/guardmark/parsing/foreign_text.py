"""How files of others are decoded, and their tables read: what is ambiguous is refused.

UTF-8, or UTF-16 where the first bytes say so; no character is replaced. A member that appears twice
in an object with two values, a column that appears twice, and a row of another length than its
header are no data: nobody can say what was meant. A line that does not end is refused while it is
read, before it is decoded whole.
"""

from __future__ import annotations

import codecs
import csv
import errno
import stat
from functools import partial
from io import BytesIO, TextIOWrapper
from itertools import chain
from typing import TYPE_CHECKING, Any, AnyStr, Final

from guardmark.core.errors import DatasetError, counted
from guardmark.core.limits import LONGEST_DATA_LINE, LONGEST_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import IO

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


def limited_bytes(path: Path, *, most: int) -> bytes:
    """Read a file of limited length.

    Raises:
        OSError: It cannot be read, is a pipe or a device, or is longer.
    """
    status = path.stat()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
    if status.st_size > most:
        raise OSError(errno.EINVAL, f"it has more than {most >> 20} MiB")
    return path.read_bytes()


def is_utf16(data: bytes) -> bool:
    """Tell whether a file begins as UTF-16 does."""
    return data.startswith(_UTF_16)


def decode_text(data: bytes, shown_as: str) -> str:
    """Decode a file of another tool: UTF-8, or UTF-16 where its first bytes say so."""
    try:
        return data.decode(_encoding_of(data))
    except UnicodeDecodeError as error:
        where = f"byte {error.start:,}: {error.reason}"
        raise _not_decoded(data, shown_as, where) from error


def _encoding_of(data: bytes) -> str:
    return "utf-16" if is_utf16(data) else "utf-8-sig"


def _not_decoded(data: bytes, shown_as: str, where: str) -> DatasetError:
    name = "UTF-16, as its first bytes say" if is_utf16(data) else "UTF-8"
    return DatasetError(
        f"{shown_as} is not {name} ({where}).\n"
        "Next: save it as UTF-8, so that no letter is changed on the way."
    )


class EndlessLine(ValueError):
    """A line is longer than any text."""


def lines_of(stream: IO[AnyStr], end: AnyStr) -> Iterator[AnyStr]:
    """Yield the lines of a file up to its `end`, which is empty; one without end is refused.

    No more than the limit is read of such a line, and nothing behind it.
    """
    lines = iter(partial(stream.readline, LONGEST_DATA_LINE), end)
    for number, line in enumerate(lines, start=1):
        require_end(line, number)
        yield line


def require_ends(data: bytes) -> None:
    """Refuse a file with a line that is longer than any text, before any of it is decoded."""
    start, number = 0, 1
    while (end := data.find(b"\n", start)) >= 0:
        require_end(memoryview(data)[start:end], number)
        start, number = end + 1, number + 1
    require_end(memoryview(data)[start:], number)


def require_end(line: bytes | str | memoryview, number: int) -> None:
    """Refuse a line that is longer than any text."""
    if len(line) >= LONGEST_DATA_LINE - len(codecs.BOM_UTF8):
        most = LONGEST_DATA_LINE >> 20
        raise EndlessLine(
            f"has a line {number} of {most} MiB or more, which no row has: end each row with a "
            "line feed, or name the file that was meant"
        )


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
        if len(header) > LONGEST_HEADER:
            raise BrokenTable(
                f"has a header of more than {LONGEST_HEADER >> 20} MiB, which names no columns: "
                "put a line with the names of the columns first"
            )
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
    data: bytes, shown_as: str, warnings: list[str], *, tabs: bool = False
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line and the cells of each row of a table, by the names of its header.

    Names are given in small letters. A last row that breaks off is left out, with a warning. Only
    the row that is being read is decoded.
    """
    lines = _ReadLines(data)
    try:
        table = TableReader(lines, tabs=tabs)
        names = [name.strip().lower() for name in table.names]
        for cells in table:
            why_unfit = table.why_unfit(cells)
            if len(cells) < len(names) and lines.is_cut_off:
                warnings.append(f"the last row of {shown_as} breaks off and was left out")
                return
            if why_unfit:
                raise DatasetError(f"{shown_as}:{table.line}: {why_unfit}.")
            yield table.line, dict(zip(names, cells, strict=True))
    except UnicodeDecodeError as error:
        raise _not_decoded(
            data, shown_as, f"near line {lines.count + 1}: {error.reason}"
        ) from error
    except (BrokenTable, EndlessLine) as error:
        raise DatasetError(f"{shown_as} {error}.") from error


class _ReadLines:
    """The lines of a table, decoded one after the other.

    Attributes:
        count: How many were read.
        is_cut_off: Whether the one that was read last has no end, so that the file ends in it.
    """

    def __init__(self, data: bytes) -> None:
        text = TextIOWrapper(BytesIO(data), encoding=_encoding_of(data), newline="")
        self._lines = lines_of(text, "")
        self.count = 0
        self.is_cut_off = False

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.count += 1
            self.is_cut_off = not line.endswith(("\n", "\r"))
            yield line
