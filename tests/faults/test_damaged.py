"""Packed files that are cut or damaged anywhere: refused in words, never a fault of ours."""

from __future__ import annotations

import gzip
import io
import json
import random
import zipfile
from typing import TYPE_CHECKING, Final

import pytest

from guardmark.core.errors import GuardmarkError
from guardmark.datasets.formats.fields import DatasetSpec
from guardmark.datasets.formats.files import errors_of_data, read_rows
from guardmark.defenses.ngram import BUILTIN_WEIGHTS, read_model
from guardmark.interchange.imported import Statements
from guardmark.interchange.inspect_log.reading import read_inspect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIMES: Final = 400


def damaged(whole: bytes, chance: random.Random, *, within: int) -> bytes:
    """Cut a file, take a piece out of it, or change a few of its bytes."""
    kind = chance.random()
    if kind < 0.3:
        return whole[: chance.randrange(within)]
    changed = bytearray(whole)
    for _ in range(chance.randint(1, 6)):
        changed[chance.randrange(within)] = chance.randrange(256)
    if kind > 0.9:
        begin = chance.randrange(within)
        del changed[begin : begin + 20]
    return bytes(changed)


def log_of_inspect() -> bytes:
    """An archive in the form of a log of Inspect."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"version": 2, "status": "success"}))
        archive.writestr("samples/1_epoch_1.json", json.dumps({"id": 1, "input": "word " * 99}))
    return packed.getvalue()


def read_data(path: Path) -> None:
    """Read a data file to its end."""
    spec = DatasetSpec(name="damaged", path=path)
    with errors_of_data(spec):
        for _ in read_rows(spec):
            pass


PACKED: Final[dict[str, tuple[bytes, Callable[[Path], object]]]] = {
    "rows.jsonl.gz": (gzip.compress(b'{"text": "word", "label": "attack"}\n' * 50), read_data),
    "log.eval": (log_of_inspect(), lambda path: read_inspect(path, Statements())),
    "weights.npz": (BUILTIN_WEIGHTS.read_bytes(), read_model),
}
"""Name of the file, what it holds, and what reads it."""


@pytest.mark.parametrize("name", PACKED)
def test_damage_is_said_in_words(name: str, tmp_path: Path) -> None:
    """At the head above all, where most is decided."""
    whole, read = PACKED[name]
    chance, refused = random.Random(name), 0
    for _ in range(TIMES if len(whole) < 10_000 else TIMES // 10):
        (tmp_path / name).write_bytes(damaged(whole, chance, within=min(len(whole), 600)))
        try:
            read(tmp_path / name)
        except GuardmarkError:
            refused += 1
    assert refused > 0


def test_an_encrypted_log_is_said_to_be_one(tmp_path: Path) -> None:
    """By the bit that archives set for it."""
    content = bytearray(log_of_inspect())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "log.eval").write_bytes(content)
    with pytest.raises(GuardmarkError, match="encrypted"):
        read_inspect(tmp_path / "log.eval", Statements())
