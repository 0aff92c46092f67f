"""What an attacker knows: samples, settings, what was blocked at first, and chance of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.questions import RESENDS, Account, Query, is_confirmed
from guardmark.attacks.application import apply, recovers, seed_for
from guardmark.attacks.catalogue import arms
from guardmark.attacks.contract import OperatorChain, Tier
from guardmark.store.layers import ADAPTIVE, seed_layer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guardmark.adaptive.questions import Steps, TryAnswer
    from guardmark.core.sample import Sample


BUDGETS: Final = {"quick": 16, "standard": 64, "thorough": 512}
"""Search calls an attack is worth, by name."""

_SHORT_PADDING: Final = (0, 128)  # words; of more, a small budget pays more than it learns
_EASY_BUDGET: Final = 64


@dataclass(slots=True, kw_only=True)
class Target:
    """One attack under way."""

    position: int
    sample: Sample
    fold: int = 0
    tries: int = 0
    win: Query | None = None
    tried: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    failed: int = 0


@dataclass(slots=True, kw_only=True)
class SearchState:
    """What every round looks at."""

    samples: Sequence[Sample]
    seed: int
    budget: int
    blocked: tuple[int, ...] = ()
    benign: tuple[int, ...] = ()
    quiet: tuple[int, ...] = ()
    is_random: bool = False
    has_scores: bool = False
    shares_memory: bool = True
    unit: str = ""
    turn: int = 1

    def within(self, budget: int) -> SearchState:
        """Return the same state for rounds that may not spend the whole budget."""
        return replace(self, budget=budget)

    def alone(self, place: int) -> SearchState:
        """Return the same state as one attack sees it, with chance of its own."""
        return replace(self, blocked=(place,), unit=self.samples[place].id)

    def repeated(self, turn: int) -> SearchState:
        """Return the same state for the search with another seed."""
        return replace(self, seed=derive_seed(self.seed, turn), turn=turn)

    def layer(self, arm: str = ADAPTIVE) -> str:
        """Return where the tries of an arm stand."""
        return seed_layer(arm, self.turn)

    def draw(self, *words: object) -> Random:
        """Return a generator that depends on the seed and these words only."""
        own = (self.unit,) if self.unit else ()
        seeded = "\0".join(map(str, (self.seed, *own, *words)))
        return Random(sha256(seeded.encode()).digest())

    def targets(self) -> list[Target]:
        """Return the attacks that were blocked at first, none tried yet."""
        folds = self.folds()
        return [
            Target(position=place, sample=self.samples[place], fold=folds[place])
            for place in self.blocked
        ]

    def folds(self) -> dict[int, int]:
        """Return the fold of each attack that was blocked at first, by its position."""
        groups = [self.samples[place].group or self.samples[place].id for place in self.blocked]
        return dict(zip(self.blocked, fold_numbers(groups), strict=True))

    def variant(
        self,
        position: int,
        chain: OperatorChain,
        round_: str,
        *,
        account: Account = Account.SEARCH,
        index: int = 0,
        arm: str = ADAPTIVE,
        span: tuple[int, int] | None = None,
    ) -> Query | None:
        """Make a variant of a sample's text."""
        sample = self.samples[position]
        key = chain.key
        made = apply(
            chain,
            sample.prompt.text,
            seed=seed_for(self.seed, key, sample.id, index),
            must_keep=sample.must_keep,
            span=span,
        )
        if not made.is_variant or made.tier is None:
            return None
        where = "" if span is None else f" [{span[0]}:{span[1]}]"
        decoded = None
        if account is Account.BATTERY and chain.needs_decoder:
            decoded = recovers(sample.prompt.text, made.text)
        return Query(
            position,
            made.text,
            account,
            round_,
            f"{key}{where}",
            made.tier.value,
            self.layer(arm),
            decoded=decoded,
        )

    def plain(
        self, place: int, account: Account, round_: str, *, tier: str = "", arm: str = ADAPTIVE
    ) -> Query:
        """Return a sample's text as it is, to be asked about again."""
        text, layer = self.samples[place].prompt.text, self.layer(arm)
        return Query(place, text, account, round_, tier=tier, layer=layer, is_again=True)

    def variants(
        self, places: Iterable[int], chain: OperatorChain, round_: str, account: Account
    ) -> list[Query]:
        """Make a variant of the text of each sample that a chain changes."""
        made = (self.variant(place, chain, round_, account=account) for place in places)
        return [query for query in made if query is not None]

    def singles(self) -> tuple[OperatorChain, ...]:
        """Return the chains of one arm that a search may draw from."""
        return tuple(
            OperatorChain.of(arm)
            for arm in arms()
            if arm.tier is not Tier.V4
            and arm.family != "F13"  # needs a judge of sameness, which no search has
            and (self.budget > _EASY_BUDGET or dict(arm.settings).get("words", 0) in _SHORT_PADDING)
        )

    def confirm(self, batch: Sequence[Query], answers: Sequence[TryAnswer]) -> Steps[set[int]]:
        """Find which of several texts passed, and pass when sent again, by their numbers."""
        passes = [i for i, answer in enumerate(answers) if answer.passed]
        if not self.is_random or not passes:
            return set(passes)
        again: list[TryAnswer] = yield [
            replace(batch[i], account=Account.CONFIRM, is_again=True, resend_of=answers[i].number)
            for i in passes
            for _ in range(RESENDS)
        ]
        groups = (again[at : at + RESENDS] for at in range(0, len(again), RESENDS))
        return {i for i, group in zip(passes, groups, strict=True) if is_confirmed(group)}


FOLDS: Final = 5
"""Parts into which attacks are split, so that none profits from what was seen of itself."""


def fold_numbers(groups: Sequence[str]) -> list[int]:
    """Split attacks by their groups."""
    order = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    return [order[group] % FOLDS for group in groups]


def derive_seed(seed: int, number: int) -> int:
    """Return the seed of the n-th repetition of the search."""
    if number == 1:
        return seed
    return int.from_bytes(sha256(f"{seed}\0adaptive seed\0{number}".encode()).digest()[:6], "big")
