"""The same document as Markdown, and for a terminal; hostile texts stay texts."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block
from tests.reports.small_reports import HOSTILE, bare_analysis, full_analysis

from guardmark.analysis.run import analyse_run
from guardmark.reports.chapters.run_document import build_document, digest, shorten
from guardmark.reports.document.safe_text import markdown_code, markdown_line, plain_line
from guardmark.reports.render.latex import latex_files
from guardmark.reports.render.markdown import render_markdown
from guardmark.reports.render.terminal import render_terminal

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def without_code(line: str) -> str:
    """A line of Markdown without its inline code."""
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", line)


def test_markdown_has_every_section_and_the_verdicts_first(runs: Runs) -> None:
    """Verdict first, then the order of the report."""
    text = render_markdown(build_document(full_analysis(runs)))
    heads = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert heads[0] == "What to do next"
    assert heads[-1] == "Method and warnings"
    assert len(heads) == 13
    assert text.index("`words` ") < text.index("## What to do next")


def test_markdown_tables_are_rectangular(runs: Runs) -> None:
    """No bar of a name ends a cell."""
    text = render_markdown(build_document(full_analysis(runs)))
    widths: list[int] = []
    for line in text.splitlines():
        if line.startswith("|"):
            widths.append(len(re.findall(r"(?<!\\)\|", line)))
        else:
            assert len(set(widths)) <= 1
            widths = []


def test_markdown_keeps_hostile_text_inert(runs: Runs) -> None:
    """No HTML, no image, no link, no mention, no control character outside of code."""
    text = render_markdown(build_document(full_analysis(runs)))
    assert not CONTROL.search(text)
    for line in text.splitlines():
        shown = without_code(line)
        assert "<script" not in shown
        assert "<b>" not in shown
        assert not re.search(r"(?<!\\)\]\(", shown)
        assert "https://" not in shown
        assert "@everyone" not in shown
    assert "\u2028" not in text


def test_texts_can_be_left_out_of_markdown(runs: Runs) -> None:
    """Hashes alone, for a report that leaves the house."""
    document = build_document(full_analysis(runs))
    assert "alert(1)" in render_markdown(document)
    bare = render_markdown(document, texts=False)
    assert "alert(1)" not in bare
    assert "sha256 " in bare


def test_undefined_is_written_out(runs: Runs) -> None:
    """Never a zero, never NaN."""
    text = render_markdown(build_document(bare_analysis(runs, lambda _p, _s: allow())))
    assert "undefined" in text
    assert "nan" not in text.lower().split()


def test_renderings_of_equal_figures_are_equal(runs: Runs) -> None:
    """Byte for byte."""
    one, two = (build_document(full_analysis(runs)) for _ in range(2))
    assert render_markdown(one) == render_markdown(two)
    assert render_terminal(shorten(one)) == render_terminal(shorten(two))


def is_command(line: str) -> bool:
    """Whether a line is to be copied whole, so that it is never broken."""
    return line.strip().startswith("guardmark ")


def test_the_terminal_shows_verdicts_table_and_advice(runs: Runs) -> None:
    """What one needs before opening the report."""
    document = build_document(full_analysis(runs))
    text = render_terminal(shorten(document), width=100)
    assert all(len(line) <= 100 for line in text.splitlines() if not is_command(line))
    assert "words" in text
    assert "What to do next" in text
    assert "\x1b" not in text
    first = text.split("\n\n")[1]
    assert first.startswith("  None of two "), "the answer is the first line"
    table = text.split("\n\n")[2].splitlines()[2:]
    assert [line.split()[0] for line in table] == ["words", "ngram", "nothing"]


def test_long_advice_is_cut_with_a_count(runs: Runs) -> None:
    """The rest stands in the report."""
    samples = [*(attack(n) for n in range(30)), *(benign(n) for n in range(30))]
    several = [lambda p, _s, k=k: block() if p % k else allow() for k in (2, 3, 4)]
    document = build_document(bare_analysis(runs, *several, samples=samples))
    assert "more in the report)" in render_terminal(shorten(document))


def test_a_narrow_terminal_sets_columns_below_the_others(runs: Runs) -> None:
    """Nothing runs over the edge, and nothing is lost but what follows from other columns."""
    text = render_terminal(shorten(build_document(full_analysis(runs))), width=50)
    assert all(len(line) <= 50 for line in text.splitlines() if not is_command(line))
    heads = [line for line in text.splitlines() if "Errors" in line]
    assert all(line.split()[0] == "Defense" for line in heads)
    assert heads, "columns that do not fit are set below, each part with its first column"


def test_colour_marks_candidates_and_dims_baselines(runs: Runs) -> None:
    """Only when asked for."""
    text = render_terminal(shorten(build_document(full_analysis(runs))), colour=True)
    assert "\x1b[1mwords\x1b[0m" in text
    assert "\x1b[2m  nothing" in text


def test_a_run_without_advice_says_nothing_of_what_follows(runs: Runs) -> None:
    """No invented recommendation."""
    samples = [*(attack(n) for n in range(400)), *(benign(n) for n in range(400))]
    document = build_document(
        bare_analysis(runs, lambda _p, s: block() if s.is_attack else allow(), samples=samples)
    )
    assert "What to do next" not in render_terminal(shorten(document))


@given(st.text(max_size=80))
def test_no_text_steers_a_terminal(text: str) -> None:
    """Whatever it holds, it comes out on one line without control signs."""
    line = plain_line(text)
    assert not CONTROL.search(line)
    assert "\n" not in line
    assert "\x1b" not in line


@given(st.text(max_size=80))
def test_no_text_becomes_markup(text: str) -> None:
    """No HTML tag, no entity of its own, no list or heading."""
    line = markdown_line(text)
    assert "<" not in line
    assert ">" not in line
    assert not line.startswith(("#", "- ", "+ ", "* ", ">"))
    assert not re.search(r"(?<!\\)[`*_\[\]|]", line.replace("\\\\", ""))


@given(st.text(max_size=80))
def test_inline_code_is_closed_by_its_own_fence_only(text: str) -> None:
    """However many back-ticks the text holds."""
    code = markdown_code(text)
    if code:
        fence = re.match(r"`+", code)
        assert fence is not None
        inner = code[len(fence.group()) : -len(fence.group())]
        assert fence.group() not in re.findall(r"`+", inner)


def test_the_hostile_text_is_shown_with_every_sequence_spelled_out() -> None:
    """Screen, title, colours, direction, zero bytes."""
    line = plain_line(HOSTILE)
    assert "[U+001B][2J" in line
    assert "\x1b" not in line
    assert "alert(1)" in line


def test_whoever_decides_reads_two_screens(runs: Runs) -> None:
    """Of six defenses at most 150 lines: answer, table, gate, what to do, what it cannot say."""
    samples = [*(attack(n) for n in range(60)), *(benign(n) for n in range(60))]
    planned = [
        Planned(name=f"g{k}", answers=lambda p, _s, k=k: block() if p % k else allow())
        for k in range(2, 8)
    ]
    with runs.opened(samples, planned) as reader:
        document = build_document(analyse_run(reader))
    text = render_markdown(digest(document))
    assert len(text.splitlines()) <= 150
    assert f"**{document.answer[0]}" in text.replace("\\", "")
    for part in ("What to do next", "By category", "What these figures cannot say"):
        assert f"## {part}" in text
    assert len(text) < len(render_markdown(document)) / 3


def test_a_rate_clearly_below_all_others_of_its_category_is_bold(runs: Runs) -> None:
    """In the table of categories against defenses, and in its LaTeX."""
    samples = [*(attack(n) for n in range(60)), *(benign(n) for n in range(60))]
    document = build_document(
        bare_analysis(
            runs,
            lambda _p, s: block() if s.is_attack else allow(),
            lambda _p, _s: allow(),
            samples=samples,
        )
    )
    assert re.search(r"\| \*\*0\.0 % .*\*\* \| 100\.0 %", render_markdown(document))
    made = latex_files(document)["categories-by-defense-asr.tex"]
    assert r"\textbf{0.0" in made
