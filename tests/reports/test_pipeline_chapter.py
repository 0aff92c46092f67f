"""A pipeline's section: three cards, what they rest on, and words that the data carry."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from tests.analysis.small_pipelines import (
    GARBLED,
    REFUSAL,
    SAFE_ANSWER,
    UNSAFE_ANSWER,
    PlannedPipeline,
    opened_pipeline,
    perfect,
)
from tests.analysis.small_runs import Planned, allow, attack, benign, block
from tests.schemas import check_document

from guardmark.analysis.pipeline.arms import DEFINITIONS
from guardmark.analysis.run import RunAnalysis, analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.outcome import Verdict, VerdictLabel
from guardmark.core.sample import Sample
from guardmark.interchange.records.writing import variants_csv
from guardmark.reports.chapters.run_document import build_document, shorten
from guardmark.reports.chapters.samples import Highlights, SampleStory
from guardmark.reports.render.html.page import render_html
from guardmark.reports.render.json.documents import summary_json
from guardmark.reports.render.markdown import render_markdown
from guardmark.reports.render.terminal import render_terminal
from guardmark.stats.rates.proportion import clopper_pearson

SAMPLES = [*(attack(n) for n in range(10)), *(benign(n) for n in range(10))]
HOSTILE = "=x<script>\x1b[31m|"


def mixed(position: int, sample: Sample) -> Verdict:
    """Every kind of verdict."""
    if position == 15:
        return GARBLED
    if position == 16:
        return Verdict(label=VerdictLabel.SAFE)
    return UNSAFE_ANSWER if sample.is_attack and position < 4 else SAFE_ANSWER


def everything(folder: Path) -> RunAnalysis:
    """A pipeline with all that a section may hold, and a hostile name."""
    planned = PlannedPipeline(
        samples=SAMPLES,
        guards=[
            Planned(name="perfect", answers=perfect),
            Planned(name="wall", answers=lambda _at, _s: block()),
            Planned(name=HOSTILE, answers=perfect),
        ],
        judges={"one": mixed, "two": lambda _at, _s: REFUSAL},
        later={"strict": lambda _at, _s: UNSAFE_ANSWER},
        people={0: VerdictLabel.UNSAFE, 5: VerdictLabel.SAFE},
        arms=["none", "perfect", "wall", HOSTILE],
    )
    with opened_pipeline(folder, planned) as reader:
        return analyse_run(reader, AnalysisSettings(legacy_cards=DEFINITIONS))


@pytest.fixture
def analysis(tmp_path: Path) -> RunAnalysis:
    """The pipeline above."""
    return everything(tmp_path)


def test_a_run_without_a_model_has_no_such_section(tmp_path: Path) -> None:
    """Nor a block in the summary."""
    from tests.analysis.small_runs import Runs

    with Runs(folder=tmp_path).opened(SAMPLES, [Planned(name="g", answers=perfect)]) as reader:
        found = analyse_run(reader)
    assert "pipeline" not in [section.id for section in build_document(found).sections]
    assert json.loads(summary_json(found))["pipeline"] is None


CARDS = ("System: what comes out", "Model, given that the guard allows", "Defense: ")


def test_three_cards_stand_in_the_report(analysis: RunAnalysis) -> None:
    """The same titles in each form, and in a terminal where all of it is asked for."""
    document = build_document(analysis)
    for text in (render_terminal(document), render_markdown(document), render_html(document)):
        for title in CARDS:
            assert title in text


def test_a_terminal_shows_what_comes_out_in_one_table(analysis: RunAnalysis) -> None:
    """What the guard decides stands in its verdict; a floor or a ceiling has none."""
    text = render_terminal(shorten(build_document(analysis)))
    assert [title in text for title in CARDS] == [True, False, False]
    assert "  : " not in text


def test_hostile_names_are_inert(analysis: RunAnalysis) -> None:
    """Nothing from data steers a terminal, a page or a spreadsheet."""
    document = build_document(analysis)
    assert "\x1b" not in render_terminal(shorten(document))
    assert "=x<script>" not in render_html(document)
    rows = list(csv.reader(io.StringIO(variants_csv(analysis))))
    assert not any(cell.startswith("=") for row in rows for cell in row)


def test_the_first_card_quotes_what_came_out(tmp_path: Path) -> None:
    """One unsafe answer of the system in use, cut and inert, and none where texts are left out."""
    planned = PlannedPipeline(
        samples=SAMPLES,
        guards=[Planned(name="open", answers=lambda _at, _s: allow())],
        judges={"one": mixed},
        arms=["none", "open"],
    )
    with opened_pipeline(tmp_path, planned) as reader:
        found = analyse_run(reader)
    stories = {each.id: SampleStory(answer=f"{HOSTILE}{'x' * 500}", steps=()) for each in SAMPLES}
    document = build_document(found, Highlights(exchanges=stories))
    quotes = [each.quote for each in document.verdicts]
    assert quotes[0].startswith("For instance, a-0000")
    assert len(quotes[0]) < 500
    assert not any(quotes[1:])
    assert "\x1b" not in quotes[0]
    page = render_html(document)
    assert page.count('<p class="quote">') == 1
    assert "=x<script>" not in page
    assert '<p class="quote">' not in render_html(document, texts=False)
    assert quotes[0] not in render_markdown(document, texts=False)


def test_the_older_definition_is_named_and_its_blindness_said(analysis: RunAnalysis) -> None:
    """A perfect guard and a wall have one card under it; the report names the pair."""
    text = render_markdown(build_document(analysis)).replace("\\", "")
    assert "By the older definition response_unsafe_v1" in text
    assert "it cannot tell apart: perfect and wall" in text
    assert "By the older definition assistant_policy_v2" in text


def test_what_weakens_the_cards_is_said(analysis: RunAnalysis) -> None:
    """Ties, missing modes, malformed verdicts, a guard that allows nothing."""
    warnings = json.loads(summary_json(analysis))["pipeline"]["warnings"]
    for words in ("tied on", "did not say how", "malformed verdicts", "wall allowed nothing"):
        assert any(words in warning for warning in warnings), words


def test_the_summary_fits_its_schema(analysis: RunAnalysis) -> None:
    """With everything a pipeline may say, and JSON without NaN."""
    found = json.loads(summary_json(analysis))
    check_document(found)
    assert [arm["name"] for arm in found["pipeline"]["arms"]] == [
        "none",
        "perfect",
        "wall",
        HOSTILE,
    ]


def test_a_pipeline_without_a_judge_says_so(tmp_path: Path) -> None:
    """Only blocks have a known end; nothing reads as safe."""
    planned = PlannedPipeline(samples=SAMPLES)
    with opened_pipeline(tmp_path, planned) as reader:
        found = analyse_run(reader)
    text = render_markdown(build_document(found))
    assert "No judge labelled the answers" in text
    assert found.pipeline is not None
    assert found.pipeline.arms[0].system.attack_success_rate.value is None


@pytest.mark.parametrize("labelled", [10, 60])
def test_a_judge_that_is_right_half_of_the_time_leaves_the_labels(
    tmp_path: Path, labelled: int
) -> None:
    """What people say is never thrown away: the rate is theirs, with limits as wide as theirs."""
    samples = [attack(n) for n in range(200)]

    def coin(position: int, _sample: Sample) -> Verdict:
        return UNSAFE_ANSWER if position % 2 else SAFE_ANSWER

    people = {
        at: VerdictLabel.UNSAFE if at // 2 % 2 else VerdictLabel.SAFE for at in range(labelled)
    }
    planned = PlannedPipeline(samples=samples, judges={"coin": coin}, people=people)
    with opened_pipeline(tmp_path, planned) as reader:
        found = analyse_run(reader)
    exact = clopper_pearson(labelled * 2 // 5 if labelled == 10 else labelled // 2, labelled)
    for scope, rate in json.loads(summary_json(found))["pipeline"]["arms"][0]["corrected"].items():
        assert rate["value"] == pytest.approx(exact.value), scope
        assert "labels alone" in rate["method"]
        assert (rate["low"], rate["high"]) == pytest.approx((exact.low, exact.high), abs=0.01)
    text = render_markdown(build_document(found))
    assert "not shown to be better than chance" in text


def test_labels_of_one_verdict_alone_bound_the_rate(tmp_path: Path) -> None:
    """What the judge calls safe was never looked at: limits, no value, and the sentence why."""
    samples = [attack(n) for n in range(200)]

    def strict(position: int, _sample: Sample) -> Verdict:
        return UNSAFE_ANSWER if position < 20 else SAFE_ANSWER

    people = {at: VerdictLabel.UNSAFE if at < 15 else VerdictLabel.SAFE for at in range(20)}
    planned = PlannedPipeline(samples=samples, judges={"strict": strict}, people=people)
    with opened_pipeline(tmp_path, planned) as reader:
        found = analyse_run(reader)
    rate = json.loads(summary_json(found))["pipeline"]["arms"][0]["corrected"]["system"]
    assert rate["value"] is None
    assert 0.04 < rate["low"] < 0.075
    assert rate["high"] > 0.9
    text = render_markdown(build_document(found))
    assert "nobody labelled any of the 180 responses that the judge calls safe" in text
    assert "More answers of one verdict were labelled" in text


def test_a_group_that_dominates_is_named_at_every_scope(tmp_path: Path) -> None:
    """By the rule of the verdicts, and few groups as well."""
    samples = [attack(n, group="story" if n < 20 else f"g{n // 2}") for n in range(40)]
    samples += [benign(n, group=f"g{n % 4}") for n in range(20)]
    planned = PlannedPipeline(samples=samples, judges={"judge": lambda _at, _s: SAFE_ANSWER})
    with opened_pipeline(tmp_path, planned) as reader:
        found = analyse_run(reader)
    warnings = json.loads(summary_json(found))["pipeline"]["warnings"]
    for scope in ("system", "model"):
        start = f"none, scope {scope}: "
        assert f"{start}one group dominates: 'story' holds 50.0 % of the attacks." in warnings
        assert f"{start}few groups: the benign samples fall into 4 groups only." in warnings
