"""What guards of documents did, document by document, and what of a sample went on."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.frame import ALLOW, BLOCK, ERROR, MALFORMED, MISSING, REWRITTEN
from guardmark.analysis.pipeline.columns import Columns, RewrittenTexts
from guardmark.core.manifest import Policy
from guardmark.core.place import ALL_DOCUMENTS
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import Frame
    from guardmark.core.manifest import RunManifest
    from guardmark.stats.arguments import Flags, Floats, Ints
    from guardmark.store.reader import RecordReader

    Codes = NDArray[np.int8]

_FAILED: Final = (MALFORMED, ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentPlaces:
    """Which documents come with the samples, by sample and repeat.

    Attributes:
        counts: How many come with each.
        tested: Number of the document under test, counted from 1; 0 where that is no document.
        is_attack: Which samples are attacks.
    """

    counts: Ints
    tested: Ints
    is_attack: Flags

    def is_there(self, number: int) -> Flags:
        """Tell which samples have a document of this number."""
        there: Flags = self.counts >= number
        return there

    def carries_attack(self, number: int) -> Flags:
        """Tell where the document of this number is the one that an attack stands in."""
        carries: Flags = self.is_attack & (self.tested == number)
        return carries


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentDecisions:
    """What a guard did with the documents that it was shown; each list goes by their number.

    Attributes:
        decided: Where it decided about the document.
        blocked: Where it blocked it.
        left_out: Where the document did not go on: blocked, or by the policy for failures.
        written: Where it goes on as another text.
        undecided: Where the guard gave no decision about it.
        carries_attack: Where it is the document under test of an attack.
        is_left: Samples that have a document left behind this guard.
        skipped: Samples without any document: the guard was not asked.
    """

    decided: tuple[Flags, ...]
    blocked: tuple[Flags, ...]
    left_out: tuple[Flags, ...]
    written: tuple[Flags, ...]
    undecided: tuple[Flags, ...]
    carries_attack: tuple[Flags, ...]
    is_left: Flags
    skipped: Flags

    def anywhere(self, flags: Sequence[Flags]) -> Flags:
        """Tell for which samples something holds of any document."""
        found = np.zeros(len(self.is_left), dtype=np.bool_)
        for each in flags:
            found |= each
        return found


def read_documents(reader: RecordReader, frame: Frame) -> DocumentPlaces:
    """Read from the samples of a run which documents come with them."""
    counts, tested = [], []
    for sample in islice(reader.every_sample(), frame.sample_count):
        at, prompt = sample.prompt.documents, sample.prompt
        under_test = prompt.under_test % len(prompt.messages)
        counts.append(len(at))
        tested.append(at.index(under_test) + 1 if under_test in at else 0)
    repeats = frame.manifest.repeats
    return DocumentPlaces(
        counts=np.tile(np.array(counts, dtype=np.int64), repeats),
        tested=np.tile(np.array(tested, dtype=np.int64), repeats),
        is_attack=frame.is_attack,
    )


def leaving_out(manifest: RunManifest) -> tuple[int, ...]:
    """Return the outcomes without a decision by which, after the policies, a document goes."""
    policies = {MALFORMED: manifest.on_malformed, ERROR: manifest.on_error}
    return tuple(code for code, policy in policies.items() if policy is Policy.BLOCK)


class DocumentWalk:
    """Documents on their way past the guards at `context` of one arm, all samples at once."""

    def __init__(
        self,
        places: DocumentPlaces,
        written: RewrittenTexts,
        *,
        manifest: RunManifest,
        read: Callable[[str], Columns],
    ) -> None:
        self._places = places
        self._read = read
        self._leaves_out = leaving_out(manifest)
        policies = {MALFORMED: manifest.on_malformed, ERROR: manifest.on_error}
        goes_on = (Policy.ALLOW, Policy.FALLBACK_TO_MAIN, Policy.BLOCK)
        self._ending = [code for code, of_code in policies.items() if of_code not in goes_on]
        most = int(places.counts.max(initial=0))
        self._numbers = range(1, most + 1)
        self._alive = [places.is_there(number) for number in self._numbers]
        # A guard at input may have written anew the one document that is under test.
        self._history = [
            RewrittenTexts(
                names=written.names, codes=np.where(places.tested == number, written.codes, 0)
            )
            for number in self._numbers
        ]
        self._own = RewrittenTexts(
            names=written.names, codes=np.where(places.tested > 0, written.codes, 0)
        )

    def past(self, stored: str) -> tuple[Columns, Flags, DocumentDecisions]:
        """Lead them past a guard: what it came to, where any changed, and what each came to."""
        alive = [flags.copy() for flags in self._alive]
        is_each = not stored.endswith(ALL_DOCUMENTS)
        if is_each:
            heard = [
                history.read(self._read(f"{stored} {number}"), partial(self._after, stored, number))
                for number, history in zip(self._numbers, self._history, strict=True)
            ]
        else:
            whole = self._own.read(self._read(stored), lambda after: self._read(f"{stored}{after}"))
            heard = [whole for _ in self._numbers]
        gone = _where(alive, heard, (BLOCK, *self._leaves_out))
        wrote = _where(alive, heard, (REWRITTEN,))
        has_any = self._any(alive)
        # What is written of several documents shown as one has no place to stand in.
        stands = np.ones(len(has_any), dtype=np.bool_)
        if not is_each:
            stands = np.sum(alive, axis=0, initial=0) == 1
        decisions = DocumentDecisions(
            decided=_where(alive, heard, (ALLOW, BLOCK, REWRITTEN)),
            blocked=_where(alive, heard, (BLOCK,)),
            left_out=gone,
            written=wrote,
            undecided=_where(alive, heard, _FAILED),
            carries_attack=tuple(map(self._places.carries_attack, self._numbers)),
            is_left=self._any([a & ~b for a, b in zip(alive, gone, strict=True)]),
            skipped=self._places.counts == 0,
        )
        changed = self._any(gone) | (self._any(wrote) & stands)
        columns = Columns(
            said=self._together(alive, heard, self._any([*gone, *wrote])),
            waited_ms=self._waited(alive, heard),
        )
        self._go_on(stored, gone, [flags & stands for flags in wrote], changed)
        return columns, changed, decisions

    def _after(self, stored: str, number: int, after: str) -> Columns:
        return self._read(f"{stored} {number}{after}")

    def _go_on(
        self, stored: str, gone: Sequence[Flags], wrote: Sequence[Flags], changed: Flags
    ) -> None:
        self._alive = [a & ~b for a, b in zip(self._alive, gone, strict=True)]
        self._history = [
            history.by(stored, flags) for history, flags in zip(self._history, wrote, strict=True)
        ]
        self._own = self._own.by(stored, changed)

    def _any(self, flags: Sequence[Flags]) -> Flags:
        found = np.zeros(len(self._places.counts), dtype=np.bool_)
        for each in flags:
            found |= each
        return found

    def _together(self, alive: Sequence[Flags], heard: Sequence[Columns], is_other: Flags) -> Codes:
        """Return what a guard came to about each sample, of what it said of its documents."""
        said: Codes = np.where(is_other, REWRITTEN, ALLOW).astype(np.int8)
        failed = [code for code in _FAILED if code not in self._ending]
        for code in (*failed, *self._ending, MISSING):  # the last is the one that counts
            is_so = self._any(_where(alive, heard, (code,)))
            said[is_so] = code
        return said

    def _waited(self, alive: Sequence[Flags], heard: Sequence[Columns]) -> Floats:
        """Return how long the longest took: the documents of a sample are shown side by side."""
        longest = np.full(len(self._places.counts), np.nan)
        for flags, each in zip(alive, heard, strict=True):
            longest = np.fmax(longest, np.where(flags, each.waited_ms, np.nan))
        return np.where(self._any(alive), longest, 0.0)


def _where(
    alive: Sequence[Flags], heard: Sequence[Columns], outcomes: tuple[int, ...]
) -> tuple[Flags, ...]:
    """Tell, by number, where a guard said one of some things about a document."""
    return tuple(
        flags & np.isin(each.said, outcomes) for flags, each in zip(alive, heard, strict=True)
    )
