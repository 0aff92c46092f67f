"""Calls on their way: lines that outlive a kill, and a count that believes only what it can check."""

from __future__ import annotations

from pathlib import Path

import pytest

from guardmark.core.outcome import ALLOWED
from guardmark.core.sample import Label, Prompt, Sample
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter
from guardmark.store.tries import TrySubject
from guardmark.store.under_way import UNDER_WAY, CallsUnderWay, count_unanswered

SUBJECT = TrySubject(account="search", round="R2", digest="d", chain="", tier="V0", size=1)


def test_a_call_without_a_stored_answer_is_counted_once_and_kept(tmp_path: Path) -> None:
    """Answers that were taken and never committed count too: they were paid for."""
    path = tmp_path / "records.sqlite"
    left = b""
    with RecordWriter(path) as writer:
        writer.load_samples([Sample(id="s", prompt=Prompt.of_text("hello"), label=Label.BENIGN)])
        batch = writer.tries("a", "adaptive")
        for number in range(3):
            writer.under_way.leave((batch.defense, batch.layer, 0, number))
        writer.under_way.arrive((batch.defense, batch.layer, 0, 0))
        batch.add((0, 0), SUBJECT, ALLOWED, is_free=False)
        writer.flush()
        writer.under_way.arrive((batch.defense, batch.layer, 0, 1))
        batch.add((1, 0), SUBJECT, ALLOWED, is_free=False)
        left = (tmp_path / UNDER_WAY).read_bytes()
        batch.clear()  # the kill
    (tmp_path / UNDER_WAY).write_bytes(left)
    with RecordReader(path) as reader:
        assert reader.status().possibly_billed == 2
    with RecordWriter(path) as writer:
        assert writer.unanswered == 2
    with RecordWriter(path) as writer:
        assert writer.unanswered == 0
    with RecordReader(path) as reader:
        assert reader.status().possibly_billed == 2


def test_lines_of_answered_calls_are_dropped(tmp_path: Path) -> None:
    """The file stays small, however many calls are made, and goes with the last of them."""
    path = tmp_path / UNDER_WAY
    calls = CallsUnderWay(path)
    calls.leave((1, 1, 1, 1))
    for number in range(20_000):
        calls.leave((0, 0, number, 0))
        calls.arrive((0, 0, number, 0))
        if number % 500 == 0:
            calls.settle()
    assert path.stat().st_size < 80_000
    assert path.read_bytes().startswith(b"1 1 1 1\n")
    calls.arrive((1, 1, 1, 1))
    calls.settle()
    assert path.stat().st_size == 0
    calls.close()
    assert not path.exists()


@pytest.mark.parametrize(
    "lines",
    [b"", b"x\n", b"1 2\n", b"1 2 3 x\n", b"9" * 40 + b" 1 1 1\n", b"\xff\n\n \n", b"1 2 3 4"],
)
def test_what_is_no_line_is_no_call(tmp_path: Path, lines: bytes) -> None:
    """The folder may be a stranger's."""
    with RecordWriter(tmp_path / "records.sqlite") as writer:
        (tmp_path / "lines").write_bytes(lines)
        assert count_unanswered(writer.connection, tmp_path / "lines") == 0
