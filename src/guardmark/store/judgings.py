"""Which judgings a run holds, and which of them its figures stand on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.errors import UnknownName
from guardmark.core.record import Stage
from guardmark.store.layers import HEADLINE
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

if TYPE_CHECKING:
    from pathlib import Path

HUMAN: Final = "human"  # value of the setting `kind` of a layer that holds the labels of people


def judge_layers(reader: RecordReader) -> tuple[list[str], list[str]]:
    """Return every layer of verdicts, and those of them that hold the labels of people."""
    layers = [layer for _, stage, layer in reader.recorded_stages() if stage is Stage.JUDGE]
    return layers, [each for each in layers if reader.layer_settings(each).get("kind") == HUMAN]


def judging_names(reader: RecordReader) -> tuple[str, ...]:
    """Return what figures can stand on: every judging, and each judge of several."""
    layers, people = judge_layers(reader)
    judged = (each for each in layers if each not in people)
    return tuple(dict.fromkeys(name for each in judged for name in (each.split("/")[0], each)))


def require_judging(reader: RecordReader, name: str) -> None:
    """Refuse a judging that a run has not."""
    if name not in (known := judging_names(reader)):
        raise UnknownName("judging of this run", name, known)


def headline_of(reader: RecordReader) -> str:
    """Return the judging chosen last, else the one its configuration names, else none."""
    chosen = [each for each in reader.layers() if each.startswith(HEADLINE)]
    stated = reader.manifest().settings.get("pipeline")
    named = str(stated.get("headline") or "") if isinstance(stated, dict) else ""
    return chosen[-1].split("/", 2)[2] if chosen else named


def choose_headline(records: Path, name: str) -> None:
    """Let the figures stand on a judging from now on; the first stays, and so does every choice."""
    with RecordReader(records) as reader, RecordWriter(records) as writer:
        require_judging(reader, name)
        before = sum(each.startswith(HEADLINE) for each in reader.layers())
        writer.add_layer(f"{HEADLINE}{before + 1}/{name}", {})
        writer.note_head()
