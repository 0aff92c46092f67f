"""Runs are matched by what samples say, and what does not match is told or refused."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.analysis.small_pipelines import (
    SAFE_ANSWER,
    UNSAFE_ANSWER,
    PlannedPipeline,
    opened_pipeline,
)
from tests.analysis.small_runs import (
    Planned,
    Runs,
    allow,
    attack,
    benign,
    block,
    write_answers,
)

from guardmark.analysis.compare.matching import MatchedRuns, OpenRun, match_runs
from guardmark.analysis.compare.runs_compared import (
    Compared,
    Wanted,
    choose_pairs,
    compare_matched,
    compare_scopes,
)
from guardmark.analysis.early_stop import make_schedule
from guardmark.analysis.pipeline.frame import SYSTEM
from guardmark.analysis.run import analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.asking_order import order_samples
from guardmark.core.errors import IncomparableRuns, UnknownName
from guardmark.core.manifest import LatencyMode, PartManifest, Policy
from guardmark.core.outcome import Decision
from guardmark.core.sample import Label, Sample
from guardmark.store.columns import sample_columns
from guardmark.store.reader import RecordReader

SAMPLES = [*(attack(n) for n in range(60)), *(benign(n) for n in range(60))]


def blocks_from(number: int) -> Planned:
    """Blocks attacks whose own number is at least this, wherever they stand in the run."""

    def decide(_: int, sample: Sample) -> Decision:
        return block() if sample.is_attack and int(sample.id[2:]) >= number else allow()

    return Planned(name="guard", answers=decide)


def matched(
    runs: Runs,
    first: list[Sample],
    second: list[Sample],
    *,
    wanted: Wanted | None = None,
    planned: tuple[Planned, Planned] | None = None,
    **changes: object,
) -> tuple[MatchedRuns, Compared]:
    """Two runs, `old` and `new`, matched and compared."""
    one, two = planned or (blocks_from(30), blocks_from(10))
    with ExitStack() as stack:
        old = stack.enter_context(runs.opened(first, [one]))
        new = stack.enter_context(runs.opened(second, [two], **changes))
        settings = AnalysisSettings.of(old.manifest())
        found = match_runs(
            [OpenRun(label="old", reader=old), OpenRun(label="new", reader=new)], settings
        )
        compared = compare_matched(found, wanted or Wanted())
        return found, compared


def test_samples_are_matched_by_content_in_any_order(runs: Runs) -> None:
    """Other ids and another order change nothing."""
    renamed = [replace(sample, id=f"a-{n:05d}") for n, sample in enumerate(SAMPLES[:60])]
    shuffled = [*SAMPLES[60:], *reversed(renamed)]
    _, compared = matched(runs, SAMPLES, shuffled)
    (pair,) = compared.comparison.pairs
    assert (pair.first, pair.second) == ("guard (new)", "guard (old)")
    assert pair.attacks.difference.pairs == 60
    assert pair.attacks.difference.first_only == 0
    assert pair.attacks.difference.second_only == 20
    assert all(not run.unmatched for run in compared.runs)


def test_samples_without_a_partner_are_left_out_and_listed(runs: Runs) -> None:
    """On both sides, by id."""
    _, compared = matched(runs, SAMPLES[:-10], SAMPLES[5:])
    assert [len(run.unmatched) for run in compared.runs] == [5, 10]
    assert compared.runs[0].unmatched == tuple(f"a-{n:05d}" for n in range(5))
    assert (compared.attacks, compared.benign) == (55, 50)


def test_a_content_that_stands_twice_is_matched_in_order(runs: Runs) -> None:
    """Two copies there, one here: one pair, one left out."""
    twice = [*SAMPLES, replace(SAMPLES[0], id="a-00099")]
    _, compared = matched(runs, twice, SAMPLES)
    assert compared.runs[0].unmatched == ("a-00099",)
    assert compared.attacks == 60


def test_runs_without_a_common_sample_are_refused(runs: Runs) -> None:
    """There is nothing to pair."""
    with pytest.raises(IncomparableRuns, match="share no sample"):
        matched(runs, SAMPLES[:10], SAMPLES[20:30])


def test_runs_that_label_the_same_content_differently_are_refused(runs: Runs) -> None:
    """An attack here and benign there: the two rates are about different things."""
    turned = [*SAMPLES[:-1], replace(SAMPLES[-1], label=Label.ATTACK, category="jailbreak")]
    with pytest.raises(
        IncomparableRuns, match=r"label 1 of the same contents differently \(b-00059\)"
    ):
        matched(runs, SAMPLES, turned)


def test_other_policies_and_settings_are_remarked_upon(runs: Runs) -> None:
    """They may be where a difference comes from."""
    found, _ = matched(
        runs, SAMPLES, SAMPLES, on_malformed=Policy.BLOCK, latency_mode=LatencyMode.LOADED
    )
    said = " ".join(found.remarks)
    assert "Policy on malformed answers: record in old, block in new." in said
    assert "Latency mode: isolated in old, loaded in new." in said
    assert "Identical settings in old and new: guard." in said


def test_a_run_that_a_rule_ended_early_is_remarked_upon(runs: Runs) -> None:
    """Its limits hold at any look, those of a comparison across runs do not."""
    samples = [*(attack(n) for n in range(400)), *(benign(n) for n in range(100))]
    rule = {"run": {"stop_when": ["asr<0.5"]}}
    with runs.opened(samples, [blocks_from(0)], settings=rule) as reader:
        late, path = make_schedule(sample_columns(reader), seed=7).order[200:], reader.path
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("DELETE FROM records WHERE sample = ?", [(int(at),) for at in late])
    with RecordReader(path) as ended, runs.opened(samples, [blocks_from(0)]) as whole:
        opened = [OpenRun(label="old", reader=whole), OpenRun(label="new", reader=ended)]
        found = match_runs(opened, AnalysisSettings.of(whole.manifest()))
    (remark,) = (each for each in found.remarks if "ended early" in each)
    assert remark.startswith("guard of new was ended early by a rule; across runs its intervals ")


@pytest.mark.parametrize(("kind", "what"), [("model", "target models"), ("judge", "judges")])
def test_parts_that_are_configured_differently_are_remarked_upon(
    runs: Runs, kind: str, what: str
) -> None:
    """Only where both runs have them, under one name or two."""

    def remarks(*fingerprints: str | None) -> list[str]:
        with ExitStack() as stack:
            opened = []
            for label, fingerprint in zip(("old", "new"), fingerprints, strict=True):
                guard = PartManifest(name="guard", kind="defense", type="pattern")
                part = PartManifest(
                    name=f"{label}-one", kind=kind, type="scripted", fingerprint=fingerprint or ""
                )
                parts = (guard, part) if fingerprint else (guard,)
                reader = stack.enter_context(runs.opened(SAMPLES, [blocks_from(9)], parts=parts))
                opened.append(OpenRun(label=label, reader=reader))
            found = match_runs(opened, AnalysisSettings.of(opened[0].reader.manifest()))
            return [each for each in found.remarks if "configured differently" in each]

    assert remarks("a", "b") == [
        f"old and new use {what} (old-one and new-one) that are configured differently."
    ]
    assert remarks("a", None) == remarks(None, "b") == []


def test_a_defense_that_is_shown_something_else_is_remarked_upon(runs: Runs) -> None:
    """The same guard over the whole conversation is another measurement; a baseline has no view."""
    wall = Planned(name="wall", answers=lambda _at, _s: block(), type="block-all")
    guard = PartManifest(name="guard", kind="defense", type="pattern", view="conversation")
    baseline = PartManifest(name="wall", kind="defense", type="block-all", view="text")
    with ExitStack() as stack:
        old = stack.enter_context(runs.opened(SAMPLES, [blocks_from(9), wall]))
        parts = (guard, baseline)
        new = stack.enter_context(runs.opened(SAMPLES, [blocks_from(9), wall], parts=parts))
        opened = [OpenRun(label="old", reader=old), OpenRun(label="new", reader=new)]
        remarks = match_runs(opened, AnalysisSettings.of(old.manifest())).remarks
    assert [each for each in remarks if "another part of a prompt" in each] == [
        "guard is shown another part of a prompt: text in old, conversation in new."
    ]


def test_the_fewer_repeats_are_compared(runs: Runs) -> None:
    """Two repeats here, one there: one is compared, and that is said."""
    found, compared = matched(runs, SAMPLES, SAMPLES, repeats=2)
    assert found.frame.manifest.repeats == 1
    assert compared.comparison.pairs[0].attacks.difference.pairs == 60
    assert any("Repeats" in line for line in found.remarks)


def test_discordant_samples_come_with_who_erred(runs: Runs) -> None:
    """Attacks by severity, and the texts of the first run."""
    _, compared = matched(runs, SAMPLES, SAMPLES, wanted=Wanted(listed=3))
    (detail,) = compared.details
    assert (detail.first_only, detail.second_only) == (0, 20)
    assert [each.erred for each in detail.discordant] == ["guard (old)"] * 3
    severities = [each.sample.severity for each in detail.discordant]
    assert all(severity is not None and severity.value == "critical" for severity in severities)


def test_categories_are_adjusted_among_themselves(runs: Runs) -> None:
    """One difference for each category, p by Holm over them."""
    _, compared = matched(runs, SAMPLES, SAMPLES)
    attacks = [each for each in compared.details[0].categories if each.is_attack]
    assert len(attacks) == 5
    assert sum(each.side.difference.pairs for each in attacks) == 60
    for each in attacks:
        assert each.side.adjusted_p is not None
        assert each.side.difference.p_value is not None
        assert each.side.adjusted_p >= each.side.difference.p_value
        assert each.is_greyed


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(),
        Wanted(only=("low", "high")),
        Wanted(only=("high", "low")),
        Wanted(against="low"),
        Wanted(only=("low", "high", "floor")),
    ],
)
def test_a_pair_of_one_run_has_one_p_wherever_it_is_printed(runs: Runs, wanted: Wanted) -> None:
    """That of the report: over every pair on both rates, and areas; a baseline changes nothing."""

    def scored(number: int) -> Planned:
        def decide(_: int, sample: Sample) -> Decision:
            score = 0.9 if sample.is_attack and int(sample.id[2:]) >= number else 0.2
            return block(score) if score > 0.5 else allow(score)

        return Planned(name={25: "low", 30: "mid", 37: "high"}[number], answers=decide)

    floor = Planned(name="floor", type="allow-all", answers=lambda _p, _s: allow())
    planned = [scored(25), scored(30), scored(37), floor]
    with runs.opened(SAMPLES, planned) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        report = analyse_run(reader, settings).comparison
        found = match_runs([OpenRun(label="run", reader=reader)], settings)
        compared = compare_matched(found, wanted)
    assert report is not None
    of_report = {frozenset((each.first, each.second)): each for each in report.pairs}
    raw = of_report[frozenset(("low", "high"))].attacks
    assert raw.adjusted_p is not None
    assert raw.difference.p_value is not None
    # Six tests of pairs have a p, and three of areas: the smallest is worth nine times itself.
    assert raw.adjusted_p > 2 * raw.difference.p_value
    for pair in compared.comparison.pairs:
        told = of_report.get(frozenset((pair.first, pair.second)))
        if told is None:
            assert "floor" in {pair.first, pair.second}
            continue
        assert pair.attacks.adjusted_p == told.attacks.adjusted_p
        assert pair.benign.adjusted_p == told.benign.adjusted_p


def test_a_defense_may_be_named_by_its_own_name_or_by_the_comparisons(runs: Runs) -> None:
    """`guard` finds it in every run; `guard (new)` in one."""
    found, _ = matched(runs, SAMPLES, SAMPLES)
    assert choose_pairs(found, Wanted(only=("guard",))) == [("guard (new)", "guard (old)")]
    assert choose_pairs(found, Wanted(against="guard (new)")) == [("guard (old)", "guard (new)")]
    with pytest.raises(UnknownName, match="Did you mean"):
        choose_pairs(found, Wanted(only=("gaurd (new)",)))


def test_runs_of_different_defenses_are_compared_across(runs: Runs) -> None:
    """No common name: every one with those of the other run."""
    other = Planned(name="other", answers=blocks_from(10).answers)
    _, compared = matched(runs, SAMPLES, SAMPLES, planned=(blocks_from(30), other))
    (pair,) = compared.comparison.pairs
    assert (pair.first, pair.second) == ("other", "guard")


def test_one_defense_alone_cannot_be_compared(runs: Runs) -> None:
    """The message says what to do."""
    with runs.opened(SAMPLES, [blocks_from(3)]) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        found = match_runs([OpenRun(label="one", reader=reader)], settings)
        with pytest.raises(IncomparableRuns, match="nothing to compare"):
            compare_matched(found, Wanted())


def test_systems_of_a_run_without_a_model_are_refused(runs: Runs) -> None:
    """It says what is missing, and what can be compared."""
    with runs.opened(SAMPLES, [blocks_from(3)]) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        with pytest.raises(IncomparableRuns) as raised:
            match_runs([OpenRun(label="old", reader=reader)], settings, scope=SYSTEM)
    assert str(raised.value) == (
        "old asked no target model with a judge, so no system came out of it.\n"
        "Next: compare its defenses, or name runs with a section `pipeline`."
    )


def test_latencies_are_compared_on_attacks_and_on_benign_samples(runs: Runs) -> None:
    """Never pooled, and only where they are wanted."""
    _, compared = matched(runs, SAMPLES, SAMPLES)
    (detail,) = compared.details
    assert len(detail.latency) == 2
    assert [each.is_attack for each in detail.latency] == [True, False]
    _, bare = matched(runs, SAMPLES, SAMPLES, wanted=Wanted(latency=False))
    assert bare.details[0].latency == ()


def test_times_are_compared_in_the_order_of_the_calls(tmp_path: Path) -> None:
    """A defense that became slower half way through did so once, not for every call after it."""
    samples = [*(attack(n) for n in range(100)), *(benign(n) for n in range(100))]
    order = order_samples([each.id for each in samples], len(samples), seed=7)
    asked = {position: at for at, position in enumerate(order)}
    steady = [10_000_000 + 1_000 * (at * 37 % 101) for at in range(200)]
    slower = [each + 20_000_000 * (asked[at] >= 100) for at, each in enumerate(steady)]
    often_slow = [each + 20_000_000 * (asked[at] % 2) for at, each in enumerate(steady)]
    found = {}
    for name, times in (("slower", slower), ("often slow", often_slow)):
        with ExitStack() as stack:
            readers = []
            for label, run in (("old", steady), ("new", times)):
                folder = tmp_path / name / label
                folder.mkdir(parents=True)
                path = write_answers(
                    folder / "records.sqlite", samples, [(block(), each, 0) for each in run]
                )
                readers.append(stack.enter_context(RecordReader(path)))
            opened = [OpenRun(label=f"run {at}", reader=each) for at, each in enumerate(readers)]
            settings = AnalysisSettings.of(readers[0].manifest())
            compared = compare_matched(match_runs(opened, settings), Wanted())
            found[name] = compared.details[0].latency[0].median
    for median in found.values():
        assert median.value is not None
        assert median.value >= 0.0
    assert found["slower"].low is None
    assert "calls hang together in time: 100 are worth about" in found["slower"].reason
    assert found["often slow"].low is not None


def test_every_scope_that_two_runs_share_is_compared(tmp_path: Path) -> None:
    """What came out of the systems, and what the defenses alone decided; in one comparison."""
    planned = PlannedPipeline(
        samples=SAMPLES,
        guards=[blocks_from(30)],
        judges={"judge": lambda _at, sample: UNSAFE_ANSWER if sample.is_attack else SAFE_ANSWER},
        arms=["none", "guard"],
    )
    with opened_pipeline(tmp_path, planned) as old, opened_pipeline(tmp_path, planned) as new:
        opened = [OpenRun(label="old", reader=old), OpenRun(label="new", reader=new)]
        settings = AnalysisSettings.of(old.manifest())
        found = compare_scopes(opened, settings, Wanted())
        assert found.system is not None
        assert found.defenses is not None
        assert found.all == (found.system, found.defenses)
        assert found.comparison.system is found.system.comparison
        assert found.comparison.pairs == found.defenses.comparison.pairs
        alone = replace(found, system=None)
        assert alone.comparison is found.defenses.comparison
        unknown = Wanted(only=("guard", "nobody"))
        with pytest.raises(UnknownName, match="nobody"):
            compare_scopes(opened, settings, unknown)


def test_a_scope_that_cannot_be_compared_does_not_hide_the_other(tmp_path: Path) -> None:
    """One defense alone has no partner, while its system is compared with the bare model."""
    planned = PlannedPipeline(
        samples=SAMPLES,
        guards=[blocks_from(30)],
        judges={"judge": lambda _at, sample: UNSAFE_ANSWER if sample.is_attack else SAFE_ANSWER},
        arms=["none", "guard"],
    )
    with opened_pipeline(tmp_path, planned) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        found = compare_scopes([OpenRun(label="one", reader=reader)], settings, Wanted())
    assert found.defenses is None
    assert found.system is not None
    assert found.comparison is found.system.comparison
