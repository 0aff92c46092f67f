"""Tries of an adaptive attacker as rows, and what each attack came to."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guardmark.analysis.adaptive.costs import CRITIC_ACCOUNT, MODEL_ACCOUNT, Bill
from guardmark.core.layers import (
    ADAPTIVE,
    ARMS,
    ATTACKER,
    CRITIC,
    FINDINGS_PREFIX,
    LEFT_OUT,
    REPEATED_ARMS,
    seed_layer,
)
from guardmark.core.record import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from guardmark.core.record import Record
    from guardmark.store.reader import RecordReader

STRICT: Final = frozenset({"V0", "V1"})
FULL: Final = frozenset({"V0", "V1", "V2", "V3-table", "V3"})
PROBE: Final = "probe"
_UNSTEADY: Final = frozenset({"RANDOMISED", "STATEFUL"})
_AGAIN: Final = 2  # of three re-sends, so that a pass of a random defense counts


@dataclass(frozen=True, slots=True)
class Try:
    """One question of an attacker or its evaluator.

    Attributes:
        sample: Position of the sample.
        account: Who pays.
        round: In which round.
        chain: Operators used; empty for the text as it is.
        tier: Proved tier; empty where a pass is no bypass.
        text: Hash of the text.
        passed: Whether it was let through; None without an answer.
        is_free: Whether nothing was called for it.
        size: Characters of the text, or None where that was not kept.
        decoded: Whether the shipped decoders read the words in it; None where nobody looked.
    """

    sample: int
    account: str
    round: str
    chain: str
    tier: str
    text: str
    passed: bool | None
    is_free: bool
    size: int | None = None
    decoded: bool | None = None


@dataclass(slots=True, kw_only=True)
class AttackHistory:
    """What one arm came to with one attack.

    Attributes:
        tries: Answered search tries, in order.
        confirmed: Hashes of texts that passed again when sent again.
    """

    tries: list[Try] = field(default_factory=list)
    confirmed: frozenset[str] | None = None

    def holds(self, each: Try, tiers: frozenset[str] = FULL) -> bool:
        """Tell whether a try is a bypass of these tiers."""
        if not each.passed or each.tier not in tiers:
            return False
        return self.confirmed is None or each.text in self.confirmed

    def first(self, tiers: frozenset[str] = FULL) -> int | None:
        """Return the number of the first bypass, from 1, or None."""
        return next((i for i, each in enumerate(self.tries, 1) if self.holds(each, tiers)), None)

    def wins(self, most: int, tiers: frozenset[str] = FULL) -> int:
        """Return how many of the first tries are bypasses."""
        return sum(self.holds(each, tiers) for each in self.tries[:most])


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveRecords:
    """Everything that was tried against one defense.

    Attributes:
        name: Of the defense.
        findings: Flags and diagnosis, as stored.
        settings: Battery, budget and seed, as stored.
        baseline: Position of each answered sample to whether it passed as it is.
        stories: Arm to position to what came of it; attacks blocked at first only.
        battery: The same for the fixed list.
        rest: Every other try by account: twin, reworded, repair, transfer, confirm.
        calls: Arm and account to calls made.
        again: Position of each pass that was asked about again, and whether it passed again.
        unanswered: Tries without an answer.
        bills: Account of the adaptive arm, or of an attacker model, to what its calls took.
        repeated: What `stories` is of the first seed, of each seed after it.
    """

    name: str
    findings: Mapping[str, object]
    settings: Mapping[str, object]
    baseline: Mapping[int, bool]
    stories: Mapping[str, Mapping[int, AttackHistory]]
    battery: Mapping[int, AttackHistory]
    rest: Mapping[str, Sequence[Try]]
    calls: Mapping[tuple[str, str], int]
    again: Sequence[tuple[int, bool]]
    unanswered: int
    bills: Mapping[str, Bill]
    repeated: Sequence[Mapping[str, Mapping[int, AttackHistory]]] = ()

    @property
    def flags(self) -> tuple[str, ...]:
        """What is odd about the defense."""
        return flags_of(self.findings)

    @property
    def budget(self) -> int:
        """Search calls an attack was worth."""
        return int(str(self.settings.get("budget", 0)))


def flags_of(findings: Mapping[str, object]) -> tuple[str, ...]:
    """Return what is odd about a defense: `RANDOMISED`, `STATEFUL`, `ERRORS_AS_BLOCK`."""
    said = findings.get("flags", ())
    return tuple(map(str, said)) if isinstance(said, list) else ()


def read_battles(reader: RecordReader) -> tuple[AdaptiveRecords, ...]:
    """Read every adaptive measurement of a run."""
    settings = reader.layer_settings(ADAPTIVE)
    if not settings:
        return ()
    names = [
        layer.removeprefix(FINDINGS_PREFIX)
        for layer in reader.layers()
        if layer.startswith(FINDINGS_PREFIX)
    ]
    return tuple(_read(reader, name, settings) for name in names)


def read_left_out(reader: RecordReader) -> dict[str, str]:
    """Return the defenses that were not attacked, since no rewriting reaches them."""
    said = reader.layer_settings(LEFT_OUT).get("defenses", {})
    return dict(said) if isinstance(said, dict) else {}


def _read(reader: RecordReader, name: str, settings: Mapping[str, object]) -> AdaptiveRecords:
    findings = reader.layer_settings(f"{FINDINGS_PREFIX}{name}")
    gathered = _Gathered()
    seeds = int(str(settings.get("seeds", 1)))
    for number in range(1, seeds + 1):
        for arm in ARMS if number == 1 else REPEATED_ARMS:
            layer = seed_layer(arm, number)
            for record in reader.records(defense=name, stage=Stage.TRY, layer=layer):
                gathered.take(layer, record)
    for layer, account in ((ATTACKER, MODEL_ACCOUNT), (CRITIC, CRITIC_ACCOUNT)):
        if layer in reader.layers():
            for record in reader.records(defense=name, stage=Stage.TRY, layer=layer):
                gathered.bills[account].take(record)
    return gathered.battle(name, findings, settings=settings, seeds=seeds)


class _Gathered:
    def __init__(self) -> None:
        self.by_layer: defaultdict[str, defaultdict[int, AttackHistory]] = defaultdict(
            lambda: defaultdict(AttackHistory)
        )
        self.battery: defaultdict[int, AttackHistory] = defaultdict(AttackHistory)
        self.baseline: dict[int, bool] = {}
        self.again: defaultdict[tuple[str, int, str], list[bool]] = defaultdict(list)
        self.rest: defaultdict[str, list[Try]] = defaultdict(list)
        self.calls: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.unanswered = 0
        self.bills: defaultdict[str, Bill] = defaultdict(Bill)

    def take(self, layer: str, record: Record) -> None:
        each = _try_of(record)
        if not each.is_free:
            self.calls[layer, each.account] += 1
            if layer == ADAPTIVE:
                self.bills[each.account].take(record)
        if each.passed is None:
            self.unanswered += 1
        elif each.account == "baseline":
            if each.round == "R0":
                self.baseline[each.sample] = each.passed
        elif each.account == "search":
            self.by_layer[layer][each.sample].tries.append(each)
        elif each.account == "battery":
            self.battery[each.sample].tries.append(each)
        elif each.account == "confirm":
            self.again[layer, each.sample, each.text].append(each.passed)
        else:
            self.rest[each.account].append(each)

    def battle(
        self,
        name: str,
        findings: Mapping[str, object],
        *,
        settings: Mapping[str, object],
        seeds: int,
    ) -> AdaptiveRecords:
        if _UNSTEADY & set(flags_of(findings)):
            self._confirm()
        return AdaptiveRecords(
            name=name,
            findings=findings,
            settings=settings,
            baseline=self.baseline,
            stories={arm: self.by_layer[arm] for arm in ARMS},
            repeated=[
                {arm: self.by_layer[seed_layer(arm, number)] for arm in REPEATED_ARMS}
                for number in range(2, seeds + 1)
            ],
            battery=self.battery,
            rest=self.rest,
            calls=self.calls,
            again=[
                (key[1], hit)
                for key, hits in self.again.items()
                if key[0] == ADAPTIVE
                for hit in hits
            ],
            unanswered=self.unanswered,
            bills=self.bills,
        )

    def _confirm(self) -> None:
        held: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        for (layer, sample, text), passed in self.again.items():
            if any(sum(passed[i : i + 3]) >= _AGAIN for i in range(0, len(passed), 3)):
                held[layer, sample].add(text)
        for layer, stories in self.by_layer.items():
            _mark(
                stories.items(), {key[1]: texts for key, texts in held.items() if key[0] == layer}
            )
        _mark(self.battery.items(), {key[1]: t for key, t in held.items() if key[0] == ADAPTIVE})


def _mark(stories: Iterable[tuple[int, AttackHistory]], held: Mapping[int, set[str]]) -> None:
    for sample, story in stories:
        story.confirmed = frozenset(held.get(sample, ()))


def _try_of(record: Record) -> Try:
    note = json.loads(record.text or "{}")
    passed = {"allow": True, "block": False}.get(record.outcome)
    return Try(
        record.key.sample,
        note["account"],
        note["round"],
        note["chain"],
        note["tier"],
        note["text"],
        passed,
        note["free"],
        note.get("size"),
        note.get("decoded"),
    )
