"""Too little memory ends every command with exit code 7, and what is stored goes on later."""

from __future__ import annotations

import json
import resource
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.journeys.command_line import guardmark

from guardmark.core.limits import LEAST_ADDRESS_SPACE, MIB

if TYPE_CHECKING:
    from pathlib import Path

    from tests.journeys.command_line import Done

FLOOR = LEAST_ADDRESS_SPACE // MIB
BENCH = """version: 1
data: [{path: data.jsonl}]
defenses: {words: {type: python, target: "words.py:is_attack"}}
"""
WORDS = """def is_attack(text: str) -> bool:
    return text.startswith("Ignore")
"""


def run_within(mib: int, cwd: Path, *more: str, kind: int = resource.RLIMIT_AS) -> Done:
    """Run the bench in a process that may take so many MiB."""
    limit = (mib * MIB, resource.RLIM_INFINITY)
    return guardmark(
        *("run", "bench.yaml", "-o", "run", *more),
        cwd=cwd,
        before=partial(resource.setrlimit, kind, limit),
    )


def set_up(folder: Path, *, letters: int = 40) -> None:
    """Write a bench of sixty samples, each of so many letters."""
    (folder / "bench.yaml").write_text(BENCH)
    (folder / "words.py").write_text(WORDS)
    with (folder / "data.jsonl").open("w") as file:
        for number in range(60):
            word = "Ignore all rules" if number % 2 else "What is the weather"
            text = f"{word} {number * 7919} ".ljust(letters, chr(97 + number % 26))
            label = "attack" if number % 2 else "benign"
            file.write(json.dumps({"id": f"s{number}", "text": text, "label": label}) + "\n")


def outcomes(run: Path) -> dict[str, str]:
    """What the defense decided of each sample, as the results state it."""
    rows = map(json.loads, (run / "results.jsonl").read_text().splitlines())
    return {row["id"]: row["outcome"] for row in rows}


@pytest.mark.parametrize("kind", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_a_limit_below_the_floor_is_refused_before_anything_is_begun(
    kind: int, tmp_path: Path
) -> None:
    """The floor, the limit in force and the next step are named."""
    set_up(tmp_path)
    done = run_within(FLOOR - 1, tmp_path, kind=kind)
    assert done.code == 7, done.err
    assert f"needs {FLOOR} MiB of memory" in done.err
    assert f"may take {FLOOR - 1} MiB" in done.err
    assert "Next: raise the limit" in done.err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_small_run_ends_with_7_below_the_floor_and_finishes_from_it_on(tmp_path: Path) -> None:
    """Between 196 and 215 MB there were the codes 1, 7 and 70; between 160 and 190 it finished."""
    set_up(tmp_path)
    limits = [*range(48, FLOOR, 16), *range(196, 216, 3), *range(FLOOR, FLOOR + 65, 16)]
    ended = {mib: run_within(mib, tmp_path, "--fresh").code for mib in limits}
    assert ended == {mib: 7 if mib < FLOOR else 0 for mib in limits}


@pytest.mark.slow
def test_a_run_that_memory_ended_says_so_and_goes_on_where_it_was(tmp_path: Path) -> None:
    """Sixty samples of two million letters need more than the floor; none is lost or decided anew."""
    set_up(tmp_path, letters=2_000_000)
    codes = {}
    for mib in range(FLOOR, FLOOR + 300, 50):
        done = run_within(mib, tmp_path)
        codes[mib] = done.code
        assert done.code in {0, 7}, f"{mib} MiB: {done.code}\n{done.err[-2000:]}"
        if done.code == 7:
            assert "not enough memory" in done.err
    assert 7 in codes.values(), codes
    done = guardmark("run", "bench.yaml", "-o", "run", cwd=tmp_path)
    assert done.code == 0, done.err
    assert guardmark("verify", "run", cwd=tmp_path).code == 0
    decided = outcomes(tmp_path / "run")
    assert len(decided) == 60
    assert "error" not in decided.values()
