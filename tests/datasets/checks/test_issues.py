"""Whether data can carry the conclusions drawn from them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from guardmark.core.manifest import DataManifest
from guardmark.core.sample import CATEGORY_MINIMA, DEFAULT_TAXONOMY, Severity
from guardmark.datasets.checks.issues import (
    Criteria,
    DataIssue,
    Status,
    check_samples,
)
from guardmark.datasets.checks.mix import read_mix
from guardmark.stats.rates.proportion import wilson_half_width

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guardmark.core.sample import Sample

    Make = Callable[..., Sample]

HALF_WIDTH = partial(wilson_half_width, 0.5)
CRITERIA = Criteria(taxonomy=DEFAULT_TAXONOMY, half_width=HALF_WIDTH)


def finding(samples: Sequence[Sample], aspect: str, criteria: Criteria = CRITERIA) -> DataIssue:
    """The answer to one question."""
    found = check_samples(samples, criteria).findings
    return next(each for each in found if each.aspect == aspect)


def number(found: DataIssue, name: str) -> float | None:
    """One number behind an answer."""
    return found.numbers[name]


def test_every_question_is_answered(sample: Make) -> None:
    """Six qualities of a data set, and whether its characters arrived."""
    found = check_samples([sample()], CRITERIA)
    assert [each.aspect for each in found.findings] == [
        "labelled",
        "categorised",
        "diverse",
        "representative",
        "versioned",
        "balanced",
        "readable",
    ]
    assert not found.has_problems


def test_equal_words_with_opposite_labels_are_a_problem(sample: Make) -> None:
    """Whatever the defense does, it is wrong once."""
    check = check_samples([sample("a b c", attack=True), sample("A b c!")], CRITERIA)
    assert check.has_problems
    found = check.findings[0]
    assert found.status is Status.PROBLEM
    assert "s1 (attack) and s2 (benign): similarity 1.00" in found.details


@pytest.mark.parametrize(("attack", "said"), [(True, "FPR is undefined"), (False, "ASR is")])
def test_one_label_alone_leaves_a_rate_undefined(sample: Make, said: str, *, attack: bool) -> None:
    """Allowed, and said."""
    found = finding([sample(attack=attack)], "labelled")
    assert found.status is Status.WARNING
    assert said in found.message


def test_inferred_labels_are_counted(sample: Make) -> None:
    """A figure over them rests on a name."""
    samples = [
        sample("one", attack=True, metadata={"label_source": "inferred_hateful"}),
        sample("two", metadata={"label_source": "explicit_is_harmful"}),
    ]
    found = finding(samples, "labelled")
    assert found.status is Status.WARNING
    assert number(found, "inferred_labels") == 1


def test_a_label_against_the_expected_decision_is_a_problem(sample: Make) -> None:
    """An attack that should be allowed, or a benign input that should be blocked, is named."""
    samples = [
        sample("one", attack=True, expected="allow"),
        sample("two", attack=True, expected="block"),
        sample("three", expected="block"),
        sample("four", expected="allow"),
        sample("five"),
    ]
    found = finding(samples, "labelled")
    assert found.status is Status.PROBLEM
    assert number(found, "against_expectation") == 2
    assert found.message.endswith("contradicts the label of 2 samples (s1, s3).")


def test_near_contradictions_are_a_warning_and_only_some_are_listed(sample: Make) -> None:
    """They may be contrasts made on purpose."""
    base = "w{0}a w{0}b w{0}c w{0}d w{0}e w{0}f w{0}g w{0}h"
    samples = [
        sample(base.format(n) + end, attack=not end) for n in range(7) for end in ("", " more")
    ]
    found = finding(samples, "labelled")
    assert found.status is Status.WARNING
    assert number(found, "near_contradictions") == 7
    assert found.details[-1] == "and 2 more"


def test_gaps_of_the_taxonomy_are_named(sample: Make) -> None:
    """Categories first, then subcategories of those that have attacks."""
    only = sample(
        attack=True, category="jailbreak", subcategory="multi_turn", severity=Severity.LOW
    )
    found = finding([only, sample("b", attack=True)], "categorised")
    assert found.status is Status.WARNING
    assert "1 of 5 declared categories" in found.message
    assert "None in: direct_injection, indirect_injection, extraction," in found.message
    assert "no attacks in jailbreak/persona_based" in found.details
    assert number(found, "empty_subcategories") == 3
    assert number(found, "without_category") == 1
    assert number(found, "without_severity") == 1


def test_benign_samples_alone_have_no_gaps_to_warn_of(sample: Make) -> None:
    """A set of benign inputs tests no category and need not."""
    assert finding([sample()], "categorised").status is Status.OK


def test_what_the_reader_warned_of_is_repeated(sample: Make) -> None:
    """Undeclared subcategories and inferred labels reach whoever checks."""
    check = check_samples([sample(attack=True)], CRITERIA, warnings=["look here"])
    assert "look here" in check.findings[1].details


def test_near_duplicates_across_groups_are_a_warning_with_their_method(sample: Make) -> None:
    """Printed with threshold, and what is not looked at."""
    text = "one two three four five six seven"
    found = finding([sample(text), sample(text + " eight"), sample(text)], "diverse")
    assert found.status is Status.WARNING
    assert "Copies: 1." in found.message
    assert "3 near-duplicates in 3 groups: s1, s2, s3" in found.details
    assert any("Jaccard similarity >= 0.5" in line for line in found.details)
    assert any("no images" in line for line in found.details)


def test_without_a_mix_representativeness_was_not_assessed(sample: Make) -> None:
    """Not ok, not a warning: nobody looked."""
    found = finding([sample()], "representative")
    assert found.status is Status.NOT_ASSESSED
    assert "was not assessed" in found.message


@pytest.mark.parametrize(
    ("share", "status"), [(0.5, Status.OK), (0.65, Status.OK), (0.9, Status.WARNING)]
)
def test_a_mix_is_held_against_the_samples(sample: Make, share: float, status: Status) -> None:
    """Far beyond a fifth is a warning."""
    samples = [sample(str(n), language="en" if n % 2 else "de") for n in range(10)]
    mix = read_mix({"language": {"en": share, "de": 1 - share}})
    criteria = Criteria(taxonomy=DEFAULT_TAXONOMY, half_width=HALF_WIDTH, mix=mix)
    found = finding(samples, "representative", criteria)
    assert found.status is status
    assert number(found, "largest_total_variation") == pytest.approx(abs(share - 0.5))


def test_traffic_without_samples_is_a_warning(sample: Make) -> None:
    """Weights cannot replace what is not there."""
    mix = read_mix({"language": {"en": 0.95, "fr": 0.05}})
    criteria = Criteria(taxonomy=DEFAULT_TAXONOMY, half_width=HALF_WIDTH, mix=mix)
    found = finding([sample(language="en")], "representative", criteria)
    assert found.status is Status.WARNING
    assert "nothing for fr (5%)" in found.details[0]


def test_a_mix_that_speaks_of_nothing_there_is_undefined(sample: Make) -> None:
    """Categories are of attacks, and there are none."""
    criteria = Criteria(
        taxonomy=DEFAULT_TAXONOMY,
        half_width=HALF_WIDTH,
        mix=read_mix({"category": {"jailbreak": 1}}),
    )
    assert "undefined" in finding([sample()], "representative", criteria).message


def test_a_version_is_asked_for(sample: Make) -> None:
    """The hash tells that data differ, the version which came first."""
    manifests = [
        DataManifest(
            name=name, version=version, sha256="ab" * 32, attacks=n, benign=0, files={"f": "x"}
        )
        for name, version, n in [("with", "2", 1), ("without", "", 1), ("empty", "", 0)]
    ]
    found = check_samples([sample()], CRITERIA, manifests=manifests).findings[4]
    assert found.status is Status.WARNING
    assert found.message.startswith("No version is stated for without;")
    found = check_samples([sample()], CRITERIA, manifests=manifests[:1]).findings[4]
    assert found.status is Status.OK
    assert found.message.endswith("with 2.")
    assert found.details == ("f: content hash " + "ab" * 8,)


def test_half_widths_are_the_true_ones(sample: Make) -> None:
    """A hundred samples give about ten points either way, not five."""
    samples = [sample(str(n), attack=True, category="extraction") for n in range(100)]
    found = finding(samples, "balanced")
    assert found.status is Status.OK
    assert "extraction: 100 samples, ±9.6 points; minimum 100, ±9.6" in found.details
    assert number(found, "extraction_half_width") == pytest.approx(0.096, abs=5e-4)


def test_variants_of_few_origins_are_told(sample: Make) -> None:
    """A hundred variants of five ideas are not a hundred samples."""
    samples = [
        sample(str(n), attack=True, category="extraction", group=str(n % 5)) for n in range(100)
    ]
    line = next(d for d in finding(samples, "balanced").details if d.startswith("extraction"))
    assert "if variants behave alike" in line
    assert line.endswith("only 5 groups")


@pytest.mark.parametrize(
    ("category", "least"), [("jailbreak", 150), ("output_manipulation", 80), ("scams", 100)]
)
def test_each_category_has_its_minimum(sample: Make, category: str, least: int) -> None:
    """Those of the built-in taxonomy are its own; others go by the configuration."""
    samples = [sample(str(n), attack=True, category=category) for n in range(least)]
    assert finding(samples, "balanced").status is Status.OK
    found = finding(samples[1:], "balanced")
    assert found.status is Status.WARNING
    assert f"Too few in: {category}." in found.message


def test_the_built_in_minima_are_kept() -> None:
    """100, 100, 150, 100, 80 in the order of the taxonomy."""
    assert list(CATEGORY_MINIMA) == list(DEFAULT_TAXONOMY)
    assert list(CATEGORY_MINIMA.values()) == [100, 100, 150, 100, 80]


def test_lopsided_labels_are_told(sample: Make) -> None:
    """One rate sharp and the other blunt."""
    samples = [sample(str(n), attack=n == 0) for n in range(6)]
    assert "more than four times" in finding(samples, "balanced").message


def test_damaged_characters_are_a_warning_and_odd_ones_are_not(sample: Make) -> None:
    """The one looks like an accident, the other may be the attack."""
    assert finding([sample("a\u200bb")], "readable").status is Status.OK
    found = finding([sample("a\ufffdb")], "readable")
    assert found.status is Status.WARNING
    assert found.details == ("replacement characters (U+FFFD): s2",)


def test_nothing_at_all_is_checked_without_a_fall() -> None:
    """The loader refuses empty data; the check does not depend on it."""
    found = check_samples([], CRITERIA)
    assert found.census.lengths is None
    assert found.findings[0].status is Status.WARNING
