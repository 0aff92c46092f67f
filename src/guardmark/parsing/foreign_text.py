"""How files of others are decoded, and their tables read: what is ambiguous is refused.

UTF-8, or UTF-16 where the first bytes say so; no character is replaced. A member that appears twice
in an object with two values, a column that appears twice, and a row of another length than its
header are no data: nobody can say what was meant.
"""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import DatasetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


def table_records(
    text: str, shown_as: str, warnings: list[str], *, tabs: bool = False
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line and the cells of each row of a table, by the names of its header.

    Names are given in small letters. A last row that breaks off is left out, with a warning.
    """
    head, _, rest = text.partition("\n")
    if is_for_spreadsheets(head):
        text, head = rest, rest.partition("\n")[0]
    delimiter = "\t" if tabs else delimiter_of(head)
    rows = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = [name.strip().lower() for name in next(rows, [])]
        if twice := doubled_columns(names):
            raise DatasetError(f"{shown_as} has more than one column called {', '.join(twice)}.")
        for cells in rows:
            if not cells:
                continue
            if len(cells) < len(names) and _is_last(rows, text):
                warnings.append(f"the last row of {shown_as} breaks off and was left out")
                return
            if len(cells) != len(names):
                where = f"{shown_as}:{rows.line_num}"
                raise DatasetError(_other_length(where, cells, names, delimiter))
            yield rows.line_num, dict(zip(names, cells, strict=True))
    except csv.Error as error:
        raise DatasetError(f"{shown_as} is not a table: {error} (line {rows.line_num}).") from error


def _is_last(rows: Any, text: str) -> bool:
    """Tell whether a file ends in the row that was read last, without an end of its line."""
    return not text.endswith("\n") and rows.line_num > text.count("\n")


def _other_length(where: str, cells: Sequence[str], names: Sequence[str], delimiter: str) -> str:
    if len(cells) > len(names):
        return (
            f"{where}: has more cells than the header has names; a text that holds "
            f"{delimiter!r} needs quotes around it."
        )
    return f"{where}: has {len(cells)} cells where the header has {len(names)} names."
