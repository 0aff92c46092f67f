"""What an attacker model did to a defense, its critic, and its rewording of benign texts."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import field
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from guardmark.analysis.adaptive.operators import OperatorClass, standing_of
from guardmark.analysis.adaptive.rows import FULL
from guardmark.analysis.defense.counts import grouped_difference
from guardmark.core.usage import UsageTotals
from guardmark.core.values import dataclass
from guardmark.stats.rates.proportion import mover
from guardmark.store.layers import (
    ADAPTIVE,
    ATTACKER,
    CANDIDATES,
    CRITIC,
    EQUIVALENCE,
    TWIN_ATTACKER,
    TWIN_CANDIDATES,
    TWIN_EQUIVALENCE,
)
from guardmark.store.tries import read_tries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike

    from guardmark.analysis.adaptive.rows import AdaptiveRecords
    from guardmark.analysis.defense.counts import SampleRates
    from guardmark.core.estimate import Difference, Estimate
    from guardmark.store.reader import RecordReader
    from guardmark.store.tries import TryRecord

ROUND: Final = "R5"
REWORDED: Final = "reworded"
"""Account of the calls of the defense about reworded benign texts, which the evaluator pays."""
_HALF: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyCard:
    """What one strategy of the attacker model came to.

    Attributes:
        name: Of the strategy.
        candidates: Candidates that named it.
        passed: Share that got through, of those sent and answered, unproved ones among them.
    """

    name: str
    candidates: int
    passed: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackerCard:
    """What an attacker model did to one defense; what failed counts in no rate.

    Attributes:
        model: Which model wrote.
        judge: Which model judged sameness, or `none`.
        is_same_model: Whether both are one.
        attacks: Share of the attacks it worked on that passed with a proved candidate.
        unproved: Share of these attacks that passed only with one nobody proved (V4).
        only: Attacks that passed with it and nothing else, at any proved tier.
        refused: Share of its answers that are refusals.
        invalid: Share of its answers that could not be read, also when asked again.
        repairs: Answers that were asked again.
        candidates: Candidates it wrote.
        repeated: Share of these that repeat an earlier text.
        lost: Share of these that lost a piece that must be kept.
        unusable: Candidates that are empty, endless or no text.
        unused: Candidates that were not needed, or that time ran out for.
        equivalent: Share of the judged candidates that both votes call the same request.
        undecided: Share of the judged candidates on which the votes differ with the order; not of
            embeddings.
        unjudged: Candidates the judge gave no readable verdict on; they were not sent.
        strict: Candidates that needed no judge, since they hold the same letters.
        passed: Share of the sent and answered candidates that got through, proved or not.
        strategies: One for each strategy named, most candidates first.
        spending: `attacker`, `equivalence` and `critic` to what they consumed.
        calls_left: Calls of the attacker model that its bound left.
        critic: What a critic of blocked candidates answered, or None without one.
        twin: What the same model's rewording did to benign texts, or None where that was not asked
            for.
        tau: Cosine from which on embeddings call two texts the same; None for a model as judge.
        calibration: Where tau comes from, or that it comes from nowhere; empty without tau.
    """

    model: str
    judge: str
    is_same_model: bool
    attacks: Estimate
    unproved: Estimate
    only: int
    refused: Estimate
    invalid: Estimate
    repairs: int
    candidates: int
    repeated: Estimate
    lost: Estimate
    unusable: int
    unused: int
    equivalent: Estimate
    undecided: Estimate
    unjudged: int
    strict: int = field(metadata={"json": "same_letters"})
    passed: Estimate
    strategies: tuple[StrategyCard, ...]
    spending: Mapping[str, UsageTotals]
    calls_left: int
    critic: CriticCard | None = None
    twin: RewordingCard | None = None
    tau: float | None = None
    calibration: str = ""

    @property
    def has_judge(self) -> bool:
        """Whether anybody could prove that a candidate asks for the same."""
        return self.judge != "none"

    def per_bypass(self, amount: float) -> float | None:
        """Return an amount for each attack that got through, or None without any."""
        if self.attacks.successes:
            return amount / self.attacks.successes
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticCard:
    """How a critic answered. Failed calls count in no rate.

    Attributes:
        model: Which model guessed.
        is_also: Roles the same model has beside, or empty.
        has_scores: Whether the defense tells scores, so that nobody was asked.
        guessed: Share of its answers that hold a figure from 1 to 10.
        refused: Share of its answers that are refusals.
        invalid: Share of its answers that could not be read, also when asked again.
        repairs: Answers that were asked again.
        spending: What it consumed.
    """

    model: str
    is_also: str
    has_scores: bool
    guessed: Estimate
    refused: Estimate
    invalid: Estimate
    repairs: int
    spending: UsageTotals = field(metadata={"json": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTwin:
    """What one strategy of the attacker model does to benign texts.

    Attributes:
        name: Of the strategy.
        blocked: Share of the benign candidates, sent and answered, that are blocked.
        standing: As for an operator, with the attacks' candidates of the same strategy.
    """

    name: str
    blocked: Estimate
    standing: OperatorClass


@dataclass(frozen=True, slots=True, kw_only=True)
class RewordingCard:
    """What the defense does to benign texts that the model rewords; failures count in no rate.

    Attributes:
        samples: Benign samples the model was asked to reword.
        refused: Share of its answers that are refusals.
        invalid: Share of its answers that could not be read, also when asked again.
        candidates: Candidates it wrote.
        equivalent: Share of the judged candidates that both votes call the same request.
        unjudged: Candidates the judge gave no readable verdict on; they were not sent.
        blocked: Share of the candidates, sent and answered, that are blocked.
        as_is: Share of the samples behind them that are blocked as they are.
        change: The first minus the second, candidate by candidate.
        attacks_blocked: Share of the attacks' candidates, sent and answered, that are blocked.
        separation: That minus `blocked` (J): near 0 for a defense that looks at the rewording.
        standing: As for an operator.
        strategies: One for each strategy that was sent, most candidates first.
        spending: `attacker` and `equivalence` to what they consumed, at the evaluator's cost.
    """

    DERIVED: ClassVar = ("is_clear",)

    samples: int
    refused: Estimate
    invalid: Estimate
    candidates: int
    equivalent: Estimate
    unjudged: int
    blocked: Estimate
    as_is: Estimate
    change: Difference
    attacks_blocked: Estimate
    separation: Difference
    standing: OperatorClass
    strategies: tuple[StrategyTwin, ...]
    spending: Mapping[str, UsageTotals]

    @property
    def is_clear(self) -> bool:
        """Whether both intervals lie on one side of one half, so that chance cannot turn it."""
        for blocked in (self.attacks_blocked, self.blocked):
            if blocked.low is None or blocked.high is None:
                return False
            if blocked.low <= _HALF <= blocked.high:
                return False
        return True


class _Candidate(NamedTuple):
    sample: int
    strategy: str
    fate: str
    tier: str | None
    text: str


class _ModelRows:
    """What layers of an attacker model, its judge and its candidates say of one kind of texts."""

    def __init__(
        self, reader: RecordReader, records: AdaptiveRecords, layers: tuple[str, str, str]
    ) -> None:
        asked, judged, written = layers
        self.exchanges = _Exchanges(read_tries(reader, defense=records.name, layer=asked))
        self.judge = UsageTotals()
        votes: defaultdict[tuple[int, object], list[str]] = defaultdict(list)
        for record in read_tries(reader, defense=records.name, layer=judged):
            kind = str(record.subject.details["kind"])
            self.judge = self.judge.plus(
                record.usage, failed=kind == "error", requests=record.requests
            )
            votes[record.sample, record.subject.details["candidate"]].append(kind)
        needed = 2
        if "tau" in records.attacker:  # embeddings have no order to ask twice in
            needed = 1
        self.judged: list[tuple[int, list[str]]] = []
        for (sample, _), kinds in votes.items():
            if len(kinds) == needed and set(kinds) <= {"same", "different"}:
                self.judged.append((sample, kinds))
        self.candidates: list[_Candidate] = []
        for record in read_tries(reader, defense=records.name, layer=written):
            details = record.subject.details
            candidate = _Candidate(
                record.sample,
                str(details["strategy"]),
                str(details["fate"]),
                record.subject.tier,
                record.subject.digest,
            )
            self.candidates.append(candidate)

    @property
    def same(self) -> list[tuple[int, bool]]:
        """The candidates with all their votes, and whether every vote calls them the same."""
        return [(sample, set(kinds) == {"same"}) for sample, kinds in self.judged]

    @property
    def undecided(self) -> list[tuple[int, bool]]:
        """The candidates that were judged in both orders, and whether the votes differ."""
        marks = []
        for sample, kinds in self.judged:
            if len(kinds) > 1:
                marks.append((sample, len(set(kinds)) > 1))
        return marks

    @property
    def spending(self) -> dict[str, UsageTotals]:
        """What both models consumed."""
        return {"attacker": self.exchanges.usage, "equivalence": self.judge}

    def count(self, fate: str) -> int:
        """Count the candidates of one fate."""
        return [candidate.fate for candidate in self.candidates].count(fate)

    def share(self, fate: str, rates: SampleRates) -> Estimate:
        """Estimate the share of candidates of one fate."""
        return rates.of((candidate.sample, candidate.fate == fate) for candidate in self.candidates)

    def sent(self, answers: Mapping[tuple[int, str], bool]) -> list[tuple[_Candidate, bool]]:
        """Return the candidates that were sent and answered, with the answer."""
        sent = []
        for candidate in self.candidates:
            key = (candidate.sample, candidate.text)
            if candidate.fate == "sent" and key in answers:
                sent.append((candidate, answers[key]))
        return sent


class _Exchanges:
    """Questions to one model, each with the repair that may follow, and what they consumed."""

    def __init__(self, records: Iterable[TryRecord]) -> None:
        self.usage, repaired = UsageTotals(), set()
        kinds: dict[tuple[int, *tuple[object, ...]], str] = {}
        for record in records:
            details = record.subject.details
            kind = str(details["kind"])
            self.usage = self.usage.plus(
                record.usage, failed=kind == "error", requests=record.requests
            )
            key = (details["depth"], details["stream"], details.get("candidate", 0))
            question = (record.sample, *key)
            if details["repair"]:
                repaired.add(question)
                if kind == "error":
                    kind = "invalid"  # a failed repair leaves the answer what it was
            kinds[question] = kind
        self.repairs = len(repaired)
        self.kinds = [(question[0], kind) for question, kind in kinds.items()]
        self.samples = sorted({sample for sample, _ in self.kinds})

    def share(self, kind: str, rates: SampleRates) -> Estimate:
        """Estimate the share of answers of one kind; failed calls are no answers."""
        answers = [(sample, own) for sample, own in self.kinds if own != "error"]
        return rates.of((sample, own == kind) for sample, own in answers)


def _by_count(names: Iterable[str]) -> list[tuple[str, int]]:
    """Count names, the most frequent first."""
    return sorted(Counter(names).items(), key=lambda pair: (-pair[1], pair[0]))


def read_attacker(
    reader: RecordReader, records: AdaptiveRecords, rates: SampleRates
) -> AttackerCard | None:
    """Count what an attacker model did to a defense."""
    stated = records.attacker
    if not stated:
        return None
    rows = _ModelRows(reader, records, (ATTACKER, EQUIVALENCE, CANDIDATES))
    through: set[int] = set()  # at any tier, the unproved included
    bypassed: set[int] = set()
    answers: dict[tuple[int, str], bool] = {}
    for sample, history in records.arms[ADAPTIVE].items():
        for attempt in history.tries:
            if attempt.round != ROUND:
                continue
            hit = history.holds(attempt, FULL | {"V4"})
            answers[sample, attempt.text] = hit
            if hit:
                through.add(sample)
            if hit and attempt.tier in FULL:
                bypassed.add(sample)
    worked = rows.exchanges.samples
    sent = rows.sent(answers)
    critic = read_critic(reader, records, rates)
    spending = rows.spending
    if critic is not None:
        spending["critic"] = critic.spending
    tau = None
    if "tau" in stated:
        tau = float(str(stated["tau"]))
    return AttackerCard(
        model=str(stated.get("model", "")),
        judge=str(stated.get("judge", "none")),
        is_same_model=stated.get("same_model") == "yes",
        attacks=rates.of((sample, sample in bypassed) for sample in worked),
        unproved=rates.of((sample, sample in through - bypassed) for sample in worked),
        only=len(bypassed - _passed_otherwise(records)),
        refused=rows.exchanges.share("refused", rates),
        invalid=rows.exchanges.share("invalid", rates),
        repairs=rows.exchanges.repairs,
        candidates=len(rows.candidates),
        repeated=rows.share("repeated", rates),
        lost=rows.share("lost_span", rates),
        unusable=rows.count("unusable"),
        unused=rows.count("unused"),
        equivalent=rates.of(rows.same),
        undecided=rates.of(rows.undecided),
        unjudged=rows.count("unjudged"),
        strict=[candidate.tier for candidate in rows.candidates].count("V1"),
        passed=rates.of((candidate.sample, hit) for candidate, hit in sent),
        strategies=_strategy_cards(rows.candidates, sent, rates),
        spending=spending,
        critic=critic,
        twin=read_rewording(reader, records, rates, attacks=sent),
        tau=tau,
        calibration=str(stated.get("calibration", "")),
        calls_left=max(0, int(str(stated.get("max_calls", 0))) - rows.exchanges.usage.calls),
    )


def _strategy_cards(
    candidates: Sequence[_Candidate], sent: Sequence[tuple[_Candidate, bool]], rates: SampleRates
) -> tuple[StrategyCard, ...]:
    """Say what each strategy came to, the most frequent first."""
    cards = []
    for name, count in _by_count(candidate.strategy for candidate in candidates):
        cards.append(StrategyCard(name=name, candidates=count, passed=_rate(sent, rates, name)))
    return tuple(cards)


def _rate(sent: Sequence[tuple[_Candidate, bool]], rates: SampleRates, strategy: str) -> Estimate:
    """Estimate the share of the candidates of a strategy that got through."""
    hits = []
    for candidate, hit in sent:
        if candidate.strategy == strategy:
            hits.append((candidate.sample, hit))
    return rates.of(hits)


def _passed_otherwise(records: AdaptiveRecords) -> set[int]:
    """Return the attacks that passed, proved, with something else than the attacker model."""
    passed = set()
    for sample, history in records.battery.items():
        if history.first() is not None:
            passed.add(sample)
    for sample, history in records.arms[ADAPTIVE].items():
        for attempt in history.tries:
            if attempt.round != ROUND and history.holds(attempt):
                passed.add(sample)
    return passed


def read_critic(
    reader: RecordReader, records: AdaptiveRecords, rates: SampleRates
) -> CriticCard | None:
    """Count what a critic answered while a defense was attacked."""
    stated = records.attacker
    if "critic" not in stated:
        return None
    exchanges = _Exchanges(read_tries(reader, defense=records.name, layer=CRITIC))
    return CriticCard(
        model=str(stated["critic"]),
        is_also=str(stated.get("critic_is_also", "")),
        has_scores=bool(records.findings.get("has_scores")),
        guessed=exchanges.share("closeness", rates),
        refused=exchanges.share("refused", rates),
        invalid=exchanges.share("invalid", rates),
        repairs=exchanges.repairs,
        spending=exchanges.usage,
    )


def read_rewording(
    reader: RecordReader,
    records: AdaptiveRecords,
    rates: SampleRates,
    *,
    attacks: Sequence[tuple[_Candidate, bool]],
) -> RewordingCard | None:
    """Count what became of benign texts that the attacker model reworded."""
    if not records.attacker.get("twin"):
        return None
    rows = _ModelRows(reader, records, (TWIN_ATTACKER, TWIN_EQUIVALENCE, TWIN_CANDIDATES))
    answers = {}
    for attempt in records.rest.get(REWORDED, ()):
        answers[attempt.sample, attempt.text] = not attempt.passed
    sent = rows.sent(answers)
    positions = [candidate.sample for candidate, _ in sent]
    as_is = [not records.baseline[position] for position in positions]
    blocked = rates.of((candidate.sample, hit) for candidate, hit in sent)
    held = rates.of((candidate.sample, not hit) for candidate, hit in attacks)
    through = rates.of((candidate.sample, hit) for candidate, hit in attacks)
    groups: ArrayLike = ()
    if positions:
        groups = rates.groups[positions]
    strategies = []
    for name, _ in _by_count(candidate.strategy for candidate, _ in sent):
        blocked_twins = _rate(sent, rates, name)
        standing = standing_of(_rate(attacks, rates, name), blocked_twins)
        strategies.append(StrategyTwin(name=name, blocked=blocked_twins, standing=standing))
    return RewordingCard(
        samples=len(rows.exchanges.samples),
        refused=rows.exchanges.share("refused", rates),
        invalid=rows.exchanges.share("invalid", rates),
        candidates=len(rows.candidates),
        equivalent=rates.of(rows.same),
        unjudged=rows.count("unjudged"),
        blocked=blocked,
        as_is=rates.of(dict(zip(positions, as_is, strict=True)).items()),
        change=grouped_difference(
            [hit for _, hit in sent],
            as_is,
            groups=groups,
            confidence=rates.confidence,
        ),
        attacks_blocked=held,
        separation=mover(held, blocked),
        standing=standing_of(through, blocked),
        strategies=tuple(strategies),
        spending=rows.spending,
    )
