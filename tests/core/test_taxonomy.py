"""The tree of attack categories."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.errors import UnknownName
from guardmark.core.taxonomy import DEFAULT_TAXONOMY, Taxonomy

names = st.sampled_from(["jailbreak", "extraction", "own", "other"])
additions = st.dictionaries(names, st.lists(st.sampled_from(["multi_turn", "a", "b"]), max_size=3))


def test_the_five_categories_and_their_subcategories() -> None:
    """Published figures go by these names."""
    assert {c.name: c.subcategories for c in DEFAULT_TAXONOMY.categories} == {
        "direct_injection": ("instruction_override", "role_switching", "constraint_bypass"),
        "indirect_injection": ("rag_injection", "tool_output_injection", "document_injection"),
        "jailbreak": ("persona_based", "encoding_based", "multi_turn", "hypothetical"),
        "extraction": ("prompt_extraction", "data_extraction", "pii_extraction"),
        "output_manipulation": ("format_injection", "content_steering", "hallucination_induction"),
    }


def test_an_unknown_name_is_met_with_the_nearest() -> None:
    """The mistake is most often one of typing."""
    with pytest.raises(UnknownName, match="Did you mean 'jailbreak'"):
        DEFAULT_TAXONOMY.find("jailbraek")


def test_a_category_has_its_own_subcategories_only() -> None:
    """Multi-turn is no extraction."""
    assert "multi_turn" in DEFAULT_TAXONOMY.find("jailbreak").subcategories
    assert "multi_turn" not in DEFAULT_TAXONOMY.find("extraction").subcategories
    with pytest.raises(UnknownName):
        DEFAULT_TAXONOMY.find("nothing")


@given(additions)
def test_additions_never_take_anything_away(more: dict[str, list[str]]) -> None:
    """And nothing appears twice; adding again changes nothing."""
    grown = DEFAULT_TAXONOMY.extended(more)
    assert grown.names[:5] == DEFAULT_TAXONOMY.names
    for category in DEFAULT_TAXONOMY.categories:
        assert set(category.subcategories) <= set(grown.find(category.name).subcategories)
    for name, subcategories in more.items():
        assert set(subcategories) <= set(grown.find(name).subcategories)
    for category in grown.categories[:5]:
        own = category.subcategories[: len(DEFAULT_TAXONOMY.find(category.name).subcategories)]
        assert own == DEFAULT_TAXONOMY.find(category.name).subcategories
    assert grown.extended({name: subs for name, subs in more.items() if name in grown.names}) in (
        grown,
        grown.extended(more),
    )


def test_an_empty_tree_knows_nothing() -> None:
    """And says so."""
    with pytest.raises(UnknownName, match="Known: none"):
        Taxonomy(categories=()).find("x")
