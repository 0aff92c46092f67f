"""Texts of samples on the page: nothing hidden stays hidden, nothing grows without bound."""

from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.reports.render.html.samples import flowing, show_text, verdict_line

anything = st.text(st.characters(codec=None, exclude_categories=()))


def words_of(markup: str) -> str:
    """What a reader sees."""
    return unescape(re.sub(r"</?i>", "", markup))


@given(st.text(st.characters(codec="ascii", min_codepoint=32, max_codepoint=126)))
def test_plain_texts_are_shown_as_they_are(text: str) -> None:
    """Escaped for the page, and read the same."""
    markup, characters = show_text(text, most_bytes=10_000_000)
    assert words_of(markup) == text
    assert characters == len(text)


@given(anything, st.integers(20, 400))
def test_any_text_fits_its_bound_and_any_file(text: str, most: int) -> None:
    """Also half characters, which UTF-8 cannot hold."""
    markup, characters = show_text(text, most_bytes=most)
    assert len(markup.encode()) <= most
    assert 0 <= characters <= len(text)


@given(anything)
def test_no_text_becomes_markup(text: str) -> None:
    """The only tags are the marks of what was hidden."""
    shown = show_text(text, most_bytes=10_000_000)[0]
    assert set(re.findall(r"<[^>]*>", shown)) <= {"<i>", "</i>"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u200bb", "a[U+200B]b"),
        ("a\u200b\u200b\u200bb", "a[U+200B x 3]b"),
        ("a\u202eb", "a[U+202E]b"),
        ("a\x1b[2Jb", "a[U+001B][2Jb"),
        ("a\u200b\u2060b", "a[U+200B U+2060]b"),
        ("a\ufeff\u200b\u2060\u2061\u2062\u2063\u2064b",
         "a[U+FEFF U+200B U+2060 U+2061 U+2062 U+2063 and 1 more]b"),
        ("a\U000e0048\U000e0069b", "a[hidden tags: Hi]b"),
        ("a\U000e003cb", "a[hidden tags: <]b"),
        ("a\ud800b", "a[U+D800]b"),
        ("a\ufe00\ufe01b", "a[U+FE00 U+FE01]b"),
        ("ig\u200dnore", "ig[U+200D]nore"),
        ("one\r\ntwo\ttab", "one\ntwo\ttab"),
    ],
)  # fmt: skip
def test_hidden_characters_are_spelled_out(text: str, shown: str) -> None:
    """A person must see what a model reads."""
    assert words_of(show_text(text, most_bytes=1000)[0]) == shown


@pytest.mark.parametrize(
    "text", ["\u2764\ufe0f", "\U0001f469\u200d\U0001f52c", "\u0645\u06cc\u200c\u062e\u0648"]
)
def test_joiners_that_belong_to_writing_are_left_alone(text: str) -> None:
    """Emoji and Persian need them."""
    assert words_of(show_text(text, most_bytes=1000)[0]) == text


def test_a_verdict_reads_as_its_sentence() -> None:
    """Clauses and stress are looks alone."""
    sentence = (
        "blocks < 0.1 % [0.0, 0.6] of 500 attacks, wrongly blocks 3.1 % [1.9, 5.0] of 600 "
        "benign; 4 malformed, 0 errors"
    )
    line = verdict_line(sentence)
    assert re.sub(r"<[^>]*>", "", line.replace("\xa0", " ")) == sentence.replace("<", "&lt;")
    assert line.count("<span>") == 3
    assert "<b>&lt; 0.1\xa0%</b>" in line


def test_figures_stay_with_their_units() -> None:
    """No line ends between a number and its unit, or inside an interval."""
    assert flowing("ASR 5.1 % [1.0, 9.0], 3 ms") == "ASR 5.1\xa0% [1.0,\xa09.0], 3\xa0ms"
