"""One document: every section in its order, and none that pretends."""

from __future__ import annotations

from collections import Counter

from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block, failed
from tests.reports.small_reports import bare_analysis, full_analysis, many

from guardmark.analysis.defense.bypasses import Flaw
from guardmark.analysis.run import analyse_run
from guardmark.core.manifest import Policy
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.blocks import (
    Document,
    FigureCell,
    IntervalChart,
    SampleBrowser,
    Section,
    Table,
    Unit,
)
from guardmark.reports.document.wording import cell_text

ORDER = [
    "recommendations",
    "blind-spots-of-all",
    "categories",
    "adaptive",
    "worst",
    "summary",
    "comparison",
    "latency",
    "thresholds",
    "slices",
    "coverage",
    "configuration",
    "method",
]


def section(document: Document, section_id: str) -> Section:
    """One section."""
    return next(each for each in document.sections if each.id == section_id)


def table(document: Document, table_id: str) -> Table:
    """One table."""
    for found in document.blocks:
        if isinstance(found, Table) and found.id == table_id:
            return found
    raise KeyError(table_id)


def words_of(document: Document, section_id: str) -> str:
    """All sentences of one section."""
    lines = []
    for each in section(document, section_id).blocks:
        lines.append(getattr(each, "text", ""))
        lines.extend(line for line in getattr(each, "lines", ()) if isinstance(line, str))
    return "\n".join(lines)


def test_every_section_is_there_in_order(runs: Runs) -> None:
    """Also when there is nothing to say."""
    for analysis in (full_analysis(runs), bare_analysis(runs, lambda _p, _s: allow())):
        assert [each.id for each in build_document(analysis).sections] == ORDER


def test_sections_without_data_say_so(runs: Runs) -> None:
    """One benign sample, one defense without scores, nothing wrong."""
    document = build_document(bare_analysis(runs, lambda _p, _s: allow()))
    empty = {each.id for each in document.sections if each.empty}
    assert empty == {
        "blind-spots-of-all",
        "slices",
        "comparison",
        "thresholds",
        "adaptive",
        "worst",
    }
    assert all(each.blocks for each in document.sections)


def test_every_id_is_unique(runs: Runs) -> None:
    """Names that differ in one sign must not meet."""
    names = ("a.b", "a-b", "a_b", "A-b")
    planned = [
        Planned(name=name, answers=lambda p, _: block(p % 2) if p % 2 else allow(0.0))
        for name in names
    ]
    with runs.opened(many(), planned) as reader:
        document = build_document(analyse_run(reader))
    ids = Counter(
        each.id for part in document.sections for each in part.blocks if hasattr(each, "id")
    )
    ids.update(part.id for part in document.sections)
    assert [each for each, times in ids.items() if times > 1] == []


def test_equal_figures_give_equal_documents(runs: Runs) -> None:
    """Nothing in it reads a clock."""
    assert build_document(full_analysis(runs)) == build_document(full_analysis(runs))


def test_the_verdict_is_one_line_with_both_rates(runs: Runs) -> None:
    """As product management will quote it."""
    samples = [*(attack(n) for n in range(500)), *(benign(n) for n in range(604))]

    def answers(position: int, sample: object) -> object:
        if sample.is_attack:  # type: ignore[attr-defined]
            return block() if position < 456 else allow()
        if position >= 1100:
            return failed()
        return block() if position < 519 else allow()

    document = build_document(bare_analysis(runs, answers, samples=samples))
    assert document.verdicts[0].sentence == (
        "lets 8.8 % [6.6, 11.6] of 500 attacks through, blocks 3.2 % [2.0, 4.9] of 600 benign "
        "inputs; 4 errors"
    )


def test_an_undefined_side_is_said_to_be_undefined(runs: Runs) -> None:
    """Not zero."""
    document = build_document(bare_analysis(runs, lambda _p, _s: allow()))
    assert "attacks: not measured" in document.verdicts[0].sentence
    assert "hold no attacks" in words_of(document, "summary")


def test_baselines_come_last(runs: Runs) -> None:
    """The floor is no answer."""
    verdicts = build_document(full_analysis(runs)).verdicts
    assert [(each.defense, each.baseline) for each in verdicts] == [
        ("words", False),
        ("ngram", False),
        ("nothing", True),
    ]
    assert any("got an answer" in note for note in verdicts[0].notes)


def test_the_summary_holds_every_headline_figure(runs: Runs) -> None:
    """With the row under the policy below the rates."""
    document = build_document(full_analysis(runs, on_error=Policy.BLOCK))
    labels = [cell_text(row.cells[0]) for row in table(document, "card-words").rows]
    for wanted in (
        "ASR)",
        "TPR",
        "FPR)",
        "FNR",
        "Precision",
        "F1",
        "Balanced",
        "Answered",
        "fail-open",
        "fail-closed",
        "policy",
        "any variant",
    ):
        assert any(wanted in label for label in labels), wanted
    assert "Errors by kind: timeout" in table(document, "card-words").note


def test_charts_show_intervals_of_every_category(runs: Runs) -> None:
    """One mark for each category and candidate; baselines stay out."""
    document = build_document(full_analysis(runs))
    chart = next(
        each for each in section(document, "categories").blocks if isinstance(each, IntervalChart)
    )
    assert len(chart.marks) == 10
    assert {each.series for each in chart.marks} == {"words", "ngram"}
    assert all(each.measure.low is not None for each in chart.marks)


def test_small_slices_are_greyed_in_tables(runs: Runs) -> None:
    """Sixty attacks a category are under the minimum of a hundred."""
    document = build_document(full_analysis(runs))
    assert all(row.greyed for row in table(document, "by-category-asr-words").rows)


def test_the_sample_browser_lists_what_is_wrong_with_commands(runs: Runs) -> None:
    """Hostile text is carried as it is: renderers make it harmless."""
    document = build_document(full_analysis(runs))
    browser = next(
        each for each in section(document, "worst").blocks if isinstance(each, SampleBrowser)
    )
    counts = {each.kind: each for each in browser.counts}
    assert counts[Flaw.BYPASS].command == "guardmark show runs/small/1 --bypasses"
    assert counts[Flaw.FALSE_ALARM].total > 0
    hostile = next(each for each in browser.entries if each.sample_id == "a-00300")
    assert hostile.cut
    assert len(hostile.excerpt) == 500
    assert hostile.characters > 500
    assert hostile.sha256


def test_recommendations_name_their_figures(runs: Runs) -> None:
    """No advice without a number."""
    lines = words_of(build_document(full_analysis(runs)), "recommendations").splitlines()
    assert len(lines) > 3
    assert all(any(sign.isdigit() for sign in line) for line in lines if ":" in line)


def test_the_comparison_never_calls_a_trade_off_better(runs: Runs) -> None:
    """Fewer bypasses, more false alarms."""
    document = build_document(full_analysis(runs))
    words = words_of(document, "comparison")
    assert "neither is better" in words
    assert "Baselines are no candidates" in words


def test_an_unfinished_run_says_how_far_it_is(runs: Runs) -> None:
    """Above everything else of the configuration."""
    with runs.opened(
        many(), [Planned(name="one", answers=lambda _p, _s: block())], repeats=1
    ) as reader:
        analysis = analyse_run(reader)
    assert not words_of(build_document(analysis), "configuration").strip()


def test_measures_have_units_and_no_hidden_zero() -> None:
    """An undefined figure reads undefined."""
    assert cell_text(FigureCell(value=None, unit=Unit.SHARE)) == "undefined"
    assert cell_text(FigureCell(value=0.0, unit=Unit.SHARE)) == "0.0 %"
