"""A comparison as a terminal, a pull request and a program read it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from statsmodels.stats.contingency_tables import mcnemar
from tests.analysis.small_runs import (
    Answers,
    Planned,
    Runs,
    allow,
    attack,
    benign,
    block,
    write_run,
)
from tests.reports.small_reports import PLANNED, many

import guardmark
from guardmark.analysis.compare.comparison import PairVerdict
from guardmark.analysis.compare.matching import OpenRun, match_runs
from guardmark.analysis.compare.runs_compared import (
    Compared,
    ScopedComparisons,
    Wanted,
    compare_matched,
)
from guardmark.analysis.run import analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.outcome import Decision
from guardmark.core.sample import Sample
from guardmark.reports.chapters.comparison import (
    comparison_document,
    corrected_sentence,
    pair_sentence,
    recommendation,
    significance_sentence,
)
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.render.html.layout import series_of
from guardmark.reports.render.json.documents import comparison_json
from guardmark.reports.render.markdown import render_markdown
from guardmark.reports.render.terminal import render_terminal
from guardmark.stats.paired import significance

MARKER = "<!-- guardmark-comparison -->"


def alone(compared: Compared) -> ScopedComparisons:
    """The comparison of defenses of runs without a pipeline."""
    return ScopedComparisons(system=None, defenses=compared)


def write_json(compared: Compared, *, texts: bool = True) -> str:
    """A comparison as a file of the run folder."""
    return comparison_json(alone(compared), texts=texts)


def render_compared(compared: Compared, *, texts: bool = True, width: int = 100) -> str:
    """A comparison as `guardmark compare` prints it."""
    return render_terminal(comparison_document(alone(compared), texts=texts), width=width)


def render_comment(compared: Compared, *, texts: bool = True) -> str:
    """A comparison as a comment on a pull request."""
    document = comparison_document(alone(compared), texts=texts)
    return render_markdown(document, marker="guardmark-comparison")


@pytest.fixture
def compared(runs: Runs) -> Compared:
    """A run with hostile texts and names, its label hostile too."""
    with runs.opened(many(), PLANNED) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        opened = [OpenRun(label="\x1b[2J<b>run</b>`|`", reader=reader)]
        wanted = Wanted(against="words", listed=400)
        return compare_matched(match_runs(opened, settings), wanted)


def test_nothing_hostile_reaches_a_terminal(compared: Compared) -> None:
    """No escape sequence, no direction mark, no line break from data."""
    text = render_compared(compared)
    assert "script" in text, "texts are shown"
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2028]", text)


def test_nothing_hostile_becomes_markup(compared: Compared) -> None:
    """Outside code spans there is no tag but our own, no link and no mention."""
    text = render_comment(compared)
    assert text.startswith(MARKER)
    outside = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text.replace(MARKER, ""))
    tags = set(re.findall(r"</?[a-z]+[^>]*>", outside))
    assert tags <= {"<details>", "</details>", "<summary>", "</summary>", "<sub>", "</sub>"}
    assert "@everyone" not in outside
    assert "](" not in outside


def test_texts_can_be_left_out(compared: Compared) -> None:
    """Hashes in their place, in every rendering."""
    for render in (render_compared, render_comment, write_json):
        assert "script" in render(compared)
        assert "script" not in render(compared, texts=False)


def test_a_comparison_without_times_is_the_same_in_every_run(compared: Compared) -> None:
    """What a run keeps must not differ by clocks alone."""
    said = json.loads(comparison_json(alone(compared), timing=False))
    assert all(pair["detail"]["timing"] == [] for pair in said["pairs"])
    assert all(run["created_utc"] == "" for run in said["runs"])
    assert json.loads(comparison_json(alone(compared)))["pairs"][0]["detail"]["timing"]


def test_every_verdict_has_one_sentence(compared: Compared) -> None:
    """And only a shown advantage on both sides is called a preference without a condition."""
    from dataclasses import replace

    pair = compared.comparison.pairs[0]
    said = {
        verdict: recommendation(replace(pair, verdict=verdict), margin=None)
        for verdict in PairVerdict
    }
    assert len(set(said.values())) == len(PairVerdict)
    for verdict, sentence in said.items():
        assert sentence.endswith(".")
        assert sentence.count(". ") == 0
        sure = verdict in {PairVerdict.FIRST_BETTER, PairVerdict.SECOND_BETTER}
        is_preference = sentence.startswith("Prefer ") and "where" not in sentence
        assert is_preference == sure


def guarded(runs: Runs, *pairs: tuple[str, int, int]) -> Compared:
    """Defenses by name that err on so many of 200 attacks and of 200 benign samples."""
    samples = [*(attack(n) for n in range(200)), *(benign(n) for n in range(200))]

    def guard(through: int, alarms: int) -> Answers:
        def answer(position: int, sample: Sample) -> Decision:
            if sample.is_attack:
                return allow() if position % 200 < through else block()
            return block() if position % 200 < alarms else allow()

        return answer

    planned = [Planned(name=name, answers=guard(a, b)) for name, a, b in pairs]
    with runs.opened(samples, planned) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        matched = match_runs([OpenRun(label="run", reader=reader)], settings)
        return compare_matched(matched, Wanted())


def test_a_comparison_can_be_laid_beside_one_made_with_the_corrected_test(runs: Runs) -> None:
    """McNemar with continuity correction: 40 against 0 discordant is (40 - 1)^2 / 40 = 38.025."""
    found = guarded(runs, ("one", 20, 5), ("two", 60, 5))
    assert "McNemar's test with continuity correction" in render_compared(found, width=400)
    sentence = corrected_sentence(found.comparison.pairs[0])
    assert "ASR 0 against 40 discordant, chi-square 38.02, p < 0.0001" in sentence
    assert "FPR no test (no discordant pair)" in sentence
    in_words = significance_sentence(found.comparison.pairs[0])
    assert "one against two: attacks: one is significantly better (p < 0.0001)" in in_words
    assert "false alarms: no significant difference" in in_words


def test_the_corrected_test_is_that_of_statsmodels(runs: Runs) -> None:
    """The same statistic and p as the library's."""
    theirs = mcnemar([[0, 12], [25, 0]], exact=False, correction=True)
    ours = corrected_sentence(guarded(runs, ("one", 25, 0), ("two", 0, 0)).comparison.pairs[0])
    assert "25 against 0 discordant, chi-square 23.04" in ours
    assert significance.mcnemar(12, 25).p_chi2_corrected == pytest.approx(theirs.pvalue)


def test_neither_of_two_weak_defenses_is_shown(runs: Runs) -> None:
    """Grammar follows the number of those that beat no chance."""
    pair = guarded(runs, ("one", 20, 60), ("two", 90, 5)).comparison.pairs[0]
    assert pair.verdict is PairVerdict.TRADE_OFF
    both = pair_sentence(pair, {"one", "two"})
    assert "but neither one nor two is shown to beat chance" in both
    assert "but two is not shown to beat chance" in pair_sentence(pair, {"two"})
    advice = recommendation(pair, margin=None, weak={"one", "two"})
    assert advice.startswith("Choose neither of one and two: neither is shown")


def test_baselines_take_part_when_they_are_named(compared: Compared) -> None:
    """`--against` takes any defense of the run."""
    assert {(pair.first, pair.second) for pair in compared.comparison.pairs} == {("ngram", "words")}


def test_a_defense_that_is_beaten_on_both_sides_is_not_worth_choosing(runs: Runs) -> None:
    """A leaky and jumpy defense falls off; two that trade one for the other stay."""
    samples = [*(attack(n) for n in range(200)), *(benign(n) for n in range(200))]

    def guard(through: int, alarms: int) -> Answers:
        return lambda position, sample: (
            (block() if position % 200 >= through else allow())
            if sample.is_attack
            else (block() if position % 200 < alarms else allow())
        )

    planned = [
        Planned(name="strict", answers=guard(5, 60)),
        Planned(name="lenient", answers=guard(60, 5)),
        Planned(name="poor", answers=guard(120, 120)),
    ]
    with runs.opened(samples, planned) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        matched = match_runs([OpenRun(label="run", reader=reader)], settings)
        found = compare_matched(matched, Wanted())
    assert found.comparison.front == ("strict", "lenient")
    chosen = [line for line in render_compared(found, width=200).splitlines() if "  yes" in line]
    assert [line.split()[0] for line in chosen] == ["strict", "lenient"]
    assert json.loads(comparison_json(alone(found)))["front"] == ["strict", "lenient"]


def test_the_public_verb_compares_across_runs(tmp_path: Path) -> None:
    """`guardmark.compare(one, other)` returns the comparison as values."""
    from guardmark.app.parts.loading import parse_config

    text = "version: 1\ndata: [{builtin: core}]\ndefenses: {words: {type: coin}}\n"
    config = parse_config(text, folder=tmp_path, shown_as="made").config
    for name, chosen in (("one", PLANNED[1]), ("two", PLANNED[2])):
        (tmp_path / name).mkdir()
        write_run(
            tmp_path / name / "records.sqlite",
            many(40),
            [chosen],
            settings=config.model_dump(mode="json"),
        )
    found = guardmark.compare(tmp_path / "one", tmp_path / "two")
    (pair,) = found.pairs
    assert (pair.first, pair.second) == ("ngram", "words")


def test_where_each_defense_stands_is_told_beside_the_differences(compared: Compared) -> None:
    """Both rates with their intervals, as data and as the table of a comment."""
    said = json.loads(comparison_json(alone(compared)))
    names = {name for pair in compared.comparison.pairs for name in (pair.first, pair.second)}
    assert {row["defense"] for row in said["rates"]} == names
    for row in said["rates"]:
        for rate in (row["attack_success_rate"], row["false_positive_rate"]):
            assert rate["value"] is None or rate["low"] <= rate["value"] <= rate["high"]
    assert "| Defense | ASR | of attacks | FPR |" in render_comment(compared)


def test_many_defenses_are_one_table_with_tiers(runs: Runs) -> None:
    """Of twelve defenses nobody reads 66 pairs: one line each, the fewest bypasses first."""
    samples = [*(attack(n) for n in range(60)), *(benign(n) for n in range(20))]
    planned = [
        Planned(
            name=f"d{k:02}",
            answers=lambda _, sample, k=k: block() if int(sample.id[2:]) < 5 * k else allow(),
        )
        for k in range(12)
    ]
    with runs.opened(samples, planned) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        report = render_markdown(build_document(analyse_run(reader, settings)))
        opened = [OpenRun(label="run", reader=reader)]
        result = compare_matched(match_runs(opened, settings), Wanted())
    for told in (report, render_comment(result)):
        lines = [line for line in told.splitlines() if "Each by itself" in line]
        assert len(lines) == 1
        table = told[told.index(lines[0]) :].split("\n\n")[1].splitlines()
        assert [line.split("|")[1].strip(" `") for line in table[2:]] == [
            f"d{k:02}" for k in reversed(range(12))
        ]
        assert table[0].split("|")[-2] == " Tiers ASR, FPR "
        assert table[2].split("|")[-2].strip().startswith("a, ")
        assert "Prefer" not in told
        assert "cannot be told apart, which" not in told
    assert "None of the 12: none is shown to block attacks" in render_comment(result)
    series = series_of(comparison_document(alone(result)))
    assert sorted(series) == [f"d{k:02}" for k in range(12)]
    assert sorted(series.values()) == list(range(12))
