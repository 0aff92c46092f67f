"""Blind spots: slices that are worse than the rest, found with limits that allow for the search."""

from __future__ import annotations

import pytest
from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block, failed

from guardmark.analysis.defense.blind_spots import BlindSpot
from guardmark.analysis.run import RunAnalysis, analyse_run
from guardmark.core.outcome import Decision
from guardmark.core.sample import Sample

PLAIN = {"category": "jailbreak", "subcategory": "", "severity": None, "technique": ""}


def an_attack(number: int, **facets: object) -> Sample:
    """An attack whose facets differ only as told."""
    named = {**PLAIN, "language": "en", "variant": "original", "source": "one file", **facets}
    return attack(number, prompt=attack(0).prompt, **named)


def analysed(
    runs: Runs, samples: list[Sample], *planned: Planned, **changes: object
) -> RunAnalysis:
    """The analysis of a run."""
    with runs.opened(samples, list(planned), **changes) as reader:
        return analyse_run(reader)


def spots(runs: Runs, samples: list[Sample], answers: object) -> tuple[BlindSpot, ...]:
    """The blind spots of one defense."""
    planned = Planned(name="one", answers=answers)  # type: ignore[arg-type]
    return analysed(runs, samples, planned).defenses[0].blind_spots


def by_language(_position: int, sample: Sample) -> Decision:
    """Sees attacks in English alone."""
    return block() if sample.is_attack and sample.language == "en" else allow()


LANGUAGES = [an_attack(n, language=("en", "de")[n % 2]) for n in range(200)]


def test_a_language_that_is_not_seen_is_named_against_the_rest(runs: Runs) -> None:
    """Not against the whole, of which it is a half."""
    (spot,) = spots(runs, [*LANGUAGES, *map(benign, range(50))], by_language)
    assert (spot.name, spot.is_attack) == ("language de", True)
    assert (spot.rate.successes, spot.rate.trials) == (100, 100)
    assert (spot.rest.successes, spot.rest.trials) == (0, 100)
    assert spot.excess.low is not None
    assert 0.9 < spot.excess.low < 1.0


def test_the_benign_side_is_searched_too(runs: Runs) -> None:
    """False alarms of one topic alone."""
    samples = [*LANGUAGES, *map(benign, range(200))]
    found = spots(
        runs,
        samples,
        lambda _p, s: block() if s.is_attack or s.category == "code_help" else allow(),
    )
    assert [(each.name, each.is_attack) for each in found] == [("category code_help", False)]


def test_a_combination_is_named_and_its_values_are_not(runs: Runs) -> None:
    """German in Base64 gets through; German is seen, and so is Base64."""
    samples = [
        an_attack(n, language=("en", "de")[n % 2], variant=("original", "base64")[n // 2 % 2])
        for n in range(400)
    ]

    def answers(_position: int, sample: Sample) -> Decision:
        return allow() if (sample.language, sample.variant) == ("de", "base64") else block()

    (spot,) = spots(runs, samples, answers)
    assert spot.facets == (("language", "de"), ("variant", "base64"))
    assert (spot.rate.successes, spot.rate.trials, spot.rest.successes) == (100, 100, 0)


def test_a_combination_that_is_the_shadow_of_a_value_is_not_named(runs: Runs) -> None:
    """All German attacks get through, whatever their variant."""
    samples = [
        an_attack(n, language=("en", "de")[n % 2], variant=("original", "base64")[n // 2 % 2])
        for n in range(400)
    ]
    assert [each.name for each in spots(runs, samples, by_language)] == ["language de"]


def test_two_names_of_the_same_samples_are_one_blind_spot(runs: Runs) -> None:
    """Each language comes from a file of its own."""
    samples = [
        an_attack(n, language=("en", "de")[n % 2], source=("english", "german")[n % 2])
        for n in range(200)
    ]
    (spot,) = spots(runs, samples, by_language)
    assert (spot.name, spot.also) == ("language de", ("source german",))


def test_one_family_of_wordings_is_no_slice_to_speak_of(runs: Runs) -> None:
    """A hundred variants of one German attack are one witness."""
    samples = [
        *(an_attack(n, language="en") for n in range(100)),
        *(an_attack(n, language="de", group="a-00100") for n in range(100, 200)),
    ]
    assert spots(runs, samples, by_language) == ()


@pytest.mark.parametrize("answers", [lambda _p, _s: failed(), lambda _p, _s: allow()])
def test_where_nothing_differs_nothing_is_named(runs: Runs, answers: object) -> None:
    """No answers at all, or every attack let through."""
    assert spots(runs, LANGUAGES, answers) == ()


def test_all_defenses_of_a_run_are_one_family(runs: Runs) -> None:
    """Thirty defenses are thirty chances: the limits of each grow wider."""
    one = Planned(name="one", answers=by_language)
    alone = analysed(runs, LANGUAGES, one).defenses[0].blind_spots[0]
    many = [one, *(Planned(name=f"d{n}", answers=lambda _p, _s: block()) for n in range(29))]
    among = analysed(runs, LANGUAGES, *many).defenses[0].blind_spots[0]
    assert among.searched == 30 * alone.searched
    assert (among.excess.low or 0) < (alone.excess.low or 0)


def test_repeats_of_a_sample_are_no_further_samples(runs: Runs) -> None:
    """Fifteen German attacks asked ten times are fifteen groups."""
    samples = [an_attack(n, language="en" if n >= 4 else "de") for n in range(60)]
    planned = Planned(name="one", answers=by_language)
    assert analysed(runs, samples, planned, repeats=10).defenses[0].blind_spots == ()
