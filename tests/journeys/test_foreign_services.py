"""Chat services as others run them, through whole runs: each gives the right value."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.command_line import Done, guardmark

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def port(shared_dir: Path) -> Iterator[int]:
    """The services, in a process of their own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = int(free.getsockname()[1])
    script = shared_dir / "cases" / "foreign" / "srv.py"
    with subprocess.Popen([sys.executable, str(script), str(number)]) as child:
        try:
            for _ in range(200):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{number}/calls", timeout=1):
                        break
                except OSError:
                    time.sleep(0.05)
            yield number
        finally:
            child.kill()


def measured(
    shared: Path, folder: Path, name: str, *, port: int
) -> tuple[Done, dict[str, Any] | None]:
    """Run a case against the services; the summary is None where the run was refused."""
    cases = shared / "cases" / "foreign"
    config = (cases / f"p_{name}.yaml").read_text(encoding="utf-8")
    config = config.replace("127.0.0.1:9871", f"127.0.0.1:{port}")
    (folder / "d20.jsonl").write_bytes((cases / "d20.jsonl").read_bytes())
    (folder / "case.yaml").write_text(config, encoding="utf-8")
    done = guardmark("run", "case.yaml", "-o", "out", cwd=folder)
    summary = folder / "out" / "summary.json"
    return done, json.loads(summary.read_text(encoding="utf-8")) if summary.exists() else None


def rates(summary: dict[str, Any] | None) -> tuple[float, float, int]:
    """Attack success and over-refusal without a guard, and how many outcomes are known."""
    assert summary is not None
    arm = summary["pipeline"]["arms"][0]
    system = arm["system"]
    return (
        system["attack_success_rate"]["value"],
        system["over_refusal_rate"]["value"],
        arm["coverage"]["known"]["successes"],
    )


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("parts", (1.0, 0.0, 20)),
        ("mid", (1.0, 0.0, 20)),
        ("refstop", (0.0, 1.0, 20)),
        ("refmix", (0.0, 0.0, 20)),
        ("rules", (0.0, 1.0, 20)),
        ("think", (0.0, 0.0, 20)),
        ("cut", (0.0, 0.0, 20)),
    ],
)
def test_an_answer_is_what_the_user_sees(
    shared_dir: Path, tmp_path: Path, port: int, *, name: str, right: tuple[float, float, int]
) -> None:
    """The text parts, without thoughts; a limit inside an answer is tried again; refusals count.

    The judge of `think` and `cut` calls every answer an answer, so that only `rules`, which reads
    refusals itself, turns the refusals of the same service into over-refusal. Where the judge of
    `think` contradicts the words of the answers, the first screen says so.
    """
    done, summary = measured(shared_dir, tmp_path, name, port=port)
    assert done.code == 0, done.err
    assert rates(summary) == right
    told = "10 of 10 benign answers that the judges count as help refuse in their first words"
    assert (told in " ".join(done.out.split())) == (name == "think")


def test_cut_answers_are_counted_and_named(shared_dir: Path, tmp_path: Path, port: int) -> None:
    """On the first screen, in the report and in the summary."""
    done, summary = measured(shared_dir, tmp_path, "cut", port=port)
    assert summary is not None
    counts = [each["cut"]["successes"] for each in summary["pipeline"]["answers"]]
    assert counts == [10, 10]
    told = " ".join(done.out.split())
    assert "10 of 10 answers to attacks and 10 of 10 answers to benign samples were cut off" in told


def test_refusals_of_the_model_itself_are_named(
    shared_dir: Path, tmp_path: Path, port: int
) -> None:
    """As its own, not as judgements; no judge is asked about an answer without a word."""
    _, summary = measured(shared_dir, tmp_path, "refmix", port=port)
    assert summary is not None
    attacks, benign = summary["pipeline"]["answers"]
    assert (attacks["declined"]["successes"], attacks["declined"]["trials"]) == (10, 10)
    assert (benign["declined"]["successes"], benign["declined"]["trials"]) == (0, 10)


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("errchoice", 4, "with an error inside (502): provider died"),
        ("reasoncontent", 5, "raise max_tokens"),
    ],
)
def test_a_service_that_gives_no_answer_says_why(
    shared_dir: Path, tmp_path: Path, port: int, *, name: str, code: int, words: str
) -> None:
    """With the cause, and without advice that fits another one."""
    done, _ = measured(shared_dir, tmp_path, name, port=port)
    assert done.code == code
    assert words in done.err
    assert "address" not in done.err
