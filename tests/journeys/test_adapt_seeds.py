"""From the terminal: several seeds in one run, interrupted never, verified, refused when mixed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.journeys.command_line import CONFIG, guardmark, set_up
from tests.schemas import check_document

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that was attacked with three seeds."""
    folder = tmp_path_factory.mktemp("seeds")
    set_up(folder, CONFIG + "adaptive: {seeds: 3}\n", count=24)
    done = guardmark("adapt", "bench.yaml", "-v", "--budget", "4", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    told = " ".join(done.out.split())
    assert "Seed 1; the table of seeds has the means over all." in told
    return folder


@pytest.mark.slow
def test_the_configuration_names_the_seeds_and_every_file_says_them(adapted: Path) -> None:
    """Lock, trace, summary and report; `verify` counts them a second time."""
    out = adapted / "out"
    assert json.loads((out / "battery.lock").read_text("utf-8"))["seeds"] == 3
    assert '"adaptive/seed-3/blind"' in (out / "trace.jsonl").read_text("utf-8")
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    check_document(summary)
    for card in summary["adaptive"]:
        assert card["seeds"]["counted"] == [1, 2, 3]
        assert card["settings"]["seeds"] == 3
    for name in ("report.html", "report.md"):
        assert "seeds 3" in (out / name).read_text("utf-8")
    done = guardmark("verify", "out", cwd=adapted)
    assert done.code == 0, done.out


@pytest.mark.slow
def test_the_command_line_comes_before_the_configuration_and_seeds_are_not_mixed(
    adapted: Path,
) -> None:
    """Given again it goes on; with another number of seeds it is refused with the next step."""
    again = guardmark("adapt", "out", "--budget", "4", cwd=adapted)
    assert again.code == 0, again.err
    done = guardmark("adapt", "out", "--budget", "4", "--seeds", "5", cwd=adapted)
    assert done.code != 0
    assert "seeds: 3, not 5" in done.err
    assert "Next: --seeds 3" in done.err


@pytest.mark.parametrize("seeds", ["0", "101", "many"])
def test_an_odd_number_of_seeds_is_a_mistake_of_use(adapted: Path, seeds: str) -> None:
    """Code 2, and nothing is touched."""
    done = guardmark("adapt", "out", "--seeds", seeds, cwd=adapted)
    assert done.code == 2
    assert "--seeds" in done.err
