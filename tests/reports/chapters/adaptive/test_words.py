"""Fixed words of adaptive figures: no more is said than the intervals carry."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from tests.adaptive.planted import AtOnce, attack, cards, keyword, samples

from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.analysis.adaptive.card import AdaptiveCard
from guardmark.reports.chapters.adaptive.attack_success import gain_sentence, proof_words
from guardmark.reports.chapters.adaptive.chapter import threat_card
from guardmark.reports.chapters.adaptive.models import STANDINGS
from guardmark.reports.chapters.adaptive.operators import standing_sentence


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> AdaptiveCard:
    """A keyword list under a small attack."""
    folder = tmp_path_factory.mktemp("planted")
    plan = AdaptivePlan(defenses=(AtOnce("words", keyword),), seed=7, budget=8)
    asyncio.run(attack(folder, list(samples(20, 10)), plan))
    (only,) = cards(folder)
    return only


@pytest.mark.parametrize(("high", "is_said"), [(-0.01, True), (0.02, False)])
def test_drawing_at_random_is_called_better_only_beyond_chance(
    card: AdaptiveCard, *, high: float, is_said: bool
) -> None:
    """A loss whose interval reaches zero is a figure and no finding."""
    k, gain = card.gains[0]
    lost = dataclasses.replace(gain, value=-0.05, low=-0.12, high=high)
    said = gain_sentence(dataclasses.replace(card, gains=((k, lost),)))
    assert "-5.0 points" in said
    assert ("Drawing at random did better" in said) is is_said


def test_standings_are_counted(card: AdaptiveCard) -> None:
    """Every operator with benign texts has one standing."""
    said = standing_sentence(card)
    assert f"{len(card.operators)} operators" in said
    for name in {STANDINGS[each.standing] for each in card.operators}:
        assert f"{name}: " in said


def test_without_operators_none_is_said_to_have_been_tried(card: AdaptiveCard) -> None:
    """Nothing tried on benign texts is not nothing blocked."""
    said = standing_sentence(dataclasses.replace(card, operators=()))
    assert said == "words: no operator was tried on benign texts"


def test_what_a_judge_proved_is_named_only_with_a_judge(card: AdaptiveCard) -> None:
    """Tier V3 needs a judge of sameness; here is not even an attacker model."""
    assert "V3" not in proof_words(card)


def test_the_lock_stands_with_the_list_it_locks(card: AdaptiveCard) -> None:
    """One line says which list, and which state of it."""
    facts = dict(threat_card(card))
    assert facts["Fixed list"] == f"guardmark-attack-3 (lock {str(card.settings['lock'])[:16]})"
