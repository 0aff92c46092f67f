"""Tries of an adaptive attacker as rows: what each attack came to, and what it cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import field
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from guardmark.core.usage import UsageTotals
from guardmark.core.values import dataclass
from guardmark.store.layers import (
    ADAPTIVE,
    ARMS,
    ATTACKER,
    CRITIC,
    FINDINGS_PREFIX,
    LEFT_OUT,
    REPAIRED,
    REPAIRED_PREFIX,
    asked_layers,
    seed_layer,
)
from guardmark.store.tries import read_tries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from guardmark.store.reader import RecordReader
    from guardmark.store.tries import TryRecord

    _Tries = Mapping[tuple[str, str], Sequence["Try"]]

ATTACKER_ACCOUNTS: Final = ("baseline", "diagnosis", "battery", "search", "confirm")
"""Accounts of defense calls that the attacker pays."""
MODEL_ACCOUNT: Final = "attacker"
"""Account of the attacker model's calls, which are no calls of the defense."""
CRITIC_ACCOUNT: Final = "critic"
"""Account of the calls of its critic, which the attacker pays as well."""
STRICT: Final = frozenset({"V0", "V1"})
FULL: Final = frozenset({"V0", "V1", "V2", "V3-table", "V3"})
_EVALUATED: Final = ("repair", "reworded", "transfer", "twin", "wrapper")
_PASSED: Final = {"allow": True, "block": False}
_UNSTEADY: Final = frozenset({"RANDOMISED", "STATEFUL", "RATE_LIMITED"})


class Try(NamedTuple):
    """One question of an attacker or its evaluator.

    Attributes:
        sample: Position of the sample.
        account: Who pays.
        chain: Operators used; empty for the text as it is.
        tier: Proved tier; empty where a pass is no bypass.
        text: Hash of the text.
        passed: Whether it was let through; None without an answer.
        is_free: Whether nothing was called for it.
        size: Characters of the text, or None where that was not kept.
        decoded: Whether the shipped decoders read the words in it; None where nobody looked.
        is_confirmed: Whether the pass held when its text was sent again; None where it was not.
        sent: The text itself, where only an attacker's own code could make it again.
        leads_up: Whether it is a turn of a conversation that goes on.
        is_last_turn: Whether it is the last turn of a conversation.
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
    sent: str = ""
    leads_up: bool = False
    is_last_turn: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it decides nothing: a turn that passed, and the conversation went on."""
        return self.leads_up and bool(self.passed)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackHistory:
    """The answered search tries of one arm at one attack; a random pass must be confirmed."""

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

    def wins(self, most: int) -> int:
        """Return how many of the first tries are bypasses."""
        return sum(self.holds(each) for each in self.tries[:most])


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveRecords:
    """Everything that was tried against one defense.

    Attributes:
        baseline: Position of each answered sample to whether it passed as it is.
        arms: Arm to position to what came of it; attacks blocked at first only.
        battery: Position to what came of the fixed list.
        rest: Every other try by account: twin, reworded, repair, transfer, wrapper.
        calls: By arm and account.
        again: Position of each pass sent again; did it pass?
        unanswered: Tries without an answer.
        usage: Account of the adaptive arm, or of an attacker model, to what its calls took.
        repeated: Of each later seed.
        repaired: What was tried against the repaired defense.
    """

    name: str
    findings: Mapping[str, object]
    baseline: Mapping[int, bool]
    arms: Mapping[str, Mapping[int, AttackHistory]]
    battery: Mapping[int, AttackHistory]
    settings: Mapping[str, object] = field(default_factory=dict)
    rest: Mapping[str, Sequence[Try]] = field(default_factory=dict)
    calls: Mapping[tuple[str, str], int] = field(default_factory=dict)
    again: Sequence[tuple[int, bool]] = ()
    unanswered: int = 0
    usage: Mapping[str, UsageTotals] = field(default_factory=dict)
    repeated: Sequence[Mapping[str, Mapping[int, AttackHistory]]] = ()
    repaired: AdaptiveRecords | None = None

    @property
    def budget(self) -> int:
        """Search calls an attack was worth."""
        return int(str(self.settings.get("budget", 0)))

    @property
    def has_controls(self) -> bool:
        """Whether control arms and benign texts were asked."""
        return self.settings.get("controls", True) is not False

    @property
    def attacker(self) -> Mapping[str, object]:
        """Settings of the attacker model; empty where none was configured."""
        stated = self.settings.get("attacker")
        if isinstance(stated, dict):
            return stated
        return {}


def words_of(findings: Mapping[str, object], key: str) -> tuple[str, ...]:
    """Return the words that findings list, such as the `flags` of a defense."""
    words = findings.get(key, ())
    if isinstance(words, list):
        return tuple(map(str, words))
    return ()


def read_adaptive(reader: RecordReader) -> tuple[AdaptiveRecords, ...]:
    """Read every adaptive measurement of a run."""
    settings = reader.layer_settings(ADAPTIVE)
    return tuple(
        _read(reader, layer.removeprefix(FINDINGS_PREFIX), settings)
        for layer in reader.layers()
        if layer.startswith(FINDINGS_PREFIX)
    )


def read_left_out(reader: RecordReader) -> dict[str, str]:
    """Return the defenses that were not attacked, since no rewriting reaches them."""
    return dict(reader.layer_settings(LEFT_OUT).get("defenses", {}))


def _read(reader: RecordReader, name: str, settings: Mapping[str, object]) -> AdaptiveRecords:
    findings = reader.layer_settings(f"{FINDINGS_PREFIX}{name}")
    usage: defaultdict[str, UsageTotals] = defaultdict(UsageTotals)
    calls: Counter[tuple[str, str]] = Counter()
    tries: defaultdict[tuple[str, str], list[Try]] = defaultdict(list)
    unanswered = 0
    for layer in asked_layers(reader.layers()):
        for record in read_tries(reader, defense=name, layer=layer):
            attempt = _try_of(record)
            if not attempt.is_free:
                calls[layer, attempt.account] += 1
                if layer == ADAPTIVE:
                    _add_usage(usage, attempt.account, record)
            if attempt.passed is None:
                unanswered += 1
            else:
                tries[layer, attempt.account].append(attempt)
    for layer, account in ((ATTACKER, MODEL_ACCOUNT), (CRITIC, CRITIC_ACCOUNT)):
        for record in read_tries(reader, defense=name, layer=layer):
            _add_usage(usage, account, record)

    is_random = bool(_UNSTEADY & set(words_of(findings, "flags")))
    first, *repeated = _by_seed({arm: arm for arm in ARMS}, settings, tries, is_random=is_random)
    rest = {}
    for account in _EVALUATED:
        rest[account] = [attempt for attempt in _of(tries, account) if not attempt.is_open]
    confirming = [attempt for attempt in tries[ADAPTIVE, "confirm"] if not attempt.is_open]
    return AdaptiveRecords(
        name=name,
        findings=findings,
        settings=settings,
        baseline=_baseline(_of(tries, "baseline")),
        arms=first,
        repeated=repeated,
        battery=_histories(_of(tries, "battery"), is_random=is_random),
        rest=rest,
        calls=calls,
        again=[(attempt.sample, bool(attempt.passed)) for attempt in confirming],
        unanswered=unanswered,
        usage=usage,
        repaired=_repaired(name, reader.layer_settings(f"{REPAIRED_PREFIX}{name}"), tries),
    )


def _of(tries: _Tries, account: str) -> Iterator[Try]:
    """Yield the tries of an account, those of the repaired defense left out."""
    for (layer, known), listed in tries.items():
        if known == account and not layer.startswith(REPAIRED):
            yield from listed


def _baseline(tries: Iterable[Try]) -> dict[int, bool]:
    """Return which attacks pass as they are, by sample."""
    baseline = {}
    for attempt in tries:
        if attempt.round == "R0":
            baseline[attempt.sample] = bool(attempt.passed)
    return baseline


def _repaired(name: str, findings: Mapping[str, object], tries: _Tries) -> AdaptiveRecords | None:
    """Return the attack on the repaired defense, or None where nothing was repaired."""
    if not findings:
        return None
    is_random = bool(_UNSTEADY & set(words_of(findings, "flags")))
    arms, *repeated = _by_seed({ADAPTIVE: REPAIRED}, findings, tries, is_random=is_random)
    return AdaptiveRecords(
        name=name,
        findings=findings,
        baseline=_baseline(tries.get((REPAIRED, "baseline"), ())),
        arms=arms,
        repeated=repeated,
        battery=_histories(tries.get((REPAIRED, "battery"), ()), is_random=is_random),
    )


def _by_seed(
    arms: Mapping[str, str], settings: Mapping[str, object], tries: _Tries, *, is_random: bool
) -> Iterator[dict[str, dict[int, AttackHistory]]]:
    """Sort the search tries of arms, each with its layer at the first seed, seed by seed."""
    for number in range(1, int(str(settings.get("seeds", 1))) + 1):
        of_seed = {}
        for arm, layer in arms.items():
            searched = tries.get((seed_layer(layer, number), "search"), ())
            of_seed[arm] = _histories(searched, is_random=is_random)
        yield of_seed


def _add_usage(usage: dict[str, UsageTotals], account: str, record: TryRecord) -> None:
    usage[account] = usage[account].plus(record.usage, latency_ns=record.latency_ns)


def _histories(tries: Iterable[Try], *, is_random: bool) -> dict[int, AttackHistory]:
    histories: dict[int, AttackHistory] = {}
    for each in tries:
        histories.setdefault(each.sample, AttackHistory(is_random=is_random)).tries.append(each)
    return histories


def _try_of(record: TryRecord) -> Try:
    subject = record.subject
    return Try(
        record.sample,
        subject.account,
        subject.round,
        subject.chain or "",
        subject.tier or "",
        subject.digest,
        _PASSED.get(record.outcome),
        record.is_free,
        subject.size,
        subject.decoded,
        record.is_confirmed,
        str(subject.details.get("sent", "")),
        subject.details.get("leads_up") is True,
        "turns" in subject.details,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPerBypass:
    """One kind of cost of an attack on one defense.

    Attributes:
        total: Of the calls that reported it; None where none did.
        known: Calls that reported it.
        calls: Calls that might have.
        bypasses: Attacks that got through, as they are included.
        attacks: Attacks that were answered.
    """

    DERIVED: ClassVar = ("per_bypass", "per_attack")

    total: float | None
    known: int
    calls: int
    bypasses: int = field(metadata={"json": False})
    attacks: int = field(metadata={"json": False})

    @property
    def is_partial(self) -> bool:
        """Whether some calls did not report it, so that it is a lower limit."""
        return 0 < self.known < self.calls

    @property
    def per_bypass(self) -> float | None:
        """The total over attacks that got through, or None without any or without a total."""
        if self.total is None or not self.bypasses:
            return None
        return self.total / self.bypasses

    @property
    def per_attack(self) -> float | None:
        """The total over all attacks, or None without any or without a total."""
        if self.total is None or not self.attacks:
            return None
        return self.total / self.attacks


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCard:
    """What attacking one defense took.

    Attributes:
        calls: Of the defense, on the attacker's accounts.
        model_calls: Of an attacker model and its critic; total None where there is none.
        tokens: Of these models.
        money: Of both, where prices are known.
        seconds: Service time of both. It comes from a clock.
    """

    calls: CostPerBypass
    model_calls: CostPerBypass
    tokens: CostPerBypass
    money: CostPerBypass
    seconds: CostPerBypass = field(metadata={"json": False})


def read_costs(accounts: Mapping[str, UsageTotals], *, bypasses: int, attacks: int) -> CostCard:
    """Add up what an attacker paid."""
    defense = [accounts[name] for name in ATTACKER_ACCOUNTS if name in accounts]
    model = [accounts[name] for name in (MODEL_ACCOUNT, CRITIC_ACCOUNT) if name in accounts]
    both = sum([*defense, *model], UsageTotals())
    asked = sum(model, UsageTotals())

    def cost(amount: float | None, *, known: int, calls: int) -> CostPerBypass:
        """Spread an amount that so many of the calls told; unknown where none did."""
        total = None
        if known:
            total = amount
        return CostPerBypass(
            total=total, known=known, calls=calls, bypasses=bypasses, attacks=attacks
        )

    def count(paid: list[UsageTotals]) -> CostPerBypass:
        calls = sum(usage.calls for usage in paid)
        total = None
        if paid:
            total = float(calls)
        return CostPerBypass(
            total=total, known=calls, calls=calls, bypasses=bypasses, attacks=attacks
        )

    return CostCard(
        calls=count(defense),
        model_calls=count(model),
        tokens=cost(asked.tokens, known=asked.reported, calls=asked.calls),
        money=cost(both.cost, known=both.priced, calls=both.calls),
        seconds=cost(both.seconds, known=both.timed, calls=both.calls),
    )
