"""The last look at what was written: no file of a finished run holds a key, in any form."""

from __future__ import annotations

from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import StorageError, UntrustworthyRun
from guardmark.net.redaction import KNOWN, Redactor
from guardmark.store.connect import open_to_read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_CHUNK: Final = 1 << 20
_ROWS: Final = 500
_MOST_NAMED: Final = 2


def require_no_secret(paths: Iterable[Path | None]) -> None:
    """Refuse to call files and folders finished where one of them holds a key.

    Looked for is what this process read from its environment for a service. Variables that a run
    folder names are not read: the folder may be a stranger's.
    """
    searching = KNOWN.named()
    if searching.is_empty:
        return
    hits = []
    for path in filter(None, paths):
        for file in _files(path):
            names = _names_in_file(file, searching)
            if names:
                hits.append(f"{file} holds the value of {', '.join(sorted(names))}")
    if hits:
        more = ""
        if hits[_MOST_NAMED:]:
            more = f"\n... and {len(hits) - _MOST_NAMED} more files"
        raise UntrustworthyRun(
            "A key is in what was written, as it is or encoded:\n"
            f"{chr(10).join(hits[:_MOST_NAMED])}{more}\n"
            "Next: pass nothing of this on; find where the key stands (a prompt of the data, a "
            "plain setting), delete these files, and give the service another key."
        )


def _files(path: Path) -> Iterator[Path]:
    below = sorted(path.rglob("*")) if path.is_dir() else [path]
    return (each for each in below if each.is_file() and not each.is_symlink())


def _names_in_file(path: Path, searching: Redactor) -> frozenset[str]:
    """Search a file piece by piece; pieces overlap, so that nothing falls between them."""
    names: frozenset[str] = frozenset()
    try:
        with path.open("rb") as file:
            before = b""
            while piece := file.read(_CHUNK):
                data = before + piece
                names |= searching.names_in(data)
                before = data[-searching.overlap :]
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read: {error.strerror}.\nNext: make it readable."
        ) from error
    if path.name == "records.sqlite":
        return names | _names_in_rows(path, searching)
    return names


def _names_in_rows(path: Path, searching: Redactor) -> frozenset[str]:
    """Search the values of records: a long one lies on pages that are not neighbours."""
    names: frozenset[str] = frozenset()
    with closing(open_to_read(path)) as connection:
        query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0"
        for (table,) in connection.rows(query):
            quoted = str(table).replace('"', '""')
            for rows in connection.chunks(f'SELECT * FROM "{quoted}"', size=_ROWS):  # noqa: S608 - a table of ours
                values = chain.from_iterable(rows)
                long = [each.encode() for each in values if isinstance(each, str)]
                names |= searching.names_in(b"\n".join(long))
    return names
