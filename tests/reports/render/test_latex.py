"""Tables of a report for a paper: nothing of the data is a command of LaTeX."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.analysis.small_runs import Runs
from tests.reports.small_reports import HOSTILE, HOSTILE_NAME, bare_analysis, full_analysis

from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.blocks import (
    Column,
    Document,
    FigureCell,
    Row,
    Section,
    Table,
    TextCell,
    Unit,
)
from guardmark.reports.document.safe_text import latex_line
from guardmark.reports.render.latex import latex_files

TEX = shutil.which("pdflatex")
PAPER = r"""\documentclass{article}
\usepackage{booktabs,graphicx}
\begin{document}
%s
\end{document}
"""
SPECIAL = r"""[*] & % $ # _ { } ~ ^ \ < > | " ' ` -- ,, '' \input{/etc/passwd} %"""


def one_table(*rows: Row, columns: tuple[Column, ...]) -> str:
    """The file of a document that holds one table."""
    table = Table(id="t", title="Rates", columns=columns, rows=rows)
    section = Section(id="s", title="", blocks=(table,))
    (text,) = latex_files(
        Document(title="", subtitle="", sections=(section,), run=SPECIAL)
    ).values()
    return text


COLUMNS = (Column(title="Defense"), Column(title="ASR", numeric=True))


def rate(value: float | None, *, trials: int) -> FigureCell:
    """A share of so many trials, with an interval where it is defined."""
    low, high = (None, None) if value is None else (value / 2, value)
    return FigureCell(value=value, unit=Unit.SHARE, low=low, high=high, trials=trials)


def test_counts_follow_rates_that_have_no_column_of_counts() -> None:
    """No figure without its count; where a column shows it already, it is not shown twice."""
    row = Row(cells=(TextCell(text="words", code=True), rate(0.5, trials=40)))
    text = one_table(row, columns=COLUMNS)
    assert r"Defense & ASR & $n$ \\" in text
    assert r"\texttt{words} & 50.0 \% [25.0, 50.0] & 40 \\" in text
    counted = Row(cells=(*row.cells, TextCell(text="20/40")))
    assert "$n$" not in one_table(counted, columns=(*COLUMNS, Column(title="Counts")))


def test_what_is_undefined_is_a_dash_with_a_note() -> None:
    """Never a zero; and where nothing is undefined, nothing is said of dashes."""
    known = Row(cells=(TextCell(text="a"), rate(0.0, trials=9)))
    unknown = Row(cells=(TextCell(text="b"), rate(None, trials=0)))
    text = one_table(known, unknown, columns=COLUMNS)
    assert r"b & --- & 0 \\" in text
    assert r"a & 0.0 \% [0.0, 0.0] & 9 \\" in text
    assert "A dash: undefined" in text
    assert "A dash" not in one_table(known, columns=COLUMNS)


def test_one_file_holds_the_tables_that_are_not_folded(runs: Runs) -> None:
    """A folder has each table; a file has the ones that a report shows first."""
    document = build_document(full_analysis(runs))
    every, (single,) = latex_files(document), latex_files(document, "all.tex").values()
    assert {"overview.tex", "pairs-asr.tex", "card-words.tex"} <= set(every)
    assert every["overview.tex"] in single
    assert "guardmark-card-words" not in single


@given(st.text())
def test_no_text_of_the_data_is_a_command(text: str) -> None:
    """What opens a command, a group, a column, a comment or mathematics stands for itself."""
    line = latex_line(text)
    harmless = r"\\(?:[&%$#_{}]|text[a-z]+\{\}|char34)|\{\}|\{(?=\\char34)|(?<=char34)\}"
    assert not re.search(r"[\\&%$#_{}~^]", re.sub(harmless, "", line))
    assert not line.startswith(("[", "*"))
    assert not re.search(r"--|''|,,|``", line)


def test_every_table_parses(runs: Runs) -> None:
    """Groups and environments close, whatever names the data give."""
    walker = pytest.importorskip("pylatexenc.latexwalker").LatexWalker
    for analysis in (full_analysis(runs), bare_analysis(runs)):
        for text in latex_files(build_document(analysis)).values():
            walker(text, tolerant_parsing=False).get_latex_nodes()


@pytest.mark.slow
@pytest.mark.skipif(TEX is None, reason="no LaTeX is installed")
def test_a_paper_with_every_table_compiles(runs: Runs, tmp_path: Path) -> None:
    """Hostile names and all."""
    files = latex_files(build_document(full_analysis(runs)))
    columns = (*COLUMNS, Column(title=SPECIAL))
    names = [TextCell(text=each) for each in (SPECIAL, ascii(HOSTILE), ascii(HOSTILE_NAME))]
    files["special.tex"] = one_table(Row(cells=(*names,)), columns=columns)
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    lines = [rf"\input{{{name}}}\clearpage" for name in files]
    (tmp_path / "paper.tex").write_text(PAPER % "\n".join(lines), encoding="utf-8")
    command = [str(TEX), "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    assert b"Overfull \\hbox" not in done.stdout
