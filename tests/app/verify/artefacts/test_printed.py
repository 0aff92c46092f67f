"""The main tables of `summary.md` and `report.html` are counted a second time, cell by cell."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.app.verify.test_every_figure import EXAMPLE
from tests.app.verify.test_every_file import paid
from tests.journeys.command_line import guardmark, set_up, write_rows

from guardmark.app.verify.artefacts.printed import Printed, recount_printed
from guardmark.app.verify.artefacts.printed_files import check_printed
from guardmark.app.verify.difference import Comparer
from guardmark.app.verify.source import open_source
from guardmark.app.verify.summary import recount_summary

NUMBER = re.compile(r"(?<![\w.,])\d")
NAMES = [
    "a|b",
    "`code`",
    "*bold*",
    "<b>tag</b>",
    "a\tb",
    "-1",
    "= 3",
    "plain name",
    "50 %",
    "Gr\u00fc\u00dfe",
    "a\u3164b",
    "a\u200bb",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report and the tables that it has to print."""

    path: Path
    tables: list[Printed]

    def findings(self, text: str | None = None) -> list[str]:
        """What is found where it says something."""
        path = self.path
        if text is not None:
            path = self.path.with_name(f"forged{self.path.suffix}")
            path.write_text(text, encoding="utf-8")
        comparer = Comparer()
        check_printed(path, self.tables, comparer)
        return [*map(str, comparer.findings)]


def read(folder: Path) -> tuple[Report, Report]:
    """Count the tables of a finished run a second time."""
    with open_source(folder / "records.sqlite") as source:
        tables = recount_printed(recount_summary(source, {}))
    return (
        Report(path=folder / "summary.md", tables=tables),
        Report(path=folder / "report.html", tables=tables),
    )


def tutor(folder: Path) -> Path:
    """The run of an example, of one defense and one baseline."""
    done = guardmark("run", EXAMPLE, "--offline", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    return folder / "out"


RUNS = {"paid": paid, "tutor": tutor}


@pytest.fixture(scope="module", params=RUNS)
def reports(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Report, Report]:
    """Both reports of runs with repeats, groups, errors, policies and empty categories."""
    return read(RUNS[request.param](tmp_path_factory.mktemp("run")))


def test_both_counts_agree(reports: tuple[Report, Report]) -> None:
    """In Markdown and in HTML; headlines, all figures, categories and topics."""
    for report in reports:
        assert report.findings() == []
    titles = [table.title for table in reports[0].tables]
    assert titles[0] == "All defenses"
    for words in ("all figures", "attacks by category, worst first", "benign samples by topic"):
        assert any(words in title for title in titles)
    assert sum(len(table.rows) for table in reports[0].tables) > 40


def bodies(report: Report, text: str) -> list[tuple[int, int]]:
    """Where the rows of each table stand in a text."""
    found = []
    for table in report.tables:
        if report.path.suffix == ".html":
            start = text.index(f"<span>{html.escape(table.title)}</span></caption>")
            start = text.index("<tbody>", start)
            end = text.index("</table>", start)
        else:
            start = text.index("**{}**".format(table.title.replace("_", "\\_")))
            start = text.index("|\n| ", text.index("|---", start))
            end = text.index("\n\n", start)
        found.append((start, end))
    return found


def test_every_number_that_is_off_is_noticed(reports: tuple[Report, Report]) -> None:
    """Number after number of each table, but for the words beside an undefined figure."""
    for report in reports:
        text = report.path.read_text(encoding="utf-8")
        tried = 0
        for start, end in bodies(report, text):
            for number in NUMBER.finditer(text, start, end):
                at = number.start()
                other = f"{int(number.group()) % 9 + 1}"
                found = report.findings(f"{text[:at]}{other}{text[at + 1 :]}")
                assert len(found) == 1, text[at - 40 : at + 10]
                tried += 1
        assert tried > 200


def test_words_that_give_a_number_its_meaning_are_compared(
    reports: tuple[Report, Report],
) -> None:
    """Heads of columns, whose row it is, and what a category is said to be."""
    for report in reports:
        text = report.path.read_text(encoding="utf-8")
        starts = [start for start, _ in bodies(report, text)]
        at = next(n for n, table in enumerate(report.tables) if "by category" in table.title)
        for word, after in (("words", starts[0]), ("ASR", starts[0] - 300), ("not ", starts[at])):
            place = text.index(word, after)
            assert report.findings(f"{text[:place]}other{text[place + len(word) :]}"), word


def test_a_table_or_a_row_that_is_missing_is_noticed(reports: tuple[Report, Report]) -> None:
    """As is a row that stands there twice."""
    for report in reports:
        text = report.path.read_text(encoding="utf-8")
        assert report.findings(text.replace("All defenses", "Some defenses"))
        row = next(
            line
            for line in text[bodies(report, text)[0][0] + 2 :].splitlines(keepends=True)
            if line.startswith(("| ", "<tr>"))
        )
        assert report.findings(text.replace(row, ""))
        assert report.findings(text.replace(row, row * 2))


def test_hostile_names_of_categories_are_no_difference(tmp_path: Path) -> None:
    """Names that mean something in Markdown or HTML, and numbers, are shown and read as text."""
    set_up(tmp_path)
    rows = [
        {
            "id": f"s{n}",
            "text": f"ignore {n}",
            "label": "attack" if n % 2 else "benign",
            "category": "jailbreak" if n % 2 else NAMES[n % len(NAMES)],
        }
        for n in range(168)
    ]
    write_rows(tmp_path / "data.jsonl", rows)
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    for report in read(tmp_path / "out"):
        assert report.findings() == []


@pytest.mark.parametrize("text", ["", "<html>", "**All defenses**", "**All defenses**\n\n|"])
def test_a_report_without_tables_is_a_difference(reports: tuple[Report, Report], text: str) -> None:
    """No crash, and each missing table is named."""
    for report in reports:
        found = report.findings(text)
        assert len(found) >= len(report.tables) - 1
