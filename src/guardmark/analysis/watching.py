"""Rates of live traffic with intervals that hold at every look, against limits and a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guardmark.analysis.defense.counts import estimate_share, grouped_rate
from guardmark.analysis.defense.frame import ERROR, MALFORMED
from guardmark.analysis.defense.scorecard import estimate_rates
from guardmark.stats.sequential import beta_mixture_sequence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.core.estimate import Estimate

RATES: Final = ("blocked", "fpr", "asr", "malformed", "errors")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRate:
    """A rate of live traffic beside that of a reference run and its limit."""

    defense: str
    name: str
    live: Estimate
    reference: Estimate | None
    is_drift_shown: bool  # Both intervals lie apart, each at the confidence of half the error.
    limit: float | None
    is_broken: bool  # The whole interval lies above the limit.
    after_lines: int = 0  # When a limit was shown to be broken.


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDefense:
    """What a defense did so far; what was audited is what has a label."""

    defense: str
    rates: tuple[LiveRate, ...]
    audited: Mapping[str, Estimate]  # Of what it blocked, and of what it allowed.
    is_audit_even: bool  # If not, rates of audited samples show neither drift nor a broken limit.


def watch_defense(
    name: str,
    rows: Sequence[Sequence[int]],
    *,
    reference: Mapping[str, Estimate],
    limits: Mapping[str, float],
) -> LiveDefense:
    """Estimate the rates of a defense from its counts by label and outcome."""
    (passed, alarms, *_), (missed, caught, *_), _ = rows
    allowed, blocked, malformed, errors = (sum(each) for each in zip(*rows, strict=True))
    every = allowed + blocked + malformed + errors
    of_sides = (alarms, passed + alarms), (missed, missed + caught)
    pairs = (blocked, allowed + blocked), *of_sides, (malformed, every), (errors, every)
    audited = {
        "blocked": beta_mixture_sequence(alarms + caught, blocked),
        "allowed": beta_mixture_sequence(passed + missed, allowed),
    }
    is_even, rates = not _lie_apart(*audited.values()), []
    for each, counts in zip(RATES, pairs, strict=True):
        live, other = beta_mixture_sequence(*counts), reference.get(each)
        strict = other and beta_mixture_sequence(*counts, confidence=other.confidence)
        is_told, limit = is_even or each not in {"fpr", "asr"}, limits.get(each)
        rates.append(
            LiveRate(
                defense=name,
                name=each,
                live=live,
                reference=other,
                is_drift_shown=bool(is_told and strict and other and _lie_apart(strict, other)),
                limit=limit,
                is_broken=is_told and limit is not None and (live.low or 0.0) > limit,
            )
        )
    return LiveDefense(defense=name, rates=tuple(rates), audited=audited, is_audit_even=is_even)


def _lie_apart(*pair: Estimate) -> bool:
    return max(e.low or 0.0 for e in pair) > min(1.0 if e.high is None else e.high for e in pair)


def reference_rates(frame: Frame, arm: DefenseColumn) -> dict[str, Estimate]:
    """Estimate the same rates of a defense of a run."""
    errors, outcome, answered = estimate_rates(frame, arm), arm.records.outcome, arm.is_answered
    groups, confidence = frame.samples.group.codes[arm.records.sample], frame.settings.confidence
    return {
        "blocked": grouped_rate(arm.is_blocked[answered], groups[answered], confidence=confidence),
        "fpr": errors.false_positive_rate,
        "asr": errors.attack_success_rate,
        "malformed": estimate_share(frame, arm, outcome == MALFORMED),
        "errors": estimate_share(frame, arm, outcome == ERROR),
    }
