"""Tries of an adaptive attacker as rows, and what each attack came to."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guardmark.analysis.adaptive.costs import CRITIC_ACCOUNT, MODEL_ACCOUNT
from guardmark.core.usage import UsageTotals
from guardmark.store.layers import (
    ADAPTIVE,
    ARMS,
    ATTACKER,
    CRITIC,
    FINDINGS_PREFIX,
    LEFT_OUT,
    REPEATED_ARMS,
    seed_layer,
)
from guardmark.store.tries import read_tries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.store.reader import RecordReader
    from guardmark.store.tries import TryRecord

STRICT: Final = frozenset({"V0", "V1"})
FULL: Final = frozenset({"V0", "V1", "V2", "V3-table", "V3"})
PROBE: Final = "probe"
_UNSTEADY: Final = frozenset({"RANDOMISED", "STATEFUL"})


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
        is_confirmed: Whether the pass held when its text was sent again; None where it was not.
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
    is_confirmed: bool | None = None


@dataclass(slots=True, kw_only=True)
class AttackHistory:
    """What one arm came to with one attack.

    Attributes:
        tries: Answered search tries, in order.
        is_random: Whether a pass counts only where it was confirmed.
    """

    tries: list[Try] = field(default_factory=list)
    is_random: bool = False

    def holds(self, each: Try, tiers: frozenset[str] = FULL) -> bool:
        """Tell whether a try is a bypass of these tiers."""
        if not each.passed or each.tier not in tiers:
            return False
        return not self.is_random or each.is_confirmed is True

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
        usage: Account of the adaptive arm, or of an attacker model, to what its calls took.
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
    usage: Mapping[str, UsageTotals]
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
    gathered = _Gathered(is_random=bool(_UNSTEADY & set(flags_of(findings))))
    seeds = int(str(settings.get("seeds", 1)))
    for number in range(1, seeds + 1):
        for arm in ARMS if number == 1 else REPEATED_ARMS:
            for record in read_tries(reader, defense=name, layer=seed_layer(arm, number)):
                gathered.take(record)
    for layer, account in ((ATTACKER, MODEL_ACCOUNT), (CRITIC, CRITIC_ACCOUNT)):
        for record in read_tries(reader, defense=name, layer=layer):
            gathered.count(account, record)
    return AdaptiveRecords(
        name=name,
        findings=findings,
        settings=settings,
        baseline=gathered.baseline,
        stories={arm: gathered.by_layer[arm] for arm in ARMS},
        repeated=[
            {arm: gathered.by_layer[seed_layer(arm, number)] for arm in REPEATED_ARMS}
            for number in range(2, seeds + 1)
        ],
        battery=gathered.battery,
        rest=gathered.rest,
        calls=gathered.calls,
        again=gathered.again,
        unanswered=gathered.unanswered,
        usage=gathered.usage,
    )


class _Gathered:
    def __init__(self, *, is_random: bool) -> None:
        def history() -> AttackHistory:
            return AttackHistory(is_random=is_random)

        self.by_layer: defaultdict[str, defaultdict[int, AttackHistory]] = defaultdict(
            lambda: defaultdict(history)
        )
        self.battery: defaultdict[int, AttackHistory] = defaultdict(history)
        self.baseline: dict[int, bool] = {}
        self.again: list[tuple[int, bool]] = []
        self.rest: defaultdict[str, list[Try]] = defaultdict(list)
        self.calls: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.unanswered = 0
        self.usage: defaultdict[str, UsageTotals] = defaultdict(UsageTotals)

    def take(self, record: TryRecord) -> None:
        each, layer = _try_of(record), record.layer
        if not each.is_free:
            self.calls[layer, each.account] += 1
            if layer == ADAPTIVE:
                self.count(each.account, record)
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
            if layer == ADAPTIVE:
                self.again.append((each.sample, each.passed))
        else:
            self.rest[each.account].append(each)

    def count(self, account: str, record: TryRecord) -> None:
        usage = None if record.evidence is None else record.evidence.usage
        self.usage[account] = self.usage[account].plus(usage, latency_ns=record.latency_ns)


def _try_of(record: TryRecord) -> Try:
    subject = record.subject
    return Try(
        record.sample,
        subject.account,
        subject.round,
        subject.chain or "",
        subject.tier or "",
        subject.digest,
        {"allow": True, "block": False}.get(record.outcome),
        record.is_free,
        subject.size,
        subject.decoded,
        record.is_confirmed,
    )
