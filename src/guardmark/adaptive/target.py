"""The target model behind the defenses: what it is asked, and where its answers are stored."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from guardmark.adaptive.trial import text_digest
from guardmark.core.layers import VERDICT
from guardmark.core.outcome import Response, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.adaptive.trial import Account
    from guardmark.core.protocols import ChatModel, Judge
    from guardmark.core.record import Record, RecordKey

A = TypeVar("A", Response, Verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAnswers:
    """What the target model answered to a text, and what was said of it."""

    response: Response
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedTarget:
    """What the defenses protect, and how it is measured."""

    model: ChatModel
    judges: tuple[Judge, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    as_run: Mapping[int, KnownAnswers] = field(default_factory=dict)
    canaries: int = 20
    memory: Mapping[RecordKey, Record] = field(default_factory=dict)

    @property
    def judged(self) -> tuple[tuple[str, Judge], ...]:
        """Each judge with the layer its verdicts are stored in."""
        if len(self.judges) == 1:
            return ((VERDICT, self.judges[0]),)
        return tuple((f"{VERDICT}/{judge.name}", judge) for judge in self.judges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One text for the target model in place of a sample's."""

    key: RecordKey
    text: str
    account: Account
    chain: str = ""
    tier: str = ""

    def note(self, *, account: Account, is_free: bool, **more: object) -> str:
        """Return what is stored beside the answer."""
        said = {
            "account": account.value,
            "round": "target",
            "chain": self.chain,
            "tier": self.tier,
            "text": text_digest(self.text),
            "free": is_free,
        }
        return json.dumps(said | more, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class TargetQuestion(Generic[A]):
    """An answer and how it was come by."""

    answer: A
    took_ns: int | None
    is_stored: bool
