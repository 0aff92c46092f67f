"""What two defenses consume on the same samples."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.analysis.small_pipelines import SAFE_ANSWER, PlannedPipeline, write_pipeline
from tests.analysis.small_runs import Planned, Runs, attack, benign, block

from guardmark.analysis.compare.matching import OpenRun, match_runs
from guardmark.analysis.compare.runs_compared import (
    Compared,
    ScopedComparisons,
    Wanted,
    compare_matched,
)
from guardmark.analysis.defense.costs import CostDifference, CostUnit, part_name
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.outcome import Decision, Evidence
from guardmark.core.sample import Sample
from guardmark.core.usage import Usage
from guardmark.reports.chapters.comparison import comparison_document
from guardmark.reports.render.json.documents import comparison_json
from guardmark.reports.render.markdown import render_markdown
from guardmark.reports.render.terminal import render_terminal
from guardmark.store.columns import PartUsage
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

SAMPLES = [*(attack(n) for n in range(20)), *(benign(n) for n in range(20))]
PRICES = {"prices": {"large": {"input_per_1k": 2.0, "output_per_1k": 6.0, "per_call": 0.5}}}


def consuming(name: str, read: int, *, every: int = 1, cost: float | None = None) -> Planned:
    """A defense that reads so many tokens and writes ten; it reports only every so many calls."""

    def decide(position: int, _: Sample) -> Decision:
        usage = Usage(prompt_tokens=read + position % 2, completion_tokens=10, cost=cost)
        evidence = Evidence(usage=usage) if position % every == 0 else Evidence(reason="no usage")
        return replace(block(), evidence=evidence)

    return Planned(name=name, answers=decide)


def compared(runs: Runs, *planned: Planned, settings: dict[str, object] | None = None) -> Compared:
    """One run, compared."""
    with runs.opened(SAMPLES, planned, settings=settings or {}) as reader:
        chosen = AnalysisSettings.of(reader.manifest())
        matched = match_runs([OpenRun(label="run", reader=reader)], chosen)
        return compare_matched(matched, Wanted())


def only(found: Compared, unit: CostUnit, *, is_attack: bool = True) -> CostDifference:
    """The one difference of a unit and label."""
    (each,) = (
        each for each in found.details[0].costs if (each.unit, each.is_attack) == (unit, is_attack)
    )
    return each


def test_tokens_are_compared_sample_by_sample(runs: Runs) -> None:
    """A hundred more on every sample is a difference of a hundred, without spread."""
    found = compared(runs, consuming("large", 300), consuming("small", 200))
    tokens = only(found, CostUnit.TOKENS)
    assert (tokens.mean.value, tokens.mean.low, tokens.mean.high) == (100.0, 100.0, 100.0)
    assert (tokens.first, tokens.second) == (310.5, 210.5)
    assert tokens.mean.pairs == 20
    assert {each.unit for each in found.details[0].costs} == {CostUnit.TOKENS}


def test_money_comes_from_the_price_table_or_from_the_call(runs: Runs) -> None:
    """What a call reported itself goes before what a table says."""
    planned = (consuming("large", 1000), consuming("small", 1000, cost=0.25))
    money = only(compared(runs, *planned, settings=PRICES), CostUnit.MONEY)
    assert money.first == pytest.approx(0.5 + 1.0005 * 2.0 + 0.01 * 6.0)
    assert money.second == pytest.approx(0.25)


def test_samples_that_one_side_did_not_report_are_left_out(runs: Runs) -> None:
    """A missing report is not a call for nothing."""
    found = compared(runs, consuming("large", 300, every=4), consuming("small", 200))
    tokens = only(found, CostUnit.TOKENS)
    assert tokens.mean.pairs == 5
    assert tokens.mean.reason == "an interval for a mean needs 6 groups, got 5"
    assert tokens.mean.low is None


def test_usage_follows_its_sample_across_runs(runs: Runs) -> None:
    """The second run holds the samples the other way round and fewer of them."""
    with ExitStack() as stack:
        old = stack.enter_context(runs.opened(SAMPLES, [consuming("guard", 200)]))
        new = stack.enter_context(runs.opened(SAMPLES[:5:-1], [consuming("guard", 300)]))
        settings = AnalysisSettings.of(old.manifest())
        opened = [OpenRun(label="old", reader=old), OpenRun(label="new", reader=new)]
        found = compare_matched(match_runs(opened, settings), Wanted())
    tokens = only(found, CostUnit.TOKENS)
    assert tokens.mean.pairs == 14
    # Even positions of the one are odd positions of the other.
    assert tokens.mean.value == pytest.approx(100.0, abs=1.0)


def test_every_rendering_tells_the_cost(runs: Runs) -> None:
    """For a thousand samples, the unit people count in."""
    found = compared(runs, consuming("large", 300), consuming("small", 200))
    document = comparison_document(ScopedComparisons(system=None, defenses=found))
    for text in (render_terminal(document, width=400), render_markdown(document)):
        assert "Tokens for 1,000 attacks" in text
        assert "difference +100,000 [+100,000, +100,000] over 20" in text.replace("\\", "")
    assert '"mean_difference"' in comparison_json(ScopedComparisons(system=None, defenses=found))


@pytest.mark.parametrize(
    ("judges", "stage", "layer", "name"),
    [
        ("strict", "defense", "run", "none"),
        ("strict", "model", "run", "tutor"),
        ("strict", "judge", "run", "strict"),
        ("strict mild", "judge", "run/mild", "mild"),
        ("strict mild", "judge", "run", "none"),
        ("strict", "judge", "again", "late"),
        ("strict", "judge", "people", "people"),
    ],
)
def test_usage_goes_by_the_name_of_model_or_judge(
    tmp_path: Path, judges: str, *, stage: str, layer: str, name: str
) -> None:
    """Both are stored under the arm without a guard; a later judge is named by its layer."""
    said = dict.fromkeys(judges.split(), lambda _at, _sample: SAFE_ANSWER)
    path = write_pipeline(tmp_path / "r.sqlite", PlannedPipeline(samples=SAMPLES[:2], judges=said))
    with RecordWriter(path) as writer:
        writer.add_layer("again", {"kind": "judge", "judge": "late"})
        writer.add_layer("people", {"kind": "human"})
    usage = PartUsage(
        part="none",
        stage=stage,
        layer=layer,
        answers=2,
        calls=2,
        recalled=0,
        tokens_read=None,
        tokens_written=None,
        cost=None,
        priced=0,
    )
    with RecordReader(path) as reader:
        assert part_name(reader, reader.manifest(), usage) == name


@pytest.mark.parametrize(
    ("cost", "priced", "of_answers", "of_requests"),
    [(0.3, 150, 2.0, 0.3 / 0.17), (0.2, 100, 2.0, None), (None, 0, None, None)],
)
def test_a_thousand_answers_cost_more_than_a_thousand_requests(
    cost: float | None, priced: int, *, of_answers: float | None, of_requests: float | None
) -> None:
    """150 answers took 170 requests; where some have no price, requests behind the rest are open."""
    usage = PartUsage(
        part="guard",
        stage="defense",
        layer="run",
        answers=150,
        calls=170,
        recalled=0,
        tokens_read=None,
        tokens_written=None,
        cost=cost,
        priced=priced,
    )
    assert usage.cost_per_1000_answers == pytest.approx(of_answers)
    assert usage.cost_per_1000_requests == pytest.approx(of_requests)
