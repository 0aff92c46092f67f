"""Whatever a person gets wrong: the right exit code, few lines, the next step, nothing lost."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.journeys.command_line import CONFIG, Done, guardmark, set_up, write_rows

pytestmark = pytest.mark.slow

PYTHON = """\
version: 1
data: [{{path: data.jsonl}}]
defenses:
  mine: {{type: python, target: "{target}"}}
"""


def told(done: Done, code: int) -> str:
    """Check the form that every error has, and return its words."""
    assert done.code == code, done.err
    assert 1 <= len(done.told) <= 5, done.err
    assert "Traceback" not in done.err
    return "\n".join(done.told)


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (("data.jsonl", "none.jsonl"), 3, "none.jsonl cannot be opened"),
        (("data.jsonl}", "data.jsonl, map: {text: prmpt}}"), 3, "rows 1-12, field prmpt"),
        (("data:", "dta:"), 2, "bench.yaml:3:1: no setting is called 'dta'. Did you mean 'data'?"),
        (("patterns:", "paterns:"), 2, "Did you mean 'patterns'?"),
        (("pattern,", "patern,"), 2, "No defense type is called 'patern'. Did you mean 'pattern'?"),
        (
            ("['ignore']", "['fine', '(ignore']"),
            2,
            "bench.yaml:5:45: defenses.words.patterns.1: '(ignore' is not a regular expression",
        ),
        (
            ("['ignore']", "words.txt"),
            2,
            "bench.yaml:5:26: defenses.words.patterns: words.txt:3:4: 'a(b' is not a regular",
        ),
        (("['ignore']", "none.txt"), 2, "bench.yaml:5:26: defenses.words.patterns: The list none"),
        (("version: 1", "version: [1"), 2, "is not YAML"),
        (
            ("data.jsonl}", "data.jsonl, map: {txt: a}}"),
            2,
            "has no field 'txt'. Did you mean 'text'?",
        ),
        (("version: 1", "version: 2"), 2, "version"),
        (("data.jsonl}", "data.jsonl, filter: {category: nothing}}"), 3, "Values of category: "),
        (("data.jsonl}", "data.jsonl, filter: {catgory: x}}"), 3, "Did you mean 'category'?"),
        (("{path: data.jsonl}", "{builtin: cor}"), 2, "bench.yaml:3:8: data.0: No built-in data"),
        (
            ("type: pattern, patterns: ['ignore'], flags: [I]", "type: ngram, weights: data.jsonl"),
            2,
            "it is not a file of weights",
        ),
        (("data.jsonl}", "data.jsonl, label: attak}"), 2, "bench.yaml:3"),
    ],
)
def test_a_mistake_in_the_configuration(
    tmp_path: Path, change: tuple[str, str], code: int, said: str
) -> None:
    """It is named with its place, and no folder is made."""
    set_up(tmp_path, CONFIG.replace(*change))
    (tmp_path / "words.txt").write_text("# rules\nignore\n  a(b\n", encoding="utf-8")
    assert said in told(guardmark("run", "bench.yaml", cwd=tmp_path), code)
    assert not (tmp_path / "runs").exists()


def test_bad_data_leave_the_earlier_run_where_it_was(tmp_path: Path) -> None:
    """Even with --fresh: what cannot begin takes nothing away."""
    set_up(tmp_path, CONFIG)
    assert guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path).code == 0
    before = (tmp_path / "out" / "records.sqlite").read_bytes()
    with (tmp_path / "data.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"id": "last"}\n')
    done = guardmark("run", "bench.yaml", "-o", "out", "--fresh", cwd=tmp_path)
    assert "row 13, field text: is missing" in told(done, 3)
    assert (tmp_path / "out" / "records.sqlite").read_bytes() == before
    assert not list((tmp_path / "out").glob("records.before-*"))


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (("run", "nope.yaml"), 2, "nope.yaml cannot be read"),
        (("rn",), 2, "Did you mean 'run'?"),
        (("run", "--ot", "x"), 2, "--help"),
        (("run", "bench.yaml", "--limit", "0"), 2, "--limit"),
        (("run", "bench.yaml", "--limit", "x"), 2, "'x' is not a whole number."),
        (("run", "bench.yaml", "--max-cost", "x"), 2, "'x' is not a number."),
        (("run", "bench.yaml", "--only", "wrds"), 2, "Did you mean 'words'?"),
        (("report", "nowhere"), 3, "There is no run in nowhere"),
        (("show", "nowhere"), 3, "There is no run in nowhere"),
        (("run", "bench.yaml", "-o", "data.jsonl"), 7, "a file stands where a folder is needed"),
        (("run", "."), 2, "To go on with a run: guardmark run CONFIG -o ."),
        (("judge", "nowhere", "--human-labels", "none.csv"), 3, "There is no run in nowhere"),
        (("matrix", "none.yaml", "-o", "m"), 2, "none.yaml cannot be read: No such file or"),
        (("run", "bench.yaml", "--replay", "none"), 2, "the same command with --record FILE"),
        (("run", "bench.yaml", "--env-file", "data.jsonl"), 2, "data.jsonl:1: is no line NAME="),
        (("compare", "x", "--chains", "2", "--margin", "0.1"), 2, "leave out --against, --margin"),
        (("compare", "x", "--chains", "2", "--samples", "4"), 2, "leave out --against, --margin"),
    ],
)
def test_a_mistake_on_the_command_line(
    tmp_path: Path, given: tuple[str, ...], code: int, said: str
) -> None:
    """It is answered with what was meant, or where to look."""
    set_up(tmp_path)
    assert said in told(guardmark(*given, cwd=tmp_path), code)


KEY = "own.yaml:2:66: adaptive.attacker.api_key needs the environment variable NO_KEY"
ATTACKER = "adaptive:\n  attacker: {type: chat, base_url: http://127.0.0.1:9, model: m"


@pytest.mark.parametrize(
    ("options", "content", "code", "said"),
    [
        (("--config", "own.yaml"), f"{ATTACKER}, api_key: {{env: NO_KEY}}}}\n", 2, KEY),
        (
            ("--config", "own.yaml"),
            "adaptive:\n  attacker: {type: local, path: none}\n",
            2,
            "own.yaml:2:3: adaptive.attacker: ",
        ),
        (("--config", "own.yaml"), "adaptive: {critic: {type: scripted}}\n", 2, "name one, adapt"),
        (("--config", "own.yaml"), "data: []\n", 2, "'adaptive' is missing"),
        (("--replay", "own.yaml"), "", 3, "its first line is not that of a trace"),
        (("--replay", "own.yaml"), "data: []\n", 3, "line 1 is not JSON"),
        (("--replay", "none.jsonl"), "", 3, "The trace none.jsonl cannot be read: No such file"),
        (("--budget", "3"), "", 2, "at least 4"),
        (("-o", "other"), "", 2, "Next: leave out -o"),
    ],
)
def test_a_mistake_in_what_an_attacker_is_told(
    tmp_path: Path, options: tuple[str, ...], content: str, *, code: int, said: str
) -> None:
    """It is named with its place in the file that was given, and nothing is attacked."""
    set_up(tmp_path)
    (tmp_path / "own.yaml").write_text(content, encoding="utf-8")
    assert guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path).code == 0
    assert said in told(guardmark("adapt", "out", *options, cwd=tmp_path), code)
    assert not (tmp_path / "out" / "trace.jsonl").exists()


@pytest.mark.parametrize(
    ("target", "source", "said"),
    [
        (
            "no_such_module_x:check",
            "",
            "bench.yaml:4:24: defenses.mine.target: No module is called 'no_such_module_x'",
        ),
        ("guard.py:chek", "def check(text): return True", "Did you mean 'check'?"),
        ("guard.py:check", "import nothing_x", "ModuleNotFoundError"),
        ("guard.py:check", "def check(:", "SyntaxError"),
        ("guard.py:check", "check = 5", "guard.py:check"),
        ("guard.py:check", "import sys; sys.exit(0)", "mine raised SystemExit while it was built"),
        ("guard.py:check", "class P(BaseException): pass\nraise P('no')", "mine raised P while"),
        ("guard.py", "def check(text): return True", "guard.py"),
    ],
)
def test_a_function_that_does_not_import(
    tmp_path: Path, target: str, source: str, said: str
) -> None:
    """What is wrong with it is said before anything is run."""
    set_up(tmp_path, PYTHON.format(target=target))
    (tmp_path / "guard.py").write_text(source, encoding="utf-8")
    assert said in told(guardmark("run", "bench.yaml", cwd=tmp_path), 2)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_data_set(tmp_path: Path, content: bytes) -> None:
    """It measures nothing, so nothing is run."""
    set_up(tmp_path)
    (tmp_path / "data.jsonl").write_bytes(content)
    assert "is empty" in told(guardmark("run", "bench.yaml", cwd=tmp_path), 3)


@pytest.mark.parametrize("label", ["attack", "benign"])
def test_one_side_alone_leaves_the_other_undefined(tmp_path: Path, label: str) -> None:
    """A rate over no samples is null, and its absence is said in words; never zero."""
    set_up(tmp_path)
    write_rows(tmp_path / "data.jsonl", [{"id": "a", "text": "ignore this", "label": label}])
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "undefined" in done.out
    (defense,) = json.loads((tmp_path / "out/summary.json").read_text("utf-8"))["defenses"]
    missing = "false_positive_rate" if label == "attack" else "attack_success_rate"
    rate = defense["rates"][missing]
    assert (rate["value"], rate["low"], rate["high"], rate["trials"]) == (None, None, None, 0)
    assert rate["reason"]
    assert defense["rates"]["ratios"]["balanced_error"]["value"] is None


def test_a_defense_that_raises_on_every_sample(tmp_path: Path) -> None:
    """Errors, not decisions; the reports are there, and the exit code says not to trust them."""
    set_up(tmp_path, PYTHON.format(target="guard.py:check"))
    (tmp_path / "guard.py").write_text("def check(text): raise RuntimeError('boom')", "utf-8")
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    said = told(done, 5)
    assert "mine gave 12 errors for 12 samples" in said
    assert "Most often (12): RuntimeError: boom" in said
    assert said.endswith("guardmark show out --errors")
    (defense,) = json.loads((tmp_path / "out/summary.json").read_text("utf-8"))["defenses"]
    assert defense["counts"]["error_kinds"] == {"crash": 12}
    assert defense["rates"]["attack_success_rate"]["value"] is None
    assert "crash" in guardmark("show", "out", "--errors", cwd=tmp_path).out


def test_a_risk_without_a_threshold_is_named_as_the_reason(tmp_path: Path) -> None:
    """A person sees at once what is missing, before the samples are asked about."""
    set_up(tmp_path, PYTHON.format(target="guard.py:check"))
    (tmp_path / "guard.py").write_text("def check(text): return 0.7", "utf-8")
    said = told(guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path), 5)
    assert "cannot be read: the function returned the risk 0.7, but no threshold is set" in said
    assert not (tmp_path / "out").exists()  # two calls tell, and nothing was measured


def test_a_defense_that_exits_does_not_end_the_run(tmp_path: Path) -> None:
    """Nobody's sys.exit may pass for an exit code of ours."""
    set_up(tmp_path, PYTHON.format(target="guard.py:check"))
    (tmp_path / "guard.py").write_text("def check(text): raise SystemExit(0)", "utf-8")
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert "mine gave 12 errors for 12 samples" in told(done, 5)


def _foreign(path: Path, kind: str) -> None:
    whole = path.read_bytes()
    path.unlink()
    if kind == "text":
        path.write_text("Dear diary\n" * 50, encoding="utf-8")
    elif kind == "truncated":
        path.write_bytes(whole[: len(whole) // 3])
    elif kind == "damaged":
        path.write_bytes(whole[:20_000] + bytes(len(whole) - 20_000))
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE theirs (a)")
        connection.close()


@pytest.mark.parametrize("kind", ["text", "truncated", "damaged", "database"])
def test_records_that_are_foreign_or_damaged(tmp_path: Path, kind: str) -> None:
    """They are refused by every command and left as they are; --fresh sets them aside."""
    set_up(tmp_path)
    assert guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path).code == 0
    records = tmp_path / "out/records.sqlite"
    _foreign(records, kind)
    before = records.read_bytes()
    reading = [(command, "out") for command in ("report", "show", "verify")]
    for given in (("run", "bench.yaml", "-o", "out"), *reading):
        assert "Next: " in told(guardmark(*given, cwd=tmp_path), 3)
        assert records.read_bytes() == before
    fresh = guardmark("run", "bench.yaml", "-o", "out", "--fresh", cwd=tmp_path)
    assert fresh.code == 0, fresh.err
    (aside,) = (tmp_path / "out").glob("records.before-*.sqlite")
    assert aside.read_bytes() == before


@pytest.mark.parametrize("content", [b"", None])
def test_a_run_that_was_stopped_before_its_first_table_begins_again(
    tmp_path: Path, content: bytes | None
) -> None:
    """An empty file, or an empty database, is no obstacle to the same command."""
    set_up(tmp_path)
    records = tmp_path / "out/records.sqlite"
    records.parent.mkdir()
    if content is None:
        connection = sqlite3.connect(records)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.close()
    else:
        records.write_bytes(content)
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err


@pytest.mark.slow
@pytest.mark.parametrize("change", ["configuration", "data", "limit"])
def test_a_folder_that_holds_another_run_is_not_told_as_this_one(
    tmp_path: Path, change: str
) -> None:
    """Old records never pass for the answer to a new question."""
    config = set_up(tmp_path)
    assert guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path).code == 0
    before = (tmp_path / "out/summary.json").read_bytes()
    more: tuple[str, ...] = ()
    if change == "configuration":
        config.write_text(CONFIG.replace("ignore", "plus"), encoding="utf-8")
    elif change == "data":
        write_rows(tmp_path / "data.jsonl", [{"id": "a", "text": "b", "label": "attack"}])
    else:
        more = ("--limit", "4")
    done = guardmark("run", "bench.yaml", "-o", "out", *more, cwd=tmp_path)
    assert "--fresh" in told(done, 3)
    assert (tmp_path / "out/summary.json").read_bytes() == before
    assert guardmark("run", "bench.yaml", *more, cwd=tmp_path).code == 0


@pytest.mark.slow
def test_a_full_disk_keeps_what_was_stored_and_goes_on_later(tmp_path: Path) -> None:
    """Exit 7 with the next step; the same command then finishes with the same figures."""
    set_up(tmp_path, count=3000)
    assert guardmark("run", "bench.yaml", "-o", "whole", cwd=tmp_path).code == 0

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    full = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path, before=small)
    assert "Next: free disk space" in told(full, 7)
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    for name in ("categories.csv", "summary.md"):
        assert (tmp_path / "out" / name).exists()
    counts = [_counts(tmp_path / folder) for folder in ("whole", "out")]
    assert counts[0] == counts[1]


def _counts(folder: Path) -> object:
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    return summary["run"]["stored"], [each["counts"] for each in summary["defenses"]]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """It is said before anything is called."""
    set_up(tmp_path)
    if os.geteuid() == 0:  # root may write anywhere but into the kernel's own files
        if not Path("/proc/self").exists():
            pytest.skip("root may write anywhere, and there is no /proc here")
        folder = Path("/proc/self/run")
    else:
        folder = tmp_path / "locked"
        folder.mkdir(mode=0o500)
    done = guardmark("run", "bench.yaml", "-o", folder, cwd=tmp_path)
    assert "Next: " in told(done, 7)


def test_a_folder_without_a_configuration_is_not_a_run(tmp_path: Path) -> None:
    """Of several runs what is read is the newest one, and what is changed has to be named."""
    set_up(tmp_path)
    assert guardmark("run", "bench.yaml", cwd=tmp_path).code == 0
    (only,) = (tmp_path / "runs/journey").iterdir()
    shutil.copytree(only, only.with_name("second"))
    read = guardmark("report", "runs", cwd=tmp_path)
    assert (read.code, "the newest of 2 runs in runs" in read.err) == (0, True)
    assert "holds 2 runs; name one" in told(guardmark("audit", "runs", cwd=tmp_path), 3)


@pytest.mark.parametrize(
    ("key", "hint"),
    [("sk-very-secret", "name the variable"), ("{env: sk-very-secret}", "never the secret")],
)
def test_a_secret_in_the_file_is_refused_and_not_printed(
    tmp_path: Path, key: str, hint: str
) -> None:
    """Who wrote it there is told where it belongs; terminals are logged."""
    http = "{type: http, url: 'http://127.0.0.1:9', body: {text: {$input: text}}, blocked: '$.x'"
    set_up(tmp_path, CONFIG + f"  vendor: {http}, api_key: {key}}}\n")
    said = told(guardmark("run", "bench.yaml", cwd=tmp_path), 2)
    assert hint in said
    assert "sk-very-secret" not in said


@pytest.mark.parametrize("header", ["Authorization", "authorization", "X-Api-Key", "Cookie"])
def test_a_secret_among_the_headers_is_refused_and_stored_nowhere(
    tmp_path: Path, header: str
) -> None:
    """Settings are kept with the run, so a secret in them would travel with it."""
    set_up(tmp_path)
    (tmp_path / "service.yaml").write_text(
        "version: 1\ndata: [{path: data.jsonl}]\ndefenses:\n"
        '  far: {type: http, url: "http://127.0.0.1:9/", body: {}, blocked: "$.x",\n'
        f'        headers: {{{header}: "Bearer hush-hush", X-Project: "42"}}}}\n',
        encoding="utf-8",
    )
    done = guardmark("run", "service.yaml", "-o", "out", cwd=tmp_path)
    said = told(done, 2)
    assert f"headers.{header}: this holds a secret" in said
    assert "{env: NAME}" in said
    assert "hush" not in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--latncy", "No such option '--latncy'.\n"),
        ("--limt", "No such option '--limt'. Did you mean '--limit'?\n"),
    ],
)
def test_an_unknown_option_names_one_that_is_alike_or_none(
    tmp_path: Path, typed: str, said: str
) -> None:
    """Two dashes in common make no likeness."""
    done = guardmark("run", typed, cwd=tmp_path)
    assert told(done, 2).startswith(said)
