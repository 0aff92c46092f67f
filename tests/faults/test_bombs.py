"""Small files of data that unpack to far more than they are: one line of `BOMBS` each."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from pyarrow import parquet

from guardmark.datasets.formats.fields import BadRows, DatasetSpec
from guardmark.datasets.formats.files import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable

MEGABYTE: Final = 1 << 20


def packed(megabyte: bytes, *, times: int = 360) -> Callable[[Path], None]:
    """A file of the same megabyte again and again, packed each time for itself."""
    return lambda path: path.write_bytes(gzip.compress(megabyte, mtime=0) * times) and None


def shared_text(path: Path) -> None:
    """Forty rows that share one text, which the file holds once."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 40, pa.int32()), ["a b " * (4 << 20)])
    parquet.write_table(pa.table({"text": texts}), path, compression="zstd")


def no_texts(path: Path) -> None:
    """Six million rows of nothing."""
    parquet.write_table(pa.table({"text": pa.nulls(6_000_000, pa.string())}), path)


BOMBS: Final = {
    "blanks.json.gz": packed(b"[" + b" " * MEGABYTE),
    "rows.jsonl.gz": packed(b"{}\n" * 16_000),
    "one-line.jsonl.gz": packed(b"a " * (MEGABYTE >> 1)),
    "shared.parquet": shared_text,
    "nothing.parquet": no_texts,
}
"""Name of the file, and how it is made."""


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_of_endless_content_is_refused(name: str, tmp_path: Path) -> None:
    """Before a row of it is built, and in words."""
    BOMBS[name](tmp_path / name)
    assert (tmp_path / name).stat().st_size < MEGABYTE
    with pytest.raises(BadRows, match="unpacks to more than"):
        next(read_rows(DatasetSpec(name="bomb", path=tmp_path / name)))


def test_texts_that_pack_well_are_read(tmp_path: Path) -> None:
    """Ten thousand rows around one long system prompt, as JSON lines and as Parquet."""
    rows = [{"id": f"s{n}", "text": f"{'You are a tutor. ' * 60}{n}"} for n in range(10_000)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet", compression="zstd")
    for path in (tmp_path / "rows.jsonl.gz", tmp_path / "rows.parquet"):
        assert [row for _, row in read_rows(DatasetSpec(name="texts", path=path))] == rows
