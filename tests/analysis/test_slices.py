"""Slices: the same rates on parts of the samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_runs import Planned, Runs, allow, attack, benign, block, failed

from guardmark.analysis.run import DefenseAnalysis, RunAnalysis, analyse_run
from guardmark.analysis.slices import FACETS, NOT_STATED, by_severity, has_slices
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
    assert not has_slices(table)
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
        assert entry.median_latency_ms == middle / 1e6


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
