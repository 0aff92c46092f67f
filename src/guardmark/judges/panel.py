"""Several judges as one: the majority, and how far they agreed."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field

from guardmark.config.settings import Settings
from guardmark.core.outcome import CategoryFinding, Evidence, Verdict, VerdictLabel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.config.settings import BuildContext
    from guardmark.core.outcome import AnswerMode, Attempt
    from guardmark.core.protocols import Judge
    from guardmark.core.sample import Prompt
    from guardmark.core.usage import Usage

_ANSWERED = (VerdictLabel.SAFE, VerdictLabel.UNSAFE)


class JudgePanel:
    """Asks several judges at once and goes with more than half of them."""

    def __init__(self, name: str, judges: Sequence[Judge]) -> None:
        if len(judges) < 2:
            raise ValueError("a panel needs at least two judges")
        self.name = name
        self._judges = tuple(judges)

    @property
    def members(self) -> tuple[str, ...]:
        """The names of its judges."""
        return tuple(judge.name for judge in self._judges)

    async def judge(self, prompt: Prompt, response: str) -> Verdict:
        """Ask every judge about one response."""
        asked = [judge.judge(prompt, response) for judge in self._judges]
        verdicts = await asyncio.gather(*asked)
        label = _majority(verdicts)
        agreeing = [verdict for verdict in verdicts if verdict.label is label]
        error_kind = None
        if label is VerdictLabel.ERROR:
            error_kind = agreeing[0].error_kind
        return Verdict(
            label=label,
            answer_mode=_common_mode(agreeing),
            error_kind=error_kind,
            latency_ns=_longest(verdicts),
            evidence=_evidence(self.members, verdicts, label),
        )


def _majority(verdicts: Sequence[Verdict]) -> VerdictLabel:
    """Return the label that more than half gave; malformed without one, error where all failed."""
    votes = Counter(verdict.label for verdict in verdicts)
    if votes[VerdictLabel.ERROR] == len(verdicts):
        return VerdictLabel.ERROR
    for label in _ANSWERED:
        if 2 * votes[label] > len(verdicts):
            return label
    return VerdictLabel.MALFORMED


def _common_mode(agreeing: Sequence[Verdict]) -> AnswerMode | None:
    """Return the answer mode that most of them named; the first named among equals."""
    modes = Counter(verdict.answer_mode for verdict in agreeing)
    del modes[None]
    if not modes:
        return None
    return modes.most_common(1)[0][0]


def _longest(verdicts: Sequence[Verdict]) -> int | None:
    """Return how long the slowest judge took: they are asked at the same time."""
    times = [verdict.latency_ns for verdict in verdicts if verdict.latency_ns is not None]
    return max(times, default=None)


def _evidence(names: Sequence[str], verdicts: Sequence[Verdict], label: VerdictLabel) -> Evidence:
    """Join what the judges said: labels as reasons, attempts and what was used."""
    reasons: list[str] = []
    categories: list[CategoryFinding] = []
    attempts: list[Attempt] = []
    usage: Usage | None = None
    for name, verdict in zip(names, verdicts, strict=True):
        reasons.append(f"{name}: {verdict.label.value}")
        is_unsafe = None
        if verdict.label in _ANSWERED:
            is_unsafe = verdict.label is VerdictLabel.UNSAFE
        categories.append(CategoryFinding(name=name, flagged=is_unsafe, score=verdict.score))
        evidence = verdict.evidence
        if evidence is None:
            continue
        attempts += evidence.attempts
        if usage is None:
            usage = evidence.usage
        elif evidence.usage is not None:
            usage += evidence.usage
    agreeing = [verdict for verdict in verdicts if verdict.label is label]
    message = ""
    if label not in _ANSWERED:
        message = "the judges gave no majority"
    return Evidence(
        reason="; ".join(reasons),
        message=message,
        parse_method=f"{len(agreeing)} of {len(verdicts)}",
        categories=tuple(categories),
        usage=usage,
        attempts=tuple(attempts),
    )


class PanelSettings(Settings):
    """Goes with more than half of several judges."""

    name: str = ""
    judges: list[dict[str, Any]] = Field(min_length=2)

    def build(self, name: str, context: BuildContext) -> object:
        """Build the panel of its members, which are built already."""
        return JudgePanel(name, cast("tuple[Judge, ...]", context.members))
