"""What a rule decided, decided again from the stored answers by code of its own."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.analysis.small_runs import Planned, allow, attack, benign, write_run

from guardmark.analysis.stopping.early_stop import EarlyStop, open_early_stop
from guardmark.app.verify.columns import read_samples
from guardmark.app.verify.difference import Comparer
from guardmark.app.verify.early.sequences import (
    betting_limits,
    betting_p_values,
    mixture_limits,
    mixture_p_value,
    ruled_out_after,
)
from guardmark.app.verify.early.stopped import Stops, read_stops
from guardmark.app.verify.recount import Recount
from guardmark.app.verify.source import open_source
from guardmark.core.sample import Sample
from guardmark.reports.encode import difference_json, estimate_json
from guardmark.reports.scores_json import stops_json
from guardmark.stats.sequential import (
    beta_mixture_sequence,
    betting_e_value,
    betting_sequence,
    mcnemar_e_value,
)
from guardmark.store.reader import RecordReader

NAMES = ("a", "b", "c")
RULES = ["asr<0.3", "fpr+-0.15", "a!=b", "c.fpr<.5", "b.asr±0.2"]
MEANS = st.lists(st.sampled_from([0.0, 0.25, 0.5, 2 / 3, 1.0]), min_size=1, max_size=60)


def samples(groups: int, *, are_alone: bool) -> list[Sample]:
    """Samples of both labels, each alone or in groups of up to three that may hold both."""
    if are_alone:
        return [(attack, benign)[n % 2](n) for n in range(groups)]
    return [
        make(3 * n + k, group=f"g{n}")
        for n in range(groups)
        for k, make in enumerate((attack, attack, benign)[: 1 + n % 3])
    ]


def answered(
    folder: Path, *, seed: int, are_alone: bool, rules: list[str], drift: float = 0.0
) -> Path:
    """A run whose defenses were each asked up to some place of the order.

    Args:
        folder: Where it is written.
        seed: Of the answers, one in twenty of them an error, and of the places.
        are_alone: Whether no two samples share a group.
        rules: What it waited for.
        drift: How much likelier a block becomes from the first to the last sample asked about.
    """
    told = samples(400, are_alone=are_alone)
    planned = [Planned(name=name, answers=lambda *_: allow()) for name in NAMES]
    path = write_run(
        folder / "records.sqlite", told, planned, settings={"run": {"stop_when": rules}}
    )
    with RecordReader(path) as reader:
        order = [*open_early_stop(reader, rules).order]
    generator = np.random.default_rng(seed)
    with closing(sqlite3.connect(path)) as connection, connection:
        for number, name in enumerate(NAMES):
            (key,) = connection.execute(
                "SELECT id FROM defenses WHERE name = ?", (name,)
            ).fetchone()
            share, asked = generator.random(), int(generator.integers(0, len(order) + 200))
            chances = share + drift * np.linspace(-0.5, 0.5, len(order))
            outcomes = (generator.random(len(order)) < chances).astype(int)
            outcomes[generator.random(len(order)) < 0.05] = 3
            connection.executemany(
                "UPDATE records SET outcome = ? WHERE sample = ? AND defense = ?",
                [(int(outcomes[at]), place, key) for at, place in enumerate(order)],
            )
            connection.executemany(
                "DELETE FROM records WHERE sample = ? AND defense = ?",
                [(place, key) for place in order[asked + number :]],
            )
    return path


def both(path: Path) -> tuple[EarlyStop, Stops]:
    """The rule of a run as reports read it, and as it is decided again."""
    with RecordReader(path) as reader, open_source(path) as source:
        stops = json.loads(json.dumps(source.manifest["settings"]["run"]["stop_when"]))
        told = read_samples(source)
        recounts = {name: Recount(source, told, name, {}) for name in source.guards()}
        again = read_stops(source, told, recounts)
        assert again is not None
        return open_early_stop(reader, stops), again


def disagreement(path: Path) -> list[str]:
    """Where both ways differ on what was decided, and on every figure of what was ended."""
    theirs, ours = both(path)
    comparer = Comparer()
    decided = [each.told() for each in ours.decided.values()]
    assert decided
    comparer.tree("rules", "", said=stops_json([*theirs.verdicts.values()]), found=decided)
    for name in NAMES:
        said: Any = stops_json(theirs.stopped(name))
        comparer.tree("rules", name, said=said, found=[each.told() for each in ours.ended(name)])
        if said:
            rates = ours.rates(name)
            for label, rate in ((True, "attack_success_rate"), (False, "false_positive_rate")):
                found = estimate_json(theirs.estimate(name, is_attack=label))
                comparer.tree("rates", f"{name}.{rate}", said=found, found=rates[rate])
    for first, second in (("a", "b"), ("b", "c"), ("a", "c")):
        for label in (True, False):
            gap = difference_json(theirs.difference(first, second, is_attack=label))
            again = ours.difference(first, second, is_attack=label)
            comparer.tree("pairs", f"{first}.{second}.{label}", said=gap, found=again)
    assert comparer.compared > 60
    return [*map(str, comparer.findings)]


@pytest.mark.parametrize("are_alone", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_both_ways_decide_and_estimate_alike(tmp_path: Path, *, seed: int, are_alone: bool) -> None:
    """Rules, looks, rates and differences, whatever the place at which a defense was left."""
    path = answered(tmp_path, seed=seed, are_alone=are_alone, rules=RULES)
    assert disagreement(path) == []


@pytest.mark.parametrize("are_alone", [True, False])
@pytest.mark.parametrize("drift", [-2.0, 2.0])
def test_looks_that_rule_each_other_out_decide_alike(
    tmp_path: Path, *, drift: float, are_alone: bool
) -> None:
    """Where answers change on the way the limits cross, and part again."""
    rules = ["asr<0.6", "fpr+-0.01", "asr+-0.02", "fpr<0.4"]
    path = answered(tmp_path, seed=1, are_alone=are_alone, rules=rules, drift=drift)
    assert disagreement(path) == []


def test_a_rule_that_is_open_ends_nobody(tmp_path: Path) -> None:
    """However few were answered."""
    path = answered(tmp_path, seed=3, are_alone=True, rules=["asr+-0.001"])
    _, ours = both(path)
    assert [ours.ended(name) for name in NAMES] == [[], [], []]


def test_without_a_rule_there_is_nothing_to_decide(tmp_path: Path) -> None:
    """And no order of groups is drawn."""
    planned = [Planned(name="a", answers=lambda *_: allow())]
    path = write_run(tmp_path / "records.sqlite", samples(4, are_alone=True), planned)
    with open_source(path) as source:
        told = read_samples(source)
        assert read_stops(source, told, {"a": Recount(source, told, "a", {})}) is None


@given(MEANS, st.sampled_from([0.8, 0.95]))
def test_bets_on_a_mean_rule_out_the_same(means: list[float], confidence: float) -> None:
    """Both limits, in whatever order they come, and when a rate was first ruled out."""
    theirs = betting_sequence(means, confidence=confidence)
    low, high = betting_limits(means, confidence)
    assert sorted((low, high)) == pytest.approx([theirs.low, theirs.high], abs=1e-12)
    after = ruled_out_after(means, 0.3, confidence)
    if after is None:
        assert low <= 0.3
    else:
        assert betting_limits(means[: after + 1], confidence)[0] >= 0.3
        assert betting_limits(means[:after] or [0.0], confidence)[0] <= 0.3


@given(MEANS)
def test_bets_on_a_difference_weigh_the_same(means: list[float]) -> None:
    """At every look."""
    gaps = [2 * mean - 1 for mean in means]
    theirs = [betting_e_value(means[: n + 1]).p_value for n in range(len(means))]
    assert betting_p_values(gaps) == pytest.approx(theirs, abs=1e-12)


@given(st.integers(0, 400), st.integers(0, 400), st.sampled_from([0.8, 0.95, 0.999]))
def test_mixtures_agree(hits: int, missed: int, confidence: float) -> None:
    """Limits of a rate, and the weight of discordant pairs."""
    if hits + missed:
        theirs = beta_mixture_sequence(hits, hits + missed, confidence=confidence)
        limits = mixture_limits(hits, hits + missed, confidence)
        assert limits == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    p_value = mcnemar_e_value(hits, missed).p_value
    assert mixture_p_value(hits, missed) == pytest.approx(p_value, abs=1e-12)
