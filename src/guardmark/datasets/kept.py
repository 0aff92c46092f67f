"""Samples kept in memory, as far as they fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from guardmark.core.sample import Sample

KEPT_BYTES: Final = 96 * 1024 * 1024
"""Memory that the samples of a run may take. Data that fit are read once and kept; larger data
are validated in a first pass and streamed in every later one."""
_SAMPLE_BYTES: Final = 500  # what a sample takes beside its texts, about


class Kept:
    """The samples read so far, as long as they fit into memory.

    Bounded by what samples take, not by the sizes of files: a packed file tells nothing, and
    many short rows take more than a few long ones.
    """

    def __init__(self, room: int) -> None:
        self.samples: list[Sample] = []
        self.is_whole = True
        self._room = room

    def add(self, sample: Sample) -> None:
        """Keep a sample, or give all up when it is one too many."""
        messages = sample.prompt.messages
        size = len(messages[0].content)
        if len(messages) > 1 or sample.metadata:
            size = sum(len(m.content) for m in messages) + _size_of(sample.metadata)
        self._room -= size + _SAMPLE_BYTES
        if self._room < 0:
            self.is_whole = False
            self.samples = []
        else:
            self.samples.append(sample)


def _size_of(value: object) -> int:
    """Estimate what a JSON value takes in memory, generously."""
    if isinstance(value, str):
        return 50 + len(value)
    if isinstance(value, Mapping):
        return 250 + sum(_size_of(inner) for inner in value.values())
    if isinstance(value, list):
        return 60 + sum(map(_size_of, value))
    return 30
