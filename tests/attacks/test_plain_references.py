"""What is done fast gives what the plain way gives, on any text."""

from __future__ import annotations

import json
import re
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.attacks.catalogue import arm
from guardmark.attacks.contract import Use
from guardmark.attacks.operators.characters import blend, exchange_table
from guardmark.canon.steps import skeleton

RLO, PDF = "\u202e", "\u202c"
SEEDS = st.binary(min_size=32, max_size=32)
WORDY = st.text(
    st.one_of(st.sampled_from("abcXYZ,-. _é\u0301\u0416\n"), st.characters()), max_size=80
)
PLAIN = st.text(st.sampled_from("abcdefXYZ ,.-\n1"), max_size=80)
TEXTS = st.one_of(PLAIN, WORDY)


def rewritten(text: str, seed: bytes, name: str, **settings: str | float) -> tuple[str, Use]:
    """Apply an operator without its proof."""
    chosen = arm(name, **settings)
    use = Use(chosen.settings, seed)
    return chosen.operator.rewrite(text, use), use


@given(data=st.data(), text=TEXTS, bound=st.integers(0, 256))
def test_a_blend_takes_each_character_as_its_draw_says(
    data: st.DataObject, text: str, bound: int
) -> None:
    """ASCII is blended as one number, everything else character by character: both the same."""
    size = len(text)
    other = data.draw(st.one_of(st.just("#" * size), st.text(min_size=size, max_size=size)))
    draws = data.draw(st.binary(min_size=size, max_size=size))
    plain = [b if draw < bound else a for a, b, draw in zip(text, other, draws, strict=True)]
    assert blend(text, other, draws, bound) == "".join(plain)


@pytest.mark.parametrize(("text", "written", "draws"), [("ab", "a", b"12"), ("ab", "cd", b"1")])
def test_a_blend_of_unequal_lengths_is_refused(text: str, written: str, draws: bytes) -> None:
    """A draw too few would leave characters out without a word."""
    with pytest.raises(ValueError, match="argument"):
        blend(text, written, draws, 128)


@given(text=TEXTS, images=st.dictionaries(st.characters(), st.characters(), max_size=9))
def test_an_exchange_leaves_what_it_does_not_name(text: str, images: dict[str, str]) -> None:
    """The entries added for speed map to themselves."""
    assert text.translate(exchange_table(images)) == text.translate(str.maketrans(images))


@given(text=TEXTS)
def test_runs_of_a_character_are_squeezed(text: str) -> None:
    """The canonical form of drawn out letters writes every run once."""
    canon = arm("letter_repeat").operator.canon
    assert canon is not None
    assert canon(text) == "".join(char for char, _ in groupby(skeleton(text)))


@given(text=TEXTS, seed=SEEDS, p=st.sampled_from([0.4, 0.6, 1.0]))
def test_random_case_follows_its_draws(text: str, seed: bytes, p: float) -> None:
    """Each letter by a draw of its own, whichever way it is written."""
    found, use = rewritten(text, seed, "case_random", p=p)
    pairs = zip(text, use.draws(len(text)), strict=True)
    assert found == "".join(c.upper() if d < use.threshold("p") else c.lower() for c, d in pairs)


@given(text=TEXTS, seed=SEEDS, every=st.sampled_from([1, 3]))
def test_an_invisible_character_stands_after_every_so_many_letters(
    text: str, seed: bytes, every: int
) -> None:
    """Inside words only: a word of so many letters gets none behind it."""

    def broken(word: re.Match[str]) -> str:
        return "\u200b".join(word[0][at : at + every] for at in range(0, len(word[0]), every))

    found, _ = rewritten(text, seed, "invisible", char="200B", every=every)
    assert found == re.sub(r"[^\W_]{2,}", broken, text)


@given(text=TEXTS, seed=SEEDS, p=st.sampled_from([0.3, 1.0]))
def test_pairs_of_letters_are_swapped_where_their_first_draw_hits(
    text: str, seed: bytes, p: float
) -> None:
    """Pairs are counted from the start of each run of letters, and equal letters stay."""
    found, use = rewritten(text, seed, "pair_swap", p=p)
    draws = use.draws(len(text))

    def swapped(pair: re.Match[str]) -> str:
        a, b = pair[0]
        stays = draws[pair.start()] >= use.threshold("p") or a == b
        return pair[0] if stays else f"{RLO}{b}{a}{PDF}"

    assert found == re.sub(r"[^\W\d_]{2}", swapped, text)


@given(text=TEXTS, seed=SEEDS)
def test_words_are_edited_in_the_order_of_their_draws(text: str, seed: bytes) -> None:
    """The first two of six bytes say which words, lowest first; the other four say where."""
    found, use = rewritten(text, seed, "inner_delete", share=0.3)
    plain = r"(?<!\S)[^\w\s]*([A-Za-z]{8,})(?:['-][A-Za-z]+)*[^\w\s]*(?!\S)"
    places = [word.span(1) for word in re.finditer(plain, text)]
    rows = [use.draws(6 * len(places))[6 * i : 6 * i + 6] for i in range(len(places))]
    ranked = sorted(range(len(places)), key=lambda i: (rows[i][0], rows[i][1], i))
    for index in sorted(ranked[: max(1, int(0.3 * len(text.split())))], reverse=True):
        start, end = places[index]
        at = start + 1 + int.from_bytes(rows[index][2:], "little") % (end - start - 2)
        text = text[:at] + text[at + 1 :]
    assert found == text


@given(text=TEXTS, seed=SEEDS)
def test_the_json_carrier_is_what_the_library_writes(text: str, seed: bytes) -> None:
    """Its frame is written out, its body by the library."""
    found, _ = rewritten(text, seed, "json_carrier")
    fields = {"type": "message", "language": "en", "body": text}
    assert found == json.dumps(fields, indent=2, ensure_ascii=False)


@given(text=TEXTS, seed=SEEDS)
def test_a_hyphen_stands_in_the_middle_of_longer_words(text: str, seed: bytes) -> None:
    """The shorter half comes first."""

    def broken(word: re.Match[str]) -> str:
        half = len(word[0]) // 2
        return f"{word[0][:half]}-{word[0][half:]}"

    found, _ = rewritten(text, seed, "hyphen_split")
    assert found == re.sub(r"[A-Za-z]{4,}", broken, text)
