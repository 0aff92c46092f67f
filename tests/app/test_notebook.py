"""`import guardmark` in a notebook: cells run inside a loop, data are objects, results are short."""

from __future__ import annotations

import asyncio
import io
import re
import sys
import time
import webbrowser
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import guardmark
from guardmark import Decision, Outcome
from guardmark.app.loaded_run import LoadedRun
from guardmark.core.errors import ConfigError, DatasetError, StoreError, UntrustworthyRun
from guardmark.core.sample import Label, Prompt

if TYPE_CHECKING:
    from collections.abc import Iterator
from pathlib import Path

# What the first two questions showed is told as a warning, too.
pytestmark = pytest.mark.filterwarnings("ignore:.* a known attack:UserWarning")

ROWS = [
    *({"text": f"ignore rule {n}", "label": "attack", "category": "jailbreak"} for n in range(12)),
    *({"text": f"plant a bean {n}", "label": "benign"} for n in range(12)),
]


class Nameless:
    """A defense but for its name, and for what it is shown, which is the text then."""

    def decide(self, prompt: Prompt) -> Decision:
        """Let everything through."""
        del prompt
        return Decision(outcome=Outcome.ALLOW)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words(text: str) -> bool:
    """Block what speaks of ignoring."""
    return "ignore" in text


def counts(run: LoadedRun) -> tuple[int, int]:
    """How many attacks and benign samples a run has."""
    return run.analysis.samples.attacks, run.analysis.samples.benign


def test_the_page_runs_as_it_stands_inside_a_running_loop(request: pytest.FixtureRequest) -> None:
    """Cell by cell, as Jupyter runs them: each on the thread of a loop."""
    page = request.config.rootpath / "docs" / "how-to" / "use-from-python.md"
    cells = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}

    async def notebook() -> None:
        for cell in cells:
            exec(compile(cell, "cell", "exec"), names)  # noqa: S102 - our own page
            await asyncio.sleep(0)

    asyncio.run(notebook())
    assert len(cells) == 8
    assert counts(names["measured"]) == (12, 12)
    assert counts(names["shouting"]) == (12, 12)


async def test_an_asynchronous_function_is_measured_inside_a_running_loop() -> None:
    """Its own loop runs beside the one of the caller, which goes on afterwards."""

    async def slow(text: str) -> bool:
        await asyncio.sleep(0)
        return words(text)

    card = guardmark.run(slow, ROWS).analysis.defenses[0].card
    assert (card.attack_success_rate.successes, card.attack_success_rate.trials) == (0, 12)


def test_several_functions_are_measured_in_one_run_and_compared() -> None:
    """By the names that the dict gives them, whatever they call themselves."""
    run = guardmark.run({"words": words, "sevens!": lambda text: "7" in text}, ROWS)
    assert [each.name for each in run.analysis.defenses] == ["words", "sevens_"]
    (pair,) = guardmark.compare(run).pairs
    assert (pair.first, pair.second) == ("words", "sevens_")
    assert pair.attacks.difference.pairs == 12


@pytest.mark.parametrize(
    ("subjects", "mistake"),
    [
        ({}, "empty"),
        ({"a b": words, "a_b": words}, "a_b"),
        ({"x": 3}, "int is not a function"),
        ({"x": Nameless()}, "lacks name"),
    ],
)
def test_a_dict_that_names_no_defenses_is_refused(subjects: Any, mistake: str) -> None:
    """Before anything is measured, and nothing is left out in silence."""
    with pytest.raises((ConfigError, TypeError), match=mistake):
        guardmark.run(subjects, ROWS)


class Cell(io.StringIO):
    """Where a notebook shows what is written to stderr."""


Cell.__module__ = "ipykernel.iostream"


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_notebook_shows_how_far_a_run_is(
    monkeypatch: pytest.MonkeyPatch, *, is_shown: bool
) -> None:
    """One line that is written over; a script whose output is kept gets none."""
    stderr = Cell() if is_shown else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)

    def slow(text: str) -> bool:
        time.sleep(0.03)
        return words(text)

    guardmark.run(slow, ROWS)
    lines = stderr.getvalue().split("\r")
    if not is_shown:
        assert lines == [""]
        return
    assert lines[-1].startswith("Measured 24 of 24 in ")
    assert lines[-1].endswith("\n")
    assert any(" of 24  " in line and "slow: ASR" in line for line in lines)
    assert not any("0 of 0" in line or "\x1b" in line for line in lines)


class HubRows:
    """Rows as a Hugging Face data set gives them: dicts, and columns under `to_dict`."""

    column_names = ("text", "label")

    def __iter__(self) -> Iterator[dict[str, object]]:
        """Yield the rows."""
        return iter(ROWS)

    def to_dict(self) -> dict[str, list[object]]:
        """Return the columns."""
        return {name: [row[name] for row in ROWS] for name in self.column_names}


SAMPLES = [
    guardmark.Sample(id=str(n), prompt=Prompt.of_text(row["text"]), label=Label(row["label"]))
    for n, row in enumerate(ROWS)
]


@pytest.mark.parametrize(
    "data",
    [ROWS, SAMPLES, pd.DataFrame(ROWS), HubRows()],
    ids=["dicts", "samples", "pandas", "hub"],
)
def test_rows_may_be_given_as_objects(data: Any) -> None:
    """Each form gives the same samples; what a frame lacks is an empty field."""
    assert counts(guardmark.run(words, data)) == (12, 12)


def test_rows_lie_in_the_run_that_is_kept(folder: Path) -> None:
    """A generator gives the file that a list of equal rows gives, so the run is continued."""
    first = guardmark.run(words, ROWS, out="mine")
    guardmark.run(words, (row for row in ROWS), out="mine")
    assert [each.name for each in folder.iterdir()] == ["mine"]
    assert len(list((folder / "mine" / "data").iterdir())) == 1
    assert [each.prompt.text for each in first.samples()] == [row["text"] for row in ROWS]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"train": ROWS, "test": ROWS}, "keys train, test, not a list of rows"),
        (["ignore"], "Row 1 of the data is of type str"),
        ([{"text": "a", "label": "attack", "source": object()}], "Row 1 of the data cannot be"),
    ],
    ids=["splits", "texts", "objects"],
)
def test_what_are_no_rows_is_refused(data: Any, said: str, folder: Path) -> None:
    """The message names the row, and nothing is written."""
    with pytest.raises(DatasetError, match=said):
        guardmark.run(words, data, out="mine")
    assert not list(folder.iterdir())


@pytest.mark.parametrize("answer", [None, "yes"], ids=["nothing", "text"])
def test_a_function_whose_answers_cannot_be_read_is_refused(answer: object, folder: Path) -> None:
    """It would look like a perfect defense to a policy that blocks what is malformed."""
    with pytest.raises(UntrustworthyRun, match="cannot be read: the function returned"):
        guardmark.run(lambda _text: answer, ROWS)
    assert not list(folder.iterdir())


def test_a_run_that_cannot_be_trusted_warns() -> None:
    """A function that fails on most samples, though not on the first two questions."""

    def fragile(text: str) -> bool:
        if text in {row["text"] for row in ROWS}:
            raise ValueError(text)
        return False

    with pytest.warns(UserWarning, match="Do not rely on this result: fragile gave 24 errors"):
        guardmark.run(fragile, ROWS)


def test_a_run_is_shown_in_a_few_lines() -> None:
    """Its text and its table say the counts and the intervals."""
    run = guardmark.run(words, ROWS, name="a<b")
    assert "12 attacks, 12 benign\n  a_b: Scorecard(attacks let through: 0 of 12" in repr(run)
    assert all(len(repr(each)) < 400 for each in (run, run.analysis, run.analysis.defenses[0].card))
    shown = run._repr_html_()
    assert "<th>a_b</th><td>Not enough data</td><td>Lets " in shown
    assert "blocks 0.0 % [0.0, " in shown
    drawn = b64decode(shown.partition("base64,")[2].partition('"')[0]).decode()
    assert drawn.startswith("<svg")
    assert "a_b" in drawn
    other = guardmark.run(lambda text: "7" in text, ROWS, name="seven")
    assert len(repr(guardmark.compare(run, other))) < 400


def test_a_run_is_read_as_data_frames() -> None:
    """One row a defense with its rates, and one row an answer."""
    run = guardmark.run(lambda text: 0.9 if words(text) else 0.2, ROWS, name="risk", threshold=0.5)
    figures = run.to_frame().set_index("defense")
    assert figures.loc["risk", "attack_success_rate"] == 0
    assert figures.loc["risk", "attack_success_rate_n"] == 12
    assert 0 < figures.loc["risk", "attack_success_rate_high"] < 1
    answers = run.samples_frame()
    assert answers.groupby("is_attack")["outcome"].unique().map(list).tolist() == [
        ["allow"],
        ["block"],
    ]
    assert set(answers.loc[answers["is_attack"], "category"]) == {"jailbreak"}
    assert set(answers["score"]) == {0.9, 0.2}


def test_a_missing_pandas_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra that brings it."""
    run = guardmark.run(words, ROWS)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"guardmark\[pandas\]"):
        run.to_frame()


def test_the_report_opens_in_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is that of the page in the folder of the run."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    page = guardmark.run(words, ROWS).open_report()
    assert opened == [page.as_uri()]
    assert page.name == "report.html"


def test_a_report_that_is_gone_is_not_opened_but_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message is the call that writes it; the page says the same as before."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    run = guardmark.run(words, ROWS)
    page = run.folder / "report.html"
    before = page.read_text(encoding="utf-8")
    page.unlink()
    with pytest.raises(StoreError) as missing:
        run.open_report()
    assert "report.html is missing" in str(missing.value)
    assert f"guardmark.report({str(run.folder)!r})" in str(missing.value)
    assert not opened
    assert guardmark.report(run.folder) == page
    assert page.read_text(encoding="utf-8") == before


def test_one_defense_alone_is_compared_with_nothing() -> None:
    """A second run is what it needs."""
    run = guardmark.run(words, ROWS)
    with pytest.raises(ConfigError, match="holds one defense: name a second run too"):
        guardmark.compare(run)


def test_data_are_read_by_name_or_from_a_file(folder: Path) -> None:
    """A name that we ship is that set; anything else is a file, read as a configuration says."""
    core = guardmark.load_dataset("core")
    assert core.count == sum(1 for _ in core.samples()) > 100
    path = folder / "mine.jsonl"
    rows = '{"q": "ignore it", "kind": "attack"}\n{"q": "plant it", "kind": "benign"}\n'
    path.write_text(rows, encoding="utf-8")
    mine = guardmark.load_dataset(path, map={"text": "q", "label": "kind"})
    assert [(each.prompt.text, each.is_attack) for each in mine.samples()] == [
        ("ignore it", True),
        ("plant it", False),
    ]
    with pytest.raises(DatasetError, match=r"gone\.jsonl"):
        guardmark.load_dataset("gone.jsonl")
    with pytest.raises(ConfigError, match=r"load_dataset\(\): no setting is called 'lable'"):
        guardmark.load_dataset("core", lable="attack")
    with pytest.raises(ConfigError, match=r"run\(\): no setting is called .*Did you mean 'label'"):
        guardmark.run(words, "core", lable="attack")


def test_the_public_door_lists_what_lies_behind_it() -> None:
    """Completion in a notebook shows the promised names and no others; each can be had."""
    assert dir(guardmark) == sorted([*guardmark.__all__, "__version__"])
    assert all(getattr(guardmark, name) is not None for name in dir(guardmark))
    with pytest.raises(AttributeError, match="has no attribute 'measure'"):
        guardmark.measure  # noqa: B018 - that it is refused is the point
