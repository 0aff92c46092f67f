"""`guardmark stability` on the example of the how-to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.journeys.command_line import guardmark

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "tutor.yaml"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with its slices."""
    folder = tmp_path_factory.mktemp("stability")
    done = guardmark("run", EXAMPLE, "--offline", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    told = guardmark("stability", "out", "--attacks", 8, "--benign", 4, "--seeds", 6, cwd=folder)
    assert told.code == 0, told.err
    (folder / "told.txt").write_text(told.out, encoding="utf-8")
    return folder


def test_it_says_how_far_a_slice_would_have_been_off(finished: Path) -> None:
    """Every arm at its scopes in the terminal, every variant in the file; within 100 columns."""
    told = (finished / "told.txt").read_text(encoding="utf-8")
    assert (
        "6 seeds; of each variant 8 attacks and 4 benign samples: a slice holds 32 and 16" in told
    )
    for place in ("none, scope system", "words, scope defense", "wall, scope model"):
        assert f"\n  {place}, all variants\n" in told
    assert "One slice would have been off by " in told
    assert max(map(len, told.splitlines())) <= 100
    text = (finished / "out" / "slice_stability.md").read_text(encoding="utf-8")
    assert "words, scope system, variant camouflage" in text


def test_the_whole_run_is_that_of_the_report(finished: Path) -> None:
    """One figure has one value, wherever it stands."""
    summary = json.loads((finished / "out" / "summary.json").read_text(encoding="utf-8"))
    cards = json.loads((finished / "out" / "slice_stability.json").read_text(encoding="utf-8"))
    arms = {arm["name"]: arm for arm in summary["pipeline"]["arms"]}
    compared = 0
    for card in cards["cards"]:
        if card["variant"] is None and card["scope"] != "defense":
            for figure in card["figures"]:
                assert figure["whole"] == arms[card["arm"]][card["scope"]][figure["name"]]
                compared += 1
    assert compared == 18


def test_the_same_again_gives_the_same_bytes(finished: Path) -> None:
    """Seeds decide, and nothing else."""
    before = (finished / "out" / "slice_stability.json").read_bytes()
    again = ("stability", "out", "--attacks", 8, "--benign", 4, "--seeds", 6, "--json")
    done = guardmark(*again, cwd=finished)
    assert done.out.encode() == before == (finished / "out" / "slice_stability.json").read_bytes()


@pytest.mark.slow
def test_verify_draws_and_counts_the_slices_a_second_time(finished: Path, tmp_path: Path) -> None:
    """A figure that was changed is named with its place; a word of the Markdown too."""
    shutil.copytree(finished / "out", tmp_path / "out")
    done = guardmark("verify", "out", cwd=tmp_path)
    assert done.code == 0, done.out
    path = tmp_path / "out" / "slice_stability.json"
    said = json.loads(path.read_text(encoding="utf-8"))
    said["cards"][0]["figures"][0]["mean"] = 0.5
    path.write_text(json.dumps(said), encoding="utf-8")
    done = guardmark("verify", "out", cwd=tmp_path)
    assert done.code == 1
    assert "slice_stability.json: cards[0].figures[attack_success_rate].mean: says 0.5" in done.out
    path.write_text("[]", encoding="utf-8")
    assert "no request of slices" in guardmark("verify", "out", cwd=tmp_path).out


@pytest.mark.parametrize(
    ("given", "code"), [(("nowhere",), 3), (("out", "--seeds", 1), 2), (("out", "--attacks", 0), 2)]
)
def test_what_cannot_be_drawn_is_said(finished: Path, given: tuple[object, ...], code: int) -> None:
    """No run, one seed, an empty slice."""
    done = guardmark("stability", *given, cwd=finished)
    assert done.code == code
    assert 0 < len(done.told) <= 5
