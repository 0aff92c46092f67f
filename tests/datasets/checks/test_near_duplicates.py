"""Near-duplicates: the fast search against the slow one."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.datasets.pairs import similar_pairs

from guardmark.datasets.checks.duplicates import Families, SimilarityIndex, shingles, words


def jaccard(first: frozenset[int], second: frozenset[int]) -> float:
    """Compare two sets as the definition says."""
    return len(first & second) / len(first | second)


few_words = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=14).map(" ".join)


@given(st.lists(few_words, max_size=12), st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9, 1.0]))
def test_the_search_finds_exactly_the_similar_pairs(texts: list[str], threshold: float) -> None:
    """None missed, none invented: what comparing each with each would find."""
    sets = [shingles(text) for text in texts]
    expected = {
        (i, j)
        for i, j in combinations(range(len(texts)), 2)
        if jaccard(sets[i], sets[j]) >= threshold
    }
    found = {(m.first, m.second) for m in similar_pairs(texts, threshold=threshold)}
    assert found == expected


@given(st.lists(few_words, max_size=12))
def test_equal_shingles_are_named_by_their_first_text(texts: list[str]) -> None:
    """So that equal texts are compared with the others once."""
    sets, index = [shingles(text) for text in texts], SimilarityIndex(texts)
    assert [index.first_equal(n) for n in range(len(texts))] == [sets.index(each) for each in sets]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello,  WORLD!", ("hello", "world")),
        ("a-b_c 42", ("a", "b_c", "42")),
        ("春が来た", ("春", "が", "来", "た")),
        ("GPT模型", ("gpt", "模", "型")),
        ("!?…", ()),
    ],
)
def test_words_are_runs_of_letters_or_single_signs(text: str, expected: tuple[str, ...]) -> None:
    """Scripts without spaces would otherwise be one word a sentence."""
    assert words(text) == expected


def test_case_spacing_and_punctuation_make_no_difference() -> None:
    """They are the cheapest rewriting there is."""
    assert shingles("One two, three four five six!") == shingles("one TWO three\nfour five  six")


def test_short_texts_are_alike_only_when_equal() -> None:
    """Two words in common are no near-duplicate."""
    assert shingles("say it now") != shingles("say it")
    assert shingles("??") != shingles("!!")


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.01])
def test_a_threshold_out_of_range_is_refused(threshold: float) -> None:
    """At zero everything would be like everything."""
    with pytest.raises(ValueError, match="threshold must be in"):
        list(similar_pairs(["a"], threshold=threshold))


def test_families_are_named_by_their_first_member() -> None:
    """Whoever joins later takes the earlier name."""
    families = Families(5)
    families.join(4, 3)
    families.join(3, 1)
    families.join(1, 4)
    assert [families.root(n) for n in range(5)] == [0, 1, 2, 1, 1]


def test_a_text_within_a_longer_one_is_no_near_duplicate() -> None:
    """Sharing all of little is sharing little of much."""
    rest = " ".join(f"w{n}" for n in range(30))
    short = "this is the part that both of them have"
    found = similar_pairs([rest, rest, f"{rest} {short}", short])
    assert {(m.first, m.second) for m in found} == {(0, 1), (0, 2), (1, 2)}
