"""How a command ends that is disturbed: by a signal, a terminal that goes, a fault, no answer."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.striking import struck
from tests.journeys.command_line import guardmark as in_process_of_its_own
from tests.journeys.command_line import set_up, words

from guardmark.cli import main
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
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


@pytest.mark.parametrize(("command", "code"), [("--version", 7), ("plan --margin 0.1", 7)])
def test_an_output_that_is_closed_is_told(tmp_path: Path, command: str, code: int) -> None:
    """Whoever closed it with `>&-` wanted no output; a script that expects one must hear of it."""
    shell = f"{shlex.join(words(*command.split()))} >&-"
    done = subprocess.run(
        ["/bin/sh", "-c", shell], cwd=tmp_path, stderr=subprocess.PIPE, timeout=60, check=False
    )
    assert done.returncode == code
    assert b"The output cannot be written or read: standard output is closed." in done.stderr


@pytest.mark.parametrize("debug", [False, True])
def test_a_fault_is_told_in_two_lines_and_leaves_no_file_outside_of_a_run(
    tmp_path: Path, *, debug: bool
) -> None:
    """Exit code 70; the traceback is on the screen where that is asked for, and nowhere else."""
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
    assert not list(tmp_path.glob("guardmark-fault-*.log"))
    first, second, *more = done.err.splitlines()
    assert (done.code, done.out) == (70, "")
    assert first == "A fault of guardmark itself: RuntimeError: a damaged package"
    assert "--debug" in second
    assert ("Traceback (most recent call last):" in more) == debug


def test_a_fault_in_a_run_is_kept_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So it lies beside what it speaks of, and goes when the folder goes."""
    set_up(tmp_path)
    monkeypatch.chdir(tmp_path)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("ours")

    folder = RunDir(path=tmp_path / "out")
    with folder.lock():
        pass
    monkeypatch.setattr("guardmark.cli.commands.build", broken)
    with pytest.raises(SystemExit) as ended:
        main(["check", "bench.yaml"])
    assert ended.value.code == 70
    assert "RuntimeError: ours" in (tmp_path / "out" / "fault.log").read_text("utf-8")
    assert str(tmp_path / "out" / "fault.log") in capsys.readouterr().err


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["--version", "data list", "--help"])
def test_a_full_output_is_no_fault_of_ours(tmp_path: Path, command: str) -> None:
    """Exit 7 in two lines, and nothing is left in the temporary folder."""
    line = [sys.executable, "-m", "guardmark", *command.split()]
    with FULL.open("w") as full:
        done = subprocess.run(
            line,
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    assert done.returncode == 7, done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["run", "check", "show", "verify", "report", "gate", "judge"])
def test_a_name_that_no_file_can_have_is_no_fault_of_ours(guardmark: Type, command: str) -> None:
    """Names over 255 bytes: exit 2 or 3, cut in the message."""
    done = guardmark(command, "x" * 300, *(["--quality"] if command == "judge" else []))
    assert done.code in {2, 3}
    assert len(done.err) < 300


def test_a_current_folder_that_is_gone_is_no_fault_of_ours(tmp_path: Path) -> None:
    """The person is told so, by commands that write and by those that read."""
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f'rmdir ../gone && "{sys.executable}" -m guardmark demo'
    done = subprocess.run(["sh", "-c", line], cwd=gone, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "The current folder is gone" in done.stderr


@pytest.mark.parametrize("line", [f"run: {{seed: {'9' * 5000}}}", 'data: [{path: "d\\0.jsonl"}]'])
def test_numbers_and_names_that_nothing_can_hold_are_mistakes(
    guardmark: Type, tmp_path: Path, line: str
) -> None:
    """Exit 2, before anything is called."""
    start = "version: 1\nname: t\ndefenses: {wall: {type: block-all}}\n"
    data = "" if line.startswith("data") else "data: [{builtin: tutor}]\n"
    (tmp_path / "odd.yaml").write_text(f"{start}{data}{line}\n", encoding="utf-8")
    done = guardmark("check", tmp_path / "odd.yaml")
    assert done.code == 2, done.err


@pytest.mark.parametrize("command", ["run", "check", "matrix"])
@pytest.mark.parametrize("path", ["/dev/zero", "pipe.yaml"])
def test_what_has_no_end_is_no_configuration(tmp_path: Path, command: str, path: str) -> None:
    """A pipe or a device is refused where a file is expected, and not waited for."""
    os.mkfifo(tmp_path / "pipe.yaml")
    line = [sys.executable, "-m", "guardmark", command, path]
    if command == "matrix":
        line += ["-o", "out"]
    done = subprocess.run(
        line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 2, done.stderr
    assert "is not a file" in done.stderr


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


@pytest.mark.parametrize("command", ["data check", "data stats", "data hash", "data croissant"])
def test_data_that_are_not_there_are_no_fault_of_ours(guardmark: Type, command: str) -> None:
    """`data croissant` took a missing file for a fault of its own."""
    done = guardmark(*command.split(), "nowhere.jsonl")
    assert done.code == 3, done.err
    assert "The data file nowhere.jsonl cannot be opened" in done.err
