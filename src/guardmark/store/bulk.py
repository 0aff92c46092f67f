"""Many rows by one statement: to step a statement costs more than to bind what a row holds."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

_TOGETHER: Final = 25  # more gain little, and a statement grows with them


def insert(
    connection: sqlite3.Connection,
    into: str,
    *,
    chosen: str,
    rows: Sequence[tuple[Any, ...]],
    shared: tuple[Any, ...] = (),
) -> None:
    """Insert rows of equal width, in order.

    The statement is the same for every call with the same words, so it is prepared once.
    """
    if not rows:
        return
    one = f"({', '.join('?' * len(rows[0]))})"
    whole = len(rows) - len(rows) % _TOGETHER
    for together, part in ((_TOGETHER, rows[:whole]), (1, rows[whole:])):
        places = ", ".join([one] * together)
        connection.executemany(
            f"INSERT INTO {into} SELECT {chosen} FROM (VALUES {places})",  # noqa: S608 - words of ours
            [
                (*shared, *chain.from_iterable(part[start : start + together]))
                for start in range(0, len(part), together)
            ],
        )
