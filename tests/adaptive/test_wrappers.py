"""Was it the attack, or the words around it: wrappers with nothing in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.adaptive.planted import AtOnce, attack, cards, keyword, samples
from tests.schemas import check_document

from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.analysis.adaptive.card import AdaptiveCard
from guardmark.analysis.adaptive.operators import OperatorCard
from guardmark.core.outcome import Decision, ErrorKind, Outcome
from guardmark.core.sample import Prompt
from guardmark.reports.chapters.adaptive.operators import operator_tables, wrapper_sentence
from guardmark.reports.render.json.encoder import encode
from guardmark.store.layers import ADAPTIVE

pytestmark = pytest.mark.slow


def warned_of_codes(text: str) -> bool:
    """Block listed words, and every mention of decoding."""
    return keyword(text) or "Decode it" in text


async def card_of(folder: Path, defense: AtOnce) -> AdaptiveCard:
    """Attack one defense and read its figures."""
    plan = AdaptivePlan(defenses=(defense,), seed=7, budget=4)
    await attack(folder, samples(20, 24), plan)
    (card,) = cards(folder)
    return card


def operator(card: AdaptiveCard, name: str) -> OperatorCard:
    """Find an operator of the fixed list."""
    return next(each for each in card.operators if each.chain.startswith(f"{name}@"))


async def test_a_wrapper_that_is_blocked_by_itself_is_found(tmp_path: Path) -> None:
    """Neutral sentences behind it are blocked, all of them, with their count."""
    card = await card_of(tmp_path, AtOnce("warned", warned_of_codes))
    alone = operator(card, "base64").wrapper_blocked
    assert alone is not None
    assert (alone.successes, alone.trials) == (20, 20)
    assert "base64@1(wrapper=decode) (20/20)" in wrapper_sentence(card)
    hidden = operator(card, "tag_characters").wrapper_blocked
    assert hidden is not None
    assert hidden.successes == 0
    assert "tag_characters" not in wrapper_sentence(card)


async def test_a_wrapper_that_passes_is_not_named(tmp_path: Path) -> None:
    """A keyword list does not mind wrappers; operators without one have no figure."""
    card = await card_of(tmp_path, AtOnce("words", keyword))
    assert wrapper_sentence(card) == ""
    assert operator(card, "fullwidth").wrapper_blocked is None


async def test_sentences_blocked_without_a_wrapper_tell_nothing(tmp_path: Path) -> None:
    """A defense that blocks everything leaves the question open: no trials, undefined."""
    card = await card_of(tmp_path, AtOnce("all", lambda _: True))
    alone = operator(card, "base64").wrapper_blocked
    assert alone is not None
    assert (alone.trials, alone.value) == (0, None)
    assert wrapper_sentence(card) == ""


async def test_a_failed_call_is_neither_blocked_nor_passed(tmp_path: Path) -> None:
    """Sentences the defense gave no answer for are left out of both counts."""

    class Fails(AtOnce):
        def decide(self, prompt: Prompt) -> Decision:
            if "tulips" in prompt.text:
                return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.LENGTH)
            return super().decide(prompt)

    card = await card_of(tmp_path, Fails("fails", warned_of_codes))
    alone = operator(card, "base64").wrapper_blocked
    assert alone is not None
    assert (alone.successes, alone.trials) == (19, 19)


async def test_growth_and_decoding_are_told_of_the_variants_that_were_tried(
    tmp_path: Path,
) -> None:
    """Full width keeps the length, hexadecimal doubles it; who reads it is another matter."""
    card = await card_of(tmp_path, AtOnce("words", keyword))
    assert operator(card, "fullwidth").expansion.value == pytest.approx(1)
    assert operator(card, "hex").expansion.value == pytest.approx(3, abs=1)
    assert operator(card, "hex").expansion.trials >= 20
    read, unread = operator(card, "hex").decoded, operator(card, "rot13").decoded
    assert read is not None
    assert unread is not None
    assert (read.value, unread.value) == (1, 0)
    assert operator(card, "fullwidth").decoded is None


async def test_tables_and_json_show_the_same(tmp_path: Path) -> None:
    """Every rate stands beside its n, and the JSON keeps to its schema."""
    card = await card_of(tmp_path, AtOnce("warned", warned_of_codes))
    against, shapes = operator_tables(card)
    assert len(against.rows) == len(shapes.rows) == len(card.operators)
    assert [column.title for column in shapes.columns].count("n") == 3
    encoded = json.loads(json.dumps(encode(card.operators)))
    check_document(encoded, "$defs", "AdaptiveCard", "properties", "operators")


async def test_wrappers_are_the_evaluators_expense(tmp_path: Path) -> None:
    """They stand in the ledger, and not among the attacker's calls."""
    card = await card_of(tmp_path, AtOnce("words", keyword))
    assert card.calls[ADAPTIVE, "wrapper"] >= 20
    from guardmark.analysis.adaptive.rows import ATTACKER_ACCOUNTS

    assert "wrapper" not in ATTACKER_ACCOUNTS


async def test_a_variant_that_is_tried_twice_counts_once(tmp_path: Path) -> None:
    """The search begins with what the fixed list brought through; rates are over attacks."""
    card = await card_of(tmp_path, AtOnce("words", keyword))
    for each in card.operators:
        assert each.bypassed.trials <= 2 * 20  # a seeded operator has two variants at most
    assert operator(card, "fullwidth").bypassed.trials == 20
    assert operator(card, "base64").bypassed.trials == 20
