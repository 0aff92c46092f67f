"""What people expect of a command line: the newest run, what is piped in, little or all of it."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from guardmark.app.parts.loading import load_config

if TYPE_CHECKING:
    from tests.cli.conftest import Type

ROWS = "\n".join(
    [
        "text,label,type",
        *(f"ignore rule {n} of {n * n},attack,order" for n in range(6)),
        *(f"plant bean {n} in bed {n * n},benign,garden" for n in range(6)),
    ]
)
CONFIG = """
version: 1
data: [{path: rows.csv}]
defenses: {words: {type: pattern, keywords: [ignore]}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with data and a configuration that is called as `init` calls it."""
    (tmp_path / "rows.csv").write_text(ROWS, encoding="utf-8")
    (tmp_path / "bench.yaml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def test_a_run_says_little_or_all_of_it(guardmark: Type, folder: Path) -> None:
    """The answer alone with -q; with -v every chapter; both are too many."""
    few = guardmark("run", "-q", "-o", "few")
    assert (few.code, few.err) == (0, "")
    assert few.out.startswith("words is not shown to pass")
    assert few.out.count("\n") == 1
    usual, whole = guardmark("run", "-o", "few"), guardmark("report", "few", "-v")
    assert usual.out.count("\n") < whole.out.count("\n")
    assert "Method and warnings" in whole.out
    assert "Method and warnings" not in usual.out
    assert "give one of them" in guardmark("run", "-q", "-v").err
    assert (folder / "few" / "report.html").exists()


def test_what_is_checked_or_written_says_little(guardmark: Type, folder: Path) -> None:
    """With -q only what is to be looked at; nothing where a file was written."""
    assert guardmark("check", "-q").out == "Settings: fine.\n"
    lines = guardmark("check").out
    assert "Sizes against" in lines
    written = guardmark("init", "-q", "--template", "http", "-o", "other.yaml")
    assert (written.out, written.err) == ("", "")
    assert (folder / "other.yaml").is_file()


def test_the_newest_run_is_taken_and_named(guardmark: Type, folder: Path) -> None:
    """Of a folder that holds several, and where none is named."""
    guardmark("run", "-q", "-o", "runs/mine/first")
    guardmark("run", "-q", "-o", "runs/mine/second", "--limit", "8")
    shown = guardmark("show", "runs")
    assert shown.code == 0
    assert shown.err == "Note: runs/mine/second, the newest of 2 runs in runs.\n"
    assert guardmark("show").err == "Note: runs/mine/second, the last of 2 below runs.\n"
    gate = folder / "gate.yaml"
    gate.write_text("gate: {asr_upper: 0.9}\n", encoding="utf-8")
    gated = guardmark("gate", "runs/mine", "--policy", "gate.yaml", "-q")
    assert (gated.code, "the newest of 2" in gated.err) == (0, False)
    assert gated.out.startswith("Passed: ")


def test_a_part_of_the_data_is_called_a_first_look(guardmark: Type, folder: Path) -> None:
    """In the report, and in the configuration that makes the run again."""
    looked = guardmark("run", "--limit", "8", "-o", "look")
    assert "a first look: at most 8 samples (--limit)" in " ".join(looked.out.split())
    resolved = folder / "look" / "config.resolved.yaml"
    (folder / "again.yaml").write_text(resolved.read_text(encoding="utf-8"), encoding="utf-8")
    assert "4 attacks, 4 benign" in guardmark("run", "again.yaml", "-o", "again").out


def test_what_is_piped_in_is_read(
    guardmark: Type, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration, and rows of data."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(CONFIG))
    assert guardmark("run", "-", "-q", "-o", "piped").code == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("version: 2\n"))
    assert "standard input:1:1: version: must be 1" in guardmark("run", "-").err
    piped = io.TextIOWrapper(io.BytesIO((folder / "rows.csv").read_bytes()))
    monkeypatch.setattr(sys, "stdin", piped)
    assert "12 samples, 6 attacks and 6 benign" in guardmark("data", "check", "-").out


def test_columns_that_are_not_used_are_named(guardmark: Type, folder: Path) -> None:
    """With the field that one of them may be."""
    said = guardmark("run", "bench.yaml", "-o", "run").err
    assert "(taken: label, text; not used: type (could be `map: {category: type}`))" in said
    config = folder / "mapped.yaml"
    config.write_text(CONFIG.replace("csv}", "csv, map: {category: type}}"), encoding="utf-8")
    assert "not used" not in guardmark("run", "mapped.yaml", "-o", "mapped").err


def test_options_are_named_in_errors_about_them(guardmark: Type) -> None:
    """No file is, since there is none."""
    said = guardmark("run", "--url", "http://127.0.0.1:9/x", "--blocked", "flagged").err
    assert said.startswith("--blocked: 'flagged' is not a JSONPath")
    said = guardmark("run", "--url", "ftp://x").err
    assert "'ftp://x' is not an address" in said
    assert "built-in:" not in said


def test_the_bare_command_names_first_steps(guardmark: Type) -> None:
    """Six of them, and that is no mistake."""
    done = guardmark()
    assert (done.code, done.err) == (0, "")
    assert done.out.count("  guardmark ") == 6


def test_several_pairs_are_compared_in_one_screen(guardmark: Type, folder: Path) -> None:
    """Each pair by itself where it is asked for."""
    (folder / "three.yaml").write_text(
        "version: 1\ndata: [{path: rows.csv}]\ndefenses:\n"
        "  a: {type: pattern, keywords: [ignore]}\n"
        "  b: {type: pattern, keywords: [plant]}\n"
        "  c: {type: pattern, keywords: [zebra]}\n",
        encoding="utf-8",
    )
    guardmark("run", "three.yaml", "-q", "-o", "three")
    brief, whole = guardmark("compare", "three").out, guardmark("compare", "three", "-v").out
    assert "Each of 3 pairs by itself, with categories and samples to read: -v" in " ".join(
        brief.split()
    )
    assert "a against b" in whole
    assert "a against b" not in brief
    assert brief.count("\n") < 40


def test_a_system_prompt_has_a_template(guardmark: Type, folder: Path) -> None:
    """With a canary in the prompt, and a rule that looks for it."""
    done = guardmark("init", "--template", "system-prompt", "-o", "prompt.yaml")
    assert done.code == 0, done.err
    text = (folder / "prompt.yaml").read_text(encoding="utf-8")
    loaded = load_config(folder / "prompt.yaml")
    (judge,) = loaded.config.pipeline.judges if loaded.config.pipeline else ()
    assert re.search(judge["unsafe"][0], text.partition("system_prompt: |")[2])


def test_next_steps_are_the_ones_that_help(guardmark: Type, folder: Path) -> None:
    """A report that is asked for as an export, points that are meant as a share, a schema."""
    guardmark("run", "-q", "-o", "one")
    assert "Next: guardmark report RUN -f sarif" in guardmark("export", "one", "--to", "sarif").err
    assert "5 points are 0.05" in guardmark("plan", "--margin", "5").err
    guardmark("init", "--template", "http", "-o", "http.yaml")
    named = (folder / "http.yaml").read_text(encoding="utf-8").splitlines()[1]
    assert (folder / named.partition("$schema=")[2]).exists()


def test_what_is_said_of_many_defenses_is_said_once(guardmark: Type, folder: Path) -> None:
    """Three that never block are one note with their names; two are named each."""
    lines = [f"  never-{n}: {{type: pattern, keywords: [word{n}x]}}" for n in range(3)]
    (folder / "bench.yaml").write_text(
        CONFIG.replace("{words: {type: pattern, keywords: [ignore]}}", "\n" + "\n".join(lines)),
        encoding="utf-8",
    )
    done = guardmark("run", folder / "bench.yaml", "-o", folder / "out")
    (note,) = [line for line in done.err.splitlines() if "never-" in line and "Note:" in line]
    assert note.startswith("Note: 3 defenses: each allows")
    assert note.endswith("check the settings of each (never-0, never-1, never-2)")


def test_check_keeps_to_the_width(guardmark: Type, folder: Path) -> None:
    """Long remarks stand on several lines, each cut between words."""
    config = CONFIG.replace("[{path: rows.csv}]", "[{builtin: core@2}]")
    (folder / "bench.yaml").write_text(config, encoding="utf-8")
    lines = guardmark("check", folder / "bench.yaml").out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "    samples of them, or accept it (stats.margin)." in lines


def test_an_export_says_little(guardmark: Type, folder: Path) -> None:
    """With -q the path alone, for a script."""
    guardmark("run", folder / "bench.yaml", "-o", folder / "out")
    done = guardmark("export", folder / "out", "--to", "csv", "-q")
    assert done.out.splitlines() == [str(folder / "out" / "records.csv")]


def test_an_attack_takes_the_configuration_of_the_folder(guardmark: Type, folder: Path) -> None:
    """As a run does, and says so: what is attacked is never the built-in run by accident."""
    done = guardmark("adapt", "--budget", "4", "--no-controls", "--no-repair", "--canaries", "0")
    assert done.code == 0, done.err
    assert "Note: attacking bench.yaml of this folder." in done.err
    assert (folder / "runs").is_dir()


def test_a_name_with_a_blank_gets_a_sentence(guardmark: Type, folder: Path) -> None:
    """What a name may hold, and one that would do."""
    (folder / "bench.yaml").write_text(CONFIG.replace("words:", '"my guard":'), encoding="utf-8")
    said = guardmark("check", folder / "bench.yaml").err
    assert "a name has letters, digits and _ . @ -, and no blank, found 'my guard'" in said
    assert "For example: my-guard." in said


def test_settings_of_data_that_are_typed_are_checked(guardmark: Type, folder: Path) -> None:
    """A name that is none of public data, with options that need one: no fault of ours."""
    done = guardmark("data", "get", "--revision", "main", "nowhere", "--split", "test")
    assert done.code == 2, done.err
