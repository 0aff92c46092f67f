"""What is stated of a repaired defense, beside fresh attacks on it with seeds of their own."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest
from tests.adaptive.planted import attack, cards
from tests.planted.defenses import PLANTED, Planted, Rule, planted
from tests.planted.references import NEVER
from tests.planted.table import attacked

from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.canon.steps import apply_steps
from guardmark.core.outcome import ALLOWED, BLOCKED, Decision, ScoreKind
from guardmark.core.sample import Prompt, View
from guardmark.defenses.canonical import steps_of
from guardmark.reports.chapters.adaptive.operators import repair_sentence
from guardmark.store.layers import ADAPTIVE

BUDGET = 64
FRESH = range(101, 106)
NEAR = 0.1
MOST_FAR = 2
"""Single fresh attacks of five that may lie farther: each is a draw of its own."""
ALL_OR_NOTHING = "format"
"""A search in four finds the only way, which then opens nearly everything: no three tell the mean."""


class Scored:
    """Answers in line by a planted rule, with its score where it has one."""

    view = View.TEXT

    def __init__(self, rule: Rule) -> None:
        self.name = "d"
        self._rule = rule

    def decide(self, prompt: Prompt) -> Decision:
        """Apply the rule."""
        is_blocked, score = self._rule(prompt.text)
        outcome = (BLOCKED if is_blocked else ALLOWED).outcome
        kind = ScoreKind.NONE if score is None else ScoreKind.CLASS_PROB
        return Decision(outcome=outcome, score=score, score_kind=kind)


def fresh_share(each: Planted, rule: Rule, *, seed: int) -> float:
    """Attack a repaired rule from the beginning; return the share of attacks through by the end."""
    state, asked, known, _ = attacked(each.data(), rule, budget=BUDGET, seed=seed)
    firsts = asked.firsts(ADAPTIVE, state.blocked)
    held = [
        first == NEVER and place not in known.record.wins
        for place, first in zip(state.blocked, firsts, strict=True)
    ]
    return 1 - sum(held) / sum(sample.is_attack for sample in each.data())


SLOW = ("words", "nearest gated")
ROWS = [
    pytest.param(each.name, marks=pytest.mark.slow if each.name in SLOW else pytest.mark.soak)
    for each in PLANTED
    if each.is_steady
]


@pytest.mark.parametrize("name", ROWS)
async def test_what_is_stated_lies_near_what_fresh_attacks_find(tmp_path: Path, name: str) -> None:
    """Within ten points of their mean, and of most of them by themselves."""
    each, inner = planted(name), planted(name).start()
    plan = AdaptivePlan(defenses=(Scored(each.start()),), seed=1, budget=BUDGET)
    await attack(tmp_path, each.data(), plan)
    (card,) = cards(tmp_path)
    if card.repaired is None:
        assert name not in SLOW
        pytest.skip("no cleaning helps against it")
    stated, steps = card.repaired.after, steps_of(card.repaired.steps)

    def rule(text: str) -> tuple[bool, float | None]:
        is_blocked, score = inner(text)
        return (is_blocked, score) if is_blocked else inner(apply_steps(text, steps))

    fresh = [fresh_share(each, rule, seed=seed) for seed in FRESH]
    assert stated.value == pytest.approx(mean(stated.by_seed))
    if name == ALL_OR_NOTHING:
        assert 0 < sum(share > 0.5 for share in fresh) < len(fresh), fresh
        assert stated.most == 0 or stated.low <= mean(fresh) <= stated.high, (fresh, stated)
        assert "a further one may" in repair_sentence(card) or stated.most > 0
        return
    assert abs(mean(fresh) - stated.value) <= NEAR, (fresh, stated)
    assert sum(abs(each - stated.value) > NEAR for each in fresh) <= MOST_FAR, (fresh, stated)
    one = 1 / stated.trials  # the mean of the fresh ones is a draw, too
    assert stated.low - one <= mean(fresh) <= stated.high + one
