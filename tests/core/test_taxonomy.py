"""The tree of attack categories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.sample import DEFAULT_TAXONOMY, extended

names = st.sampled_from(["jailbreak", "extraction", "own", "other"])
additions = st.dictionaries(names, st.lists(st.sampled_from(["multi_turn", "a", "b"]), max_size=3))


def test_the_five_categories_and_their_subcategories() -> None:
    """Published figures go by these names."""
    assert DEFAULT_TAXONOMY == {
        "direct_injection": ("instruction_override", "role_switching", "constraint_bypass"),
        "indirect_injection": ("rag_injection", "tool_output_injection", "document_injection"),
        "jailbreak": ("persona_based", "encoding_based", "multi_turn", "hypothetical"),
        "extraction": ("prompt_extraction", "data_extraction", "pii_extraction"),
        "output_manipulation": ("format_injection", "content_steering", "hallucination_induction"),
    }


@given(additions)
def test_additions_never_take_anything_away(more: dict[str, list[str]]) -> None:
    """And nothing appears twice; adding again changes nothing; the built-in ones stay first."""
    grown = extended(DEFAULT_TAXONOMY, more)
    assert list(grown)[:5] == list(DEFAULT_TAXONOMY)
    for name, subcategories in DEFAULT_TAXONOMY.items():
        assert grown[name][: len(subcategories)] == subcategories
    for name, added in more.items():
        assert set(added) <= set(grown[name])
    assert all(len(set(subs)) == len(subs) for subs in grown.values())
    assert extended(grown, more) == grown


def test_an_empty_tree_takes_what_is_added() -> None:
    """And a category without finer ones is one."""
    assert extended({}, {"own": ["a", "a"], "bare": []}) == {"own": ("a",), "bare": ()}
