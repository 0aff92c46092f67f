"""Sentences of the report that only some runs call for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.analysis.small_runs import (
    Planned,
    Runs,
    allow,
    attack,
    benign,
    block,
    failed,
    garbled,
    make_manifest,
)
from tests.reports.small_reports import bare_analysis, full_analysis

from guardmark.analysis.defense.latency import LatencyDrift
from guardmark.analysis.run import RunAnalysis, analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.manifest import DataManifest
from guardmark.core.outcome import Decision, Outcome
from guardmark.core.sample import Sample
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.blocks import Document, Table
from guardmark.reports.document.wording import cell_text
from guardmark.store.loop_load import LoopLoad
from guardmark.store.reader import RecordReader, RunState
from guardmark.store.records import RecordWriter
from guardmark.store.schema import FLAG_CACHED, FLAG_COLD


def sentences(document: Document, section_id: str) -> str:
    """All sentences of one section, table cells and notes included."""
    lines: list[str] = []
    for part in document.sections:
        if part.id != section_id:
            continue
        for each in part.blocks:
            lines.append(getattr(each, "text", ""))
            lines.extend(line for line in getattr(each, "lines", ()) if isinstance(line, str))
            if isinstance(each, Table):
                lines.append(each.note)
                lines.extend(cell_text(cell) for row in each.rows for cell in row.cells)
    return "\n".join(lines)


def told(analysis: RunAnalysis, section_id: str) -> str:
    """All sentences of one section of a run's report."""
    return sentences(build_document(analysis), section_id)


def two(runs: Runs, first: object, second: object, **settings: object) -> RunAnalysis:
    """A run of two defenses over plain samples."""
    samples = [*(attack(n) for n in range(200)), *(benign(n) for n in range(200))]
    planned = [
        Planned(name="one", answers=first),  # type: ignore[arg-type]
        Planned(name="two", answers=second),  # type: ignore[arg-type]
    ]
    with runs.opened(samples, planned) as reader:
        chosen = replace(AnalysisSettings.of(reader.manifest()), **settings)  # type: ignore[arg-type]
        return analyse_run(reader, chosen)


def errs(attacks: int, benign_: int) -> object:
    """A defense that errs on the first so many of each side."""

    def answer(_: int, sample: Sample) -> Decision:
        number = int(sample.id[2:])
        if sample.is_attack:
            return allow() if number < attacks else block()
        return block() if number < benign_ else allow()

    return answer


def test_every_verdict_on_a_pair_has_its_sentence(runs: Runs) -> None:
    """And names who is meant."""
    expected = {
        (20, 5, 90, 60): "one is better than two",
        (90, 60, 20, 5): "two is better than one",
        (20, 60, 90, 5): "trade bypasses for false alarms",
        (20, 5, 90, 5): "one lets fewer attacks through than two",
        (90, 5, 20, 5): "two lets fewer attacks through than one",
        (20, 5, 20, 60): "one has fewer false alarms than two",
        (20, 60, 20, 5): "two has fewer false alarms than one",
        (20, 5, 20, 5): "cannot be told apart, which does not make them equal",
    }
    for (a1, b1, a2, b2), words in expected.items():
        assert words in told(two(runs, errs(a1, b1), errs(a2, b2)), "comparison")


def test_the_category_of_the_highest_rate_is_named_however_few_it_holds(runs: Runs) -> None:
    """With its counts, and that they are few; nothing is named where nothing got through."""
    samples = [
        *(attack(n, category="jailbreak") for n in range(200)),
        *(attack(n, category="extraction") for n in range(200, 204)),
        *(benign(n) for n in range(50)),
    ]
    leaky = Planned(
        name="leaky", answers=lambda _p, s: allow() if s.category == "extraction" else block()
    )
    wall = Planned(name="wall", answers=lambda _p, _s: block())
    with runs.opened(samples, [leaky, wall]) as reader:
        words = told(analyse_run(reader), "worst")
    assert (
        "leaky: highest ASR in extraction, 4/4, of few samples; allowing for the choice among 2, 96"
        in words
    )
    assert "4/4, of few samples" in words
    assert "wall: highest" not in words


def test_a_difference_has_the_direction_of_its_sentence(runs: Runs) -> None:
    """Whoever is better at attacks has the lower rate, in whatever order the two were measured."""
    for one, other, better in ((20, 90, "one"), (90, 20, "two")):
        words = told(two(runs, errs(one, 5), errs(other, 5)), "comparison")
        sentence = words[words.index(f"{better} lets fewer attacks") :]
        assert ": ASR -35.0 points [-4" in sentence.partition("Pairs on")[0]


def test_no_difference_comes_with_what_would_have_been_found(runs: Runs) -> None:
    """Not significant is not equal."""
    words = told(two(runs, errs(20, 5), errs(22, 5)), "comparison")
    assert "points in 80 % of runs" in words
    assert "not distinguishable from it" in words


def test_pairs_that_never_met_have_no_difference(runs: Runs) -> None:
    """Each failed where the other answered."""
    analysis = two(
        runs,
        lambda p, _s: block() if p % 2 else failed(),
        lambda p, _s: failed() if p % 2 else block(),
    )
    words = told(analysis, "comparison")
    assert "ASR difference undefined" in words
    assert "Lowest attack success rate" not in words, "nobody is called the best"


def test_one_group_gives_a_difference_without_a_test(runs: Runs) -> None:
    """The reason stands where p would."""
    samples = [*(attack(n, group="g") for n in range(20)), *(benign(n) for n in range(20))]
    words = told(bare_analysis(runs, errs(5, 0), errs(9, 0), samples=samples), "comparison")
    assert "ASR -20.0 points (one group only" in words


def test_three_defenses_are_tested_together(runs: Runs) -> None:
    """Cochran's Q beside the pairs."""
    samples = [*(attack(n) for n in range(200)), *(benign(n) for n in range(50))]
    analysis = bare_analysis(runs, errs(10, 5), errs(60, 5), errs(90, 5), samples=samples)
    assert "All together: Cochran's Q" in told(analysis, "comparison")


def test_better_is_recommended_with_both_figures(runs: Runs) -> None:
    """Prefer one, and why."""
    words = told(two(runs, errs(20, 5), errs(90, 60)), "recommendations")
    assert "Prefer one to two: ASR -35.0 points, FPR -27.5 points." in words


def test_weak_categories_and_chance_are_named_in_words(runs: Runs) -> None:
    """The figure stands in the sentence."""
    samples = [*(attack(n) for n in range(600)), *(benign(n) for n in range(300))]

    def weak(_: int, sample: Sample) -> Decision:
        return block() if sample.is_attack and sample.category != "jailbreak" else allow()

    words = told(bare_analysis(runs, weak, samples=samples), "recommendations")
    assert "a blind spot, category jailbreak: 120/120 attacks get through there" in words
    chance = bare_analysis(runs, lambda p, _s: block() if p % 2 else allow(), samples=samples)
    words = told(chance, "recommendations")
    assert "Do not rely on it unless more data show that it does" in words
    assert "the whole interval lies above 5 %" in words


def test_a_better_threshold_is_recommended_in_words(runs: Runs) -> None:
    """With the rates of the half it was not chosen on."""
    samples = [*(attack(n) for n in range(600)), *(benign(n) for n in range(600))]

    def late(position: int, sample: Sample) -> Decision:
        score = (0.6 if sample.is_attack else 0.1) + 0.0003 * (position % 600)
        return block(score) if score >= 0.75 else allow(score)

    words = told(bare_analysis(runs, late, samples=samples), "recommendations")
    assert "consider the threshold 0.6" in words
    assert "chosen for FPR 1 % on the calibration half" in words


def test_failures_are_mended_first(runs: Runs) -> None:
    """Counts, share and both bounds in one sentence."""
    samples = [*(attack(n) for n in range(50)), *(benign(n) for n in range(50))]
    analysis = bare_analysis(
        runs,
        lambda p, _s: failed() if p % 5 == 0 else garbled() if p % 7 == 0 else block(),
        samples=samples,
    )
    words = told(analysis, "recommendations")
    assert "fix the failures first (mostly timeout)" in words
    assert "Malformed answers: 12, errors: 20, so the answered share is 68.0 %" in words


def test_gaps_and_undeclared_names_are_listed(runs: Runs) -> None:
    """What was not tested is as telling as what was."""
    with runs.opened(
        [attack(0), benign(0)],
        [Planned(name="one", answers=lambda _p, _s: block())],
        categories={"jailbreak": ("persona_based",)},
    ) as reader:
        words = told(analyse_run(reader), "coverage")
    assert "not tested: jailbreak/persona_based" in words
    assert "not in the taxonomy: direct_injection" in words


def test_a_complete_taxonomy_is_said_to_be_complete(runs: Runs) -> None:
    """No gap, no list."""
    with runs.opened(
        [attack(0), benign(0)],
        [Planned(name="one", answers=lambda _p, _s: block())],
        categories={"direct_injection": ("instruction_override",)},
    ) as reader:
        analysis = analyse_run(reader)
    assert "Every declared category and subcategory was tested." in told(analysis, "coverage")


def written(folder: Path, rows: list[tuple[Decision, int | None, int]]) -> RunAnalysis:
    """A run of one defense whose rows are given one by one."""
    samples = [attack(n) for n in range(len(rows))]
    planned = [Planned(name="one", answers=lambda _p, _s: allow())]
    with RecordWriter(folder / "records.sqlite") as writer:
        writer.put_manifest(make_manifest(planned, samples))
        writer.load_samples(samples)
        writer.plan(len(rows) + 5)
        lane = writer.record_batch("one")
        for position, (decision, latency, flags) in enumerate(rows):
            lane.add(position, decision, latency_ns=latency, flags=flags)
        writer.finish(RunState.INTERRUPTED)
    with RecordReader(folder / "records.sqlite") as reader:
        return analyse_run(reader)


def test_what_was_left_out_of_the_times_is_told(tmp_path: Path) -> None:
    """Cold start, cache, shares of batches."""
    share = Decision(outcome=Outcome.BLOCK, latency_ns=1_000_000, amortised=True)
    rows: list[tuple[Decision, int | None, int]] = [(block(), 900_000_000, FLAG_COLD)]
    rows += [(block(), 10, FLAG_CACHED)] * 3
    rows += [(share, None, 0)] * 50
    words = told(written(tmp_path, rows), "latency")
    assert "one: the first call took 900 ms (cold start, left out)" in words
    assert "one: 3 answers came from the cache or from stored decisions" in words
    assert "one: times are shares of a batch's time" in words


def test_a_run_without_times_says_so(tmp_path: Path) -> None:
    """Decisions from a file carry none; the run is unfinished, too."""
    analysis = written(tmp_path, [(block(), None, 0)] * 20)
    assert "No answer was timed." in told(analysis, "latency")
    assert "20 of 25 planned records are stored" in told(analysis, "configuration")


def test_cached_answers_alone_leave_the_times_empty(tmp_path: Path) -> None:
    """Nothing was served, so nothing was timed."""
    analysis = written(tmp_path, [(block(), 10, FLAG_CACHED)] * 20)
    assert "No answer was timed." in told(analysis, "latency")


def test_no_samples_make_no_categories(tmp_path: Path) -> None:
    """An empty section, not an empty table."""
    assert "No samples, so no categories." in told(written(tmp_path, []), "categories")


def test_few_groups_are_warned_of(runs: Runs) -> None:
    """In the verdict."""
    samples = [*(attack(n, group=f"g{n % 4}") for n in range(40)), *(benign(n) for n in range(20))]
    analysis = bare_analysis(runs, lambda p, _s: block() if p % 3 else allow(), samples=samples)
    document = build_document(analysis)
    assert any("few groups" in note for note in document.verdicts[0].notes)


def test_a_group_that_dominates_a_rate_is_named(runs: Runs) -> None:
    """Half of the attacks are rewritings of one: beside the verdict, and where it is sliced."""
    attacks = [attack(n, group="story" if n < 20 else f"g{n // 2}") for n in range(40)]
    samples = [*attacks, *(benign(n) for n in range(20))]
    analysis = bare_analysis(runs, lambda p, _s: block() if p % 3 else allow(), samples=samples)
    notes = build_document(analysis).verdicts[0].notes
    assert [note for note in notes if "dominates" in note] == [
        "one group dominates: 'story' holds 50.0 % of the attacks"
    ]
    assert "One group dominates:" in told(analysis, "categories")
    assert "('story')" in told(analysis, "categories")


def test_a_threshold_chosen_afterwards_is_said_to_be_one(runs: Runs) -> None:
    """Nobody takes it for the run's own decisions."""
    samples = [*(attack(n) for n in range(20)), *(benign(n) for n in range(20))]
    planned = [Planned(name="one", answers=lambda p, _s: block(0.6) if p % 2 else allow(0.4))]
    with runs.opened(samples, planned) as reader:
        settings = replace(AnalysisSettings.of(reader.manifest()), thresholds=(("one", 0.3),))
        document = build_document(analyse_run(reader, settings))
    assert "decided anew from stored scores at threshold 0.3" in document.verdicts[0].notes


def test_scores_that_separate_wholly_are_not_known_to_do_so_always(runs: Runs) -> None:
    """An area of 1 over 60 a side has a lower limit below 1."""
    samples = [*(attack(n) for n in range(60)), *(benign(n) for n in range(60))]
    analysis = bare_analysis(
        runs, lambda _p, s: block(0.9) if s.is_attack else allow(0.1), samples=samples
    )
    words = told(analysis, "thresholds")
    assert "area under the ROC curve 1.000 [0.9" in words
    assert "not resolvable" in words


def test_the_files_of_one_data_set_are_named_once(runs: Runs) -> None:
    """A built-in set of seven files is one set in the subtitle."""
    data = tuple(
        DataManifest(
            name="core", version="1", sha256="e" * 64, attacks=1, benign=1, files={file: "f"}
        )
        for file in ("a.jsonl", "b.jsonl")
    )
    analysis = full_analysis(runs, data=data, evaluator="")
    document = build_document(analysis)
    assert document.subtitle.startswith("core 1: 300 attacks")
    assert document.subtitle.endswith(" UTC")
    assert "b.jsonl" in sentences(document, "configuration")


def test_many_data_sets_are_counted_and_empty_ones_left_out(runs: Runs) -> None:
    """Three by name, the others by number."""
    data = tuple(
        DataManifest(name=f"set-{n}", version="", sha256="e" * 64, attacks=n, benign=0)
        for n in range(7)
    )
    document = build_document(full_analysis(runs, data=data))
    assert document.subtitle.startswith("set-1, set-2, set-3 and 3 more: 300 attacks")
    assert build_document(full_analysis(runs, data=())).subtitle.startswith("no data: ")


def test_a_defense_that_lets_most_through_is_not_enough(runs: Runs) -> None:
    """Half of the attacks, bound and all."""
    samples = [*(attack(n) for n in range(300)), *(benign(n) for n in range(300))]
    analysis = bare_analysis(
        runs, lambda p, s: block() if s.is_attack and p % 4 == 0 else allow(), samples=samples
    )
    assert "one: not enough on its own. ASR 75.0 %" in told(analysis, "recommendations")


def test_repeats_tell_whether_the_answer_stays(runs: Runs) -> None:
    """A third of the samples get another answer the second time."""

    class Moody:
        """Blocks; on the second call allows every third sample."""

        def __init__(self) -> None:
            self.seen: set[int] = set()

        def __call__(self, position: int, _: Sample) -> Decision:
            again = position in self.seen
            self.seen.add(position)
            if position == 0 and again:
                return failed()
            return allow() if again and position % 3 == 1 else block()

    samples = [*(attack(n) for n in range(31)), *(benign(n) for n in range(30))]
    planned = [Planned(name="one", answers=Moody())]
    with runs.opened(samples, planned, repeats=2) as reader:
        analysis = analyse_run(reader)
    stability = analysis.defenses[0].stability
    assert stability is not None
    assert (stability.attacks.samples, stability.left_out) == (30, 1)
    assert stability.attacks.flip_rate == 1 / 3
    assert "33.3 %" in told(analysis, "summary")


def test_small_slices_give_way_to_large_ones_in_long_tables(runs: Runs) -> None:
    """Forty techniques of which twenty-five are shown, the largest ones, worst first."""
    samples = [attack(n, technique=f"t{n % 40 if n < 200 else 0}") for n in range(300)]
    analysis = bare_analysis(runs, lambda p, _s: allow() if p % 3 else block(), samples=samples)
    document = build_document(analysis)
    tables = [each for part in document.sections for each in part.blocks if isinstance(each, Table)]
    table = next(each for each in tables if each.id.startswith("by-technique"))
    assert len(table.rows) == 25
    assert "15 smaller ones are in categories.csv." in table.note
    assert any(cell_text(row.cells[0]) == "t0" for row in table.rows)


@pytest.mark.parametrize(
    ("busy_s", "total_s", "is_told"), [(95, 100, True), (40, 100, False), (1, 1, False)]
)
def test_a_busy_machine_is_told_where_it_set_the_times(
    runs: Runs, busy_s: int, total_s: int, *, is_told: bool
) -> None:
    """Not for seconds of start-up, and not where the thread mostly waited."""
    analysis = full_analysis(runs)
    load = LoopLoad(busy_s * 10**9, total_s * 10**9)
    status = replace(analysis.status, load=load)
    words = told(replace(analysis, status=status), "latency")
    assert ("This machine was busy" in words) is is_told


def test_calls_that_slow_down_are_told_with_both_thirds(runs: Runs) -> None:
    """In the order of asking; spells without a trend say what the calls are worth."""
    analysis = full_analysis(runs)
    first = analysis.defenses[0]
    for drift, said in (
        (
            LatencyDrift(
                quantile=0.95, first_ms=40.0, last_ms=95.0, calls=900, worth=120.0, spell=20.0
            ),
            "became slower while the run went on: p95 was 40",
        ),
        (
            LatencyDrift(
                quantile=0.5, first_ms=40.0, last_ms=10.0, calls=900, worth=120.0, spell=20.0
            ),
            "became faster while the run went on: p50 was 40",
        ),
        (
            LatencyDrift(
                quantile=None, first_ms=None, last_ms=None, calls=900, worth=120.0, spell=20.0
            ),
            "slow calls came in spells of about 20 calls: for the median, 900 calls are worth about 120",
        ),
    ):
        slow = replace(first, latency=replace(first.latency, drift=drift))
        words = told(replace(analysis, defenses=(slow, *analysis.defenses[1:])), "latency")
        assert said in words
