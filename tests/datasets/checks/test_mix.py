"""Distance to a deployment, and weights that make up for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guardmark.core.errors import ConfigError
from guardmark.core.sample import Label
from guardmark.datasets.checks.mix import (
    effective_samples,
    mix_distances,
    mix_weights,
    read_mix,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.core.sample import Sample

    Make = Callable[..., Sample]


def test_no_mix_weighs_everything_equally(sample: Make) -> None:
    """Nothing stated, nothing changed."""
    assert mix_weights([sample(), sample(attack=True)], ()) == (1.0, 1.0)


def test_weights_give_the_stated_shares(sample: Make) -> None:
    """Two thirds of the attacks are jailbreaks where one third of the traffic is."""
    attacks = [sample(attack=True, category=c) for c in ("jailbreak", "jailbreak", "extraction")]
    mix = read_mix({"category": {"jailbreak": 1 / 3, "extraction": 2 / 3}})
    assert mix_weights(attacks, mix) == pytest.approx((0.5, 0.5, 2.0))
    (distance,) = mix_distances(attacks, mix)
    assert distance.total_variation == pytest.approx(1 / 3)
    assert (distance.absent, distance.absent_share) == ((), 0)


def test_attacks_and_benign_samples_are_weighed_apart(sample: Make) -> None:
    """Neither rate depends on how many there are of the other."""
    samples = [
        sample(attack=True, language="en"),
        sample(language="en"),
        sample(language="en"),
        sample(language="de"),
    ]
    weights = mix_weights(samples, read_mix({"language": {"en": 0.5, "de": 0.5}}))
    assert weights == pytest.approx((1.0, 0.75, 0.75, 1.5))
    assert [d.label for d in mix_distances(samples, read_mix({"language": {"en": 1}}))] == [
        Label.ATTACK,
        Label.BENIGN,
    ]


def test_what_is_not_named_shares_the_rest(sample: Make) -> None:
    """Shares that add to less than one leave room for all others."""
    samples = [sample(language=language) for language in ("en", "fr", "it", "")]
    weights = mix_weights(samples, read_mix({"language": {"en": 0.7}}))
    assert weights == pytest.approx((2.8, 0.4, 0.4, 0.4))


def test_what_is_absent_is_told_and_its_share_given_to_the_others(sample: Make) -> None:
    """No weight can make up for samples that are not there."""
    samples = [sample(language="en"), sample(language="de")]
    mix = read_mix({"language": {"en": 0.3, "de": 0.3, "fr": 0.4}})
    (distance,) = mix_distances(samples, mix)
    assert (distance.absent, distance.absent_share) == (("fr",), 0.4)
    assert mix_weights(samples, mix) == pytest.approx((1.0, 1.0))


def test_when_nothing_of_the_deployment_is_there_weights_stay_equal(sample: Make) -> None:
    """Rather than a division by zero."""
    samples = [sample(language="en"), sample(language="de")]
    mix = read_mix({"language": {"fr": 1.0}})
    assert mix_weights(samples, mix) == pytest.approx((1.0, 1.0))
    assert mix_distances(samples, mix)[0].total_variation == pytest.approx(1.0)


def test_lengths_go_by_bands(sample: Make) -> None:
    """In characters of the text under test."""
    samples = [sample("a" * n) for n in (5, 10, 50)]
    mix = read_mix({"length": {"0-9": 0.25, "10-19": 0.25, "20+": 0.5}})
    assert mix_weights(samples, mix) == pytest.approx((0.75, 0.75, 1.5))


def test_topics_speak_of_benign_samples_and_categories_of_attacks(sample: Make) -> None:
    """A benign sample about jailbreaks is no jailbreak."""
    samples = [sample(attack=True, category="x"), sample(category="x"), sample(category="y")]
    mix = read_mix({"topic": {"x": 0.9, "y": 0.1}})
    assert mix_weights(samples, mix) == pytest.approx((1.0, 1.8, 0.2))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 30)), min_size=8, max_size=40),
    st.floats(0.05, 0.95),
    st.floats(0.05, 0.95),
)
def test_two_facets_are_met_at_once(
    sample: Make, made: list[tuple[str, int]], a: float, short: float
) -> None:
    """Raking: each margin comes out as stated when every combination has samples."""
    corners = [("a", 5), ("a", 25), ("b", 5), ("b", 25)]
    samples = [sample("x" * size, language=language) for language, size in [*made, *corners]]
    mix = read_mix({"language": {"a": a, "b": 1 - a}, "length": {"0-15": short, "16+": 1 - short}})
    weights = mix_weights(samples, mix)
    total = sum(weights)
    assert total == pytest.approx(len(samples))
    in_a = sum(w for w, s in zip(weights, samples, strict=True) if s.language == "a")
    is_short = sum(w for w, s in zip(weights, samples, strict=True) if len(s.prompt.text) <= 15)
    assert in_a / total == pytest.approx(a, abs=1e-3)
    assert is_short / total == pytest.approx(short, abs=1e-3)
    assert 0 < effective_samples(weights) <= len(samples) + 1e-6


def test_a_facet_without_effect_settles_where_another_leaves_no_weight(sample: Make) -> None:
    """A value whose samples all weigh nothing cannot be raised again."""
    samples = [sample("x", language="en"), sample("y" * 50, language="de")]
    mix = read_mix({"language": {"en": 1.0}, "length": {"0-9": 0.5, "10+": 0.5}})
    assert mix_weights(samples, mix) == pytest.approx((2.0, 0.0))


def test_effective_samples_without_weight_are_none() -> None:
    """Zero, not a division by zero."""
    assert effective_samples([]) == 0.0
    assert effective_samples([1, 1, 1]) == pytest.approx(3)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"langage": {"en": 1}}, "no facet is called 'langage'. Did you mean 'language'?"),
        ({"language": {"en": 0.7, "de": 0.7}}, "the shares of language add to 1.4, more than 1"),
        ({"length": {"short": 1}}, "'short' is not a band of characters"),
        ({"length": {"9-5": 1}}, "'9-5' is not a band of characters"),
        ({"length": {"0-10": 0.5, "10+": 0.5}}, "the bands 0-10 and 10+ overlap"),
    ],
)
def test_a_mix_that_cannot_be_meant_is_refused(
    stated: dict[str, dict[str, float]], said: str
) -> None:
    """With the words of the configuration."""
    with pytest.raises(ConfigError) as caught:
        read_mix(stated)
    assert said in str(caught.value)


def test_facets_that_contradict_each_other_end_with_the_last(sample: Make) -> None:
    """Every English text is short, every German one long: both shares cannot be met."""
    samples = [sample("x", language="en"), sample("y" * 50, language="de")]
    mix = read_mix({"language": {"en": 0.5, "de": 0.5}, "length": {"0-9": 0.9, "10+": 0.1}})
    assert mix_weights(samples, mix) == pytest.approx((1.8, 0.2))


def test_facets_that_leave_some_samples_nothing_come_close(sample: Make) -> None:
    """Short German texts would have to vanish: weights creep towards it and stop in time."""
    samples = [
        sample("x", language="en"),
        sample("x", language="de"),
        sample("y" * 50, language="de"),
    ]
    mix = read_mix({"language": {"en": 0.5, "de": 0.5}, "length": {"0-9": 0.5, "10+": 0.5}})
    assert mix_weights(samples, mix) == pytest.approx((1.5, 0.0, 1.5), abs=0.02)
