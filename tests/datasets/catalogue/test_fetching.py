"""Public data fetched from homes on this machine: all of it or nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, ClassVar

import pytest

from guardmark.app.data import get_public
from guardmark.core.errors import DatasetError, GuardmarkError, ServiceError
from guardmark.core.sample import DEFAULT_TAXONOMY
from guardmark.datasets.loading import load
from guardmark.datasets.public_sets import fetch_missing
from guardmark.datasets.settings import DataSettings
from guardmark.datasets.specs import dataset_specs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

ROW = {"words": "stop", "bad": "yes"}
LINE = json.dumps(ROW).encode() + b"\n"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Home(BaseHTTPRequestHandler):
    """Gives what a table says for each path: a status and a body."""

    keys: ClassVar[set[str]] = set()  # That it was ever shown.

    def __init__(self, *args: object, table: Mapping[str, tuple[int, bytes]]) -> None:
        self.table = table
        super().__init__(*args)  # type: ignore[arg-type]  # what the server of the library hands over

    def do_GET(self) -> None:
        """Answer."""
        status, body = self.table.get(self.path.split("?")[0], (404, b"{}"))
        self.send_response(status)
        if status == 403:
            self.send_header("X-Error-Code", "GatedRepo")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", '"same"')
        self.keys.add(str(self.headers.get("Authorization")))
        if status >= 400:
            self.send_header("X-Error-Message", f"refused {self.headers.get('Authorization')}")
        length = len(body) + 5 if self.path.endswith("cut.jsonl") else len(body)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name that the library calls

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def home(table: Mapping[str, tuple[int, bytes]]) -> Iterator[str]:
    """Serve a table on a free port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Home, table=table))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def entry_of(folder: Path, url: str, file: str) -> DataSettings:
    """Write an entry whose home is an address, and name it."""
    (folder / "ours.toml").write_text(f"""
title = "Ours"
about = "Rows of a test."
home = "{url}"
licence = "CC0"
languages = ["en"]
purposes = ["prompt-injection"]
ask = "Nobody."
groups = "None."
tried = "documentation only"
[[files]]
path = "{file}"
[rows]
text = "words"
label = {{column = "bad", words = {{yes = "attack"}}}}
kind = {{constant = "attack"}}
""")
    return DataSettings.model_validate({"catalogue": "ours.toml"})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test."""
    monkeypatch.setenv("GUARDMARK_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_fetched_set_is_read_without_its_home(tmp_path: Path) -> None:
    """The licence is announced before, and the cache serves from then on."""
    said: list[str] = []
    with home({"/rows.jsonl": (200, LINE)}) as url:
        entry = entry_of(tmp_path, url, "rows.jsonl")
        fetch_missing(entry, tmp_path, said.append)
    fetch_missing(entry, tmp_path, said.append)
    data = load(dataset_specs(entry, tmp_path), DEFAULT_TAXONOMY)
    assert ([s.prompt.text for s in data.samples()], len(said)) == (["stop"], 1)
    assert "Licence: CC0" in said[0]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((404, b""), "is no longer at its source"),
        ((403, b""), "export HF_TOKEN"),
        ((500, b""), "was not given (HTTP 500)"),
        ((200, LINE), "broke off early"),
        ((200, b'{"other": 1, "bad": "yes"}\n'), "has no column 'words'"),
        ((200, LINE + b"{half"), "is not JSON"),
        (
            (200, b'{"words": "caf\xe9", "bad": "yes"}\n'),
            "nothing was stored.\n  rows.jsonl row 1: is not",
        ),
        ((200, b'{"words": "x", "bad": "maybe"}\n'), "'maybe', which the entry does not translate"),
    ],
)
def test_nothing_is_stored_of_what_cannot_be_used(
    answer: tuple[int, bytes], told: str, tmp_path: Path, cache: Path
) -> None:
    """Moved, gated, broken, cut off, changed or damaged: five lines at most, and no file."""
    file = "cut.jsonl" if "broke off" in told else "rows.jsonl"
    with home({f"/{file}": answer}) as url:
        entry = entry_of(tmp_path, url, file)
        with pytest.raises((ServiceError, DatasetError)) as raised:
            fetch_missing(entry, tmp_path, lambda _: None)
    assert told in str(raised.value)
    assert len(str(raised.value).splitlines()) <= 5
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_a_home_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With what to do instead."""
    with home({}) as url:
        entry = entry_of(tmp_path, url, "rows.jsonl")
    with pytest.raises(GuardmarkError, match="cannot be fetched"):
        fetch_missing(entry, tmp_path, lambda _: None)


def hub(rows: tuple[int, bytes]) -> dict[str, tuple[int, bytes]]:
    """What a hub answers about a repository of one file."""
    listing = {
        "id": "us/ours",
        "sha": COMMIT,
        "siblings": [{"rfilename": "README.md"}, {"rfilename": "data/test.jsonl"}],
        "cardData": {"license": "cc0-1.0"},
    }
    return {
        "/api/datasets/us/ours": (200, json.dumps(listing).encode()),
        f"/datasets/us/ours/resolve/{COMMIT}/data/test.jsonl": rows,
    }


needs_hub = pytest.mark.skipif(find_spec("huggingface_hub") is None, reason="needs [hub]")


def guardmark(folder: Path, url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Type a command, with the hub at an address of this machine."""
    env = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(folder), "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-m", "guardmark", *words]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )


@needs_hub
@pytest.mark.slow
def test_a_run_over_data_of_a_hub(tmp_path: Path) -> None:
    """The licence of the repository is told before, and the commit stands in the manifest."""
    benign = b'{"words": "hello", "bad": "no"}\n'
    (tmp_path / "run.yaml").write_text("""
version: 1
data: [{hub: us/ours, split: test, map: {text: words, label: bad}}]
defenses: {words: {type: pattern, patterns: [stop]}}
""")
    with home(hub((200, LINE + benign))) as url:
        ran = guardmark(tmp_path, url, "run", "run.yaml", "-o", "out")
    assert ran.returncode == 0, ran.stderr
    assert "Licence: cc0-1.0" in ran.stderr + ran.stdout
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    (data,) = summary["data"]
    assert (data["version"], data["attacks"], data["benign"]) == (COMMIT, 1, 1)


@needs_hub
@pytest.mark.slow
def test_gated_data_of_a_hub_say_what_to_do(tmp_path: Path, cache: Path) -> None:
    """Accept the terms, name a token, fetch again; nothing is stored."""
    with home(hub((403, b""))) as url:
        got = guardmark(tmp_path, url, "data", "get", "hub:us/ours", "--split", "test")
    assert got.returncode != 0
    assert "export HF_TOKEN" in got.stderr
    assert [path for path in cache.rglob("*") if path.is_file()] == []


@needs_hub
@pytest.mark.slow
def test_data_of_a_hub_with_columns_of_their_own_are_stored(tmp_path: Path, cache: Path) -> None:
    """Nobody knows their columns yet, so the command says where to name them."""
    with home(hub((200, LINE))) as url:
        got = guardmark(tmp_path, url, "data", "get", "hub:us/ours", "--split", "test")
    assert "is stored" in got.stderr
    assert "map: {text: COLUMN, label: COLUMN}" in got.stderr
    assert [path.name for path in cache.rglob("*.jsonl")] == ["test.jsonl"]


@needs_hub
@pytest.mark.slow
@pytest.mark.parametrize("status", [200, 403, 500])
def test_a_token_is_nowhere_even_where_the_hub_sends_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Neither printed nor in any file, whether data came or not."""
    token = "hf_" + "Zq7Rk2Wm9XtLp4Vb" * 2
    monkeypatch.setenv("HF_TOKEN", token)
    (tmp_path / "run.yaml").write_text("""
version: 1
data: [{hub: us/ours, split: test, map: {text: words, label: bad}}]
defenses: {words: {type: pattern, patterns: [stop]}}
""")
    with home(hub((status, LINE))) as url:
        ran = guardmark(tmp_path, url, "run", "run.yaml", "-o", "out")
    assert (ran.returncode == 0) == (status == 200), ran.stderr
    assert f"Bearer {token}" in Home.keys
    assert token not in ran.stdout + ran.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in files if token.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("there", ["model_completions", "xstest_prompts.csv", ""])
def test_half_of_a_set_is_not_taken_for_the_whole(tmp_path: Path, cache: Path, there: str) -> None:
    """A copy that lacks a file which rows are read from, or joined with, is refused as one."""
    name = "model_completions/xstest_v2_completions_mistralinstruct.csv"
    for path in (name, "xstest_prompts.csv"):
        (tmp_path / "copy" / path).parent.mkdir(parents=True, exist_ok=True)
        if there and path.startswith(there):
            (tmp_path / "copy" / path).write_text("prompt\nHow are you?\n", encoding="utf-8")
    with pytest.raises(
        DatasetError, match="does not hold the files of xstest-completions"
    ) as error:
        get_public("xstest-completions", {"from": str(tmp_path / "copy")}, lambda _: None)
    assert name in str(error.value)
    assert not [path for path in cache.rglob("*") if path.is_file()]
