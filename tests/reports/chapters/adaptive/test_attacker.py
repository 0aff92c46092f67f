"""What is said of an attacker model: never more than it did, never without what it failed at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from guardmark.analysis.adaptive.attacker import AttackerCard
from guardmark.analysis.defense.counts import grouped_rate
from guardmark.core.estimate import Estimate
from guardmark.core.usage import UsageTotals
from guardmark.reports.chapters.adaptive.models import (
    attacker_text,
    brought_text,
    cost_text,
)
from guardmark.reports.render.json.encoder import encode


def rate(hits: int, trials: int) -> Estimate:
    """A rate of trials that stand alone."""
    return grouped_rate([i < hits for i in range(trials)], range(trials), confidence=0.95)


CARD = AttackerCard(
    model="chat writer",
    judge="chat checker",
    is_same_model=False,
    attacks=rate(2, 8),
    unproved=rate(0, 8),
    only=1,
    refused=rate(3, 20),
    invalid=rate(1, 20),
    repairs=2,
    candidates=40,
    repeated=rate(4, 40),
    lost=rate(0, 40),
    unusable=0,
    unused=5,
    equivalent=rate(20, 30),
    undecided=rate(2, 30),
    unjudged=1,
    strict=0,
    passed=rate(2, 20),
    strategies=(),
    spending={
        "attacker": UsageTotals(calls=22, reported=20, tokens_read=2000, tokens_written=400),
        "equivalence": UsageTotals(calls=62, failed=2),
    },
    calls_left=978,
)


def test_a_bypass_has_a_price_only_where_there_is_one() -> None:
    """Calls are divided by attacks that fell; none fell, and there is no price of a bypass."""
    assert "42 calls for each that got through" in cost_text(CARD)
    none = replace(CARD, attacks=rate(0, 8))
    assert none.per_bypass(84) is None
    assert "no attack got through" in cost_text(none)


def test_money_is_told_only_where_a_price_is_known() -> None:
    """Without a price there is no cost, and not a cost of nothing."""
    assert "currency" not in cost_text(CARD)
    said: Any = encode(CARD)
    assert said["spending"]["attacker"]["cost"] is None
    paid = {"attacker": UsageTotals(calls=1, priced=1, cost=0.25), "equivalence": UsageTotals()}
    assert "0.25 of the price table's currency" in cost_text(replace(CARD, spending=paid))


def test_a_model_without_attacks_brought_nothing_undefined() -> None:
    """Where rules left it nothing, that is what is said."""
    assert "left no attack" in brought_text(replace(CARD, attacks=rate(0, 0)))
    assert "25.0 %" in brought_text(CARD)
    assert "(2/8)" in brought_text(CARD)


def test_nobody_is_named_as_judge_where_nobody_judged() -> None:
    """The threat model says on whose word a candidate counts."""
    assert attacker_text(CARD) == "chat writer; sameness judged by chat checker"
    assert "nobody judged" in attacker_text(replace(CARD, judge="none"))
