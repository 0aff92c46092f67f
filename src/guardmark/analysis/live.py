"""Decisions on live traffic: read line by line, counted as labels come, held against limits."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from guardmark.core.outcome import Outcome
from guardmark.core.record import Stage
from guardmark.core.sample import Label
from guardmark.core.values import dataclass
from guardmark.stats.sequential import beta_mixture_sequence
from guardmark.store.schema import OUTCOME_CODE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.core.estimate import Estimate


RATES: Final = ("blocked", "fpr", "asr", "malformed", "errors")
"""Rates of live traffic that can have a limit."""

_AUDITED: Final = frozenset({"fpr", "asr"})  # rates of decisions with a label
_LABELS: Final = {Label.BENIGN: 0, Label.ATTACK: 1}
_UNLABELLED: Final = 2
_MOST_DEFENSES: Final = 100
_LONGEST_NAME: Final = 200


class StreamedLine(NamedTuple):
    """A line of a stream: a decision, a label, or both; None for what it does not say.

    Attributes:
        key: Hash of the id.
        defense: Name of the defense.
        outcome: Code of what it decided.
        label: 1 for an attack, 0 for a benign sample.
    """

    key: bytes
    defense: str
    outcome: int | None
    label: int | None


def parse_line(line: bytes) -> StreamedLine | None:
    """Read a line of JSON; None where it cannot be used."""
    try:
        row = json.loads(line)
        name, defense = row["id"], row.get("defense", "traffic")
        if not (isinstance(name, str | int) and isinstance(defense, str) and defense):
            return None
        key = blake2b(str(name).encode("utf-8", "surrogatepass"), digest_size=16)
        is_decision = row.get("stage", Stage.DEFENSE) == Stage.DEFENSE
        outcome, label = row.get("outcome"), row.get("label")
        code = side = None
        if is_decision and outcome is not None:
            code = OUTCOME_CODE[Outcome(outcome)]
        if label is not None:
            side = _LABELS[Label(label)]
        return StreamedLine(key.digest(), defense[:_LONGEST_NAME], code, side)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


class LiveCounts:
    """Counts of each defense by label and outcome; of what came last it knows every id."""

    def __init__(self, *, remembered: int = 250_000) -> None:
        self.rows: dict[str, list[list[int]]] = {}
        self.notes = Counter(lines=0, unreadable=0, repeated=0, contradicted=0, relabelled=0)
        self._remembered = remembered
        # Label, and outcome by defense.
        self._known: OrderedDict[bytes, tuple[int, dict[str, int]]] = OrderedDict()

    def take(self, line: StreamedLine | None) -> None:
        """Count a line; of two decisions about one id the first counts, of two labels the last."""
        self.notes["lines"] += 1
        is_new = line is not None and line.outcome is not None and line.defense not in self.rows
        if line is None or (is_new and len(self.rows) >= _MOST_DEFENSES):
            self.notes["unreadable"] += 1
            return
        known = self._known.pop(line.key, None)
        before, decided = known or (_UNLABELLED, {})
        label = before if line.label is None else line.label
        if known is not None and not decided:
            self.notes["waiting"] -= 1
        if before not in {_UNLABELLED, label}:
            self.notes["relabelled"] += 1
        for name, outcome in decided.items():
            self.rows[name][before][outcome] -= 1
        if line.outcome is not None:
            self._note_decision(decided, line.defense, line.outcome)
        for name, outcome in decided.items():
            self.rows.setdefault(name, [[0] * 4 for _ in range(3)])[label][outcome] += 1
        self._known[line.key] = label, decided
        if not decided:
            self.notes["waiting"] += 1
        if len(self._known) > self._remembered:
            _, (_, forgotten) = self._known.popitem(last=False)
            if not forgotten:
                self.notes["waiting"] -= 1

    def _note_decision(self, decided: dict[str, int], defense: str, outcome: int) -> None:
        """Keep what a defense decided on an id; what it said earlier stays."""
        earlier = decided.get(defense)
        if earlier is None:
            decided[defense] = outcome
        elif earlier == outcome:
            self.notes["repeated"] += 1
        else:
            self.notes["contradicted"] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRate:
    """A rate of live traffic beside that of a reference run and its limit.

    Attributes:
        defense: Name of the defense.
        name: One of `RATES`.
        live: The rate so far, with limits that hold at every look.
        reference: The rate of the reference run, or None without one.
        is_drift_shown: Whether both intervals lie apart, each at the confidence of half the error.
        limit: The limit, or None without one.
        is_broken: Whether the whole interval lies above the limit.
        after_lines: After how many lines a limit was shown to be broken.
    """

    defense: str
    name: str
    live: Estimate
    reference: Estimate | None
    is_drift_shown: bool
    limit: float | None
    is_broken: bool
    after_lines: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDefense:
    """What a defense did so far; an audited decision is one with a label.

    Attributes:
        defense: Name of the defense.
        rates: Its rates, in the order of `RATES`.
        audited: Share of audited decisions, of those to block and of those to allow.
        is_audit_even: Whether both shares are alike. If not, rates of audited samples show neither
            drift nor a broken limit.
    """

    defense: str
    rates: tuple[LiveRate, ...]
    audited: Mapping[str, Estimate]
    is_audit_even: bool


def watch_defense(
    name: str,
    rows: Sequence[Sequence[int]],
    *,
    reference: Mapping[str, Estimate],
    limits: Mapping[str, float],
) -> LiveDefense:
    """Estimate the rates of a defense from its counts by label and outcome."""
    (passed, alarms, *_), (missed, caught, *_), _ = rows
    allowed, blocked, malformed, errors = (sum(each) for each in zip(*rows, strict=True))
    every = allowed + blocked + malformed + errors
    of_sides = (alarms, passed + alarms), (missed, missed + caught)
    pairs = (blocked, allowed + blocked), *of_sides, (malformed, every), (errors, every)
    audited = {
        "blocked": beta_mixture_sequence(alarms + caught, blocked),
        "allowed": beta_mixture_sequence(passed + missed, allowed),
    }
    is_even = not _lie_apart(audited["blocked"], audited["allowed"])
    rates = []
    for rate, (hits, trials) in zip(RATES, pairs, strict=True):
        live, other = beta_mixture_sequence(hits, trials), reference.get(rate)
        limit = limits.get(rate)
        is_told = is_even or rate not in _AUDITED
        is_drift_shown = False
        if is_told and other is not None:
            strict = beta_mixture_sequence(hits, trials, confidence=other.confidence)
            is_drift_shown = _lie_apart(strict, other)
        rates.append(
            LiveRate(
                defense=name,
                name=rate,
                live=live,
                reference=other,
                is_drift_shown=is_drift_shown,
                limit=limit,
                is_broken=is_told and limit is not None and (live.low or 0.0) > limit,
            )
        )
    return LiveDefense(defense=name, rates=tuple(rates), audited=audited, is_audit_even=is_even)


def _lie_apart(one: Estimate, other: Estimate) -> bool:
    """Tell whether one interval lies above the other; a limit that is missing is 0 or 1."""
    return _low(one) > _high(other) or _low(other) > _high(one)


def _low(rate: Estimate) -> float:
    if rate.low is None:
        return 0.0
    return rate.low


def _high(rate: Estimate) -> float:
    if rate.high is None:
        return 1.0
    return rate.high
