"""How long one waits behind a guard: each stage, the whole, and what the guard adds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.analysis.small_pipelines import SAFE_ANSWER, PlannedPipeline, opened_pipeline, perfect
from tests.analysis.small_runs import Planned, attack, benign

from guardmark.analysis.run import RunAnalysis, analyse_run
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.render.json.documents import summary_json
from guardmark.reports.render.markdown import render_markdown

SAMPLES = [*(attack(n) for n in range(10)), *(benign(n) for n in range(10))]
TOOK = {"guard": 5, "model": 100, "run": 30}


def analysed(folder: Path) -> RunAnalysis:
    """A guard of 5 ms that blocks every attack, a model of 100 to 119 ms, a judge of 30 ms."""
    planned = PlannedPipeline(
        samples=SAMPLES,
        guards=[Planned(name="guard", answers=perfect)],
        judges={"judge": lambda _position, _sample: SAFE_ANSWER},
        arms=("none", "guard"),
        took_ms=lambda part, position: TOOK[part] + position * (part == "model"),
    )
    with opened_pipeline(folder, planned) as reader:
        return analyse_run(reader)


def medians(folder: Path) -> dict[str, tuple[float | None, float | None]]:
    """The median of each stage, and of each arm from end to end: attacks, benign samples."""
    analysis = analysed(folder)
    assert analysis.pipeline is not None
    times = {each.name: each.latency for each in analysis.defenses} | dict(analysis.pipeline.stages)
    times |= {f"system {each.name}": each.latency for each in analysis.system}
    return {
        name: (each.attacks.quantiles[0].value, each.benign.quantiles[0].value)
        for name, each in times.items()
    }


def test_a_block_spares_the_answer_of_the_model(tmp_path: Path) -> None:
    """Behind the guard a blocked attack takes 5 ms, a benign sample 5 ms and its answer."""
    assert medians(tmp_path) == {
        "guard": (5.0, 5.0),
        "model": (104.5, 114.5),
        "judge": (30.0, 30.0),
        "system none": (104.5, 114.5),
        "system guard": (5.0, 119.5),
    }


def test_what_a_guard_adds_is_paired_over_the_same_samples(tmp_path: Path) -> None:
    """Ten benign samples take 5 ms more; ten blocked attacks 95 to 104 ms less."""
    pipeline = analysed(tmp_path).pipeline
    assert pipeline is not None
    gain = pipeline.arms[1].gain
    assert gain is not None
    assert (gain.overhead_ms.value, gain.overhead_ms.pairs) == (pytest.approx(-45.0), 20)


def test_times_stand_in_the_summary_and_in_the_report(tmp_path: Path) -> None:
    """Under `timing` alone, each with its limits or with how many would give them."""
    analysis = analysed(tmp_path)
    timing = json.loads(summary_json(analysis))["timing"]
    assert set(timing["stages"]) == {"model", "judge"}
    assert set(timing["systems"]) == {"none", "guard"}
    assert timing["overhead_ms"]["guard"]["pairs"] == 20
    report = render_markdown(build_document(analysis))
    assert "the arm guard, end to end" in report
    assert " ms (no interval below n = " in report
