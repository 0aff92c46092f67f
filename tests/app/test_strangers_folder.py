"""A run folder that came from somebody else: no command does what it says."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from tests.app.stranger import loaded_from, send, session
from tests.journeys.command_line import guardmark, typed, words, write_rows

from guardmark.app.adapt.adapting import AdaptOptions, adapt
from guardmark.app.adapt.subject import TrustList
from guardmark.app.registry import builtin_parts, settings_model
from guardmark.core.errors import ConfigError, IncomparableRuns, StoreError

if TYPE_CHECKING:
    from tests.conftest import Serve

EVIL = """\
from pathlib import Path

Path(__file__).with_name("PWNED").touch()


def decide(text):
    return True
"""
OWN = """\
version: 1
data: [{path: data.jsonl}]
defenses:
  guard: {type: python, target: "ours.py:decide"}
"""
PYTHON = {"defenses": {"guard": {"type": "python", "target": "evil.py:decide"}}}


def four() -> AdaptOptions:
    """As few tries as can be."""
    return AdaptOptions(budget=4)


def prepare(folder: Path) -> None:
    """Lay down code that leaves a mark when it is imported; the mark of the sender is wiped."""
    (folder / "evil.py").write_text(EVIL, encoding="utf-8")


def wipe(folder: Path) -> Path:
    """Forget what making the folder imported; return the mark that importing it again leaves."""
    for name in [name for name in sys.modules if name.startswith("guardmark_target_")]:
        del sys.modules[name]
    (folder / "PWNED").unlink(missing_ok=True)
    return folder / "PWNED"


def edit_manifest(out: Path, before: str, after: str) -> None:
    """Write other words into the manifest, and leave every hash as it was."""
    with closing(sqlite3.connect(out / "records.sqlite")) as connection, connection:
        (text,) = connection.execute("SELECT value FROM meta WHERE key = 'manifest'").fetchone()
        assert before in text
        changed = text.replace(before, after)
        connection.execute("UPDATE meta SET value = ? WHERE key = 'manifest'", (changed,))


def test_a_target_of_the_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`os:system` would run every text as a command of the shell."""
    settings = {"defenses": {"guard": {"type": "python", "target": "os:system"}}}
    out = send(tmp_path, settings, texts="touch PWNED # ignore")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="names parts that run code") as refused:
        adapt(out, session(), four())
    assert not (tmp_path / "PWNED").exists()
    assert len(str(refused.value).splitlines()) <= 5
    assert "--config CONFIG" in str(refused.value)


def test_an_edited_target_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever edits the manifest breaks the chain, which is looked at first, even with --trust."""
    prepare(tmp_path)
    (tmp_path / "mild.py").write_text("def decide(text):\n    return True\n", encoding="utf-8")
    out = send(tmp_path, {"defenses": {"guard": {"type": "python", "target": "mild.py:decide"}}})
    edit_manifest(out, "mild.py:decide", "evil.py:decide")
    monkeypatch.chdir(tmp_path)
    mark = wipe(tmp_path)
    with pytest.raises(StoreError, match="is not what was measured"):
        adapt(out, session(), AdaptOptions(budget=4, trust=lambda _list: True))
    assert not mark.exists()


def test_data_that_were_edited_since_are_found_before_anything_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was over other rows than those that lie there now."""
    prepare(tmp_path)
    out = send(tmp_path, PYTHON)
    write_rows(tmp_path / "data.jsonl", [{"id": "x", "text": "hi", "label": "attack"}])
    monkeypatch.chdir(tmp_path)
    mark = wipe(tmp_path)
    with pytest.raises(StoreError, match=r"data\.jsonl"):
        adapt(out, session(), AdaptOptions(budget=4, trust=lambda _list: True))
    assert not mark.exists()


@pytest.mark.slow
async def test_no_address_is_called_and_no_variable_sent(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header of `{env: NAME}` would carry the variable of whoever opens the folder."""
    heard: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        heard.append(request.headers.get("X-A", ""))
        return web.json_response({"blocked": True})

    monkeypatch.setenv("NAME", "s3cret")
    settings = {
        "defenses": {
            "guard": {
                "type": "http",
                "url": (await serve(answer)).url,
                "headers": {"X-A": {"env": "NAME"}},
                "body": {"text": {"$input": "text"}},
                "blocked": "$.blocked",
            }
        }
    }
    out = await asyncio.to_thread(send, tmp_path, settings)
    for more in ([], ["--config", "attacker.yaml"], ["--replay", "trace.jsonl"]):
        (tmp_path / "attacker.yaml").write_text("adaptive: {attacker: {type: scripted}}\n", "utf-8")
        done = await typed("adapt", out, "--budget", "4", *more, cwd=tmp_path)
        assert done.code in {2, 3}, done.err
        assert "s3cret" not in done.err
    assert heard == []


FILES: dict[str, dict[str, Any]] = {
    "ngram": {"type": "ngram", "weights": "model.pkl"},
    "patterns": {"type": "pattern", "patterns": "rules.txt"},
    "keywords": {"type": "pattern", "keywords": "/etc/passwd"},
    "classifier": {"type": "classifier", "path": "model.pkl", "positive": ["x"], "threshold": 0.5},
    "decisions": {"type": "decisions", "path": "../answers.csv"},
    "plug-in": {"type": "somebody's"},
    "no type": {"type": ["pattern"]},
}


@pytest.mark.parametrize("settings", FILES.values(), ids=FILES)
def test_no_file_and_no_plug_in_of_the_folder_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """Neither weights that hold a pickle nor a list of words; nothing is built at all."""
    out = send(tmp_path, {"defenses": {"guard": {"type": "pattern", "patterns": ["decoy"]}}})
    built: list[object] = []
    monkeypatch.setattr("guardmark.app.parts.building.build_part", lambda *a: built.append(a))
    monkeypatch.setattr(
        "guardmark.app.adapt.subject.resolved",
        lambda _config: {"defenses": {"guard": settings}, "adaptive": None, "services": {}},
    )
    with pytest.raises((ConfigError, KeyError), match="guard"):
        adapt(out, session(), four())
    assert built == []


def test_parts_that_reach_nothing_are_built_from_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patterns, chains, a scripted model and rules need no configuration beside them."""
    settings: dict[str, Any] = {
        "defenses": {
            "guard": {"type": "pattern", "patterns": ["ignore"]},
            "both": {"type": "chain", "of": ["guard"]},
        },
        "pipeline": {
            "guards": ["none", "guard"],
            "model": {"type": "scripted"},
            "judges": [{"type": "rules", "name": "rules", "canaries": True}],
        },
    }
    out = send(tmp_path, settings)
    monkeypatch.chdir(tmp_path)
    assert adapt(out, session(), four()).defenses == ("guard", "both")


def test_a_part_that_may_take_all_day_is_not_built_because_a_folder_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern reaches nothing, but with a time limit of the sender's it could hold a machine."""
    guard = {"type": "pattern", "patterns": ["ignore"], "timeout_s": 86_400}
    out = send(tmp_path, {"defenses": {"guard": guard}})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"names parts that run code.*: defenses\.guard\."):
        adapt(out, session(), four())


def test_the_attacker_of_the_folder_is_not_asked_where_one_names_one_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address that the sender named is on the list, until a file of one's own replaces it."""
    theirs = {"type": "chat", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
    guard = {"type": "pattern", "patterns": ["ignore"]}
    out = send(tmp_path, {"defenses": {"guard": guard}, "adaptive": {"attacker": theirs}})
    own = tmp_path / "attacker.yaml"
    own.write_text("adaptive: {attacker: {type: scripted, otherwise: nothing}}\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"call addresses.*: adaptive\.attacker\."):
        adapt(out, session(), four())
    assert adapt(out, session(), AdaptOptions(budget=4, config=own)).defenses == ("guard",)


def test_one_s_own_configuration_is_what_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its fingerprints are those of the run; the folder's words are not used."""
    (tmp_path / "ours.py").write_text("def decide(text):\n    return True\n", encoding="utf-8")
    out = send(tmp_path, {"defenses": {"guard": {"type": "python", "target": "ours.py:decide"}}})
    own = tmp_path / "own.yaml"
    own.write_text(OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert adapt(out, session(), AdaptOptions(budget=4, config=own)).defenses == ("guard",)
    (tmp_path / "ours.py").write_text("def decide(text):\n    return False\n", encoding="utf-8")
    wipe(tmp_path)
    with pytest.raises(IncomparableRuns, match="'guard' has other files"):
        adapt(out, session(), AdaptOptions(budget=4, config=own))


def test_a_configuration_of_other_parts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says which part differs in what, where, and what to do, in five lines."""
    (tmp_path / "ours.py").write_text("def decide(text):\n    return True\n", encoding="utf-8")
    out = send(tmp_path, {"defenses": {"guard": {"type": "pattern", "patterns": ["ignore"]}}})
    own = tmp_path / "own.yaml"
    own.write_text(OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IncomparableRuns) as refused:
        adapt(out, session(), AdaptOptions(budget=4, config=own))
    assert "own.yaml" in str(refused.value)
    assert "defense 'guard' has other settings (" in str(refused.value)
    assert "Next:" in str(refused.value)
    assert len(str(refused.value).splitlines()) <= 5


def test_trust_lists_everything_and_asks_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Targets, addresses, files and variables, each with its place; no means that nothing is built."""
    prepare(tmp_path)
    monkeypatch.setenv("NAME", "s3cret")
    settings = {
        "defenses": {
            **PYTHON["defenses"],
            "far": {
                "type": "http",
                "url": "http://127.0.0.1:9/\u202egnp",
                "headers": {"X-A": {"env": "NAME"}},
                "body": {"text": {"$input": "text"}},
                "blocked": "$.blocked",
            },
        },
        "services": {"http://127.0.0.1:9": {"rate": "3/s"}},
    }
    out = send(tmp_path, settings)
    monkeypatch.chdir(tmp_path)
    mark = wipe(tmp_path)
    asked: list[TrustList] = []
    refuse = AdaptOptions(budget=4, trust=lambda listed: bool(asked.append(listed)))
    with pytest.raises(ConfigError, match="did not agree"):
        adapt(out, session(), refuse)
    assert not mark.exists()
    text = "\n".join(asked[0].lines)
    assert text.isascii()
    for said in (
        'defenses.guard.target "evil.py:decide"  (Python code',
        'defenses.far.url "http://127.0.0.1:9/\\u202egnp"  (address',
        'defenses.far.headers.X-A.env "NAME"  (environment variable',
        'services.http://127.0.0.1:9.rate "3/s"',
    ):
        assert said in text
    assert "s3cret" not in text


@pytest.mark.slow
def test_off_a_terminal_the_list_itself_has_to_be_named(tmp_path: Path) -> None:
    """Without its hash, or with the hash of another list, nothing is imported."""
    prepare(tmp_path)
    out = send(tmp_path, PYTHON)
    mark = wipe(tmp_path)
    command = ("adapt", out, "--budget", "4")
    done = guardmark(*command, "--trust", cwd=tmp_path, keys="y\n")
    assert done.code == 2, done.err
    assert 'defenses.guard.target "evil.py:decide"' in done.err
    digest = done.err.split("--trust-list ")[1].split()[0]
    assert guardmark(*command, "--trust-list", "sha256:0", cwd=tmp_path).code == 2
    assert not mark.exists()
    done = guardmark(*command, "--trust-list", digest, cwd=tmp_path)
    assert done.code == 0, done.err
    assert mark.exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("key", "code"), [("n", 2), ("", 2), ("y", 0)])
def test_at_a_terminal_a_person_is_asked(tmp_path: Path, key: str, code: int) -> None:
    """Enter alone is no."""
    import pty

    prepare(tmp_path)
    out = send(tmp_path, PYTHON)
    mark = wipe(tmp_path)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        words("adapt", out, "--budget", "4", "--trust"),
        cwd=tmp_path,
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as child:
        os.write(ours, f"{key}\n".encode())
        child.wait(timeout=60)
    shown = os.read(ours, 65_536)
    assert (child.returncode, mark.exists()) == (code, code == 0), shown.decode()
    assert b"evil.py:decide" in shown


VERBS = [
    ("adapt", "out", "--budget", "4"),
    ("adapt", "out", "--replay", "out/results.jsonl"),
    ("audit", "out", "-o", "sheet.csv"),
    ("compare", "out"),
    ("compare", "out", "two"),
    ("export", "out", "--format", "csv,jsonl,minorbench,inspect,svg"),
    ("gate", "out", "--policy", "gate.yaml"),
    ("judge", "out", "--quality"),
    ("judge", "out", "--config", "judges.yaml"),
    ("report", "out", "--format", "html,md,json,csv,junit,sarif"),
    ("report", "out", "--choose", "guard=0.5"),
    ("run", "own.yaml", "-o", "out"),
    ("run", "own.yaml", "-o", "out", "--retry-errors"),
    ("show", "out"),
    ("stability", "out", "--attacks", "2", "--benign", "2", "--seeds", "2"),
    ("verify", "out"),
    ("verify", "out", "--data", "."),
]


@pytest.mark.slow
async def test_no_verb_imports_calls_or_reads_what_a_folder_names(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code, a service with a variable in its header, a model with a system prompt in a file."""
    heard: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        heard.append(await request.text())
        return web.json_response({"blocked": True})

    prepare(tmp_path)
    (tmp_path / "private.txt").write_text("s3cret", encoding="utf-8")
    (tmp_path / "judges.yaml").write_text(
        "judges: [{type: rules, name: again, unsafe: [x]}]\n", "utf-8"
    )
    (tmp_path / "gate.yaml").write_text("asr_upper: 0.9\n", "utf-8")
    (tmp_path / "own.yaml").write_text(OWN.replace("python", "pattern, builtin: true}#"), "utf-8")
    monkeypatch.setenv("NAME", "s3cret")
    url = (await serve(answer)).url
    model = {"type": "chat", "base_url": url, "model": "m", "api_key": {"env": "NAME"}}
    settings: dict[str, Any] = {
        **PYTHON,
        "pipeline": {
            "model": {**model, "system_prompt_file": "private.txt"},
            "judges": [{**model, "name": "judge"}],
        },
    }
    out = await asyncio.to_thread(send, tmp_path, settings)
    await asyncio.to_thread(send, tmp_path, settings, name="two")
    mark = wipe(tmp_path)
    for verb in VERBS:
        done = await typed(*verb, cwd=tmp_path)
        assert done.code not in {70, -9}, (verb, done.err)
        assert not mark.exists(), verb
        assert heard == [], verb
        assert "s3cret" not in done.out + done.err, verb
    assert out.is_dir()


@pytest.mark.slow
async def test_a_judge_is_not_told_a_file_that_the_folder_names(
    tmp_path: Path, chat_server: Any
) -> None:
    """A judge is told the text that the run keeps, whatever stands in a file of that name."""
    (tmp_path / "private.txt").write_text("kept words", encoding="utf-8")
    pipeline: dict[str, Any] = {
        "model": {"type": "scripted", "system_prompt_file": "private.txt"},
        "judges": [{"type": "rules", "name": "rules", "canaries": True}],
    }
    await asyncio.to_thread(send, tmp_path, {"pipeline": pipeline})
    (tmp_path / "private.txt").write_text("s3cret", encoding="utf-8")
    judge = {"type": "chat", "base_url": chat_server.base_url, "model": "m"}
    (tmp_path / "judges.json").write_text(json.dumps({"judges": [judge]}), encoding="utf-8")
    chat_server.reply = lambda _body: '{"label": "safe", "answer_mode": "answered"}'
    await typed("judge", "out", "--config", "judges.json", cwd=tmp_path)
    told = json.dumps(list(map(str, chat_server.requests)))
    assert "kept words" in told
    assert "s3cret" not in told


@pytest.mark.slow
def test_verify_looks_for_data_only_where_a_person_said(tmp_path: Path) -> None:
    """What lies in the current folder is another's file until a person says that it is the data."""
    (tmp_path / "below").mkdir()
    send(tmp_path, {"defenses": {"guard": {"type": "pattern", "patterns": ["ignore"]}}})
    (tmp_path / "below" / "data.jsonl").write_text("my own notes", encoding="utf-8")
    done = guardmark("verify", "../out", cwd=tmp_path / "below")
    assert done.code == 0, done.out
    assert "data.jsonl was not compared with the data" in done.out + done.err
    assert guardmark("verify", "../out", "--data", "..", cwd=tmp_path / "below").code == 0
    named = guardmark("verify", "../out", "--data", ".", cwd=tmp_path / "below")
    assert named.code == 1
    assert "data.jsonl: sha256" in named.out


@pytest.mark.slow
def test_a_link_within_a_strangers_folder_leads_verify_to_no_other_file(tmp_path: Path) -> None:
    """Data may lie in the folder of the run; a link there does not count as data."""
    send(tmp_path, {"defenses": {"guard": {"type": "pattern", "patterns": ["ignore"]}}})
    (tmp_path / "out" / "data.jsonl").symlink_to(tmp_path / "data.jsonl")
    done = guardmark("verify", "out", cwd=tmp_path)
    assert done.code == 3
    assert "holds a link in place of a file" in done.err


REVIEWED = {
    "allow-all": set(),
    "block-all": set(),
    "coin": {"probability"},
    "canonical": {"of", "steps", "canon"},
    "chain": {"of", "rule", "short_circuit", "between"},
    "ngram": {"weights", "threshold", "view"},
    "pattern": {"patterns", "keywords", "flags", "builtin", "view", "timeout_s"},
    "scripted": {
        *("system_prompt", "system_prompt_file", "system_prompt_name"),
        *("rules", "otherwise", "by_sha256"),
        "view",
    },
    "panel": {"name", "judges"},
    "obedient": set(),
    "rules": {"name", "builtin", "unsafe", "unsafe_file", "refusals", "canaries"},
}


def test_settings_of_parts_that_reach_nothing_were_all_looked_at() -> None:
    """A new setting of such a part must be looked at: may it name a file, an address, a variable?"""
    from guardmark.app.parts.building import INERT

    known = {part_type: kind for kind, types in INERT.items() for part_type in types}
    assert known.keys() == REVIEWED.keys()
    for part_type, kind in known.items():
        assert builtin_parts()[kind][part_type].startswith("guardmark.")
        assert set(settings_model(kind, part_type).model_fields) == REVIEWED[part_type], part_type


def test_a_document_of_the_stranger_is_as_one_would_write_it(tmp_path: Path) -> None:
    """The decoys of these tests are named by settings that are valid."""
    assert loaded_from(PYTHON, tmp_path).config.defenses["guard"]["target"] == "evil.py:decide"
