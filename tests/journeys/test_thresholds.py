"""From stored scores to a threshold that a configuration can take over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.journeys.command_line import guardmark

pytestmark = pytest.mark.slow

SETTINGS = """\
version: 1
data: [{builtin: core}]
defenses:
  ngram: {type: ngram}
  words: {type: pattern, builtin: true}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of a defense with scores and one without."""
    folder = tmp_path_factory.mktemp("thresholds")
    (folder / "bench.yaml").write_text(SETTINGS)
    assert guardmark("run", "bench.yaml", "-o", "run", cwd=folder).code == 0
    return folder


def test_a_chosen_threshold_is_a_configuration(folder: Path) -> None:
    """The fragment runs as it stands, and its rates are told beside it."""
    done = guardmark("report", "run", "--choose", "ngram=0.05", cwd=folder)
    assert done.code == 0, done.err
    assert "# FPR at most 5 %: TPR " in done.out
    assert (folder / "run" / "thresholds.yaml").read_text() == done.out
    entry = yaml.safe_load(done.out)["defenses"]["ngram"]
    assert entry["type"] == "ngram"
    (folder / "next.yaml").write_text(f"version: 1\ndata: [{{builtin: core}}]\n{done.out}")
    assert guardmark("check", "next.yaml", cwd=folder).code == 0


def test_a_guaranteed_threshold_blocks_less_than_a_chosen_one(folder: Path) -> None:
    """For every defense with scores, with the counts of the other half beside it."""
    done = guardmark("report", "run", "--guarantee", "fpr<=0.1", cwd=folder)
    assert done.code == 0, done.err
    assert "# fpr<=0.1 on samples like these at 95% confidence: TPR " in done.out
    shown = yaml.safe_load(done.out)["defenses"]
    assert list(shown) == ["ngram"]
    chosen = yaml.safe_load(guardmark("report", "run", "--choose", "ngram=0.1", cwd=folder).out)
    assert shown["ngram"]["threshold"] > chosen["defenses"]["ngram"]["threshold"]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["fpr<=0.0001"], "too few to show 0.01 %"), (["tpr<=0.1"], "must be one fpr<=0.01")],
)
def test_what_cannot_be_guaranteed_is_refused(folder: Path, words: list[str], said: str) -> None:
    """With the reason, and defenses without scores named."""
    done = guardmark("report", "run", "--guarantee", *words, cwd=folder)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""


@pytest.mark.slow
def test_deciding_anew_agrees_with_running_anew(folder: Path) -> None:
    """Stored scores at the chosen threshold give the counts of a run with that threshold."""
    fragment = guardmark("report", "run", "--choose", "ngram=0.05", cwd=folder).out
    threshold = yaml.safe_load(fragment)["defenses"]["ngram"]["threshold"]
    (folder / "again.yaml").write_text(f"version: 1\ndata: [{{builtin: core}}]\n{fragment}")
    assert guardmark("run", "again.yaml", "-o", "again", cwd=folder).code == 0
    told = guardmark("report", "run", "--threshold", f"ngram={threshold}", "--json", cwd=folder)
    assert told.code == 0, told.err
    anew = json.loads((folder / "again" / "summary.json").read_text())
    assert _rates(json.loads(told.out)) == _rates(anew)


def _rates(summary: dict[str, object]) -> object:
    """Counts and intervals of the defense with scores."""
    defenses = summary["defenses"]
    assert isinstance(defenses, list)
    (ngram,) = (each for each in defenses if each["name"] == "ngram")
    return [
        {key: value for key, value in rate.items() if key in {"successes", "trials", "low", "high"}}
        for rate in (ngram["rates"]["attack_success_rate"], ngram["rates"]["false_positive_rate"])
    ]


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("ngram=0.0001", "needs 10000 benign samples"),
        ("words=0.05", "No threshold of 'words'"),
        ("ngrm=0.05", "Did you mean 'ngram'?"),
        ("ngram:violence=0.05", "only services (http) take thresholds of categories"),
        ("ngram", "is not of the form NAME=FPR"),
        ("ngram=5", "is not of the form NAME=FPR"),
    ],
)
def test_what_the_data_cannot_show_is_not_written(folder: Path, choice: str, said: str) -> None:
    """Exit code 2, in at most five lines, and no number out of thin air."""
    done = guardmark("report", "run", "--choose", choice, cwd=folder)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) <= 5
    assert done.out == ""
