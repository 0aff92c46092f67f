"""Commands that read a run: what they print, and what they refuse."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from typing import TYPE_CHECKING

import pytest
from tests.interchange.test_promptfoo import plain, result, write
from tests.journeys.command_line import words

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Type

TOKEN = "0123456789abcdef-token"  # noqa: S105 - of a test


def test_samples_go_to_programs_without_their_texts_where_that_is_wanted(
    run: Path, guardmark: Type
) -> None:
    """What is left names the sample by its hash; nothing else is missing."""
    full = [json.loads(line) for line in guardmark("show", run, "--json").out.splitlines()]
    bare = guardmark("show", run, "--json", "--no-texts").out
    assert [each.pop("messages")[0]["role"] for each in full] == ["user"] * len(full)
    assert full
    assert [json.loads(line) for line in bare.splitlines()] == full
    assert "Please ignore" not in bare


def test_a_format_that_no_report_has_is_refused_before_any_is_written(
    run: Path, guardmark: Type
) -> None:
    """With the name that is near; several may be asked for, with spaces."""
    (run / "report.html").unlink()
    done = guardmark("report", run, "-f", "html,jsn")
    assert done.code == 2
    assert "'jsn'" in done.err
    assert "json" in done.err
    assert not (run / "report.html").exists()
    assert guardmark("report", run, "-f", " html , json ").code == 0
    assert (run / "report.html").exists()


@pytest.mark.parametrize("word", ["words", "=0.5", "words=", "words=much", "words=1.5"])
def test_a_threshold_that_is_none_is_refused(run: Path, guardmark: Type, word: str) -> None:
    """With an example of one."""
    done = guardmark("report", run, "--threshold", word)
    assert done.code == 2
    assert f"--threshold {word!r} is not of the form NAME=X with X in [0, 1]." in done.err
    assert "For example: --threshold granite=0.8" in done.err


def test_one_file_cannot_take_several_formats(run: Path, guardmark: Type, tmp_path: Path) -> None:
    """Neither is written, so that none is taken for the other."""
    done = guardmark("export", run, "--to", "csv,jsonl", "-o", tmp_path / "one.csv")
    assert done.code == 2
    assert "--out names one file, but several formats are asked for." in done.err
    assert not (tmp_path / "one.csv").exists()


def test_an_import_says_what_it_left_out(guardmark: Type, tmp_path: Path) -> None:
    """A test that nobody calls attack or benign is no sample; the report covers the others."""
    write(tmp_path, result(1), plain(2))
    done = guardmark("import", "promptfoo", "results.json", "-o", "out")
    assert done.code == 0, done.err
    assert re.search(r"^Note: 1 .* left out$", done.err, re.MULTILINE)
    assert (tmp_path / "out" / "report.html").exists()


def test_a_person_is_told_where_the_pages_are_and_how_to_end(run: Path) -> None:
    """How many runs there are, the address, and what else a browser has to show."""
    pytest.importorskip("uvicorn", reason="the extra view is not installed")
    with subprocess.Popen(
        words("view", run.parent, "--port", "0", "--token-env", "GM_TOKEN"),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "GM_TOKEN": TOKEN},
    ) as child:
        try:
            assert child.stdout is not None
            first, second = child.stdout.readline(), child.stdout.readline()
            address = re.fullmatch(r"1 run: (http://127\.0\.0\.1:\d+/)\n", first)
            assert address
            assert second == "Open it once with ?token=... behind the address. Ctrl-C ends.\n"
            asked = urllib.request.Request(address[1], headers={"Authorization": f"Bearer {TOKEN}"})  # noqa: S310 - our own
            with urllib.request.urlopen(asked, timeout=20) as page:  # noqa: S310 - our own
                assert page.status == 200
        finally:
            child.send_signal(signal.SIGINT)
            code = child.wait(timeout=20)
    assert code == 0
