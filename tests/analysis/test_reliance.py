"""Whether one can rely on a defense is decided by intervals and counts."""

from __future__ import annotations

import pytest
from tests.analysis.small_runs import Runs, allow, attack, benign, block
from tests.reports.small_reports import bare_analysis

from guardmark.analysis.compare.recommendations import Reliance, judge_reliance, separates
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
