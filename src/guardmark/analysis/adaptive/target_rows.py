"""What a target model answered to an adaptive attacker's texts, as rows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.frame import MISSING
from guardmark.analysis.pipeline.frame import NO_GUARD, combine
from guardmark.core.usage import UsageTotals
from guardmark.store.layers import CANARY_REPLIES, TARGET, is_target_layer
from guardmark.store.schema import OUTCOME_CODE
from guardmark.store.tries import read_tries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.store.reader import RecordReader
    from guardmark.store.tries import TryRecord

PLAIN: Final = ""
"""Chain of a text as it is: the control of the comprehension probe."""

UNSAFE: Final = OUTCOME_CODE["unsafe"]
SAFE: Final = OUTCOME_CODE["safe"]
_ERROR: Final = OUTCOME_CODE["error"]


@dataclass(frozen=True, slots=True)
class TargetReply:
    """What the target model made of one text in place of an attack's.

    Attributes:
        chain: Operators that made the text; empty as it is.
        text: Hash of the text.
        label: Code of the verdict of the majority; of `error` where the model gave no answer;
            `MISSING` where nobody was asked.
    """

    chain: str
    text: str
    label: int


@dataclass(frozen=True, slots=True)
class CanaryReply:
    """What the target model made of one canary.

    Attributes:
        chain: Operators; empty for the plain sentence.
        canary: Its id.
        reading: `read`, `lost`, `refused` or `failed`.
    """

    chain: str
    canary: str
    reading: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountUsage:
    """What was asked of the target model and its judges on one account.

    Attributes:
        calls: Calls made; answers that were known are none.
        tokens: Tokens read and written, over the calls that told both.
        cost: In the user's currency, or None where no call told.
    """

    calls: int
    tokens: int
    cost: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRows:
    """Everything a target model was asked for an adaptive measurement.

    Attributes:
        settings: Which model and judges, as stored.
        replies: Defense (`none`: without any) to position to reply.
        canaries: One for each canary and chain.
        usage: Defense and account to what it took.
    """

    settings: Mapping[str, object]
    replies: Mapping[str, Mapping[int, TargetReply]]
    canaries: tuple[CanaryReply, ...]
    usage: Mapping[tuple[str, str], UsageTotals]

    @property
    def model(self) -> str:
        """Name of the target model, as its server or folder calls it."""
        return _named(self.settings.get("model"))

    @property
    def judges(self) -> tuple[str, ...]:
        """Names of the judges; empty where nobody tells whether an answer does harm."""
        said = self.settings.get("judges")
        return tuple(map(_named, said)) if isinstance(said, list) else ()


@dataclass(slots=True, kw_only=True)
class _Gathered:
    answers: defaultdict[str, dict[int, tuple[str, str, bool]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    verdicts: defaultdict[str, dict[str, dict[int, int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    canaries: list[CanaryReply] = field(default_factory=list)
    usage: defaultdict[tuple[str, str], UsageTotals] = field(
        default_factory=lambda: defaultdict(UsageTotals)
    )

    def take(self, record: TryRecord) -> None:
        defense, subject, details = record.defense, record.subject, record.subject.details
        chain = subject.chain or ""
        if not record.is_free:
            place = defense, subject.account
            usage = None if record.evidence is None else record.evidence.usage
            self.usage[place] = self.usage[place].plus(usage)
        if record.layer == CANARY_REPLIES:
            canary, reading = str(details["canary"]), str(details["reading"])
            self.canaries.append(CanaryReply(chain, canary, reading))
        elif record.layer == TARGET:
            is_answered = record.outcome == "answered"
            self.answers[defense][record.sample] = (chain, subject.digest, is_answered)
        else:
            self.verdicts[defense][record.layer][record.sample] = OUTCOME_CODE[record.outcome]


def read_target(reader: RecordReader) -> TargetRows | None:
    """Read what was asked of a target model."""
    settings = reader.layer_settings(TARGET)
    if not settings:
        return None
    gathered = _Gathered()
    for layer in reader.layers():
        if is_target_layer(layer):
            for record in read_tries(reader, layer=layer):
                gathered.take(record)
    return TargetRows(
        settings=settings,
        replies={
            name: _replies(answers, gathered.verdicts[name])
            for name, answers in gathered.answers.items()
        },
        canaries=tuple(gathered.canaries),
        usage=dict(gathered.usage),
    )


def usage_by_account(rows: TargetRows, defense: str) -> dict[str, AccountUsage]:
    """Return what the target model took by account, for one defense; shared calls included."""
    totals = {account: each for (name, account), each in rows.usage.items() if name == NO_GUARD}
    for (name, account), each in rows.usage.items():
        if name == defense:
            totals[account] = totals.get(account, UsageTotals()) + each
    return {
        account: AccountUsage(calls=each.calls, tokens=each.tokens, cost=each.cost)
        for account, each in totals.items()
    }


def _replies(
    answers: Mapping[int, tuple[str, str, bool]], verdicts: Mapping[str, Mapping[int, int]]
) -> dict[int, TargetReply]:
    places = list(answers)
    columns = [
        np.array([said.get(place, MISSING) for place in places], dtype=np.int8)
        for said in verdicts.values()
    ]
    labels = combine(columns)[0] if columns else np.full(len(places), MISSING, dtype=np.int8)
    return {
        place: TargetReply(chain, text, int(label) if is_answered else _ERROR)
        for (place, (chain, text, is_answered)), label in zip(
            answers.items(), labels.tolist(), strict=True
        )
    }


def _named(said: object) -> str:
    return str(said.get("model") or said.get("name")) if isinstance(said, dict) else ""
