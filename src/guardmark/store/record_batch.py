"""Answers of one part on their way into the records: rows that are not committed yet."""

from __future__ import annotations

from collections import defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.outcome import Evidence
from guardmark.store.codec import evidence_to_json
from guardmark.store.connect import insert
from guardmark.store.schema import (
    ANSWER_MODE_CODE,
    ERROR_KIND_CODE,
    FLAG_AMORTISED,
    FLAG_CACHED,
    FLAG_PLANNED,
    FLAG_TRUNCATED,
    OUTCOME_CODE,
    SCORE_KIND_CODE,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from guardmark.core.outcome import Decision, Response, Verdict


_BY_SAMPLE: Final = itemgetter(0)
_ANSWERED: Final = OUTCOME_CODE["answered"]
_ERROR: Final = OUTCOME_CODE["error"]
_CONTRACT: Final = ERROR_KIND_CODE["contract"]
_NO_SCORE_KIND: Final = SCORE_KIND_CODE["none"]
_CLASS_PROBABILITY: Final = SCORE_KIND_CODE["class_prob"]
ILL_TYPED: Final = (TypeError, ValueError, KeyError, AttributeError, OverflowError)
"""What a field of a wrong type raises where it is encoded."""
_ILL: Final = "the {} cannot be stored, a field has the wrong type: {}"
_MOST_NS: Final = 1 << 63
_KEY: Final = "defense, stage, layer, repeat, batch"
_RECORDS: Final = (
    f"records ({_KEY}, score_kind, error_kind, answer_mode, flags,"
    " sample, outcome, score, latency_ns, said)"
)
_OWN: Final = "column1, column2, column3, column4"
_DETAILS: Final = f"details ({_KEY}, sample, text, evidence)"

Row = tuple[int, int, float | None, int | None]
SaidRow = tuple[int, int, float | None, int | None, int]
Shared = tuple[int, int, int, int]


class RecordBatch:
    """Encodes answers of one part into rows that its writer has not yet committed."""

    __slots__ = ("_number_of", "defense", "details", "groups", "layer", "repeat", "said", "stage")

    def __init__(self, key: tuple[int, int, int, int], shared_evidence: SharedEvidence) -> None:
        self.defense, self.stage, self.layer, self.repeat = key
        self._number_of = shared_evidence.number_of
        self.groups: defaultdict[Shared, list[Row]] = defaultdict(list)
        self.said: defaultdict[Shared, list[SaidRow]] = defaultdict(list)
        self.details: list[tuple[int, str | None, str | None]] = []

    @property
    def key(self) -> tuple[int, int, int, int]:
        """Defense, stage, layer and repeat, as numbers."""
        return (self.defense, self.stage, self.layer, self.repeat)

    @property
    def waiting(self) -> int:
        """Number of rows taken and not committed."""
        return sum([len(rows) for rows in self._taken()])

    def sort(self) -> None:
        """Bring what is taken into the order in which it is committed."""
        for rows in self._taken():
            rows.sort(key=_BY_SAMPLE)
        self.details.sort(key=_BY_SAMPLE)

    def _taken(self) -> list[list[Any]]:
        return [*self.groups.values(), *self.said.values()]

    def store(self, connection: sqlite3.Connection, batch: int) -> None:
        """Write what is taken, in the transaction that is open."""
        # What rows share stands in the statement: binding is most of what a row costs.
        key = f"{', '.join(map(str, self.key))}, ?"
        parts: list[tuple[str, str, Any]] = []
        for groups, said in ((self.groups, "NULL"), (self.said, "column5")):
            for shared, rows in groups.items():
                codes = ", ".join("NULL" if code < 0 else str(code) for code in shared)
                parts.append((_RECORDS, f"{key}, {codes}, {_OWN}, {said}", rows))
        parts.append((_DETAILS, f"{key}, column1, column2, column3", self.details))
        for into, chosen, rows in parts:
            insert(connection, into, chosen=chosen, rows=rows, shared=(batch,))

    def clear(self) -> None:
        """Forget what was committed."""
        self.groups.clear()
        self.said.clear()
        self.details.clear()

    def add_decision(
        self, sample: int, decision: Decision, *, latency_ns: int | None, flags: int = 0
    ) -> int:
        """Take a defense's decision; the next flush commits it."""
        score, own = decision.score, decision.latency_ns
        kind, evidence = decision.error_kind, decision.evidence
        try:
            if score is not None and not 0.0 <= score <= 1.0:
                return self._broken(sample, f"the score {score!r} is not in [0, 1]", latency_ns)
            outcome = OUTCOME_CODE[decision.outcome]
            score_kind = SCORE_KIND_CODE[decision.score_kind]
            error = -1 if kind is None else ERROR_KIND_CODE[kind]
            if decision.amortised:
                flags |= FLAG_AMORTISED
            took = latency_ns if own is None or flags & FLAG_PLANNED else whole_ns(own)
            said = None if evidence is None or outcome == _ERROR else self._number_of(evidence)
            if evidence is not None and said is None:
                flags |= self._keep(sample, None, evidence)
        except ILL_TYPED as ill:
            return self._broken(sample, _ILL.format("decision", repr(ill)), latency_ns)
        number = None if score is None else float(score)
        shared = (score_kind, error, -1, flags)
        if said is None:
            self.groups[shared].append((sample, outcome, number, took))
        else:
            self.said[shared].append((sample, outcome, number, took, said))
        return outcome

    def add_response(
        self, sample: int, response: Response, *, latency_ns: int | None, flags: int = 0
    ) -> int:
        """Take a target model's answer."""
        has_text = response.text is not None and response.error_kind is None
        outcome = _ANSWERED if has_text else _ERROR
        kind, own = response.error_kind, response.latency_ns
        try:
            code = None if has_text else ERROR_KIND_CODE[kind or "contract"]
            took = latency_ns if own is None else whole_ns(own)
            if response.text is not None or response.evidence is not None:
                flags |= self._keep(sample, response.text, response.evidence)
        except ILL_TYPED as ill:
            return self._broken(sample, _ILL.format("response", repr(ill)), latency_ns)
        self._add(sample, outcome, error=code, latency=took, flags=flags)
        return outcome

    def add_verdict(
        self, sample: int, verdict: Verdict, *, latency_ns: int | None, flags: int = 0
    ) -> int:
        """Take a judge's verdict."""
        score, own, kind = verdict.score, verdict.latency_ns, verdict.error_kind
        mode = verdict.answer_mode
        try:
            if score is not None and not 0.0 <= score <= 1.0:
                return self._broken(sample, f"the score {score!r} is not in [0, 1]", latency_ns)
            outcome = OUTCOME_CODE[verdict.label]
            error = -1 if kind is None else ERROR_KIND_CODE[kind]
            answer_mode = -1 if mode is None else ANSWER_MODE_CODE[mode]
            took = latency_ns if own is None else whole_ns(own)
            if verdict.evidence is not None:
                flags |= self._keep(sample, None, verdict.evidence)
        except ILL_TYPED as ill:
            return self._broken(sample, _ILL.format("verdict", repr(ill)), latency_ns)
        score_kind = _NO_SCORE_KIND if score is None else _CLASS_PROBABILITY
        number = None if score is None else float(score)
        self.groups[score_kind, error, answer_mode, flags].append((sample, outcome, number, took))
        return outcome

    def _broken(self, sample: int, message: str, latency: int | None) -> int:
        self._keep(sample, None, Evidence(message=message))
        self._add(sample, _ERROR, error=_CONTRACT, latency=latency, flags=0)
        return _ERROR

    def _add(
        self, sample: int, outcome: int, *, error: int | None, latency: int | None, flags: int
    ) -> None:
        shared = (_NO_SCORE_KIND, -1 if error is None else error, -1, flags)
        self.groups[shared].append((sample, outcome, None, latency))

    def _keep(self, sample: int, text: str | None, evidence: Evidence | None) -> int:
        said = evidence_to_json(evidence) if evidence is not None else "{}"
        if text is not None or said != "{}":
            self.details.append((sample, text, None if said == "{}" else said))
        if evidence is None:
            return 0
        cached = FLAG_CACHED if evidence.from_cache else 0
        return cached | (FLAG_TRUNCATED if evidence.truncated else 0)


def whole_ns(latency: int) -> int:
    """Let a latency pass that can be stored; what is written elsewhere need not keep to types."""
    if type(latency) is not int or not 0 <= latency < _MOST_NS:
        raise TypeError(f"latency_ns is {latency!r}")
    return latency


_MOST: Final = 256  # a part that finds new words for every sample is kept row by row


class SharedEvidence:
    """Reasons that records share: a rule blocks thousands of samples in the same words."""

    __slots__ = ("_by_object", "_numbers", "fresh")

    def __init__(self, stored: Mapping[int, str] | None = None) -> None:
        self._numbers = {text: number for number, text in (stored or {}).items()}
        # By object first: parts hand out the same one, and comparing all of its fields costs
        # more than the rest of a row. The object is kept, so that its number stays its own.
        self._by_object: dict[int, tuple[Evidence, int]] = {}
        self.fresh: list[tuple[int, str]] = []

    def number_of(self, evidence: Evidence) -> int | None:
        """Name evidence that holds a reason and nothing else."""
        known = self._by_object.get(id(evidence))
        if known is not None:
            return known[1]
        if not evidence.reason or evidence != Evidence(reason=evidence.reason):
            return None
        text = evidence_to_json(evidence)
        number = self._numbers.get(text)
        if number is None:
            number = len(self._numbers)
            if number >= _MOST:
                return None
            self._numbers[text] = number
            self.fresh.append((number, text))
        if len(self._by_object) < _MOST:
            self._by_object[id(evidence)] = (evidence, number)
        return number

    def store(self, connection: sqlite3.Connection, batch: int) -> None:
        """Write those that are not committed yet, in the transaction that is open."""
        said = [(*each, batch) for each in self.fresh]
        connection.executemany("INSERT INTO sayings VALUES (?, ?, ?)", said)


def read_shared_evidence(connection: sqlite3.Connection) -> dict[int, str]:
    """Read what is stored."""
    return dict(connection.execute("SELECT id, evidence FROM sayings").fetchall())
