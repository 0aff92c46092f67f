"""How a command ends that is disturbed: by a signal, a terminal that goes, a fault, no answer."""

from __future__ import annotations

import os
import pty
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.cli.striking import struck
from tests.journeys.command_line import guardmark as in_process_of_its_own
from tests.journeys.command_line import set_up, words

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Type

SENTENCE = "Interrupted. Answers so far are saved."


@pytest.mark.parametrize(
    ("event", "part"),
    [("import", "guardmark.cli.commands"), ("open", "commands.toml"), ("open", "bench.yaml")],
)
def test_ctrl_c_is_answered_by_one_sentence_from_the_first_import_on(
    tmp_path: Path, event: str, part: str
) -> None:
    """Exit code 130, no traceback: while commands load, while one is found and while it works."""
    set_up(tmp_path)
    done = struck(event, part, "check", "bench.yaml", cwd=tmp_path)
    assert (done.code, done.out) == (130, "")
    assert done.err.strip() == SENTENCE


def test_a_terminal_that_was_closed_is_no_fault(tmp_path: Path) -> None:
    """It ends as where the reader of a pipe went away, and writes no traceback."""
    screen, wire = pty.openpty()
    os.close(screen)
    done = subprocess.run(
        words("plan", "--margin", "0.1"),
        cwd=tmp_path,
        stdout=wire,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=60,
        check=False,
    )
    os.close(wire)
    assert (done.returncode, done.stderr) == (141, b"")
    assert not list(tmp_path.glob("*.log"))


@pytest.mark.parametrize("debug", [False, True])
def test_a_fault_is_told_in_two_lines_and_kept_in_a_file(tmp_path: Path, *, debug: bool) -> None:
    """Exit code 70; the traceback is in a file, and on the screen where that is asked for."""
    set_up(tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "yaml.py").write_text(
        "raise RuntimeError('a damaged package\\nof two lines')\n", encoding="utf-8"
    )
    found = [str(tmp_path / "broken"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = in_process_of_its_own(
        *("check", "bench.yaml", *["--debug"] * debug),
        cwd=tmp_path,
        env={"PYTHONPATH": os.pathsep.join(found), "TMPDIR": str(tmp_path)},
    )
    (log,) = tmp_path.glob("guardmark-fault-*.log")
    first, second, *more = done.err.splitlines()
    assert (done.code, done.out) == (70, "")
    assert first == "A fault of guardmark itself: RuntimeError: a damaged package"
    assert second.startswith(f"The traceback is in {log}; what was stored is safe")
    assert log.read_text(encoding="utf-8").startswith("Traceback (most recent call last)")
    assert ("Traceback (most recent call last):" in more) == debug


def test_a_mistake_is_traced_only_where_that_is_asked_for(guardmark: Type) -> None:
    """The message and the exit code stay the same."""
    usual, traced = guardmark("check", "none.yaml"), guardmark("--debug", "check", "none.yaml")
    assert usual.code == traced.code == 2
    assert traced.err.startswith(usual.err)
    assert "Traceback (most recent call last):" in traced.err.removeprefix(usual.err)
    assert "Traceback" not in usual.err


def test_a_question_that_nobody_answers_ends_as_an_interruption(tmp_path: Path) -> None:
    """The sheet is written; the same command asks again."""
    (tmp_path / "log.jsonl").write_text('{"prompt": "How do I bake bread?"}\n', encoding="utf-8")
    command = ("data", "label", "log.jsonl", "-o", "sheet.csv")
    done = in_process_of_its_own(*command, cwd=tmp_path, keys="")
    assert done.code == 130
    assert done.err.strip() == SENTENCE
    assert "How do I bake bread?" in (tmp_path / "sheet.csv").read_text("utf-8")
    again = in_process_of_its_own(*command, cwd=tmp_path, keys="q\n")
    assert again.code == 0
    assert "labelled  0 of 1 in sheet.csv" in again.out


def test_a_misspelt_option_gets_the_name_that_is_near(guardmark: Type) -> None:
    """Likeness is that of the words, not of the dashes before them."""
    near, far = guardmark("plan", "--margn", "0.1"), guardmark("plan", "--qqq")
    assert near.code == far.code == 2
    assert near.err.startswith("No such option '--margn'. Did you mean '--margin'?\n")
    assert far.err.startswith("No such option '--qqq'.\n")


def test_a_number_that_is_none_is_asked_for_in_plain_words(guardmark: Type) -> None:
    """Nobody has to know what an integer range is."""
    done = guardmark("stability", "out", "--attacks", "many")
    assert done.code == 2
    assert "'many' is not a whole number." in done.err
