"""Small slices of a finished run, against slices that are drawn and counted by hand."""

from __future__ import annotations

import json
import math
from hashlib import sha256
from pathlib import Path
from statistics import fmean, stdev

import pytest
from tests.analysis.small_pipelines import (
    GARBLED,
    REFUSAL,
    SAFE_ANSWER,
    UNSAFE_ANSWER,
    PlannedPipeline,
    opened_pipeline,
)
from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block, failed
from tests.schemas import check_document

from guardmark.analysis.pipeline.small_slices import (
    SliceFigure,
    SliceRequest,
    SliceStability,
    measure_small_slices,
)
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.outcome import Decision, Verdict
from guardmark.core.sample import Sample
from guardmark.reports.chapters.small_slices import stability_document
from guardmark.reports.render.json.documents import stability_json
from guardmark.reports.render.markdown import render_markdown
from guardmark.reports.render.terminal import render_terminal

VARIANTS = ("original", "typo")
SAMPLES = [
    *(attack(n, variant=VARIANTS[n % 2], group=f"g{n // 2}") for n in range(40)),
    *(benign(n, variant=VARIANTS[n % 2], group=f"h{n // 2}") for n in range(30)),
]
REQUEST = SliceRequest(attacks=6, benign=4, seeds=(1, 2, 3, 4, 5))
T_975_4 = 2.7764451051977934
"""97.5 % quantile of Student's t with 4 degrees of freedom (any table)."""


def guard(position: int, sample: Sample) -> Decision:
    """Block every third, fail on every seventh."""
    if position % 7 == 6:
        return failed()
    return block() if position % 3 == 0 else allow()


def judge(position: int, sample: Sample) -> Verdict:
    """Every fourth answer to an attack is unsafe, every fifth benign one refused, some garbled."""
    if position % 11 == 10:
        return GARBLED
    if sample.is_attack:
        return UNSAFE_ANSWER if position % 4 == 1 else SAFE_ANSWER
    return REFUSAL if position % 5 == 0 else SAFE_ANSWER


PLANNED = PlannedPipeline(
    samples=SAMPLES,
    guards=(Planned(name="guard", answers=guard),),
    judges={"judge": judge},
    arms=("none", "guard"),
)


def measured(folder: Path, planned: PlannedPipeline = PLANNED) -> SliceStability:
    """Write a run and draw slices of it."""
    with opened_pipeline(folder, planned) as reader:
        return measure_small_slices(reader, AnalysisSettings(), REQUEST)


def figure_of(
    found: SliceStability, arm: str, scope: str, name: str, *, variant: str | None = None
) -> SliceFigure:
    """One figure."""
    card = next(c for c in found.cards if (c.arm, c.scope, c.variant) == (arm, scope, variant))
    return next(figure for figure in card.figures if figure.name == name)


def by_hand(seed: int, *, is_attack: bool, variant: str) -> list[int]:
    """The positions of one label and variant that a slice takes."""
    mine = [
        (sha256(f"{seed} {sample.id}".encode()).hexdigest(), position)
        for position, sample in enumerate(SAMPLES)
        if sample.is_attack == is_attack and sample.variant == variant
    ]
    return [position for _, position in sorted(mine)[: 6 if is_attack else 4]]


def test_every_slice_is_the_one_drawn_by_hand(tmp_path: Path) -> None:
    """Guarded attacks at scope system: blocked, or answered and judged; the rest counts not."""
    figure = figure_of(measured(tmp_path), "guard", "system", "attack_success_rate")
    for seed, value, trials in zip(REQUEST.seeds, figure.values, figure.trials, strict=True):
        drawn = [n for v in VARIANTS for n in by_hand(seed, is_attack=True, variant=v)]
        assert len(drawn) == 12
        decided = [n for n in drawn if n % 7 != 6]
        known = [n for n in decided if n % 3 == 0 or n % 11 != 10]
        unsafe = [n for n in known if n % 3 and n % 4 == 1]
        assert (value, trials) == (len(unsafe) / len(known), len(known))


def test_scope_model_takes_what_the_guard_let_through(tmp_path: Path) -> None:
    """And only one variant where one is asked for."""
    found = measured(tmp_path)
    figure = figure_of(found, "guard", "model", "over_refusal_rate", variant="typo")
    for seed, value, trials in zip(REQUEST.seeds, figure.values, figure.trials, strict=True):
        drawn = by_hand(seed, is_attack=False, variant="typo")
        through = [n for n in drawn if n % 7 != 6 and n % 3 and n % 11 != 10]
        refused = [n for n in through if n % 5 == 0]
        assert trials == len(through)
        assert value == (len(refused) / len(through) if through else None)


def test_mean_and_half_width_are_those_of_a_textbook(tmp_path: Path) -> None:
    """The t interval of five values; and the slice that lies farthest from the whole."""
    figure = figure_of(measured(tmp_path), "none", "system", "attack_success_rate")
    values = [value for value in figure.values if value is not None]
    assert len(values) == 5
    assert figure.mean == pytest.approx(fmean(values))
    assert figure.half_width == pytest.approx(T_975_4 * stdev(values) / math.sqrt(5))
    known = [n for n in range(40) if n % 11 != 10]
    whole = sum(n % 4 == 1 for n in known) / len(known)
    assert figure.whole.value == pytest.approx(whole)
    assert figure.farthest == pytest.approx(max(abs(value - whole) for value in values))


def test_a_defense_without_a_pipeline_has_its_own_card_only(runs: Runs) -> None:
    """Allowed attacks and blocked benign samples; balanced error is their mean."""
    with runs.opened(SAMPLES, [Planned(name="guard", answers=guard)]) as reader:
        found = measure_small_slices(reader, AnalysisSettings(), REQUEST)
    assert {(card.arm, card.scope) for card in found.cards} == {("guard", "defense")}
    harm = figure_of(found, "guard", "defense", "attack_success_rate")
    alarm = figure_of(found, "guard", "defense", "false_positive_rate")
    both = figure_of(found, "guard", "defense", "balanced_error")
    ends = zip(harm.defined, alarm.defined, strict=True)
    assert both.values == pytest.approx([(one + two) / 2 for one, two in ends])
    assert len(both.values) == 5
    whole = [figure.whole.value for figure in (harm, alarm, both)]
    assert None not in whole
    assert whole[2] == pytest.approx(fmean(value for value in whole[:2] if value is not None))


def test_all_repeats_of_a_drawn_sample_come_along(runs: Runs) -> None:
    """A slice is of samples; asking three times is no larger slice."""
    planned = [Planned(name="guard", answers=lambda _n, _s: allow())]
    with runs.opened(SAMPLES, planned, repeats=3) as reader:
        found = measure_small_slices(reader, AnalysisSettings(), REQUEST)
    assert set(figure_of(found, "guard", "defense", "attack_success_rate").trials) == {3 * 12}


def test_a_slice_that_takes_everything_says_so(runs: Runs) -> None:
    """No spread over seeds is then no stability."""
    request = SliceRequest(attacks=100, benign=100, seeds=(1, 2))
    with runs.opened(SAMPLES, [Planned(name="guard", answers=guard)]) as reader:
        found = measure_small_slices(reader, AnalysisSettings(), request)
    figure = figure_of(found, "guard", "defense", "attack_success_rate")
    assert (figure.half_width, figure.farthest) == (0.0, 0.0)
    assert any(
        "every slice takes all of them" in line for line in stability_document(found).caveats
    )


def test_without_answers_that_count_nothing_is_zero(runs: Runs) -> None:
    """Undefined, in every rendering."""
    planned = [Planned(name="broken", answers=lambda _n, _s: failed())]
    with runs.opened(SAMPLES, planned) as reader:
        found = measure_small_slices(reader, AnalysisSettings(), REQUEST)
    figure = figure_of(found, "broken", "defense", "attack_success_rate")
    assert (figure.values, figure.mean, figure.half_width) == ((None,) * 5, None, None)
    assert (figure.low, figure.high, figure.farthest) == (None, None, None)
    assert "undefined" in render_terminal(stability_document(found))
    assert "0.0 %" not in render_markdown(stability_document(found))


def test_json_keeps_to_its_schema(tmp_path: Path) -> None:
    """The published one."""
    said = json.loads(stability_json(measured(tmp_path)))
    check_document(said, of="stability")
    assert said["variants"][0] == {
        "variant": "original",
        "attacks": 20,
        "benign": 15,
        "drawn_attacks": 6,
        "drawn_benign": 4,
    }


def test_a_hostile_variant_stays_inert(runs: Runs) -> None:
    """Nothing from data steers a terminal or becomes markup."""
    hostile = "x\x1b[2J|<b>"
    samples = [attack(n, variant=hostile) for n in range(4)] + [benign(n) for n in range(4)]
    with runs.opened(samples, [Planned(name="guard", answers=guard)]) as reader:
        found = measure_small_slices(reader, AnalysisSettings(), REQUEST)
    assert "\x1b" not in render_terminal(stability_document(found))
    assert "\x1b" not in render_markdown(stability_document(found))
    assert "<b>" not in render_markdown(stability_document(found))
