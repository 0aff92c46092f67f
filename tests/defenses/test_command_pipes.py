"""The pipes of a process: what is full, closed, late or unasked is told, and nothing hangs."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from guardmark.config.settings import BuildContext
from guardmark.core.errors import BadSettings, ConfigError
from guardmark.core.outcome import Decision
from guardmark.core.sample import Prompt
from guardmark.defenses.command.settings import CommandSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    Build = Callable[..., Any]

PIPE = 65_536  # bytes that a pipe usually holds
SILENT_START = """\
import json, os, select, sys, time

def say(**fields):
    os.write(1, json.dumps(fields).encode() + b"\\n")

say(ready=True)
"""
LOOP = (
    SILENT_START
    + """\
for line in sys.stdin:
    question = json.loads(line)
    number, text = question.get("id"), question.get("text")
    {body}
    say(id=number, blocked="attack" in text)
"""
)


def built(folder: Path, program: str, **settings: Any) -> Any:
    """Build a command defense around a program that says itself when it is ready."""
    (folder / "worker.py").write_text(program)
    usual = {"command": [sys.executable, "worker.py"], "timeout_s": 20, "warm_up": None}
    context = BuildContext(folder=folder, seed=1, services=None, defenses={})
    return CommandSettings.model_validate(usual | settings).build("mine", context)


@pytest.fixture
async def build(tmp_path: Path) -> AsyncIterator[Build]:
    """Build command defenses that end with the test."""
    made: list[Any] = []

    def make(program: str, **settings: Any) -> Any:
        made.append(built(tmp_path, program, **settings))
        return made[-1]

    yield make
    for defense in made:
        await defense.close()


def said(decision: Decision) -> tuple[str, str]:
    """The outcome, or the kind of an error, and its message."""
    message = decision.evidence.message if decision.evidence else ""
    return decision.error_kind or decision.outcome, message


def folder_of(defense: Any) -> Path:
    """The folder in which its program works."""
    return Path(defense.capabilities.files[0]).parent


def wait_for_end(process: int) -> None:
    """Wait until a process has ended, and leave it to the defense to see that."""
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)


async def asked(defense: Any, *texts: str) -> list[tuple[str, str]]:
    """Ask about one text after the other."""
    return [said(await defense.decide(Prompt.of_text(text))) for text in texts]


@pytest.mark.parametrize("length", [PIPE, 3 * PIPE + 1])
async def test_a_process_that_answers_before_it_has_read_gets_all_that_was_sent(
    build: Build, length: int
) -> None:
    """Its pipe is full to the last byte or longer: the next text waits its turn behind the first."""
    program = SILENT_START + (
        "select.select([0], [], [])\n"
        "say(id=1, blocked=False)\n"
        "time.sleep(0.2)\n"
        "first, second = (json.loads(sys.stdin.readline()) for _ in range(2))\n"
        "say(id=2, blocked=True, reason=f\"{len(first['text'])} {second['text']}\")\n"
        "sys.stdin.read()\n"
    )
    text = "x" * (length - len('{"id": 1, "text": ""}\n'))
    defense = build(program)
    assert await asked(defense, text) == [("allow", "")]
    decision = await defense.decide(Prompt.of_text("attack"))
    assert decision.evidence.reason == f"{len(text)} attack"


async def test_a_text_longer_than_a_pipe_arrives_whole(build: Build) -> None:
    """In as many pieces as the process takes."""
    body = "say(id=number, blocked=True, reason=str(len(text))); continue"
    defense = build(LOOP.replace("{body}", body))
    decision = await defense.decide(Prompt.of_text("x" * 1_000_000))
    assert decision.evidence.reason == "1000000"


async def test_a_process_that_closed_its_input_is_told_by_how_it_ended(build: Build) -> None:
    """What cannot be written is no failure of its own: the process says more by its end."""
    body = (
        "os.close(0); say(id=number, blocked=True)\n"
        "    while not os.path.exists('asked again'): time.sleep(0.01)\n"
        "    os._exit(7)"
    )
    defense = build(LOOP.replace("{body}", body))
    assert await asked(defense, "attack") == [("block", "")]
    second = asyncio.ensure_future(asked(defense, "hello"))
    await asyncio.sleep(0.01)
    (folder_of(defense) / "asked again").touch()
    assert await second == [("crash", "the process ended with exit code 7")]


async def test_a_process_that_closed_its_output_and_lives_on_is_ended(build: Build) -> None:
    """No answer can come any more; nobody waits for the whole time of a text."""
    body = "text == 'bad' and (os.close(1), time.sleep(60))"
    defense = build(LOOP.replace("{body}", body), timeout_s=600)
    answers = await asyncio.wait_for(asked(defense, "bad", "attack"), 20)
    assert answers == [("crash", "the process closed its output"), ("block", "")]


@pytest.mark.parametrize("end", ["\\n", ""])
async def test_a_line_that_nobody_asked_for_is_an_error_of_the_next_text(
    build: Build, end: str
) -> None:
    """It could be taken for its answer; a process that starts anew answers the one after it."""
    wait = "[time.sleep(0.01) for _ in iter(lambda: os.path.exists('read'), True)]"
    extra = f"{wait}, os.write(1, b'later{end}'), open('written', 'w')"
    body = f"text == 'first' and (say(id=number, blocked=False), {extra}, time.sleep(60))"
    defense = build(LOOP.replace("{body}", body))
    assert await asked(defense, "first") == [("allow", "")]
    (folder_of(defense) / "read").touch()
    while not (folder_of(defense) / "written").exists():  # noqa: ASYNC110 - a file tells
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)
    assert await asked(defense, "hello", "attack") == [
        ("contract", "a line without a question: 'later'"),
        ("block", ""),
    ]


async def test_an_answer_about_no_number_is_refused(build: Build) -> None:
    """A word, a truth value or nothing names no question."""
    body = "text in 'abc' and (say(id={'a': 'x', 'b': True, 'c': None}[text], blocked=False))"
    answers = await asked(build(LOOP.replace("{body}", body)), *"abc", "attack")
    assert [kind for kind, _ in answers] == ["contract"] * 3 + ["block"]
    assert all("an answer with another id" in message for _, message in answers[:3])


async def test_a_process_that_ended_after_its_answer_is_replaced(build: Build) -> None:
    """Its answer counts, and the next text pays nothing for its end."""
    body = "say(id=number, blocked=True, reason=str(os.getpid())); sys.exit(3)"
    defense = build(LOOP.replace("{body}", body))
    processes = set()
    for _ in range(2):
        decision = await defense.decide(Prompt.of_text("attack"))
        processes.add(process := int(decision.evidence.reason))
        wait_for_end(process)
        await asyncio.sleep(0.01)
    assert len(processes) == 2


async def test_a_process_that_no_longer_forgets_is_an_error_of_that_text(build: Build) -> None:
    """It might answer by what it was asked before; another one is started for the next."""
    program = LOOP.replace(
        "    {body}\n",
        "    if 'reset' in question:\n"
        "        say(reset=not os.path.exists('full'))\n"
        "        continue\n"
        "    open('full', 'w') if text == 'fill' else None\n",
    )
    defense = build(program, reset=True)
    assert await asked(defense, "fill") == [("allow", "")]
    (refused,) = await asked(defense, "attack")
    assert refused == ("contract", 'expected {"reset": true}, got \'{"reset": false}\'')
    (folder_of(defense) / "full").unlink()
    assert await asked(defense, "attack") == [("block", "")]


@pytest.mark.parametrize(("is_there", "reason"), [(True, "Permission denied"), (False, "No such")])
async def test_a_program_that_cannot_be_run_is_named_with_the_reason(
    tmp_path: Path, *, is_there: bool, reason: str
) -> None:
    """It may lose its permission, or go, after the configuration was read."""
    program = tmp_path / "guard"
    program.write_text("#!/bin/sh\n")
    defense = built(tmp_path, "", command=[str(program)])
    if not is_there:
        program.unlink()
    with pytest.raises(ConfigError, match=rf"guard' cannot be run: {reason}"):
        await defense.start()


def test_a_defense_is_asked_again_on_another_loop(tmp_path: Path) -> None:
    """As in a notebook, where every call has its own: a new process answers."""
    body = "say(id=number, blocked=True, reason=str(os.getpid())); continue"
    defense = built(tmp_path, LOOP.replace("{body}", body))

    async def once() -> str:
        decision = await defense.decide(Prompt.of_text("attack"))
        return str(decision.evidence.reason)

    async def last() -> str:
        process = await once()
        await defense.close()
        return process

    assert asyncio.run(once()) != asyncio.run(last())


async def test_an_end_is_seen_where_the_system_does_not_tell_of_it(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS: there the end of its output tells that a process ended."""
    monkeypatch.setattr(sys, "platform", "darwin")
    defense = build(LOOP.replace("{body}", "text == 'bad' and sys.exit(3)"), timeout_s=600)
    answers = await asyncio.wait_for(asked(defense, "bad", "attack"), 20)
    assert answers == [("crash", "the process ended with exit code 3"), ("block", "")]


def test_a_process_of_its_own_is_refused_on_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the configuration is read, and with the systems that have it."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(BadSettings, match="needs Linux or macOS"):
        built(tmp_path, "")
