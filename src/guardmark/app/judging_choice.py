"""The judging that the figures of a run stand on: which can be chosen, and choosing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.core.errors import UnknownName
from guardmark.core.record import Stage
from guardmark.store.layers import HEADLINE
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

if TYPE_CHECKING:
    from pathlib import Path


def judging_names(reader: RecordReader) -> tuple[str, ...]:
    """Return what figures can stand on: every judging, and each judge of several."""
    names: dict[str, None] = {}  # in their order, each once
    for _, stage, layer in reader.recorded_stages():
        if stage is Stage.JUDGE and reader.layer_settings(layer).get("kind") != "human":
            names[layer.split("/")[0]] = None
            names[layer] = None
    return tuple(names)


def require_judging(reader: RecordReader, name: str) -> None:
    """Refuse a judging that a run has not."""
    known = judging_names(reader)
    if name not in known:
        raise UnknownName("judging of this run", name, known)


def choose_headline(records: Path, name: str) -> None:
    """Let the figures stand on a judging from now on; the first stays, and so does every choice."""
    with RecordReader(records) as reader, RecordWriter(records) as writer:
        require_judging(reader, name)
        before = sum(each.startswith(HEADLINE) for each in reader.layers())
        writer.add_layer(f"{HEADLINE}{before + 1}/{name}", {})
        writer.note_head()
