"""The real server over runs, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.journeys.command_line import words

pytest.importorskip("uvicorn", reason="the extra view is not installed")

HOSTILE = "</script><img src=x onerror='window.owned=1'>\u202e\x1b[31m"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server said."""

    code: int
    text: str
    headers: dict[str, str] = field(default_factory=dict)


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:  # type: ignore[override]
        """Follow nothing."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """A server in a process of its own."""

    url: str
    runs: int

    def ask(self, path: str = "", *, method: str = "GET", **headers: str) -> Answer:
        """Ask for a page; underscores in names of headers stand for hyphens."""
        request = urllib.request.Request(  # noqa: S310 - our own server
            self.url + path,
            method=method,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
        try:
            said = urllib.request.build_opener(_Stay).open(request, timeout=60)
        except urllib.error.HTTPError as error:
            said = error
        with closing(said):
            return Answer(
                code=said.status,
                text=said.read().decode(),
                headers={name.lower(): value for name, value in said.headers.items()},
            )


@contextmanager
def serving(folder: Path, *given: str, env: dict[str, str] | None = None) -> Iterator[Site]:
    """Serve pages over a folder of runs; stopped as a person does.

    No token is asked for unless one is named: what a token keeps out has tests of its own.
    """
    token = () if "--token-env" in given or "--token" in given else ("--no-token",)
    options = (word for word in given if word != "--token")
    with subprocess.Popen(
        words("view", folder, "--port", "0", "--json", *token, *options),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    ) as child:
        assert child.stdout is not None
        try:
            yield Site(**json.loads(child.stdout.readline()))
        finally:
            child.send_signal(signal.SIGINT)
            code = child.wait(timeout=20)
    assert code == 0


def meta(folder: Path, key: str, value: str) -> None:
    """Write into the notes of a run, past its own writer."""
    with closing(sqlite3.connect(folder / "records.sqlite")) as connection, connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))


def manifest(folder: Path) -> str:
    """Return the stored manifest of a run, as JSON."""
    with closing(sqlite3.connect(folder / "records.sqlite")) as connection:
        row = connection.execute("SELECT value FROM meta WHERE key = 'manifest'").fetchone()
    return str(row[0])
