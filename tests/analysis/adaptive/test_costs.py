"""What a bypass costs: added up where known, undefined where nobody said."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.adaptive.planted import attack, cards, keyword, samples
from tests.schemas import check_document

from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.analysis.adaptive.card import AdaptiveCard
from guardmark.analysis.adaptive.rows import CostCard, read_costs
from guardmark.core.outcome import ALLOWED, BLOCKED, Decision, Evidence
from guardmark.core.sample import Prompt, View
from guardmark.core.usage import Usage, UsageTotals
from guardmark.reports.chapters.adaptive.attack_success import costs_table
from guardmark.reports.document.wording import cell_text
from guardmark.reports.render.json.encoder import encode

PRICE = 0.25


class Priced:
    """A keyword list that tells what each call costs, as a service does."""

    name, view = "priced", View.TEXT

    def __init__(self, *, told: bool = True) -> None:
        self.told = told
        self.calls = 0

    async def decide(self, prompt: Prompt) -> Decision:
        """Apply the rule."""
        self.calls += 1
        decision = BLOCKED if keyword(prompt.text) else ALLOWED
        usage = Usage(prompt_tokens=7, completion_tokens=1, cost=PRICE if self.told else None)
        return dataclasses.replace(decision, evidence=Evidence(usage=usage))


class InBatches:
    """The same in batches, which take a while."""

    name, view = "batches", View.TEXT

    class _Limits:
        max_count, max_tokens, max_wait_s = 8, None, 0.0

    batch_limits = _Limits()

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Apply the rule to each."""
        await asyncio.sleep(0.002)
        return [BLOCKED if keyword(prompt.text) else ALLOWED for prompt in prompts]


async def card_of(folder: Path, defense: Priced | InBatches) -> AdaptiveCard:
    """Attack one defense and read its figures."""
    plan = AdaptivePlan(defenses=(defense,), seed=7, budget=4)
    await attack(folder, samples(10, 6), plan)
    (card,) = cards(folder)
    return card


async def test_money_is_that_of_the_attackers_calls(tmp_path: Path) -> None:
    """Price times calls on the attacker's accounts; the evaluator's are left out."""
    defense = Priced()
    card = await card_of(tmp_path, defense)
    costs = card.costs
    assert costs.money.total == pytest.approx(PRICE * costs.calls.calls)
    assert costs.money.known == costs.calls.calls
    assert costs.calls.calls < defense.calls
    assert costs.money.per_attack == pytest.approx(costs.money.total / 10)


async def test_what_nobody_told_is_undefined_and_not_free(tmp_path: Path) -> None:
    """No price, no attacker model: the cells say so, and no zero stands anywhere."""
    card = await card_of(tmp_path, Priced(told=False))
    assert card.costs.money.total is None
    assert card.costs.money.per_bypass is None
    assert card.costs.tokens.total is None
    shown = {cell_text(row.cells[0]): cell_text(row.cells[1]) for row in costs_table(card).rows}
    assert shown["money"] == "undefined: no price is configured"
    assert shown["tokens of the attacker model"] == "undefined: no attacker model"


async def test_a_batch_shares_its_time_between_its_prompts(tmp_path: Path) -> None:
    """Seconds add up to what the batches took, each counted once."""
    card = await card_of(tmp_path, InBatches())
    seconds = card.costs.seconds
    assert seconds.known == card.costs.calls.calls
    assert seconds.total is not None
    assert seconds.total >= 0.002 * (card.costs.calls.calls // 8) / 2


def filled(calls: int, *, priced: int, tokens: int = 0) -> UsageTotals:
    """Totals of calls, some of which were priced."""
    totals = UsageTotals()
    for number in range(calls):
        cost = 1.0 if number < priced else None
        known = {"prompt_tokens": tokens, "completion_tokens": 0} if tokens else {}
        totals = totals.plus(Usage(cost=cost, **known))
    return totals


def test_a_partly_known_sum_is_a_lower_limit() -> None:
    """Two of four calls were priced: the sum is of these, and said to be at least that."""
    costs = read_costs({"search": filled(4, priced=2)}, bypasses=2, attacks=8)
    assert costs.money.is_partial
    assert (costs.money.total, costs.money.per_bypass) == (2, 1)
    assert costs.money.per_attack == 0.25


def test_an_attacker_model_is_paid_beside_the_defense() -> None:
    """Its tokens are told apart, its money together; the evaluator's accounts are passed over."""
    accounts = {
        "search": filled(4, priced=4),
        "attacker": filled(3, priced=3, tokens=100),
        "twin": filled(50, priced=50),
    }
    costs = read_costs(accounts, bypasses=1, attacks=2)
    assert (costs.calls.calls, costs.model_calls.calls) == (4, 3)
    assert (costs.tokens.total, costs.money.total) == (300, 7)


def test_nothing_got_through_leaves_the_price_of_a_bypass_undefined() -> None:
    """Not zero, and not infinite."""
    costs = read_costs({"search": filled(4, priced=4)}, bypasses=0, attacks=5)
    assert costs.calls.per_bypass is None
    assert costs.calls.per_attack == 0.8


@pytest.mark.parametrize(
    "accounts", [{}, {"search": filled(4, priced=2)}, {"attacker": filled(1, priced=0)}]
)
def test_the_json_keeps_to_its_schema(accounts: dict[str, UsageTotals]) -> None:
    """Null where undefined; what comes from a clock stands under timing."""
    costs: CostCard = read_costs(accounts, bypasses=1, attacks=1)
    check_document(encode(costs), "$defs", "AdaptiveCard", "properties", "costs")
    timing = ("$defs", "RunTiming", "properties", "adaptive")
    check_document({"d": encode(costs.seconds)}, *timing)
    assert "seconds" not in str(encode(costs))
