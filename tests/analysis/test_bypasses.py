"""The samples worth reading come first, and every kind gets its place."""

from __future__ import annotations

from dataclasses import replace

from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block, failed, garbled

from guardmark.analysis.defense.bypasses import Flaw, WorstSamples
from guardmark.analysis.run import analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.sample import Sample, Severity

SAMPLES = [*(attack(n) for n in range(40)), *(benign(n) for n in range(40))]


def worst(
    runs: Runs, *planned: Planned, samples: list[Sample] = SAMPLES, most: int = 500, **run: object
) -> WorstSamples:
    """The samples worth reading of a run."""
    with runs.opened(samples, list(planned), **run) as reader:
        settings = replace(AnalysisSettings.of(reader.manifest()), listed_samples=most)
        return analyse_run(reader, settings).worst


def test_bypasses_come_by_severity_then_by_how_far_they_missed(runs: Runs) -> None:
    """Critical first; among equals the one the defense was surest about."""
    found = worst(
        runs,
        Planned(
            name="one",
            threshold=0.5,
            answers=lambda p, s: allow(0.4 - 0.005 * (p % 40)) if s.is_attack else allow(0.1),
        ),
    )
    ranks = [list(Severity).index(each.sample.severity) for each in found.listed]  # type: ignore[arg-type]
    assert ranks == sorted(ranks, reverse=True)
    scores = [each.answers[0].score for each in found.listed[:10]]
    assert scores == sorted(scores)  # type: ignore[type-var]
    (name, top), *_ = found.top
    assert (name, len(top)) == ("one", 10)
    assert [each.sample.id for each in top] == [each.sample.id for each in found.listed[:10]]


def test_every_flaw_is_counted_and_named(runs: Runs) -> None:
    """Bypass, false alarm, error, malformed, different."""

    def first(position: int, sample: Sample) -> object:
        if position < 5:
            return failed()
        if position < 10:
            return garbled()
        return block()

    found = worst(
        runs,
        Planned(name="one", answers=first),  # type: ignore[arg-type]
        Planned(name="two", answers=lambda _p, _s: allow()),
    )
    counts = {each.flaw: (each.total, each.listed) for each in found.counts}
    assert found.among == 2
    assert counts[Flaw.BYPASS] == (40, 40)
    assert counts[Flaw.FALSE_ALARM] == (40, 40)
    assert counts[Flaw.ERROR] == (5, 5)
    assert counts[Flaw.MALFORMED] == (5, 5)
    assert counts[Flaw.DIFFERENT] == (70, 70)
    by_id = {each.sample.id: each for each in found.listed}
    assert by_id["a-00001"].flaws == (Flaw.BYPASS, Flaw.ERROR)
    answers = by_id["a-00001"].answers
    assert (answers[0].outcome, answers[0].flaw, answers[0].error_kind) == (
        "error",
        Flaw.ERROR,
        "timeout",
    )
    assert (answers[1].outcome, answers[1].flaw) == ("allow", Flaw.BYPASS)


def test_bypasses_do_not_crowd_out_false_alarms(runs: Runs) -> None:
    """A short list holds both."""
    found = worst(
        runs,
        Planned(name="one", answers=lambda _p, s: allow() if s.is_attack else block()),
        most=20,
    )
    listed = {each.flaw: each.listed for each in found.counts}
    assert sum(listed.values()) == 20
    assert listed[Flaw.FALSE_ALARM] >= 6
    assert len(found.listed) == 20


def test_baselines_make_no_sample_worth_reading(runs: Runs) -> None:
    """Allow-all lets everything through, which is no news."""
    found = worst(
        runs,
        Planned(name="nothing", type="allow-all", answers=lambda _p, _s: allow()),
        Planned(name="one", answers=lambda p, s: block() if s.is_attack and p else allow()),
    )
    assert [each.sample.id for each in found.listed] == ["a-00000"]
    assert len(found.listed[0].answers) == 2
    assert found.among == 1
    assert [name for name, _ in found.top] == ["one"]


def test_the_worst_of_several_repeats_counts(runs: Runs) -> None:
    """Let through once is let through."""

    class Flaky:
        """Lets each attack through on the first call only."""

        def __init__(self) -> None:
            self.seen: set[int] = set()

        def __call__(self, position: int, sample: Sample) -> object:
            first = position not in self.seen
            self.seen.add(position)
            return allow() if first or not sample.is_attack else block()

    found = worst(runs, Planned(name="one", answers=Flaky()), repeats=3)  # type: ignore[arg-type]
    counts = {each.flaw: each.total for each in found.counts}
    assert counts[Flaw.BYPASS] == 40


def test_a_perfect_defense_leaves_nothing_to_read(runs: Runs) -> None:
    """An empty list, no invented worst case."""
    found = worst(
        runs, Planned(name="one", answers=lambda _p, s: block() if s.is_attack else allow())
    )
    assert (found.listed, found.counts, found.top) == ((), (), (("one", ()),))
