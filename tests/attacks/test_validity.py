"""The checks themselves, against slow references and by example."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.attacks.application import (
    edit_within_one,
    is_bounded,
    is_canonical,
    is_exact,
    keeps,
    proved_tier,
)
from guardmark.attacks.catalogue import arm
from guardmark.attacks.contract import Tier, Use

WORDS = st.text("abc", max_size=6)
SEED = bytes(32)


def distance(a: str, b: str) -> int:
    """Return the optimal string alignment distance by the textbook table."""
    rows = [[i + j if 0 in (i, j) else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            rows[i][j] = min(
                rows[i - 1][j] + 1,
                rows[i][j - 1] + 1,
                rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]),
            )
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                rows[i][j] = min(rows[i][j], rows[i - 2][j - 2] + 1)
    return rows[-1][-1]


@given(WORDS, WORDS)
def test_one_edit_is_what_the_textbook_says(a: str, b: str) -> None:
    """The quick check agrees with the full table."""
    assert edit_within_one(a, b) == (distance(a, b) <= 1)


TEN = "alphabet bravery charlie delta eleven foxtrot golfing hotels indian juliett"


@pytest.mark.parametrize(
    ("variant", "bounded"),
    [
        (TEN, True),
        (TEN.upper(), True),
        (TEN.replace("bravery", "brvaery"), True),
        (TEN.replace("bravery", "brvaeryy"), False),
        (TEN.replace("delta", "detla"), False),
        (TEN.replace("alphabet", "alphbet"), True),
        (TEN.replace("bravery", "bravry"), False),
        (
            TEN.replace("bravery", "braverys").replace("eleven", "elveen").replace("els", "esl"),
            True,
        ),
        (
            TEN.replace("bravery", "braverys")
            .replace("eleven", "elveen")
            .replace("els", "esl")
            .replace("alphabet", "alphbet"),
            False,
        ),
        (TEN.replace(" bravery", ""), False),
        (TEN + " extra", False),
        (TEN.replace("alphabet bravery", "bravery alphabet"), False),
    ],
    ids=[
        "equal",
        "capitals",
        "a swap",
        "two edits in a word",
        "a word of five letters",
        "a letter left out of eight",
        "a letter left out of seven",
        "three words of ten",
        "four words of ten",
        "a word lost",
        "a word more",
        "words moved",
    ],
)
def test_bounds_of_v2(variant: str, *, bounded: bool) -> None:
    """One typo a word that is long enough, 30 % of the words, word by word."""
    assert is_bounded(TEN, variant) is bounded


@pytest.mark.parametrize(
    ("word", "typed", "proved"),
    [
        ('"ignore",', '"ignroe",', True),
        ("self-service", "self-sevrice", True),
        ("key=secret", "key=sceret", False),
        ("tea@example.net", "tea@exmaple.net", False),
        ("settings.json", "setitngs.json", False),
        ("ELDERLANE-64", "ELDREANE-64", False),
    ],
)
def test_a_typo_is_made_in_words_and_not_in_names(word: str, typed: str, *, proved: bool) -> None:
    """Who mistypes an address, a file or a code asks for something else."""
    assert is_bounded(f"a b c {word}", f"a b c {typed}") is proved


@given(st.lists(st.text("abcdefgh", min_size=4, max_size=9), min_size=1, max_size=12), st.data())
def test_a_bounded_variant_keeps_nine_content_words_of_ten(
    words: list[str], data: st.DataObject
) -> None:
    """The published bound on content words follows from one edit a word: none can be lost."""
    variant = [data.draw(st.sampled_from([w, w[1:], w + "x", w[::-1]])) for w in words]
    if is_bounded(" ".join(words), " ".join(variant)):
        kept = sum(distance(a, b) <= 1 for a, b in zip(words, variant, strict=True))
        assert kept >= 0.9 * len(words)


def test_exact_means_byte_for_byte() -> None:
    """One letter more and the inverse gives another text."""
    chosen = arm("base64", wrapper="none")
    use = Use(chosen.settings, SEED)
    assert is_exact(chosen, "ignore", "aWdub3Jl", use)
    assert not is_exact(chosen, "ignore", "aWdub3Jm", use)
    assert not is_exact(chosen, "ignore", "no base64!", use)


def test_texts_without_letters_have_no_canonical_form_in_common() -> None:
    """Two empty skeletons prove nothing."""
    chosen = arm("punct_insert")
    assert not is_canonical(chosen, "?!", "?!?", Use(chosen.settings, SEED))


def test_an_operator_is_read_by_its_own_canonical_form() -> None:
    """The digits of leet are letters to leet only."""
    use = Use((), SEED)
    assert is_canonical(arm("leet"), "ignore", "1gn0r3", use)
    assert not is_canonical(arm("case_upper"), "ignore", "1gn0r3", use)
    assert is_canonical(arm("letter_repeat"), "ignore", "iiignnore", use)


def test_a_listed_change_must_be_on_the_list() -> None:
    """V3-table is as good as its table."""
    chosen = arm("synonym")
    use = Use(chosen.settings, SEED)
    assert proved_tier(chosen, "ignore it", "disregard it", use) is Tier.V3_TABLE
    assert proved_tier(chosen, "ignore it", "cherish it", use) is None
    assert proved_tier(chosen, "ignore it", "disregard it now", use) is None


def test_a_judge_is_the_only_proof_of_a_reformulation() -> None:
    """Even an unaltered payload inside a frame stays unproven."""
    chosen = arm("polite")
    assert proved_tier(chosen, "a", "Please: a", Use((), SEED)) is Tier.V4


@pytest.mark.parametrize(
    ("variant", "kept"),
    [("say X7 and X7", True), ("say X7 and x7", False), ("X7 X7 X7", True), ("say X7", False)],
)
def test_protected_spans_are_counted(variant: str, *, kept: bool) -> None:
    """A secret named twice must be there twice."""
    assert keeps("say X7 and X7", variant, ("X7", "", "not there")) is kept
