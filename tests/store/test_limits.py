"""Records of more of something than a run folder may hold: refused with the limit, and soon."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import process_time

import pytest

from guardmark.core import limits
from guardmark.core.errors import StoreError
from guardmark.store.reader import RecordReader
from guardmark.store.seals import SEALS, read_seals

Statement = tuple[str, tuple[object, ...]]
Change = Callable[[], Statement]
"""Makes what is stored; megabytes are made by the test that stores them."""


def evidence(**fields: object) -> Change:
    """A row of details with this evidence."""
    query = "INSERT INTO details VALUES (1, 0, 0, 0, 0, 1, NULL, ?)"
    return lambda: (query, (json.dumps(fields),))


def manifest(path: str, value: object) -> Change:
    """A manifest in which this stands at a path."""
    query = "UPDATE meta SET value = json_set(value, ?, json(?)) WHERE key = 'manifest'"
    return lambda: (query, (path, json.dumps(value)))


def stored(query: str, *values: object) -> Change:
    """What a statement stores."""
    return lambda: (query, values)


MANY_ROWS = (
    "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {}) "
    "INSERT INTO {} (name) SELECT 'x' || i FROM n"
)
TOO_MUCH = {
    "attempts": (evidence(attempts=[[1, 200, "", 0]] * 100_000), "1,000 attempts"),
    "categories": (evidence(categories=[["c", True, None]] * 100_000), "2,000 categories"),
    "evidence": (evidence(raw="x" * (limits.LONGEST_EVIDENCE + 1)), "more than 16 MiB"),
    "defenses": (stored(MANY_ROWS.format(2_000, "defenses")), "500 defenses"),
    "layers": (stored(MANY_ROWS.format(50_000, "layers")), "2,000 layers"),
    "name": (stored("UPDATE defenses SET name = ?", "n" * 2_000_000), "1,000 characters"),
    "id": (
        stored("UPDATE samples SET id = ? WHERE position = 0", "n" * 2_000_000),
        "10,000 characters",
    ),
    "facet": (stored("UPDATE kinds SET category = ?", "n" * 2_000_000), "10,000 characters"),
    "parts": (manifest("$.parts", [{"name": "a"}] * 10_000), "2,000 parts"),
    "prevalence": (
        manifest("$.settings.stats", {"prevalence": [0.1] * 100_000}),
        "100 values of prevalence",
    ),
    "data sets": (manifest("$.data", [{"name": "a"}] * 10_000), "2,000 data sets"),
    "declared": (
        manifest("$.categories", {str(number): [] for number in range(100_000)}),
        "10,000 categories",
    ),
    "manifest": (manifest("$.evaluator", "x" * limits.LONGEST_MANIFEST), "more than 16 MiB"),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_what_is_too_much_is_refused_with_its_limit(finished: Path, case: str) -> None:
    """By the one who opens the records, before a figure is computed."""
    change, said = TOO_MUCH[case]
    query, values = change()
    with closing(sqlite3.connect(finished)) as connection:
        connection.execute(query, values)
        connection.commit()
    began = process_time()
    with pytest.raises(StoreError, match="which is the limit of a run folder") as raised:
        RecordReader(finished)
    assert process_time() - began < 5
    assert said in str(raised.value)


def test_seals_that_nobody_can_have_written_are_not_read(tmp_path: Path) -> None:
    """Sixty megabytes of them are no run of this tool."""
    with (tmp_path / SEALS).open("wb") as file:
        file.truncate(60_000_000)
    with pytest.raises(StoreError, match="has more than 16 MiB, which is the limit"):
        read_seals(tmp_path)
