"""Whether one can rely on a defense is decided by intervals and counts."""

from __future__ import annotations

import pytest
from tests.analysis.small_runs import Runs, allow, attack, benign, block
from tests.reports.small_reports import bare_analysis

from guardmark.analysis.compare.verdicts import (
    Reliance,
    judge_chosen,
    judge_reliance,
    rates_of_chosen,
    separates,
)
from guardmark.analysis.settings import RelianceLimits
from guardmark.core.sample import Sample
from guardmark.stats.rates.proportion import wilson


@pytest.mark.parametrize(
    ("samples", "stopped", "alarms", "answer"),
    [
        (400, 400, 0, Reliance.RELY),
        (400, 200, 0, Reliance.NOT_ALONE),
        (400, 400, 80, Reliance.NOT_ALONE),
        (400, 28, 40, Reliance.DO_NOT),
        (400, 41, 40, Reliance.DO_NOT),
        (30, 12, 10, Reliance.NO_DATA),
        (30, 30, 0, Reliance.NO_DATA),
        (10, 10, 0, Reliance.NO_DATA),
    ],
)
def test_the_answer_follows_the_written_rule(
    runs: Runs, *, samples: int, stopped: int, alarms: int, answer: Reliance
) -> None:
    """Each line of the rule has a run that it decides."""

    def decides(place: int, sample: Sample) -> object:
        number = place if sample.is_attack else place - samples
        return block() if number < (stopped if sample.is_attack else alarms) else allow()

    data = [*(attack(n) for n in range(samples)), *(benign(n) for n in range(samples))]
    card = bare_analysis(runs, decides, samples=data).defenses[0].card
    assert judge_reliance(card) is answer
    assert separates(card) or answer in {Reliance.DO_NOT, Reliance.NO_DATA}


@pytest.mark.parametrize(
    ("fell", "answer"),
    [(0, Reliance.RELY), (40, Reliance.NO_DATA), (200, Reliance.NOT_ALONE)],
)
def test_what_gets_through_rewritten_counts_as_what_gets_through_as_it_is(
    runs: Runs, fell: int, answer: Reliance
) -> None:
    """A defense that stops every stored attack is relied on only if it stops their rewritings."""

    def decides(place: int, sample: Sample) -> object:
        del place
        return block() if sample.is_attack else allow()

    data = [*(attack(n) for n in range(400)), *(benign(n) for n in range(400))]
    card = bare_analysis(runs, decides, samples=data).defenses[0].card
    assert judge_reliance(card) is Reliance.RELY
    assert judge_reliance(card, wilson(fell, 400)) is answer


def test_a_candidate_among_many_has_to_be_better_than_its_luck(runs: Runs) -> None:
    """7 % of 400 attacks get through: by itself within the limit, as the luckiest of twelve not."""

    def decides(place: int, sample: Sample) -> object:
        return allow() if place < 28 or not sample.is_attack else block()

    data = [*(attack(n) for n in range(400)), *(benign(n) for n in range(400))]
    card = bare_analysis(runs, decides, samples=data).defenses[0].card
    few = {f"d{n}": card for n in range(3)}
    many = {f"d{n}": card for n in range(12)}
    assert judge_chosen(card, None, name="d0", candidates=few, limits=RelianceLimits()) == (
        Reliance.RELY,
        None,
    )
    answer, chosen = judge_chosen(card, None, name="d0", candidates=many, limits=RelianceLimits())
    assert answer is Reliance.NO_DATA
    assert chosen is not None
    assert chosen.candidates == 12
    assert (chosen.attack_success_rate.high or 0.0) > 0.1
    assert rates_of_chosen(few, "d0") is None
