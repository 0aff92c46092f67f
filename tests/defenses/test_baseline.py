"""Baselines: what they promise a report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.outcome import Outcome
from guardmark.core.sample import Prompt
from guardmark.defenses.baseline import Coin, allow_all, block_all


def test_allow_all_and_block_all_are_what_they_are_called() -> None:
    """The two corners of every chart."""
    prompt = Prompt.of_text("anything")
    assert allow_all().decide(prompt).outcome is Outcome.ALLOW
    assert block_all().decide(prompt).outcome is Outcome.BLOCK


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=20), st.integers(0))
def test_the_order_of_prompts_does_not_change_a_toss(texts: list[str], seed: int) -> None:
    """A run that is continued, or shuffled, tosses the same coins."""
    forwards = Coin("coin", seed=seed)
    backwards = Coin("coin", seed=seed)
    prompts = [Prompt.of_text(text) for text in texts]
    there = [forwards.decide(prompt) for prompt in prompts]
    back = [backwards.decide(prompt) for prompt in reversed(prompts)]
    assert there == back[::-1]


def test_the_share_blocked_is_the_probability_asked_for() -> None:
    """20,000 tosses at 0.3 stay within five standard errors."""
    coin = Coin("coin", seed=3, probability=0.3)
    tosses = [coin.decide(Prompt.of_text(f"t{n}")).outcome for n in range(20_000)]
    assert abs(tosses.count(Outcome.BLOCK) / 20_000 - 0.3) < 5 * (0.3 * 0.7 / 20_000) ** 0.5


@pytest.mark.parametrize(("probability", "outcome"), [(0, Outcome.ALLOW), (1, Outcome.BLOCK)])
def test_certain_coins_never_surprise(probability: float, outcome: Outcome) -> None:
    """Probability 0 and 1 are exact, not nearly so."""
    coin = Coin("coin", seed=1, probability=probability)
    assert {coin.decide(Prompt.of_text(f"{n}")).outcome for n in range(500)} == {outcome}


def test_another_seed_tosses_differently() -> None:
    """The seed of the run matters."""
    prompts = [Prompt.of_text(f"{n}") for n in range(200)]
    one, two = Coin("coin", seed=1), Coin("coin", seed=2)
    assert [one.decide(p) for p in prompts] != [two.decide(p) for p in prompts]


def test_a_probability_beyond_one_is_refused() -> None:
    """A share lies in [0, 1]."""
    with pytest.raises(ValueError, match="probability must be in"):
        Coin("coin", seed=1, probability=1.5)
