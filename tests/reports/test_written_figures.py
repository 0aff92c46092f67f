"""The laws of written intervals over small random runs: groups, failures, scores, repeats."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block, failed, garbled
from tests.laws.test_written_intervals import bare, intervals

from guardmark.analysis.run import analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.outcome import Decision
from guardmark.core.sample import Sample
from guardmark.reports.render.json.documents import summary_json


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a random run is like."""

    attacks: int = 12
    benign: int = 12
    groups: str = "alone"  # `alone`, `threes`, `twins` (both labels), or `giant` (half in one)
    blocked: float = 0.5  # Chance that an attack is blocked; a benign sample: half of it.
    failing: float = 0.0  # Chance of no decision.
    scored: bool = False
    repeats: int = 1
    seed: int = 0


def group_of(shape: Shape, number: int) -> str | None:
    """The group of a sample; None: its own."""
    if shape.groups == "threes":
        return f"g{number // 3}"
    if shape.groups == "twins":
        return f"t{number % max(1, shape.attacks)}"
    if shape.groups == "giant" and number < shape.attacks // 2:
        return "giant"
    return None


def written(shape: Shape) -> dict[str, object]:
    """What `summary.json` says of a run of this shape, with two defenses."""
    made = [*map(attack, range(shape.attacks)), *map(benign, range(shape.benign))]
    samples = [
        sample if (group := group_of(shape, at)) is None else replace(sample, group=group)
        for at, sample in enumerate(made)
    ]

    def answers(defense: int) -> object:
        rng = np.random.default_rng([shape.seed, defense])

        def answer(_: int, sample: Sample) -> Decision:
            chance, luck, fate = rng.random(3)
            if fate < shape.failing:
                return failed() if fate < shape.failing / 2 else garbled()
            score = round(float(chance), 1) if shape.scored else None
            is_blocked = luck < shape.blocked / (1 if sample.is_attack else 2)
            return block(score) if is_blocked else allow(score)

        return answer

    planned = [Planned(name=name, answers=answers(at)) for at, name in enumerate("ab")]  # type: ignore[arg-type]
    with (
        TemporaryDirectory() as folder,
        Runs(folder=Path(folder)).opened(samples, planned, repeats=shape.repeats) as reader,
    ):
        chosen = replace(
            AnalysisSettings.of(reader.manifest()),
            prevalences=(0.01,),
            cost_missed_attack=50.0,
            cost_false_alarm=1.0,
            non_inferiority_margin=0.05,
        )
        told: dict[str, object] = json.loads(summary_json(analyse_run(reader, chosen)))
        return told


def breaches(shape: Shape) -> list[str]:
    """Places where a figure lies outside of its interval, has no count, or says not why."""
    told = written(shape)
    outside = [
        f"{place}: {low}, {value}, {high}"
        for place, low, value, high in intervals(told)
        if not low <= value <= high
    ]
    return [*outside, *bare(told)]


CORNERS = [
    Shape(groups="giant", scored=True),
    Shape(groups="threes", blocked=1.0),
    Shape(benign=0, groups="threes", failing=0.3),
    Shape(attacks=1, benign=1, failing=0.5, seed=3),
]


@pytest.mark.parametrize("shape", CORNERS, ids=str)
def test_every_figure_of_a_small_run_lies_in_its_interval(shape: Shape) -> None:
    """A giant group, all blocked, one side only, hardly a sample."""
    assert breaches(shape) == []


def test_the_laws_have_much_to_look_at() -> None:
    """A run with scores writes more than fifty intervals."""
    assert len([*intervals(written(CORNERS[0]))]) > 50


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.builds(
        Shape,
        attacks=st.integers(0, 15),
        benign=st.integers(1, 15),
        groups=st.sampled_from(["alone", "threes", "twins", "giant"]),
        blocked=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
        failing=st.sampled_from([0.0, 0.3, 1.0]),
        scored=st.booleans(),
        repeats=st.integers(1, 2),
        seed=st.integers(0, 3),
    )
)
def test_every_figure_of_any_run_lies_in_its_interval(shape: Shape) -> None:
    """Low, value and high in order, a count beside each, and a reason where limits lack."""
    assert breaches(shape) == []
