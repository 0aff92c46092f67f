"""Slices: the same rates on parts of the samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block, failed

from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
from guardmark.analysis.defense.slices import (
    FACETS,
    MIN_SLICE_SAMPLES,
    NOT_STATED,
    CategoryStatus,
    SliceTable,
    by_severity,
    folded_name,
)
from guardmark.analysis.run import RunAnalysis, analyse_run
from guardmark.core.sample import Prompt, Sample

SAMPLES = [*(attack(n) for n in range(200)), *(benign(n) for n in range(100))]


def analysed(runs: Runs, samples: list[Sample], answers: object, **changes: object) -> RunAnalysis:
    """The analysis of a run of one defense."""
    planned = [Planned(name="one", answers=answers)]  # type: ignore[arg-type]
    with runs.opened(samples, planned, **changes) as reader:
        return analyse_run(reader)


def one(runs: Runs, samples: list[Sample], answers: object, **changes: object) -> DefenseAnalysis:
    """The only defense of a run."""
    return analysed(runs, samples, answers, **changes).defenses[0]


@pytest.mark.parametrize("facet", FACETS)
def test_every_facet_adds_up_to_the_whole(runs: Runs, facet: str) -> None:
    """No sample is lost or counted twice."""
    found = one(runs, SAMPLES, lambda p, _: block() if p % 3 else failed() if p % 2 else allow())
    for is_attack, rate in (
        (True, found.card.attack_success_rate),
        (False, found.card.false_positive_rate),
    ):
        entries = found.slice_table(facet, is_attack=is_attack).rates
        assert sum(each.rate.successes for each in entries) == rate.successes
        assert sum(each.rate.trials for each in entries) == rate.trials
        assert sum(each.asked for each in entries) == (200 if is_attack else 100)
        assert all(each.unanswered == each.asked - each.rate.trials for each in entries)


def test_a_slice_that_is_everything_equals_the_whole(runs: Runs) -> None:
    """A law of the house."""
    found = one(runs, SAMPLES, lambda p, _: block() if p % 3 else allow())
    table = found.slice_table("source", is_attack=True)
    assert len(table.rates) == 1
    assert table.rates[0].rate == found.card.attack_success_rate


def test_the_worst_slice_comes_first(runs: Runs) -> None:
    """Where attacks get through is what one looks for."""
    found = one(runs, SAMPLES, lambda _p, s: allow() if s.category == "jailbreak" else block())
    table = found.slice_table("category", is_attack=True)
    assert table.rates[0].name == "jailbreak"
    assert table.rates[0].rate.value == 1.0
    assert [each.rate.value for each in table.rates[1:]] == [0.0] * 4


def test_slices_without_an_answer_come_last_and_are_undefined(runs: Runs) -> None:
    """Undefined is not the best."""
    found = one(runs, SAMPLES, lambda _p, s: failed() if s.category == "extraction" else block())
    last = found.slice_table("category", is_attack=True).rates[-1]
    assert (last.name, last.rate.value, last.asked, last.unanswered) == ("extraction", None, 40, 40)


@pytest.mark.parametrize(
    ("category", "count", "is_greyed"),
    [
        ("output_manipulation", 80, False),
        ("output_manipulation", 79, True),
        ("jailbreak", 150, False),
        ("jailbreak", 120, True),
        ("extraction", 100, False),
        ("extraction", 99, True),
    ],
)
def test_a_category_is_greyed_by_the_minimum_of_the_taxonomy(
    runs: Runs, category: str, count: int, *, is_greyed: bool
) -> None:
    """What `data check` asks for is enough in the report, and nothing less."""
    samples = [attack(n, category=category, subcategory="") for n in range(count)]
    samples += [benign(n) for n in range(20)]
    found = one(runs, samples, lambda p, _: block() if p % 3 else allow(), min_per_category=100)
    (rate,) = found.slice_table("category", is_attack=True).rates
    assert rate.is_greyed is is_greyed
    (standing,) = [each for each in found.standings if each.category == category]
    assert (standing.standing is CategoryStatus.NOT_ASSESSABLE) is is_greyed


def test_a_minimum_of_ones_own_holds_for_every_category(runs: Runs) -> None:
    """Who states another number means it."""
    samples = [attack(n, category="jailbreak", subcategory="") for n in range(30)]
    found = one(runs, samples, lambda _p, _s: block(), min_per_category=30)
    assert not found.slice_table("category", is_attack=True).rates[0].is_greyed


def test_small_slices_are_greyed(runs: Runs) -> None:
    """Forty samples are too few where a hundred are wanted, and enough where forty are."""
    greyed = one(runs, SAMPLES, lambda _p, _s: block())
    assert all(each.is_greyed for each in greyed.slice_table("category", is_attack=True).rates)
    enough = one(runs, SAMPLES, lambda _p, _s: block(), min_per_category=40)
    assert not any(each.is_greyed for each in enough.slice_table("category", is_attack=True).rates)


def test_severities_are_listed_from_low_to_critical(runs: Runs) -> None:
    """Severity has an order of its own."""
    found = one(runs, SAMPLES, lambda p, _: block() if p % 7 else allow())
    table = found.slice_table("severity", is_attack=True)
    assert [each.name for each in by_severity(table)] == ["low", "medium", "high", "critical"]


def test_a_subcategory_is_told_apart_by_its_category(runs: Runs) -> None:
    """Two categories may hold a subcategory of the same name."""
    samples = [
        attack(1, category="jailbreak", subcategory="other"),
        attack(2, category="extraction", subcategory="other"),
        attack(3, category="extraction", subcategory=""),
    ]
    found = one(runs, samples, lambda _p, _s: block())
    names = {each.name for each in found.slice_table("subcategory", is_attack=True).rates}
    assert names == {"jailbreak/other", "extraction/other", NOT_STATED}


def test_lengths_fall_into_fixed_ranges(runs: Runs) -> None:
    """The bounds belong to the lower range."""
    samples = [
        attack(n, prompt=Prompt.of_text("x" * size))
        for n, size in enumerate((1, 100, 101, 300, 301, 3_000, 3_001, 30_000))
    ]
    found = one(runs, samples, lambda _p, _s: block())
    counts = {each.name: each.asked for each in found.slice_table("length", is_attack=True).rates}
    assert counts == {
        "up to 100 characters": 2,
        "101 to 300": 2,
        "301 to 1,000": 1,
        "1,001 to 3,000": 1,
        "over 3,000": 2,
    }


def test_medians_are_those_of_the_slice(runs: Runs) -> None:
    """Checked against a plain computation."""
    found = one(runs, SAMPLES, lambda _p, _s: block())
    for entry in found.slice_table("category", is_attack=True).rates:
        times = sorted(
            1_000_000 + 1_000 * ((position * 7919) % 997)
            for position, sample in enumerate(SAMPLES)
            if sample.is_attack and sample.category == entry.name
        )
        middle = (times[(len(times) - 1) // 2] + times[len(times) // 2]) / 2
        assert entry.median_latency_ms is not None
        assert entry.median_latency_ms.value == pytest.approx(middle / 1e6)


def test_an_unknown_facet_is_an_error(runs: Runs) -> None:
    """Nobody gets an empty table for a typing mistake."""
    found = one(runs, SAMPLES[:5], lambda _p, _s: block())
    with pytest.raises(KeyError):
        found.slice_table("colour", is_attack=True)


def test_order_of_samples_changes_nothing(runs: Runs) -> None:
    """A law of the house."""
    forwards = one(runs, SAMPLES, lambda _p, s: block() if int(s.id[2:]) % 3 else allow())
    backwards = one(runs, SAMPLES[::-1], lambda _p, s: block() if int(s.id[2:]) % 3 else allow())
    assert forwards.card.attack_success_rate == backwards.card.attack_success_rate
    for facet in FACETS:
        ours = forwards.slice_table(facet, is_attack=True).rates
        theirs = backwards.slice_table(facet, is_attack=True).rates
        assert [(e.name, e.rate) for e in ours] == [(e.name, e.rate) for e in theirs]


def test_samples_without_a_subcategory_are_one_slice(runs: Runs) -> None:
    """Whatever their category: several rows of one name could not be told apart."""
    samples = [replace(benign(n), category=f"topic {n % 3}", subcategory="") for n in range(9)]
    found = one(runs, samples, lambda p, _: block() if p % 2 else allow())
    (entry,) = found.slice_table("subcategory", is_attack=False).rates
    assert (entry.name, entry.asked, entry.rate.successes) == (NOT_STATED, 9, 4)


def by_technique(*counts: int) -> list[Sample]:
    """Attacks of as many techniques as there are counts."""
    techniques = [f"t{number}" for number, count in enumerate(counts) for _ in range(count)]
    return [attack(n, technique=technique) for n, technique in enumerate(techniques)]


def names_of(table: SliceTable) -> list[str]:
    """The slices of a table, in its order."""
    return [each.name for each in table.rates]


def test_rare_values_of_an_open_field_are_one_slice_at_the_end(runs: Runs) -> None:
    """Five hundred techniques of one sample each tell nothing but a long list."""
    samples = by_technique(MIN_SLICE_SAMPLES, MIN_SLICE_SAMPLES - 1, 1, 7)
    found = one(runs, samples, lambda _p, s: allow() if s.technique in {"t1", "t2"} else block())
    table = found.slice_table("technique", is_attack=True)
    assert names_of(table) == ["t3", "t0", "other (2 values with fewer than 5 samples)"]
    assert [each.folded for each in table.rates] == [0, 0, 2]
    assert (table.rates[-1].rate.successes, table.rates[-1].rate.trials) == (5, 5)


def test_one_rare_value_keeps_its_name(runs: Runs) -> None:
    """Nothing is shorter or clearer for being called other."""
    found = one(runs, by_technique(9, 1), lambda _p, _s: block())
    assert names_of(found.slice_table("technique", is_attack=True)) == ["t0", "t1"]


def test_what_is_not_stated_is_no_rare_value(runs: Runs) -> None:
    """Samples without a technique are told apart from those of rare ones."""
    samples = [*by_technique(9, 1, 1), attack(90, technique="")]
    found = one(runs, samples, lambda _p, _s: block())
    names = names_of(found.slice_table("technique", is_attack=True))
    assert names == ["t0", NOT_STATED, folded_name(2)]


def test_attacks_and_benign_samples_are_counted_apart(runs: Runs) -> None:
    """A technique that is rare among attacks may be frequent among benign samples."""
    samples = [
        *(attack(n, technique=f"t{n % 2}") for n in range(4)),
        *(benign(n, technique=f"t{n % 2}") for n in range(20)),
    ]
    found = one(runs, samples, lambda _p, _s: block())
    assert names_of(found.slice_table("technique", is_attack=True)) == [folded_name(2)]
    assert names_of(found.slice_table("technique", is_attack=False)) == ["t0", "t1"]


def test_topics_of_benign_samples_are_open_and_categories_of_attacks_are_not(runs: Runs) -> None:
    """The taxonomy names categories, and gates and coverage look them up."""
    samples = [
        *(attack(n) for n in range(5)),
        *(benign(n, category=f"topic {n}") for n in range(7)),
    ]
    found = one(runs, samples, lambda _p, _s: block())
    assert len(found.slice_table("category", is_attack=True).rates) == 5
    assert names_of(found.slice_table("category", is_attack=False)) == [folded_name(7)]


def test_a_value_that_is_named_like_the_rare_ones_is_not_taken_for_them(runs: Runs) -> None:
    """Data may say anything; which slice holds several values is a number, not a name."""
    samples = [
        *by_technique(1, 1),
        *(attack(50 + n, technique=folded_name(2)) for n in range(6)),
    ]
    found = one(runs, samples, lambda _p, _s: block())
    rates = found.slice_table("technique", is_attack=True).rates
    assert [(each.name, each.folded, each.asked) for each in rates] == [
        (folded_name(2), 0, 6),
        (folded_name(2), 2, 2),
    ]


def test_samples_decide_what_is_rare_and_not_answers(runs: Runs) -> None:
    """Else two defenses of a run would be sliced differently, and could not be compared."""
    found = one(runs, by_technique(6, 6), lambda p, _s: failed() if 0 < p < 6 else block())
    assert names_of(found.slice_table("technique", is_attack=True)) == ["t1", "t0"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.booleans()), min_size=1))
def test_putting_values_together_loses_no_sample(
    runs: Runs, drawn: list[tuple[bool, int, bool]]
) -> None:
    """Whatever the counts: slices add up to the whole, and only large ones stand alone."""
    samples = [
        (attack if is_attack else benign)(n, technique=f"t{value}")
        for n, (is_attack, value, _) in enumerate(drawn)
    ]
    found = one(runs, samples, lambda p, _s: block() if drawn[p][2] else allow())
    for is_attack in (True, False):
        rates = found.slice_table("technique", is_attack=is_attack).rates
        own = [each for each in drawn if each[0] == is_attack]
        wrong = sum(is_blocked != is_attack for _, _, is_blocked in own)
        assert sum(each.asked for each in rates) == len(own)
        assert sum(each.rate.successes for each in rates) == wrong
        assert sum(each.folded or 1 for each in rates) == len({value for _, value, _ in own})
        thin = [each for each in rates if not each.folded and each.asked < MIN_SLICE_SAMPLES]
        assert len(thin) <= (0 if any(each.folded for each in rates) else 1)


def test_a_slice_that_one_group_dominates_names_that_group(runs: Runs) -> None:
    """Twelve of 52 attacks in German are rewritings of one; those in English stand alone."""
    german = [attack(n, language="de", group="story" if n < 12 else "") for n in range(52)]
    english = [attack(n, language="en", group=f"g-{n // 2}") for n in range(100, 152)]
    found = one(
        runs, [*english, *german, *SAMPLES[200:]], lambda at, _s: allow() if at % 3 else block()
    )
    table = next(t for t in found.slices if t.facet == "language" and t.is_attack)
    named = {entry.name: entry.rate.dominant_group for entry in table.rates}
    assert named == {"de": "story", "en": ""}
