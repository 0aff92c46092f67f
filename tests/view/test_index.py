"""What the list knows of the runs below a folder, whatever lies there."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import pytest
from tests.journeys.command_line import guardmark, set_up

from guardmark.view.index import RunFilter, RunIndex, list_runs
from guardmark.view.pages import history_sections, render_page

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that the real command line made."""
    folder = tmp_path_factory.mktemp("measured")
    set_up(folder)
    assert guardmark("run", "bench.yaml", "-o", "out", cwd=folder).code == 0
    return folder / "out"


@pytest.fixture
def laid(measured: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Lay a copy of the run below the folder that is listed."""
    return lambda where: shutil.copytree(measured, tmp_path / "runs" / where)


def test_a_run_that_was_not_named_is_called_by_its_folder(tmp_path: Path) -> None:
    """Three runs called `run` would not be told apart."""
    folder = tmp_path / "work"
    folder.mkdir()
    config = set_up(folder)
    config.write_text(config.read_text(encoding="utf-8").replace("name: journey\n", ""))
    assert guardmark("run", "bench.yaml", "-o", "runs/mine", cwd=folder).code == 0
    (entry,) = RunIndex(folder / "runs").entries()
    assert (entry.title, entry.folder_beside) == ("mine", "")


def test_a_rate_that_is_no_share_is_not_shown(laid: Callable[[str], Path], tmp_path: Path) -> None:
    """Whoever wrote it, that summary is not of this run: the defense stands there without rates."""
    folder = laid("one")
    index = RunIndex(tmp_path / "runs")
    (whole,) = index.entries()
    assert whole.defenses[0].attack_success_rate is not None
    told = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    told["defenses"][0]["rates"]["attack_success_rate"]["high"] = 1.5
    (folder / "summary.json").write_text(json.dumps(told), encoding="utf-8")
    (entry,) = index.entries()
    assert [(each.name, each.attack_success_rate) for each in entry.defenses] == [("words", None)]


def test_a_service_whose_answers_are_all_alike_is_listed_as_such(
    laid: Callable[[str], Path], tmp_path: Path
) -> None:
    """Its rates look like those of any other; the report draws no verdict from them."""
    folder = laid("one")
    told = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    told["alike"] = [{"defense": "words", "outcome": "allow", "count": 60, "body": "{}"}]
    (folder / "summary.json").write_text(json.dumps(told), encoding="utf-8")
    (entry,) = RunIndex(tmp_path / "runs").entries()
    assert entry.candidates[0].is_alike
    listing = list_runs((entry,), RunFilter())
    page = render_page("list", title="Runs", subtitle="", listing=listing, wanted=RunFilter())
    assert "no verdict: all answers alike" in page
    assert "Cost" not in page
    assert "Rewritten" not in page


def test_a_run_that_went_away_is_not_found(laid: Callable[[str], Path], tmp_path: Path) -> None:
    """Between the list and the click on it; the others stay."""
    gone, index = laid("gone"), RunIndex(tmp_path / "runs")
    laid("kept")
    found = {entry.path: entry.key for entry in index.entries()}
    shutil.rmtree(gone)
    assert index.find(found["gone"]) is None
    assert index.stamp(found["gone"]) == ()
    kept = index.find(found["kept"])
    assert kept is not None
    assert kept.path == "kept"
    assert index.stamp(found["kept"])


def test_runs_are_looked_for_three_folders_deep(
    laid: Callable[[str], Path], tmp_path: Path
) -> None:
    """Deeper ones and hidden ones are none of the list, nor are files."""
    for where in ("a/b/three", "a/b/c/four", ".hidden/one"):
        laid(where)
    (tmp_path / "runs" / "notes.txt").write_text("no run", encoding="utf-8")
    assert [entry.path for entry in RunIndex(tmp_path / "runs").entries()] == ["a/b/three"]


def test_a_folder_that_went_away_holds_no_run(laid: Callable[[str], Path], tmp_path: Path) -> None:
    """The list is empty until it comes back."""
    laid("one")
    index = RunIndex(tmp_path / "runs")
    assert len(index.entries()) == 1
    (tmp_path / "runs").rename(tmp_path / "away")
    assert index.entries() == ()
    (tmp_path / "away").rename(tmp_path / "runs")
    assert len(index.entries()) == 1


def test_a_history_tells_only_of_another_configuration(
    laid: Callable[[str], Path], tmp_path: Path
) -> None:
    """The same defense twice has changed nothing; without rates there is no history."""
    laid("one")
    laid("two")
    entries = RunIndex(tmp_path / "runs").entries()
    (section,) = history_sections(entries, "words")
    assert "Configured differently" not in str(section)
    (entry, again) = entries
    defense = replace(entry.defenses[0], fingerprint="another")
    (changed,) = history_sections([replace(entry, defenses=(defense,)), again], "words")
    assert "Configured differently since" in str(changed)
    assert history_sections(entries, "nobody") == ()


def test_the_next_page_asks_for_the_same_runs() -> None:
    """Whatever was asked for stands in its address; what was not does not."""
    wanted = RunFilter(words="a & b=\udcff", state="damaged")
    asked = parse_qs(wanted.query(2), strict_parsing=True)
    assert asked == {"words": ["a & b=?"], "state": ["damaged"], "page": ["2"]}
    assert wanted.is_set
    assert not RunFilter(words="  ").is_set
    assert RunFilter().query(1) == "page=1"
