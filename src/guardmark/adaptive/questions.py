"""What an attacker asks, what comes back, and on whose account it goes."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeVar

from guardmark.attacks.contract import Tier
from guardmark.store.layers import (
    ADAPTIVE,
    ATTACKER,
    CRITIC,
    EQUIVALENCE,
    TWIN_ATTACKER,
    TWIN_EQUIVALENCE,
)
from guardmark.store.tries import TrySubject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.core.sample import Prompt

T = TypeVar("T")

MODEL_ROUND: Final = "R5"
"""Round in which models help the attacker."""
REWORDING: Final = "R5 twin"
"""Round of benign texts as an attacker model rewords them."""
TARGET_ROUND: Final = "target"
"""Round of what the target model is asked."""
_UNPROVED: Final = ("", *(tier.value for tier in Tier if not tier.in_full))
RESENDS: Final = 3
"""How often a text that passed a random defense is sent again."""
PROBE: Final = "probe"
"""Chain of what is asked to learn something and is no attack."""


def text_digest(text: str) -> str:
    """Return the hash that stands for a text in the records."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


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


@dataclass(frozen=True, slots=True)
class Query:
    """One text for a defense, or for the target model, in place of a sample's."""

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
    number: int | None = None  # of its row, where that is not the next one
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_proved(self) -> bool:
        """Whether a pass is a bypass: its tier is proved."""
        return self.tier not in _UNPROVED

    @property
    def subject(self) -> TrySubject:
        """What is stored of it."""
        return TrySubject(
            account=self.account.value,
            round=self.round,
            digest=text_digest(self.text),
            chain=self.chain,
            tier=self.tier,
            size=None if self.round == TARGET_ROUND else len(self.text),
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
        """Where its answer is stored."""
        return _LAYERS[self.account]

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


_LAYERS: Final = {
    Account.ATTACKER: ATTACKER,
    Account.EQUIVALENCE: EQUIVALENCE,
    Account.CRITIC: CRITIC,
    Account.TWIN_ATTACKER: TWIN_ATTACKER,
    Account.TWIN_EQUIVALENCE: TWIN_EQUIVALENCE,
}


@dataclass(frozen=True, slots=True)
class TryAnswer:
    """What the defense decided."""

    is_blocked: bool | None
    score: float | None = None
    is_complaint: bool = False
    reason: str = ""
    number: int = 0

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
    for place, steps in enumerate(procedures):
        try:
            waiting[place] = next(steps)
        except StopIteration as end:
            results[place] = end.value
    while waiting:
        answers = iter((yield [query for batch in waiting.values() for query in batch]))
        by_place = {place: [next(answers) for _ in batch] for place, batch in waiting.items()}
        for place, answered in by_place.items():
            try:
                waiting[place] = procedures[place].send(answered)
            except StopIteration as end:
                results[place] = end.value
                del waiting[place]
    return [results[place] for place in range(len(procedures))]
