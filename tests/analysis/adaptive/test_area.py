"""Curves of success as one number, on records of real searches."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from tests.adaptive.planted import AtOnce, attack, cards, folding, keyword, lottery, samples
from tests.schemas import check_document

from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.analysis.adaptive.card import AdaptiveCard, compare_adaptive
from guardmark.reports.chapters.adaptive.attack_success import area_sentence
from guardmark.reports.chapters.adaptive.chapter import adaptive_document
from guardmark.reports.document.wording import cell_text
from guardmark.reports.render.json.encoder import encode
from guardmark.reports.render.markdown import render_markdown

pytestmark = pytest.mark.slow

BUDGET = 16


@pytest.fixture(scope="module")
def planted_cards(tmp_path_factory: pytest.TempPathFactory) -> tuple[AdaptiveCard, ...]:
    """Three defenses, each harder than the one before, under one attacker."""
    folder = tmp_path_factory.mktemp("planted")
    rules = {"plain": keyword, "folds": folding, "hard": lottery}
    defenses = tuple(AtOnce(name, rule) for name, rule in rules.items())
    plan = AdaptivePlan(defenses=defenses, seed=7, budget=BUDGET)
    asyncio.run(attack(folder, samples(30, 10), plan))
    return cards(folder)


@pytest.mark.slow
def test_the_area_is_that_of_the_drawn_arm(planted_cards: tuple[AdaptiveCard, ...]) -> None:
    """Counted from the fates of the attacks, try by try, and measured by trapezoids."""
    k = np.arange(1, BUDGET + 1)
    for card in planted_cards:
        firsts = [fate.adaptive for fate in card.area.fates]
        curve = [np.mean([f is not None and f <= at for f in firsts]) for at in k]
        drawn = np.trapezoid(curve, np.log(k)) / np.log(BUDGET)
        assert card.area.adaptive.value == pytest.approx(float(drawn))
        steps = dict(card.arms[0].points)
        assert steps == pytest.approx({at: curve[at - 1] for at in steps})


def test_a_harder_defense_has_a_smaller_area(planted_cards: tuple[AdaptiveCard, ...]) -> None:
    """Order is as planted, and every attack is compared with itself."""
    plain, _, hard = (card.area.adaptive.value for card in planted_cards)
    assert plain is not None
    assert hard is not None
    assert hard < plain
    pair = next(p for p in compare_adaptive(planted_cards, confidence=0.95) if p.second == "hard")
    assert (pair.first, pair.attacks) == ("plain", 30)
    assert pair.area.value == pytest.approx(plain - hard)
    assert pair.area.low is not None
    assert pair.area.low > 0


def test_p_values_are_adjusted_over_all_pairs(planted_cards: tuple[AdaptiveCard, ...]) -> None:
    """Three pairs are three tests: the smallest counts three times."""
    pairs = compare_adaptive(planted_cards, confidence=0.95)
    assert len(pairs) == 3
    raw = sorted(p.area.p_value for p in pairs if p.area.p_value is not None)
    adjusted = sorted(p.area_adjusted for p in pairs if p.area_adjusted is not None)
    assert adjusted[0] == pytest.approx(min(1, 3 * raw[0]))
    assert all(a >= r for a, r in zip(adjusted, raw, strict=True))


def test_only_attacks_that_both_answered_are_compared(
    planted_cards: tuple[AdaptiveCard, ...],
) -> None:
    """What one defense gave no answer for is no difference."""
    one, other, _ = planted_cards
    fewer = dataclasses.replace(other.area, fates=other.area.fates[:20])
    (pair,) = compare_adaptive([one, dataclasses.replace(other, area=fewer)], confidence=0.95)
    assert pair.attacks == 20
    assert pair.outcome.pairs == 20


def test_one_defense_is_compared_with_nothing(planted_cards: tuple[AdaptiveCard, ...]) -> None:
    """No pair."""
    assert compare_adaptive(planted_cards[:1], confidence=0.95) == ()
    assert encode(()) == []


def test_the_area_is_told_with_what_it_lacks(planted_cards: tuple[AdaptiveCard, ...]) -> None:
    """Attacks with fewer tries than the budget are named; with all tries nothing is said."""
    card = planted_cards[0]
    whole = dataclasses.replace(card, area=dataclasses.replace(card.area, given_up=0))
    some = dataclasses.replace(card, area=dataclasses.replace(card.area, given_up=4))
    assert "fewer tries" not in area_sentence(whole)
    assert "4 held attacks had fewer tries" in area_sentence(some)


def test_pairs_are_told_alike_everywhere(planted_cards: tuple[AdaptiveCard, ...]) -> None:
    """Terminal, table and JSON name the same pairs; the JSON keeps to its schema."""
    pairs = compare_adaptive(planted_cards, confidence=0.95)
    blocks = (
        each
        for part in adaptive_document(planted_cards, pairs=pairs).sections
        for each in part.blocks
    )
    (table,) = (each for each in blocks if getattr(each, "id", "") == "adaptive-pairs")
    assert len(table.rows) == 3
    told = [tuple(map(cell_text, line.cells))[:3] for line in table.rows]
    assert ("plain", "hard", "30") in told
    check_document(json.loads(json.dumps(encode(pairs))), "properties", "adaptive_pairs")


def test_a_group_that_dominates_is_named(tmp_path: Path) -> None:
    """By the rule of the verdicts, where the rates of the attacks are told."""
    data = [
        dataclasses.replace(each, group="story") if at < 8 else each
        for at, each in enumerate(samples(16, 4))
    ]
    plan = AdaptivePlan(defenses=(AtOnce("plain", keyword),), seed=7, budget=4)
    asyncio.run(attack(tmp_path, data, plan))
    text = render_markdown(adaptive_document(cards(tmp_path)))
    assert "plain: one group dominates: 'story' holds 50.0 % of the attacks." in text
    assert "plain: few groups: the attacks fall into 5 groups only." in text
