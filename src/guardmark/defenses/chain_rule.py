"""How the decisions of several defenses become one."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from guardmark.core.outcome import CategoryFinding, Decision, Evidence, Outcome, ScoreKind

if TYPE_CHECKING:
    from collections.abc import Sequence


class ChainRule(StrEnum):
    """How members' decisions become one."""

    ANY = "any"
    ALL = "all"
    MAJORITY = "majority"
    FIRST = "first"


_ALLOWED = Decision(outcome=Outcome.ALLOW)


def settled(votes: Sequence[tuple[str, Decision]], size: int, rule: ChainRule) -> Outcome | None:
    """Return what the votes so far already decide."""
    blocks = sum(decision.outcome is Outcome.BLOCK for _, decision in votes)
    allows = sum(decision.outcome is Outcome.ALLOW for _, decision in votes)
    if rule is ChainRule.FIRST:
        answered = (d.outcome for _, d in votes if d.outcome in (Outcome.ALLOW, Outcome.BLOCK))
        return next(answered, None)
    needed = {ChainRule.ANY: 1, ChainRule.ALL: size, ChainRule.MAJORITY: size // 2 + 1}[rule]
    if blocks >= needed:
        return Outcome.BLOCK
    return Outcome.ALLOW if allows > size - needed else None


def combine(
    votes: Sequence[tuple[str, Decision]],
    size: int,
    rule: ChainRule,
    *,
    latency_ns: int | None = None,
) -> Decision:
    """Combine members' decisions."""
    outcome = settled(votes, size, rule)
    if outcome is Outcome.ALLOW and latency_ns is None and _says_nothing(votes):
        return _ALLOWED
    speaker = _speaker(votes, outcome)
    score, kind = _score(votes, size, rule)
    behind = speaker[1].evidence or Evidence()
    return Decision(
        outcome=speaker[1].outcome if outcome is None else outcome,
        score=score,
        score_kind=kind,
        error_kind=speaker[1].error_kind if outcome is None else None,
        latency_ns=latency_ns,
        amortised=any(decision.amortised for _, decision in votes),
        evidence=Evidence(
            reason=f"{speaker[0]}: {behind.reason}" if behind.reason else speaker[0],
            native_action=behind.native_action,
            raw=behind.raw,
            message=f"{speaker[0]}: {behind.message}" if behind.message else "",
            categories=tuple(_finding(name, decision) for name, decision in votes),
            attempts=tuple(a for _, d in votes if d.evidence for a in d.evidence.attempts),
            truncated=any(d.evidence.truncated for _, d in votes if d.evidence),
        ),
    )


def _says_nothing(votes: Sequence[tuple[str, Decision]]) -> bool:
    return all(
        d.outcome is Outcome.ALLOW and d.score is None and d.evidence is None for _, d in votes
    )


def _speaker(
    votes: Sequence[tuple[str, Decision]], outcome: Outcome | None
) -> tuple[str, Decision]:
    """The first member that decided so, or the first that failed."""
    failed = (Outcome.MALFORMED, Outcome.ERROR)
    wanted = failed if outcome is None else (outcome,)
    return next(vote for vote in votes if vote[1].outcome in wanted)


def _score(
    votes: Sequence[tuple[str, Decision]], size: int, rule: ChainRule
) -> tuple[float | None, ScoreKind]:
    if rule is ChainRule.FIRST:
        last = votes[-1][1]
        return last.score, last.score_kind
    scores = [d.score for _, d in votes if d.score is not None]
    kinds = {d.score_kind for _, d in votes}
    if len(scores) < size or len(kinds) > 1:
        return None, ScoreKind.NONE
    if rule is ChainRule.MAJORITY:
        if size % 2 == 0:
            return None, ScoreKind.NONE
        return sorted(scores)[size // 2], kinds.pop()
    return (max(scores) if rule is ChainRule.ANY else min(scores)), kinds.pop()


def _finding(name: str, decision: Decision) -> CategoryFinding:
    answered = decision.outcome in (Outcome.ALLOW, Outcome.BLOCK)
    flagged = decision.outcome is Outcome.BLOCK if answered else None
    return CategoryFinding(name=name, flagged=flagged, score=decision.score)
