"""What an attacker model and its judge said, and what became of candidates, as rows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guardmark.core.usage import UsageTotals
from guardmark.store.layers import (
    ATTACKER,
    CANDIDATES,
    EQUIVALENCE,
    TWIN_ATTACKER,
    TWIN_CANDIDATES,
    TWIN_EQUIVALENCE,
)
from guardmark.store.tries import read_tries

if TYPE_CHECKING:
    from guardmark.core.usage import Usage
    from guardmark.store.reader import RecordReader
    from guardmark.store.tries import TryRecord


@dataclass(slots=True, kw_only=True)
class AttackerExchange:
    """One question to the attacker model or to a critic, with the repair that may follow.

    Attributes:
        sample: Position of the sample.
        kind: `candidates` or `closeness`, `refused`, `invalid` or `error`, the repair counted in.
        is_repaired: Whether it was asked a second time.
    """

    sample: int
    kind: str
    is_repaired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRow:
    """What became of one candidate.

    Attributes:
        sample: Position of the sample.
        strategy: As the attacker model named it.
        fate: `sent`, or why not.
        tier: Proved tier; empty unless sent.
        text: Hash of the text.
    """

    sample: int
    strategy: str
    fate: str
    tier: str
    text: str


@dataclass(slots=True, kw_only=True)
class AttackerRows:
    """Everything that models said in one battle.

    Attributes:
        exchanges: Questions to the attacker model, repairs joined to what they repair.
        votes: The kinds of the votes on each judged candidate, with its sample.
        candidates: Every candidate whose fate is known.
        attacker: What the attacker model consumed.
        judge: What the judge of sameness consumed.
    """

    exchanges: list[AttackerExchange] = field(default_factory=list)
    votes: list[tuple[int, list[str]]] = field(default_factory=list)
    candidates: list[CandidateRow] = field(default_factory=list)
    attacker: UsageTotals = field(default_factory=UsageTotals)
    judge: UsageTotals = field(default_factory=UsageTotals)

    def judged(self, *, votes: int) -> list[tuple[int, list[str]]]:
        """Return the candidates that a judge of sameness gave all its votes on, and the votes."""
        return [
            (sample, kinds)
            for sample, kinds in self.votes
            if len(kinds) == votes and set(kinds) <= {"same", "different"}
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Where what was said of one kind of texts is stored.

    Attributes:
        attacker: Layer of the attacker model.
        equivalence: Layer of the judge of sameness.
        candidates: Layer of what became of each candidate.
    """

    attacker: str
    equivalence: str
    candidates: str


OF_ATTACKS: Final = Layers(attacker=ATTACKER, equivalence=EQUIVALENCE, candidates=CANDIDATES)
OF_BENIGN: Final = Layers(
    attacker=TWIN_ATTACKER, equivalence=TWIN_EQUIVALENCE, candidates=TWIN_CANDIDATES
)


def read_attacker_rows(
    reader: RecordReader, defense: str, *, layers: Layers = OF_ATTACKS
) -> AttackerRows:
    """Read what models said while a defense was attacked."""
    rows = AttackerRows()
    rows.exchanges, rows.attacker = read_exchanges(reader, defense, layers.attacker)
    votes: defaultdict[tuple[int, object], list[str]] = defaultdict(list)
    for record in read_tries(reader, defense=defense, layer=layers.equivalence):
        kind = str(record.subject.details["kind"])
        rows.judge = rows.judge.plus(_usage_of(record), failed=kind == "error")
        votes[record.sample, record.subject.details["candidate"]].append(kind)
    rows.votes = [(sample, kinds) for (sample, _), kinds in votes.items()]
    rows.candidates = [
        CandidateRow(
            sample=record.sample,
            strategy=str(record.subject.details["strategy"]),
            fate=str(record.subject.details["fate"]),
            tier=record.subject.tier or "",
            text=record.subject.digest,
        )
        for record in read_tries(reader, defense=defense, layer=layers.candidates)
    ]
    return rows


def read_exchanges(
    reader: RecordReader, defense: str, layer: str
) -> tuple[list[AttackerExchange], UsageTotals]:
    """Read what one model answered, and what it consumed."""
    asked: dict[tuple[object, ...], AttackerExchange] = {}
    spent = UsageTotals()
    for record in read_tries(reader, defense=defense, layer=layer):
        details = record.subject.details
        kind = str(details["kind"])
        spent = spent.plus(_usage_of(record), failed=kind == "error")
        place = record.sample, details["depth"], details["stream"], details.get("candidate", 0)
        if details["repair"]:
            asked[place].is_repaired = True
            # A failed repair leaves the answer what it was.
            asked[place].kind = "invalid" if kind == "error" else kind
        else:
            asked[place] = AttackerExchange(sample=record.sample, kind=kind)
    return list(asked.values()), spent


def _usage_of(record: TryRecord) -> Usage | None:
    return None if record.evidence is None else record.evidence.usage
