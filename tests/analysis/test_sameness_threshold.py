"""From which cosine on two texts count as the same: against a search by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from guardmark.analysis.adaptive.sameness_threshold import TextPair, choose_tau, needed_pairs
from guardmark.core.errors import DatasetError
from guardmark.stats.drawing import split_by_group
from guardmark.stats.rates.proportion import wilson


def pairs(different: int = 400, same: int = 200, *, seed: int = 3) -> list[TextPair]:
    """Make pairs of groups of their own: different ones far apart, equal ones near."""
    draw = random.Random(seed)
    made = [
        TextPair(cosine=draw.betavariate(4, 4), is_same=False, group=f"d{i}")
        for i in range(different)
    ]
    made += [
        TextPair(cosine=draw.betavariate(9, 2), is_same=True, group=f"s{i}") for i in range(same)
    ]
    return made


def test_the_smallest_tau_within_the_bound_is_chosen() -> None:
    """Brute force over every ten-thousandth, on the choosing half alone."""
    data = pairs()
    choice = choose_tau(data, bound=0.05, seed=7)
    side = split_by_group([pair.group for pair in data], seed=7)
    first = [
        pair.cosine for pair, mine in zip(data, side, strict=True) if mine and not pair.is_same
    ]

    def high(tau: float) -> float:
        limit = wilson(sum(c >= tau for c in first), len(first)).high
        assert limit is not None
        return limit

    assert high(choice.tau) <= 0.05 < high(choice.tau - 1e-4)
    assert (choice.chosen_on.successes, choice.chosen_on.trials) == (
        sum(c >= choice.tau for c in first),
        len(first),
    )


def test_rates_are_those_of_the_other_half() -> None:
    """Whole groups on one side; every row of the table counts the same pairs."""
    data = pairs()
    choice = choose_tau(data, bound=0.05, seed=7)
    side = split_by_group([pair.group for pair in data], seed=7)
    rest = [pair for pair, mine in zip(data, side, strict=True) if not mine]
    for row in choice.rows:
        for label, rate in ((False, row.false_same), (True, row.true_same)):
            told = [pair.cosine >= row.tau for pair in rest if pair.is_same is label]
            assert (rate.successes, rate.trials) == (sum(told), len(told))
    assert [row.tau for row in choice.rows] == sorted(row.tau for row in choice.rows)
    assert sum(row.is_chosen for row in choice.rows) == 1
    assert choice.counted.tau == choice.tau


def test_a_bound_that_nothing_breaks_takes_every_pair() -> None:
    """The smallest cosine of all is the threshold then."""
    data = pairs()
    assert choose_tau(data, bound=1.0, seed=7).tau <= min(pair.cosine for pair in data) + 0.05


def test_the_order_of_the_pairs_does_not_matter() -> None:
    """A half follows from seed and group alone."""
    data = pairs()
    other = data.copy()
    random.Random(1).shuffle(other)
    assert choose_tau(data) == choose_tau(other)


def test_a_choice_that_the_other_half_does_not_carry_says_so() -> None:
    """The choosing half has no error near tau, the counting half many."""
    names = [f"g{i}" for i in range(600)]
    side = split_by_group(names, seed=7)
    data = [
        TextPair(cosine=0.5 if mine else 0.9, is_same=False, group=name)
        for name, mine in zip(names, side, strict=True)
    ]
    data += [TextPair(cosine=0.95, is_same=True, group=f"s{i}") for i in range(40)]
    choice = choose_tau(data)
    assert choice.tau < 0.9
    assert choice.counted.false_same.value == 1.0
    assert not choice.is_confirmed
    far = [replace(pair, cosine=min(pair.cosine, 0.5)) for pair in data if not pair.is_same]
    assert choose_tau([*far, *(pair for pair in data if pair.is_same)]).is_confirmed


def test_how_many_pairs_a_bound_takes() -> None:
    """Wilson's upper limit of none in n is z^2 / (n + z^2)."""
    needed = needed_pairs(0.05, 0.95)
    assert needed == 73
    low, high = wilson(0, needed - 1).high, wilson(0, needed).high
    assert low is not None
    assert high is not None
    assert high <= 0.05 < low


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pairs(80, 80), r"it takes 73 in groups of their own.*\n.*about 146"),
        (pairs(400, 0), "no pair that asks for the same"),
        (
            [TextPair(cosine=1.0, is_same=i % 2 == 0, group=f"g{i}") for i in range(800)],
            "No tau keeps",
        ),
        (
            [TextPair(cosine=0.1, is_same=False, group=f"g{i % 8}") for i in range(800)],
            "in . groups",
        ),
    ],
    ids=["too few", "none equal", "nothing tells them apart", "few groups"],
)
def test_pairs_that_cannot_carry_a_choice_are_refused(data: list[TextPair], words: str) -> None:
    """With how many are needed, in at most five lines."""
    with pytest.raises(DatasetError, match=words) as refused:
        choose_tau(data)
    assert len(str(refused.value).splitlines()) <= 5


def test_pairs_of_one_origin_count_for_less() -> None:
    """Four pairs of one group that share their fate are worth one."""
    single = pairs(300, 200)
    data = [
        replace(pair, group=pair.group) for pair in single for _ in range(1 if pair.is_same else 4)
    ]
    on = choose_tau(data, bound=0.1).chosen_on
    assert on.effective_n is not None
    assert on.effective_n < on.trials / 2
    assert on.groups == on.trials / 4
