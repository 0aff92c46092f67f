"""What an attacker knows, what it asks, and what comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import field, replace
from enum import StrEnum
from hashlib import blake2b, sha256
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from guardmark.attacks.application import apply, derive_seed, recovers, seed_for
from guardmark.attacks.battery import BATTERY_VERSION, battery
from guardmark.attacks.catalogue import search_chains
from guardmark.attacks.contract import OperatorChain, Tier
from guardmark.attacks.talks import is_talk, takes_turns, turn_texts, turns_of
from guardmark.core.sample import MATERIAL
from guardmark.core.values import dataclass
from guardmark.store.layers import ADAPTIVE, seed_layer
from guardmark.store.tries import TrySubject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from guardmark.core.sample import Prompt, Sample

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRule:
    """What a rewritten attack must keep beside its tier: whom it is for must still read it.

    Attributes:
        name: Its name and version, part of what tries are identified by.
        holds: Whether an attack can still be read in a text that an operator made of it.
    """

    name: str
    holds: Callable[[Sample, str], bool]


MODEL_ROUND: Final = "R5"  # round in which models help the attacker
REWORDING: Final = "R5 twin"  # round of benign texts as an attacker model rewords them
TARGET_ROUND: Final = "target"  # round of what the target model is asked
_UNPROVED: Final = ("", *(tier.value for tier in Tier if not tier.in_full))
RESENDS: Final = 3  # how often a text that passed a random defense is sent again
_FOLDS: Final = 5  # parts of the attacks, so that none profits from what was seen of itself
PROBE: Final = "probe"  # chain of what is asked to learn something and is no attack


def text_digest(text: str) -> str:
    """Return the hash that stands for a text in the records."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def is_material(sample: Sample) -> bool:
    """Tell whether the text under test is a document, or what a tool returned."""
    return sample.prompt.messages[sample.prompt.under_test].role in MATERIAL


class Account(StrEnum):
    """Who pays for a call: attacker (up to `CONFIRM`), evaluator (up to `REWORDED`) or models."""

    BASELINE = "baseline"
    DIAGNOSIS = "diagnosis"
    BATTERY = "battery"
    SEARCH = "search"
    CONFIRM = "confirm"
    TWIN = "twin"
    WRAPPER = "wrapper"
    REPAIR = "repair"
    TRANSFER = "transfer"
    UNDEFENDED = "undefended"
    EFFECT = "effect"
    VERDICT = "verdict"
    COMPREHENSION = "comprehension"
    REWORDED = "reworded"
    ATTACKER = "attacker"
    EQUIVALENCE = "equivalence"
    CRITIC = "critic"
    TWIN_ATTACKER = "twin attacker"
    TWIN_EQUIVALENCE = "twin equivalence"


SENT: Final = "sent"
"""Detail of a try under which its text is kept, where no later version could make it again."""


@dataclass(frozen=True, slots=True)
class Query:
    """One text for a defense, or for the target model, in place of a sample's.

    Attributes:
        sample: Position of the sample whose text it replaces.
        text: What is asked about; of a conversation all turns.
        account: Who pays for the call.
        round: In which round it is asked.
        chain: Operators used; empty for the text as it is.
        tier: Proved tier; empty where a pass is no bypass.
        layer: Where its row stands.
        is_again: Whether it is asked although the answer to the text is known.
        decoded: Whether the shipped decoders read it; None where nobody looked.
        resend_of: Number of the try whose text is sent again.
        number: Number of its row, where that is not the next one.
        details: What else is stored of it.
    """

    sample: int
    text: str
    account: Account
    round: str
    chain: str = ""
    tier: str = ""
    layer: str = ADAPTIVE
    is_again: bool = False
    decoded: bool | None = None
    resend_of: int | None = None
    number: int | None = None
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_proved(self) -> bool:
        """Whether a pass is a bypass: its tier is proved."""
        return self.tier not in _UNPROVED

    @property
    def subject(self) -> TrySubject:
        """What is stored of it."""
        size = None
        if self.round != TARGET_ROUND:
            size = len(self.text)
        return TrySubject(
            account=self.account.value,
            round=self.round,
            digest=text_digest(self.text),
            chain=self.chain,
            tier=self.tier,
            size=size,
            decoded=self.decoded,
            resend_of=self.resend_of,
            details=self.details,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One question to a model that helps the attacker."""

    sample: int
    account: Account
    prompt: Prompt
    seed: int
    details: Mapping[str, object]
    pair: tuple[str, str] = ("", "")
    is_again: bool = True
    number: int | None = None

    @property
    def layer(self) -> str:
        """Where its answer is stored: the layer that has the name of the account."""
        return f"{ADAPTIVE}/{self.account.replace(' ', '/')}"

    @property
    def subject(self) -> TrySubject:
        """What is stored of it."""
        messages = [[m.role.value, m.content] for m in self.prompt.messages]
        return TrySubject(
            account=self.account.value,
            round=MODEL_ROUND,
            digest=text_digest(json.dumps([messages, self.seed], separators=(",", ":"))),
            details=self.details,
        )


@dataclass(frozen=True, slots=True)
class TryAnswer:
    """What the defense decided.

    Attributes:
        is_blocked: Whether the text was blocked; None without a decision.
        score: The score, if there is one.
        is_complaint: Whether what lies behind the block speaks of a failure.
        reason: What the defense gives as its reason.
        number: Number of the try.
        calls: Questions that it took: one for each turn of a conversation.
    """

    is_blocked: bool | None
    score: float | None = None
    is_complaint: bool = False
    reason: str = ""
    number: int = 0
    calls: int = 1

    @property
    def passed(self) -> bool:
        """Whether the text was let through."""
        return self.is_blocked is False


def is_confirmed(resends: Sequence[TryAnswer]) -> bool:
    """Tell whether a pass holds: all but one of its re-sends pass, too."""
    return sum(answer.passed for answer in resends) >= RESENDS - 1


Steps = Generator[list[Query], list[TryAnswer], T]
"""A procedure that asks in batches; batches and their order depend on answers alone."""


def together(procedures: Sequence[Steps[T]]) -> Steps[list[T]]:
    """Carry out procedures side by side, their batches joined in order."""
    results: dict[int, T] = {}
    waiting: dict[int, list[Query]] = {}
    for index, steps in enumerate(procedures):
        try:
            waiting[index] = next(steps)
        except StopIteration as end:
            results[index] = end.value
    while waiting:
        joined: list[Query] = []
        for batch in waiting.values():
            joined += batch
        answers = yield joined
        start = 0
        for index, batch in list(waiting.items()):
            own_answers = answers[start : start + len(batch)]
            start += len(batch)
            try:
                waiting[index] = procedures[index].send(own_answers)
            except StopIteration as end:
                results[index] = end.value
                del waiting[index]
    return [results[index] for index in range(len(procedures))]


OVER_TURNS: Final = "turns"
"""Detail of the last question about a conversation: how many turns it has."""
LEADS_UP: Final = "leads_up"
"""Detail of a question about a conversation that goes on: where it passes, nothing is decided."""


def asked_in_turn(batch: list[Query]) -> Steps[list[TryAnswer]]:
    """Ask about texts, and about conversations turn by turn as a chat service asks its guard.

    A conversation ends with its first block, or failure, whose answer is that of the whole. Each
    question is a call that the attacker pays for. No turn but the last proves a bypass.
    """
    turns = [_turns_of(query) for query in batch]
    answers: list[TryAnswer] = yield [_turn(each, turns[i], 0) for i, each in enumerate(batch)]
    live = list(range(len(batch)))
    number = 1
    while True:
        live = [i for i in live if answers[i].passed and len(turns[i]) > number]
        if not live:
            return answers
        next_answers = yield [_turn(batch[i], turns[i], number) for i in live]
        number += 1
        for i, answer in zip(live, next_answers, strict=True):
            answers[i] = replace(answer, calls=number)


def _turns_of(query: Query) -> Sequence[str]:
    """Return the turns of a conversation; a text is its only turn."""
    if is_talk(query.chain):
        return turn_texts(query.text)
    return [query.text]


def _turn(query: Query, texts: Sequence[str], number: int) -> Query:
    """Return the question about one turn of a conversation; a text is its only turn."""
    if number == len(texts) - 1:
        return query
    return replace(query, text=texts[number], tier="", resend_of=None, details={LEADS_UP: True})


BUDGETS: Final = {"quick": 16, "standard": 64, "thorough": 512}  # search calls for each attack


def _details(chain: OperatorChain, text: str) -> Mapping[str, object]:
    """Return what is kept of a variant beside its hash."""
    details: dict[str, object] = {}
    if chain.is_own:  # nothing but the attacker's own code makes such a text again
        details[SENT] = text
    if turns_of(chain) > 1:
        details[OVER_TURNS] = turns_of(chain)
    return details


@dataclass(slots=True, kw_only=True)
class Target:
    """One attack under way.

    Attributes:
        position: Position of the attack.
        sample: The attack.
        fold: Which part of the attacks it belongs to.
        tries: Search calls spent on it.
        win: What got through, once something did.
        tried: Chains, and uses of them, that were asked about or change nothing.
        seen: Texts that were sent.
        made: Variants made and not asked about yet.
        failed: Bits of the chains that failed on it.
        carried: The lowest score under a carrier, and which carrier it was.
    """

    position: int
    sample: Sample
    fold: int = 0
    tries: int = 0
    win: Query | None = None
    tried: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    made: dict[str, Query] = field(default_factory=dict)
    failed: int = 0
    carried: tuple[float, str] = (1.0, "")


@dataclass(slots=True, kw_only=True)
class SearchState:
    """What every round looks at.

    Attributes:
        samples: All samples, by position.
        seed: What chance is drawn from.
        budget: Search calls for each attack.
        blocked: Attacks that were blocked as they are.
        benign: Benign samples that were answered.
        quiet: Benign samples that passed.
        is_random: Whether answers differ when a text is sent again.
        scores: Scores of samples as they are.
        allowed_score: The highest score of a text that was let through.
        shares_memory: Whether what one attack learns serves the others.
        unit: The attack that is searched alone, with chance of its own.
        turn: Number of the seed, from 1.
        battery: Version of the fixed list.
        own: Operators of the user, each as a chain of one.
        reading: What a rewritten attack must keep beside its tier.
        has_turns: Whether the defense is shown conversations.
    """

    samples: Sequence[Sample]
    seed: int
    budget: int
    blocked: tuple[int, ...] = ()
    benign: tuple[int, ...] = ()
    quiet: tuple[int, ...] = ()
    is_random: bool = False
    scores: Mapping[int, float] = field(default_factory=dict)
    allowed_score: float = 0.0
    shares_memory: bool = True
    unit: str = ""
    turn: int = 1
    battery: str = BATTERY_VERSION
    own: tuple[OperatorChain, ...] = ()
    reading: ReadingRule | None = None
    has_turns: bool = False

    def chains(self) -> tuple[OperatorChain, ...]:
        """Return the chains of one arm that may be drawn."""
        has_material = any(map(is_material, self.samples))
        known = search_chains(self.budget, has_material=has_material, has_turns=self.has_turns)
        return (*known, *self.own)

    @property
    def left_out_over_turns(self) -> int:
        """How many chains are left out since the defense is shown one text at a time."""
        if self.has_turns:
            return 0
        return len(search_chains(self.budget, has_turns=True)) - len(search_chains(self.budget))

    def fixed_list(self) -> tuple[OperatorChain, ...]:
        """Return the chains that every blocked attack is tried with, own ones last."""
        return (*battery(self.battery), *self.own)

    def alone(self, index: int) -> SearchState:
        """Return the same state as one attack sees it, with chance of its own."""
        return replace(self, blocked=(index,), unit=self.samples[index].id)

    def repeated(self, turn: int) -> SearchState:
        """Return the same state for the search with another seed."""
        return replace(self, seed=derive_seed(self.seed, turn), turn=turn)

    def layer(self, arm: str = ADAPTIVE) -> str:
        """Return where the tries of an arm stand."""
        return seed_layer(arm, self.turn)

    def draw(self, *words: object) -> Random:
        """Return a generator that depends on the seed and these words only."""
        drawn_from = [self.seed, *words]
        if self.unit:
            drawn_from.insert(1, self.unit)
        seeded = "\0".join(map(str, drawn_from))
        return Random(sha256(seeded.encode()).digest())

    def targets(self) -> list[Target]:
        """Return the attacks that were blocked at first, none tried yet."""
        targets = []
        for index, fold in self.folds().items():
            targets.append(Target(position=index, sample=self.samples[index], fold=fold))
        return targets

    def folds(self) -> dict[int, int]:
        """Return the fold of each attack that was blocked at first, by its position."""
        numbers: dict[str, int] = {}  # of groups, in the order in which they come up
        folds = {}
        for index in self.blocked:
            group = self.samples[index].group or self.samples[index].id
            number = numbers.setdefault(group, len(numbers))
            folds[index] = number % _FOLDS
        return folds

    def variant(
        self,
        position: int,
        chain: OperatorChain,
        round_: str,
        *,
        account: Account = Account.SEARCH,
        index: int = 0,
        arm: str = ADAPTIVE,
    ) -> Query | None:
        """Make a variant of a sample's text, where that makes sense."""
        sample, key = self.samples[position], chain.key
        if chain.for_material and not is_material(sample):
            return None
        if turns_of(chain) > 1 and not takes_turns(sample.prompt):
            return None
        made = apply(
            chain,
            sample.prompt.text,
            seed=seed_for(self.seed, key, sample.id, index),
            must_keep=sample.must_keep,
        )
        if not made.is_variant or made.tier is None or not self.may_send(sample, made.text):
            return None
        decoded = None
        if account is Account.BATTERY and chain.needs_decoder:
            decoded = recovers(sample.prompt.text, made.text)
        return Query(
            position,
            made.text,
            account,
            round_,
            key,
            made.tier.value,
            self.layer(arm),
            decoded=decoded,
            details=_details(chain, made.text),
        )

    def may_send(self, sample: Sample, text: str) -> bool:
        """Tell whether a text in place of a sample's is an attack still, as far as rules say."""
        return self.reading is None or self.reading.holds(sample, text)

    def plain(
        self, index: int, account: Account, round_: str, *, tier: str = "", arm: str = ADAPTIVE
    ) -> Query:
        """Return a sample's text as it is, to be asked about again."""
        text, layer = self.samples[index].prompt.text, self.layer(arm)
        return Query(index, text, account, round_, tier=tier, layer=layer, is_again=True)

    def variants(
        self, places: Iterable[int], chain: OperatorChain, round_: str, account: Account
    ) -> list[Query]:
        """Make a variant of the text of each sample that a chain changes."""
        queries = []
        for index in places:
            query = self.variant(index, chain, round_, account=account)
            if query is not None:
                queries.append(query)
        return queries

    def confirm(self, batch: Sequence[Query], answers: Sequence[TryAnswer]) -> Steps[set[int]]:
        """Find which of several texts passed, and pass when sent again, by their numbers.

        A conversation is sent again from its first turn: that an earlier turn passed was as much
        luck as that the last one did.
        """
        passes = [i for i, answer in enumerate(answers) if answer.passed]
        if not self.is_random or not passes:
            return set(passes)
        resends: list[Query] = []
        for i in passes:
            again = replace(
                batch[i], account=Account.CONFIRM, is_again=True, resend_of=answers[i].number
            )
            resends += [again] * RESENDS
        if self.has_turns:
            second_answers = yield from asked_in_turn(resends)
        else:
            second_answers = yield resends
        confirmed = set[int]()
        for number, i in enumerate(passes):
            start = number * RESENDS
            if is_confirmed(second_answers[start : start + RESENDS]):
                confirmed.add(i)
        return confirmed
