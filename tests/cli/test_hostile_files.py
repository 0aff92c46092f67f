"""A pipe, a device or a file without end, wherever a command takes a file: refused, and soon."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from tests.cli.forked import Forked

from guardmark.cli.commands import build
from guardmark.core import limits

if TYPE_CHECKING:
    from tests.cli.conftest import Type

pytestmark = pytest.mark.slow

BENCH = (
    "version: 1\ndata: [{path: data.jsonl}]\ndefenses: {w: {type: pattern, keywords: [secret]}}\n"
)
KINDS = ("pipe", "zero", "huge")
MOST_S, MOST_MB = 5.0, 500.0
"""CPU time and memory of a refusal."""

LINES = """\
run F.yaml
run bench.yaml -o new --replay F
run bench.yaml -o new --env-file F
adapt F.yaml
adapt out --config F.yaml
adapt out --replay F
adapt out --env-file F
judge F
judge out --config F.yaml
judge out --human-labels F.csv
judge out --env-file F
matrix F.yaml -o new
matrix bench.yaml -o new --env-file F
merge F out -o new
show F
show out --diff F
report F
view F
watch --against F
stability F
compare F out
gate F
gate out --policy F.yaml
gate out --baseline F
gate out --public-key F
gate out --policy limits.yaml --sarif new.sarif --since F
gate out --policy limits.yaml --sarif new.sarif --config F.yaml
plan --like F
data check F.jsonl
data croissant F.jsonl
data convert F.json --format langfuse -o new.jsonl
data check F.json
data check F.csv
data check F.yaml
data check F.json.gz
data check data.jsonl --reference F.jsonl
data convert F.jsonl -o new.jsonl
data dedup F.jsonl -o new.jsonl
data label F.jsonl -o new.html
data label data.jsonl -o new.html --against F
data split F.jsonl -o new
attacks calibrate F.jsonl --config bench.yaml
attacks calibrate data.jsonl --config F.yaml
attacks calibrate data.jsonl --config bench.yaml --replay F
attacks apply base64 --wordnet F x
audit F
import promptfoo F.json
import inspect F.json
import garak F.jsonl
import pyrit F.db
import table F.csv
import any-guardrail F.jsonl
import agentdojo F
import minorbench F
import openai-guardrails F
import jailbreakbench F.json
export parquet F
card F
card out --claims F.yaml
card out --sign F
board F.json
board out --claimed F.json
check F.yaml
check bench.yaml --env-file F
verify F
verify out --data F
verify out --public-key F
verify out --public-key key.pub --signature F
verify card.json --run F
doctor F.yaml
doctor bench.yaml --env-file F
"""
NAMED = {
    "rows": "data: [{path: F.jsonl}]",
    "a table": "data: [{path: F.csv}]",
    "Croissant": "data: [{path: F.json, format: croissant}]",
    "traces": "data: [{path: F.json, format: langfuse}]",
    "a mapping": "data: [{path: data.jsonl, format: F.toml}]",
    "Parquet": "data: [{path: F.db, format: parquet}]",
    "packed rows": "data: [{path: F.json.gz, format: json}]",
    "decisions": "defenses: {w: {type: decisions, path: F.jsonl}}",
    "a table of decisions": "defenses: {w: {type: decisions, path: F.csv}}",
    "a list": "defenses: {w: {type: pattern, keywords: F.jsonl}}",
    "patterns": "defenses: {w: {type: pattern, patterns: F.toml}}",
    "weights": "defenses: {w: {type: ngram, weights: F.db}}",
}
"""Lines of a configuration that name a file, by what it should hold."""
WRITTEN = {"--out", "--sarif", "--junit", "--html", "--record"}
"""Options that name what a command writes."""
BESIDE_A_RUN = {
    "show F",
    "report F",
    "stability F",
    "card F",
    "verify F",
    "show out --diff F",
    "gate out --policy limits.yaml --sarif new.sarif --since F",
    "gate F",
}
"""A file stands for the run that lies in its folder; it is not opened."""
INTERACTIVE = {"data label"}
"""Commands that ask a person first, and end as one who said nothing (130)."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, and with what is no file under every name."""
    path = tmp_path_factory.mktemp("files")
    (path / "bench.yaml").write_text(BENCH, encoding="utf-8")
    (path / "key.pub").write_text("untrusted comment: x\nRWQ" + "A" * 53 + "\n", encoding="utf-8")
    (path / "card.json").write_text("{}", encoding="utf-8")
    (path / "limits.yaml").write_text("asr_upper: 0.9\n", encoding="utf-8")
    rows = [f'{{"text": "a secret {n}", "label": "attack"}}\n' for n in range(5)]
    rows += [f'{{"text": "tea {n}", "label": "benign"}}\n' for n in range(5)]
    (path / "data.jsonl").write_text("".join(rows), encoding="utf-8")
    for suffix in ("", ".jsonl", ".json", ".csv", ".yaml", ".json.gz", ".db", ".toml"):
        os.mkfifo(path / f"pipe{suffix}")
        (path / f"zero{suffix}").symlink_to("/dev/zero")
        with (path / f"huge{suffix}").open("wb") as file:
            file.truncate((1 << 30) + 1)  # a hole: it takes no room on the disk
    return path


@pytest.fixture(scope="module")
def shell(work: Path) -> Iterator[Forked]:
    """What carries the commands out."""
    with Forked() as shell:
        measured = shell.run(["run", "bench.yaml", "-o", "out"], cwd=work)
        assert measured.code == 0, measured.err
        yield shell


@pytest.mark.parametrize("line", LINES.splitlines())
def test_what_is_no_file_is_refused(line: str, work: Path, shell: Forked) -> None:
    """In five lines, within seconds, and without taking it into memory."""
    for kind in KINDS:
        words = [f"{kind}{word[1:]}" if word.startswith("F") else word for word in line.split()]
        ended = shell.run(words, cwd=work, most_s=120)
        said = f"{shlex.join(words)}: {ended}"
        may_end = {2, 3, 7}
        if any(line.startswith(name) for name in INTERACTIVE):
            may_end.add(130)
        if line in BESIDE_A_RUN and kind == "huge":
            may_end.add(0)
        assert ended.code in may_end, said
        assert ended.seconds < MOST_S, said
        assert ended.megabytes < MOST_MB, said


@pytest.mark.parametrize("what", NAMED)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_configuration_names_and_is_no_file_is_refused(
    kind: str, what: str, work: Path, shell: Forked
) -> None:
    """Stored decisions and Croissant waited for a pipe for ever, and read a device into memory."""
    line = NAMED[what].replace("F.", f"{kind}.")
    rows = [each for each in BENCH.splitlines() if each.split(":")[0] != line.split(":")[0]]
    config = work / f"{kind}-{what.replace(' ', '-')}.bench"
    config.write_text("\n".join([*rows, line, ""]), encoding="utf-8")
    ended = shell.run(["check", config.name], cwd=work, most_s=120)
    assert ended.code in {2, 3}, ended
    assert ended.seconds < MOST_S, ended
    assert ended.megabytes < MOST_MB, ended


def test_every_option_that_takes_a_file_is_tried() -> None:
    """A new one needs a line above."""
    group = build()
    context = click.Context(group)
    missing = []

    def look(name: str, command: click.Command) -> None:
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                assert found is not None
                look(f"{name} {inner}".strip(), found)
            return
        for param in command.params:
            if not isinstance(param.type, click.Path) or WRITTEN.intersection(param.opts):
                continue
            is_option = isinstance(param, click.Option)
            wanted = f"{name} " if not is_option else f"{max(param.opts, key=len)} F"
            tried = [line for line in LINES.splitlines() if line.startswith(f"{name} ")]
            if not any(wanted in line and "F" in line for line in tried):
                missing.append(f"{name} {param.name}")

    look("", group)
    assert not missing


def test_a_python_file_of_any_size_is_not_imported(guardmark: Type, tmp_path: Path) -> None:
    """Its size is looked at before Python reads it, in a process of its own too."""
    with (tmp_path / "guard.py").open("wb") as file:
        file.truncate(limits.MOST_PROGRAM_BYTES + 1)
    for options in ("", f", interpreter: {sys.executable}"):
        (tmp_path / "bench.yaml").write_text(
            "version: 1\ndata: [{builtin: tutor}]\n"
            f'defenses: {{mine: {{type: python, target: "guard.py:check"{options}}}}}\n',
            encoding="utf-8",
        )
        done = guardmark("check", tmp_path / "bench.yaml")
        assert done.code == 2
        assert f"guard.py has more than {limits.MOST_PROGRAM_BYTES // limits.MIB} MiB" in done.err


def test_a_log_of_any_size_is_not_sealed(guardmark: Type, run: Path) -> None:
    """It is said, and nothing of a gigabyte is read."""
    with (run / "run.log").open("r+b") as file:
        file.truncate(1 << 30)
    done = guardmark("card", run)
    assert done.code == 3
    assert f"run.log has more than {limits.MOST_LOG_BYTES // limits.MIB} MiB" in done.err
