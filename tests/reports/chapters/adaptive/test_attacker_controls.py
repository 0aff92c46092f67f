"""What is said of a critic and of a benign twin, and what never is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from guardmark.analysis.adaptive.attacker import CriticCard, RewordingCard
from guardmark.analysis.adaptive.operators import OperatorClass
from guardmark.analysis.defense.counts import SampleRates
from guardmark.core.estimate import Estimate
from guardmark.core.usage import UsageTotals
from guardmark.reports.chapters.adaptive.models import (
    critic_cautions,
    critic_text,
    failures_of,
    twin_text,
)
from guardmark.reports.render.json.encoder import encode
from guardmark.stats.rates.proportion import mover


def rate(hits: int, trials: int) -> Estimate:
    """A rate of samples that stand alone."""
    marks = ((i, i < hits) for i in range(trials))
    return SampleRates(np.arange(max(trials, 1), dtype=np.int32), 0.95).of(marks)


CRITIC = CriticCard(
    model="chat guesser",
    is_also="",
    has_scores=False,
    guessed=rate(18, 20),
    refused=rate(0, 20),
    invalid=rate(2, 20),
    repairs=3,
    spending=UsageTotals(calls=24, failed=1),
)
TWIN = RewordingCard(
    samples=20,
    refused=rate(1, 20),
    invalid=rate(0, 20),
    candidates=40,
    equivalent=rate(30, 38),
    unjudged=2,
    blocked=rate(1, 30),
    as_is=rate(0, 18),
    change=mover(rate(1, 30), rate(0, 18)),
    attacks_blocked=rate(38, 40),
    separation=mover(rate(38, 40), rate(1, 30)),
    standing=OperatorClass.HOLDS,
    strategies=(),
    spending={"attacker": UsageTotals(calls=20), "equivalence": UsageTotals(calls=76, failed=4)},
)


def test_a_twin_is_told_with_its_meaning() -> None:
    """No doubt is named where counts carry it."""
    said = twin_text(TWIN)
    assert said.endswith("attacks are recognised in other words, and benign texts pass")


WORDS = {
    OperatorClass.HOLDS: "works",
    OperatorClass.BLANKET: "blocks the form",
    OperatorClass.BLIND: "misses both",
    OperatorClass.INVERTED: "inverted",
    OperatorClass.UNKNOWN: "unknown",
}


@pytest.mark.parametrize("standing", list(OperatorClass))
def test_every_standing_has_words(standing: OperatorClass) -> None:
    """None falls through to its bare name."""
    card = replace(TWIN, standing=standing, blocked=rate(2, 3))
    said = twin_text(card)
    assert said.split("reworded by the attacker model: ")[1].startswith(WORDS[standing])
    assert ("too few to be sure" in said) is (standing is not OperatorClass.UNKNOWN)


def test_a_twin_without_candidates_says_why() -> None:
    """Nothing reworded is another thing than nothing that could be sent."""
    assert "no benign text was reworded" in twin_text(replace(TWIN, samples=0))
    assert "none came to be sent" in twin_text(replace(TWIN, blocked=rate(0, 0)))


def test_what_failed_at_a_twin_is_named() -> None:
    """Failed calls by account, and verdicts that nobody can read."""
    failed, unread = failures_of(TWIN.spending, TWIN.unjudged, benign=True)
    assert "4 of 76 equivalence calls about benign texts failed" in failed
    assert "2 benign candidates got no verdict" in unread
    clean = replace(TWIN, unjudged=0, spending={"attacker": UsageTotals(calls=20)})
    assert list(failures_of(clean.spending, clean.unjudged, benign=True)) == []


def test_a_critic_is_told_by_what_it_answered_and_not_by_its_figures() -> None:
    """No mean closeness anywhere: it is no measurement."""
    said = critic_text(CRITIC)
    assert "24 times" in said
    assert "(18/20)" in said
    assert said.endswith("and nothing else")
    encoded: Any = encode(CRITIC)
    assert not [key for key in encoded if "close" in key]


def test_a_critic_that_was_not_asked_says_why() -> None:
    """Scores make it needless; or no line went on."""
    assert "tells its score (A2)" in critic_text(replace(CRITIC, has_scores=True))
    idle = replace(CRITIC, spending=UsageTotals())
    assert "was left nothing to guess" in critic_text(idle)


def test_what_a_critic_failed_at_is_named() -> None:
    """The role it shares, failed calls, refusals and answers that cannot be read."""
    also = replace(CRITIC, is_also="the attacker model", refused=rate(1, 20))
    shared, failed, refused, unread = critic_cautions(also)
    assert "same model as the attacker model" in shared
    assert "1 of 24 critic calls failed" in failed
    assert "(1/20) refused" in refused
    assert "(2/20) cannot be read" in unread
    clean = replace(CRITIC, invalid=rate(0, 20), spending=UsageTotals(calls=20))
    assert not list(critic_cautions(clean))
    assert not list(critic_cautions(replace(also, has_scores=True, refused=rate(0, 0))))[2:]
