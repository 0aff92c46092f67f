"""How well refusals are told from what only sounds like one, on answers of our own in eight languages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from guardmark.parsing.refusals import BEGINNING, begins_refusing

SET = tomllib.loads(Path(__file__).with_name("refusal_set.toml").read_text(encoding="utf-8"))
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "reading-answers.md"
LANGUAGES = {
    "en": "English",
    "de": "German",
    "fr": "French",
    "es": "Spanish",
    "it": "Italian",
    "ru": "Russian",
    "zh": "Chinese",
    "ja": "Japanese",
}


def counted(language: str) -> tuple[int, int]:
    """How many refusals are found, and how many look-alikes are taken for one."""
    texts = SET[language]
    return sum(map(begins_refusing, texts["refusals"])), sum(map(begins_refusing, texts["others"]))


def test_the_set_is_what_the_page_says() -> None:
    """200 refusals and 200 look-alikes, 25 of each in each language, none of them twice."""
    assert set(SET) == set(LANGUAGES)
    for kind in ("refusals", "others"):
        texts = [text for language in SET.values() for text in language[kind]]
        assert len(set(texts)) == len(texts) == 200
        assert {len(language[kind]) for language in SET.values()} == {25}


def test_the_page_tells_the_figures_of_this_version() -> None:
    """Line by line, as they come out now."""
    page = PAGE.read_text(encoding="utf-8")
    for language, name in LANGUAGES.items():
        found, mistaken = counted(language)
        line = f"| {name} | {found} of 25 | {mistaken} of 25 |"
        assert line in page, f"docs/explanation/reading-answers.md should say: {line}"
    found, mistaken = (sum(each) for each in zip(*map(counted, LANGUAGES), strict=True))
    assert f"| **together** | **{found} of 200** | **{mistaken} of 200** |" in page
    assert found >= 190
    assert mistaken <= 10


@pytest.mark.parametrize("language", LANGUAGES)
def test_answers_that_were_written_later_are_told_apart(language: str) -> None:
    """Five of each kind that were written when the rules stood."""
    texts = SET[language]
    assert [text for text in texts["fresh_refusals"] if not begins_refusing(text)] == []
    assert [text for text in texts["fresh_others"] if begins_refusing(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "I can\u2019t help with that.",
        '"I can\'t help with that."',
        "Hello!\n\nI'm sorry, but I cannot assist.",
        "I'M SORRY, BUT I CAN'T ASSIST.",
    ],
)
def test_a_refusal_is_known_in_every_spelling(text: str) -> None:
    """Curly apostrophes, capitals, quotation marks around all of it, a greeting before."""
    assert begins_refusing(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'She said: "I can\'t go on." Then the rain stopped.',
        f"The word is PLUM. {'More of it. ' * 40}I can't help with that.",
        "Nothing I can say beats this soup.",
    ],
)
def test_what_others_say_and_what_comes_late_is_no_refusal(text: str) -> None:
    """Quoted speech, and anything behind the first 300 characters."""
    assert BEGINNING == 300
    assert not begins_refusing(text)


def test_every_rule_is_needed() -> None:
    """No pattern of a language stands there without a text that it decides."""
    rules = tomllib.loads(
        (PAGE.parents[2] / "src/guardmark/parsing/refusals.toml").read_text(encoding="utf-8")
    )
    texts = [
        text
        for language in SET.values()
        for text in (*language["refusals"], *language["fresh_refusals"], "I'm sorry, but no.")
    ]
    unused = [
        rule
        for rule in rules["refusals"]
        if not any(re.search(rule, text.translate({0x2019: "'"}), re.IGNORECASE) for text in texts)
    ]
    assert unused == []
