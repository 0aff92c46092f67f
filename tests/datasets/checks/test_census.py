"""What a data set consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from guardmark.core.sample import Severity
from guardmark.datasets.checks.census import UNSTATED, take_census
from guardmark.reports.chapters.data_sets import census_document
from guardmark.reports.render.terminal import render_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.core.sample import Prompt, Sample

    Make = Callable[..., Sample]


def test_counts_by_facet(sample: Make) -> None:
    """Attacks, benign samples and the groups behind them."""
    census = take_census(
        [
            sample("a", attack=True, category="jailbreak", subcategory="x", group="g"),
            sample("b", attack=True, category="jailbreak", group="g", severity=Severity.HIGH),
            sample("c", attack=True, language="de"),
            sample("d", category="cooking"),
        ]
    )
    assert (census.total.samples, census.attacks.attacks, census.benign.benign) == (4, 3, 1)
    jailbreak, unstated = census.categories
    assert (jailbreak.value, jailbreak.attacks, jailbreak.groups) == ("jailbreak", 2, 1)
    assert jailbreak.largest_group == 2
    assert unstated.value == UNSTATED
    assert [c.value for c in census.topics] == ["cooking"]
    assert [(c.value, c.samples) for c in census.subcategories] == [
        (UNSTATED, 2),
        ("jailbreak/x", 1),
    ]
    assert [(c.value, c.samples) for c in census.severities] == [(UNSTATED, 2), ("high", 1)]
    assert [(c.value, c.samples) for c in census.languages] == [(UNSTATED, 3), ("de", 1)]


def test_lengths_are_those_of_the_text_under_test(
    sample: Make, conversation: Callable[..., Prompt]
) -> None:
    """Context does not count."""
    talk = conversation(("user", "x" * 999), ("tool", "four"))
    census = take_census([sample("a" * n) for n in range(5, 104)] + [sample(prompt=talk)])
    lengths = census.lengths
    assert lengths is not None
    assert (lengths.shortest, lengths.p50, lengths.longest) == (4, 54, 103)
    assert lengths.p5 < lengths.p50 < lengths.p95
    assert (census.conversations, census.materials) == (1, 1)


def test_no_samples_have_no_lengths() -> None:
    """Undefined is not zero."""
    census = take_census([])
    assert census.lengths is None
    document = census_document(census, lambda _: 0.0, shown_as="none")
    assert "Characters" not in render_terminal(document)
    document = census_document(census, lambda _: 0.0, shown_as="none")
    assert "Characters" not in render_terminal(document)
    assert (census.total.samples, census.total.groups, census.total.largest_group) == (0, 0, 0)


@pytest.mark.parametrize(
    ("text", "kind", "is_damage"),
    [
        ("lost \ufffd sign", "replacement characters (U+FFFD)", True),
        ("perch\u00c3\u00a9", "UTF-8 read as another encoding", True),
        ("it\u00e2\u20ac\u2122s", "UTF-8 read as another encoding", True),
        ("bell\x07", "control characters", False),
        ("\u202etext", "direction marks", False),
        ("zero\u200bwidth", "invisible characters", False),
        ("flag\U000e0041", "tag characters", False),
        ("a\u2028b", "line or paragraph separators (U+2028, U+2029)", False),
        ("\ue000", "private-use characters", False),
        ("a\r\nb", "Windows line ends", False),
        ("e\u0301", "letters not composed (no NFC)", False),
    ],
)
def test_odd_characters_are_named(sample: Make, text: str, kind: str, *, is_damage: bool) -> None:
    """Some are attacks, some are accidents: a person should look."""
    (oddity,) = take_census([sample("plain"), sample(text)]).oddities
    assert (oddity.kind, oddity.is_damage) == (kind, is_damage)
    assert (oddity.samples, oddity.examples) == (1, ("s2",))


@pytest.mark.parametrize("text", ["plain", "façade ÀÉ São", "春が来た", "tab\tand\nline", "🙂"])
def test_ordinary_texts_have_no_oddities(sample: Make, text: str) -> None:
    """Other languages are not odd."""
    assert take_census([sample(text)]).oddities == ()
