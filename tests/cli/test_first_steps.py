"""What a newcomer types first: help, a service by options alone, a file to edit, completion."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml
from aiohttp import web
from tests.journeys.command_line import guardmark, typed

from guardmark.cli.commands import build

if TYPE_CHECKING:
    from tests.conftest import Serve

TEXTS: dict[str, Any] = tomllib.loads(
    (files("guardmark.cli") / "commands.toml").read_text(encoding="utf-8")
)
EXAMPLES = [(name, example) for name, text in TEXTS.items() for example in text["examples"]]


def command_of(name: str) -> click.Command:
    """A command by its name."""
    root = build()
    assert isinstance(root, click.Group)
    command = root.get_command(click.Context(root), name)
    assert command is not None
    return command


@pytest.mark.parametrize("name", TEXTS)
def test_every_command_of_the_help_can_be_typed(name: str) -> None:
    """Its own help has an example, too."""
    command = command_of(name)
    page = command.get_help(click.Context(command, info_name=name))
    assert TEXTS[name]["examples"][0] in page


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_an_example_is_understood(name: str, example: str) -> None:
    """Its options are options of the command, or of the command below it."""
    words = shlex.split(example)
    if words[0] == "eval":
        words = shlex.split(words[1].removeprefix("$(").removesuffix(")"))
    assert words[:2] == ["guardmark", name]
    command, rest = command_of(name), words[2:]
    if isinstance(command, click.Group):
        below = command.get_command(click.Context(command), rest[0])
        assert below is not None
        command, rest = below, rest[1:]
    command.make_context(name, rest, resilient_parsing=True)


@pytest.mark.slow
async def test_a_service_is_measured_by_options_alone(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text goes where the body says, the key comes from the environment and is not stored."""
    monkeypatch.setenv("GUARD_KEY", "sk-of-nobody-123456")
    asked: list[tuple[str | None, dict[str, Any]]] = []

    async def answer(request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        asked.append((request.headers.get("X-Key"), body))
        return web.json_response({"flagged": "ignore" in body["q"]["t"].lower(), "risk": 0.5})

    server = await serve(answer)
    done = await typed(
        *("run", "--url", f"{server.url}/check", "--body", "{q: {t: {$input: text}}}"),
        *("--blocked", "$.flagged", "--header", "X-Key=GUARD_KEY", "--limit", "20", "-o", "out"),
        cwd=tmp_path,
    )
    assert done.code == 0, done.err
    assert {key for key, _ in asked} == {"sk-of-nobody-123456"}
    assert all(list(body) == ["q"] for _, body in asked)
    summary = json.loads((tmp_path / "out/summary.json").read_text("utf-8"))
    assert [each["name"] for each in summary["defenses"]] == ["service"]
    for path in (tmp_path / "out").iterdir():
        assert b"sk-of-nobody" not in path.read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--blocked $.flagged", "add --url"),
        ("bench.yaml --url http://127.0.0.1:9/", "names its own defenses"),
        ("--url http://127.0.0.1:9/ --blocked $.a --body {", "--body"),
        ("--url http://127.0.0.1:9/ --blocked $.a --header X-Key", "NAME=VARIABLE"),
        ("--url http://127.0.0.1:9/ --blocked $.a --header X-Key=NO_SUCH_KEY", "NO_SUCH_KEY"),
        ("--url nowhere --blocked $.a", "not an address"),
    ],
)
def test_what_cannot_be_a_service_is_refused(tmp_path: Path, words: str, message: str) -> None:
    """In few lines, before anything is asked or written."""
    done = guardmark("run", *words.split(), cwd=tmp_path)
    assert done.code == 2, done.err
    assert message in done.err
    assert len(done.told) <= 5
    assert list(tmp_path.iterdir()) == []


def test_a_configuration_is_written_and_never_replaced(tmp_path: Path) -> None:
    """`init -o` says what to do next; what a person edited stays."""
    first = guardmark("init", "--template", "http", "-o", "bench.yaml", cwd=tmp_path)
    assert first.code == 0
    assert "guardmark check bench.yaml" in first.err
    written = (tmp_path / "bench.yaml").read_text("utf-8")
    assert written == guardmark("init", "--template", "http", cwd=tmp_path).out
    again = guardmark("init", "-o", "bench.yaml", cwd=tmp_path)
    assert again.code == 2
    assert "Next: name another file" in again.err
    assert (tmp_path / "bench.yaml").read_text("utf-8") == written


def test_a_first_configuration_comes_with_the_function_it_measures(tmp_path: Path) -> None:
    """Beside the configuration wherever that is written, and never over one that is there."""
    (tmp_path / "here").mkdir()
    for words in ([], ["-o", "here/bench.yaml"]):
        begun = guardmark("init", *words, cwd=tmp_path)
        assert (begun.code, "my_guard.py" in begun.err) == (0, True), begun.err
    assert guardmark("check", "here/bench.yaml", cwd=tmp_path).code == 0
    (tmp_path / "my_guard.py").write_text("mine = True\n", encoding="utf-8")
    again = guardmark("init", cwd=tmp_path)
    assert (again.code, again.err) == (0, "")
    assert (tmp_path / "my_guard.py").read_text("utf-8") == "mine = True\n"


def test_several_configurations_are_checked_by_one_command(tmp_path: Path) -> None:
    """As a hook before a commit names them; one that is broken ends it, named."""
    guardmark("init", "-o", "a.yaml", cwd=tmp_path)
    (tmp_path / "b.yaml").write_text((tmp_path / "a.yaml").read_text("utf-8"), encoding="utf-8")
    both = guardmark("check", "a.yaml", "b.yaml", cwd=tmp_path)
    assert both.code == 0, both.err
    assert [line for line in both.out.splitlines() if line.endswith(".yaml")] == [
        "a.yaml",
        "b.yaml",
    ]
    (tmp_path / "b.yaml").write_text("version: 1\ndata: nowhere\n", encoding="utf-8")
    broken = guardmark("check", "a.yaml", "b.yaml", cwd=tmp_path)
    assert broken.code == 2
    assert broken.err.startswith("b.yaml")


def test_the_hook_before_a_commit_checks_every_configuration_that_changed(tmp_path: Path) -> None:
    """Its command is one of ours and takes all names at once; its pattern finds those of `init`."""
    hooks = Path(__file__).resolve().parents[2] / ".pre-commit-hooks.yaml"
    listed = yaml.safe_load(hooks.read_text(encoding="utf-8"))
    (hook,) = (each for each in listed if each["id"] == "guardmark-check")
    for name in ("bench.yaml", "small-bench.yml"):
        assert re.search(hook["files"], f"guards/{name}")
        guardmark("init", "-o", name, cwd=tmp_path)
    program, *words = hook["entry"].split()
    done = guardmark(*words, "bench.yaml", "small-bench.yml", cwd=tmp_path)
    assert (program, done.code) == ("guardmark", 0), done.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_completes(tmp_path: Path, shell: str) -> None:
    """And a half-typed command is completed without a fault."""
    assert "_GUARDMARK_COMPLETE" in guardmark("completion", shell, cwd=tmp_path).out
    half = {"COMP_WORDS": "guardmark ver", "COMP_CWORD": "1" if shell != "fish" else "ver"}
    done = subprocess.run(
        [sys.executable, "-m", "guardmark"],
        env={**os.environ, **half, "_GUARDMARK_COMPLETE": f"{shell}_complete"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert b"verify" in done.stdout
    assert done.returncode == 0


def test_a_purpose_that_no_set_has_is_an_error_that_names_them(tmp_path: Path) -> None:
    """An empty list would read as "there is nothing"."""
    assert guardmark("data", "list", "--purpose", "judge", cwd=tmp_path).code == 0
    done = guardmark("data", "list", "--purpose", "jail", cwd=tmp_path)
    assert done.code == 2
    assert "No purpose is called 'jail'" in done.err
    assert "jailbreak" in done.err


def test_habits_of_other_tools_are_kept(tmp_path: Path) -> None:
    """`-V`, `help run`, `bench.yaml` of the folder, and `last` for the newest run."""
    assert guardmark("-V", cwd=tmp_path).out == guardmark("--version", cwd=tmp_path).out
    assert guardmark("help", "run", cwd=tmp_path).out == guardmark("run", "-h", cwd=tmp_path).out
    assert "Next: name the folder" in guardmark("show", "last", cwd=tmp_path).err
    assert guardmark("check", cwd=tmp_path).code == 2
    (tmp_path / "bench.yaml").write_text(
        "version: 1\nname: own\ndata: [{builtin: core}]\n"
        "defenses: {mine: {type: pattern, patterns: [ignore]}}\n"
    )
    done = guardmark("check", cwd=tmp_path)
    assert "Note: checking bench.yaml of this folder." in done.err
    assert "Settings: fine." in done.out
    done = guardmark("run", "--limit", "20", cwd=tmp_path)
    assert "Note: measuring bench.yaml of this folder." in done.err
    assert "mine" in done.out
    again = guardmark("run", "bench.yaml", "--limit", "30", cwd=tmp_path)
    assert again.code == 0, again.err
    newest = guardmark("show", "last", "--json", cwd=tmp_path)
    assert newest.code == 0, newest.err
