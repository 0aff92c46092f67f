"""Calls of a guard about more and more of each answer, and where they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.defense.frame import ALLOW, ERROR, MISSING
from guardmark.core.record import Stage
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import Frame
    from guardmark.core.chunks import ChunkRule
    from guardmark.stats.arguments import Flags, Floats, Ints
    from guardmark.store.reader import RecordReader

    Codes = NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkEnds:
    """Where the calls about each answer end.

    Attributes:
        decision: What the call that ends it said; allow where each let the answer pass.
        gone_out: Characters that had gone out before the call that did not let it pass; 0 where
            each did.
        calls: Calls up to the end.
        waited_ms: How long they took together; nan where one was not timed.
    """

    decision: Codes
    gone_out: Ints
    calls: Ints
    waited_ms: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChunkCalls:
    """What a guard said at each call about a growing answer, the calls of a place in a row.

    Attributes:
        rule: After how many characters it was asked again.
        length: Characters of each answer; -1 where there is none.
        counts: Calls that an answer takes; one, about nothing, where there is none.
        starts: Where the calls of each place begin.
        said: Outcome of each call; `MISSING` where it was not made.
        waited_ms: How long each took; nan where no time counts.
    """

    rule: ChunkRule
    length: Ints
    counts: Ints
    starts: Ints
    said: Codes
    waited_ms: Floats

    @classmethod
    def plan(cls, rule: ChunkRule, length: Ints) -> ChunkCalls:
        """Return the calls that answers of these lengths take, none of them made."""
        sizes = {each: rule.calls(max(0, each)) for each in np.unique(length).tolist()}
        counts = np.array([sizes[each] for each in length.tolist()], dtype=np.int64)
        counts[counts > rule.most_calls] = 1  # they were not asked about
        total = int(counts.sum())
        return cls(
            rule=rule,
            length=length,
            counts=counts,
            starts=np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64),
            said=np.full(total, MISSING, dtype=np.int8),
            waited_ms=np.full(total, np.nan),
        )

    @property
    def is_too_long(self) -> Flags:
        """Which answers take more calls than the rule allows: nobody was asked about them."""
        every = self.rule.every
        if every is None:
            return np.zeros(len(self.length), dtype=np.bool_)
        too_long: Flags = self.length > every * self.rule.most_calls
        return too_long

    def note(self, number: int, said: Codes, waited_ms: Floats, *, here: Flags) -> None:
        """Note what was said at a call of this number, counted from 0, of the places named."""
        places = np.flatnonzero(here & (number < self.counts - 1))
        self._note(self.starts[places] + number, places, said, waited_ms)

    def note_last(self, said: Codes, waited_ms: Floats) -> None:
        """Note what was said of whole answers."""
        places = np.arange(len(self.counts))
        self._note(self.starts + self.counts - 1, places, said, waited_ms)
        self.said[self.starts[self.is_too_long]] = ERROR

    def _note(self, at: Ints, places: Ints, said: Codes, waited_ms: Floats) -> None:
        self.said[at] = said[places]
        self.waited_ms[at] = waited_ms[places]

    def end(self, lets_through: tuple[int, ...] = ()) -> ChunkEnds:
        """Find where the calls end, where some outcomes let an answer go on beside allow."""
        if not len(self.counts):
            return ChunkEnds(
                decision=self.said,
                gone_out=self.counts,
                calls=self.counts,
                waited_ms=self.waited_ms,
            )
        passing = np.isin(self.said, (ALLOW, *lets_through))
        number = np.arange(len(self.said)) - np.repeat(self.starts, self.counts)
        stops = np.minimum.reduceat(np.where(passing, len(self.said), number), self.starts)
        is_stopped = stops < self.counts
        last = np.minimum(stops, self.counts - 1)
        made = number <= np.repeat(last, self.counts)
        gone_out = np.where(is_stopped, stops * (self.rule.every or 0), 0)
        decision = np.where(is_stopped, self.said[self.starts + last], ALLOW).astype(np.int8)
        return ChunkEnds(
            decision=decision,
            gone_out=gone_out,
            calls=np.where(self.is_too_long | (self.length < 0), 0, last + 1),
            waited_ms=np.add.reduceat(np.where(made, self.waited_ms, 0.0), self.starts),
        )


def read_lengths(reader: RecordReader, frame: Frame, name: str) -> Ints:
    """Return how many characters each answer under a name has, by place; -1 without one."""
    lengths = np.full(frame.manifest.repeats * frame.sample_count, -1, dtype=np.int64)
    for record in reader.records(defense=name, stage=Stage.MODEL, is_every=frame.is_every):
        if record.outcome == "answered":
            place = record.key.repeat * frame.sample_count + record.key.sample
            lengths[place] = len(record.text or "")
    return lengths
