"""Figures over several seeds of an adaptive search, and how they are told."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from tests.adaptive.planted import AtOnce, attack, cards, hardened, leaker, lottery, samples
from tests.schemas import check_document

from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.analysis.adaptive.card import AdaptiveCard
from guardmark.analysis.adaptive.rows import FULL, read_adaptive
from guardmark.reports.chapters.adaptive.attack_success import (
    arm_line,
    gain_sentence,
    holding_sentence,
    seeds_table,
)
from guardmark.reports.chapters.adaptive.chapter import adaptive_document
from guardmark.reports.render.json.documents import adaptive_json
from guardmark.reports.render.terminal import render_terminal
from guardmark.store.layers import ADAPTIVE
from guardmark.store.reader import RecordReader

pytestmark = pytest.mark.slow

BUDGET = 8


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """One measurement with one seed and one with five, of the same defenses."""
    import asyncio

    found = {}
    for seeds in (1, 5):
        found[seeds] = tmp_path_factory.mktemp(f"seeds{seeds}")
        rules = {"lottery": lottery, "hard": hardened, "luck": leaker(), "all": lambda _: True}
        defenses = tuple(AtOnce(name, rule) for name, rule in rules.items())
        plan = AdaptivePlan(defenses=defenses, seed=7, budget=BUDGET, seeds=seeds)
        asyncio.run(attack(found[seeds], samples(30, 12), plan))
    return found


@pytest.fixture(scope="module")
def five(folders: dict[int, Path]) -> dict[str, AdaptiveCard]:
    """The figures at five seeds, by defense."""
    return {card.name: card for card in cards(folders[5])}


def test_one_seed_says_what_it_always_said(
    folders: dict[int, Path], five: dict[str, AdaptiveCard]
) -> None:
    """Figures of the first seed do not move, and one seed has no figures over seeds."""
    for card in cards(folders[1]):
        other = five[card.name]
        assert card.seeds is None
        assert seeds_table(card) is None
        for name in ("rounds", "arms", "asr_at", "gains", "area", "repairs", "operators", "delta"):
            assert getattr(card, name) == getattr(other, name), name


def test_figures_over_seeds_are_means_of_what_each_seed_says(
    folders: dict[int, Path], five: dict[str, AdaptiveCard]
) -> None:
    """Seed 1 stands first; the others come from their own tries."""
    with RecordReader(folders[5] / "records.sqlite") as reader:
        records = next(each for each in read_adaptive(reader) if each.name == "lottery")
    card = five["lottery"]
    told = card.seeds
    assert told.counted == (1, 2, 3, 4, 5)
    assert told.rounds[-1].full.by_seed[0] == pytest.approx(card.rounds[-1].full.value)
    assert told.gains[-1][1].by_seed[0] == pytest.approx(card.gains[-1][1].value)
    assert told.area_adaptive.by_seed[0] == pytest.approx(card.area.adaptive.value)
    assert told.mean_tries.by_seed[0] == pytest.approx(card.mean_tries.value)
    assert told.asr_at[1][1].by_seed[0] == pytest.approx(card.asr_at[1][1].value)
    histories = records.repeated[0][ADAPTIVE]
    fell = [history.first(FULL) is not None for history in histories.values()]
    passed = sum(passed for place, passed in records.baseline.items() if place < 30)
    assert told.arms[0].at_budget.by_seed[1] == pytest.approx((sum(fell) + passed) / 30)


def test_what_holds_at_one_seed_holds_at_each(five: dict[str, AdaptiveCard]) -> None:
    """Rounds never fall, and KM(B) = ASR(B), of every seed; the null arm gains exactly nothing."""
    for card in five.values():
        told = card.seeds
        shares = np.array([each.full.by_seed for each in told.rounds])
        assert (np.diff(shares, axis=0) >= 0).all()
        assert (np.diff([each[1].by_seed for each in told.arms[0].points], axis=0) >= 0).all()
        if card.name != "luck":
            assert told.null_gain.by_seed == (0.0,) * 5
            assert told.null_gain.value == 0
        if told.rounds[-1].full.value < 1 and not card.area.given_up:
            end = 1 - card.survival.points[-1].survival
            blocked = 1 - card.rounds[0].full.value
            assert card.rounds[0].full.value + blocked * end == pytest.approx(
                told.arms[0].at_budget.by_seed[0]
            )


def test_any_seed_is_more_than_the_mean_and_is_not_the_headline(
    five: dict[str, AdaptiveCard],
) -> None:
    """The worst of five seeds has a name of its own."""
    card = five["lottery"]
    told = card.seeds
    assert told.any_seed_full.value > told.headline.value
    said = holding_sentence(card)
    assert "on average over 5 seeds" in said
    assert f"{100 * told.headline.value:.1f} %" in said
    assert f"{100 * told.any_seed_full.value:.1f} %" not in said


def test_a_defense_that_holds_at_every_seed_has_a_bound(five: dict[str, AdaptiveCard]) -> None:
    """Five seeds of nothing are no surer than one."""
    card = five["all"]
    assert card.seeds.headline.value == 0
    assert card.seeds.headline.high == pytest.approx(card.rounds[-1].full.high)
    assert "was not broken at any of 5 seeds" in holding_sentence(card)
    assert "may be up to" in holding_sentence(card)


def test_what_a_limit_on_calls_blocks_bounds_nothing(five: dict[str, AdaptiveCard]) -> None:
    """A guard that turned every call away was not attacked."""
    limited = dataclasses.replace(five["all"], findings={"flags": ["RATE_LIMITED"]})
    said = holding_sentence(limited)
    assert "a limit on calls" in said
    assert "may be up to" not in said


def test_the_report_has_a_line_a_table_and_a_band(five: dict[str, AdaptiveCard]) -> None:
    """Each seed's figure is there; limits stand at every point of the curve."""
    card = five["lottery"]
    assert "mean of 5 seeds" in gain_sentence(card)
    table = seeds_table(card)
    assert table.title == "lottery: seeds 5"
    assert all(len(row.cells) == 4 for row in table.rows)
    line = arm_line(card, card.arms[0])
    assert len(line.points) == len(line.band) == len(card.arms[0].points)
    for (_, share), (low, high) in zip(line.points, line.band, strict=True):
        assert low <= share <= high
    said = render_terminal(adaptive_document([card]), width=10_000)
    assert "Seed 1; the table of seeds has the means over all." in said
    assert "7; the search with 5 seeds derived from it" in said


def test_the_published_schema_knows_the_figures(
    folders: dict[int, Path], five: dict[str, AdaptiveCard]
) -> None:
    """With one seed null, with five an object without strangers."""
    for found in (cards(folders[1]), tuple(five.values())):
        check_document(json.loads(json.dumps(adaptive_json(found))), "properties", "adaptive")
    broken = json.loads(json.dumps(adaptive_json(tuple(five.values()))))
    del broken[0]["seeds"]["area_blind"]
    with pytest.raises(jsonschema.ValidationError):
        check_document(broken, "properties", "adaptive")
