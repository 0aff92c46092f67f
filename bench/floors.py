"""The least work each target could be done with; every target is a ratio to one of these.

Run as `python bench/floors.py NAME ARGUMENT...` in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import sys
from collections.abc import Callable, Coroutine, Iterator
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from time import perf_counter_ns
from typing import Any
from unicodedata import normalize
from urllib.parse import urlsplit

PATTERN = r"\b(ignore|disregard|forget)\b.{0,40}\b(previous|prior|above|earlier|all)\b"


def in_process(data: str, out: str) -> None:
    """T6: json.loads, one regex, sha256, one SQLite row and one JSON line a sample."""
    search, clock = re.compile(PATTERN, re.IGNORECASE | re.DOTALL).search, perf_counter_ns
    base = sqlite3.connect(Path(out) / "floor.sqlite", isolation_level=None)
    base.execute("PRAGMA journal_mode = WAL")
    base.execute("PRAGMA synchronous = NORMAL")
    base.execute("CREATE TABLE r (n INTEGER PRIMARY KEY, id TEXT, h BLOB, blocked INT, ns INT)")
    rows: list[tuple[int, str, bytes, bool, int]] = []

    def store() -> None:
        base.execute("BEGIN")
        base.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?)", rows)
        base.execute("COMMIT")
        rows.clear()

    with (
        Path(data).open(encoding="utf-8") as lines,
        (Path(out) / "floor.jsonl").open("w", encoding="utf-8") as results,
    ):
        for number, line in enumerate(lines):
            sample = json.loads(line)
            text = sample["text"]
            digest = sha256(text.encode())
            start = clock()
            blocked = search(text) is not None
            took = clock() - start
            rows.append((number, sample["id"], digest.digest(), blocked, took))
            said = {
                "id": sample["id"],
                "sha256": digest.hexdigest(),
                "label": sample["label"],
                "category": sample["category"],
                "outcome": "block" if blocked else "allow",
                "latency_ns": took,
            }
            results.write(json.dumps(said) + "\n")
            if len(rows) == 1000:
                store()
    store()
    base.close()


def regex_only(data: str) -> None:
    """What the defense of T6 itself costs: json.loads and the regex."""
    search = re.compile(PATTERN, re.IGNORECASE | re.DOTALL).search
    with Path(data).open(encoding="utf-8") as lines:
        for line in lines:
            search(json.loads(line)["text"])


LIBRARIES = ("asyncio", "click", "numpy", "pydantic", "sqlite3", "yaml", "importlib.metadata")
"""What a run in process loads of others' packages, and of the standard library's large ones."""


def libraries(*more: str) -> None:
    """What a run starts with: others' packages are loaded, and one class of settings is made."""
    for name in (*LIBRARIES, *more):
        import_module(name)
    from pydantic import BaseModel, create_model

    made = create_model("Made", __base__=BaseModel, count=(int, 1))
    made.model_validate({"count": 2})


def json_loop(path: str) -> None:
    """T11: a json.loads loop over a file of JSON lines."""
    with Path(path).open(encoding="utf-8") as lines:
        for line in lines:
            json.loads(line)


def folding(data: str, times: str) -> None:
    """T12: NFKD, case folding and SHA-256 of every text, again and again."""
    with Path(data).open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    for _ in range(int(times)):
        for text in texts:
            sha256(normalize("NFKD", text).casefold().encode()).digest()


async def _aiohttp(texts: Iterator[str], url: str, in_flight: int) -> list[int]:
    import aiohttp

    took: list[int] = []
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def work() -> None:
            for text in texts:
                start = perf_counter_ns()
                async with session.post(url, data=_body(text), headers=HEADERS) as answer:
                    content = await answer.read()
                took.append(perf_counter_ns() - start)
                bool(json.loads(content)["flagged"])

        await asyncio.gather(*(work() for _ in range(in_flight)))
    return took


async def _pyreqwest(texts: Iterator[str], url: str, in_flight: int) -> list[int]:
    from pyreqwest.client import ClientBuilder

    took: list[int] = []
    async with ClientBuilder().max_connections(in_flight).build() as client:

        async def work() -> None:
            for text in texts:
                start = perf_counter_ns()
                request = client.post(url).headers(HEADERS).body_bytes(_body(text)).build()
                answer = await request.send()
                content = bytes(await answer.bytes())
                took.append(perf_counter_ns() - start)
                bool(json.loads(content)["flagged"])

        await asyncio.gather(*(work() for _ in range(in_flight)))
    return took


async def _streams(texts: Iterator[str], url: str, in_flight: int) -> list[int]:
    """HTTP/1.1 by hand: a head, a length and a body, nothing that a real service may do else."""
    took: list[int] = []
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or 80
    head = (
        f"POST {address.path or '/'} HTTP/1.1\r\nHost: {host}:{port}\r\n"
        "Content-Type: application/json\r\nContent-Length: "
    ).encode()

    async def work() -> None:
        reader, writer = await asyncio.open_connection(host, port)
        for text in texts:
            body = _body(text)
            start = perf_counter_ns()
            writer.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
            said = await reader.readuntil(b"\r\n\r\n")
            at = said.lower().index(b"content-length:") + len(b"content-length:")
            content = await reader.readexactly(int(said[at:].split(b"\r\n", 1)[0]))
            took.append(perf_counter_ns() - start)
            bool(json.loads(content)["flagged"])
        writer.close()

    await asyncio.gather(*(work() for _ in range(in_flight)))
    return took


HEADERS = {"Content-Type": "application/json"}


def _body(text: str) -> bytes:
    return json.dumps({"input": text}).encode()


Client = Callable[[Iterator[str], str, int], Coroutine[Any, Any, list[int]]]


def _ask(
    client: Client, arguments: tuple[str, str, str, str], *, loop: Callable[[], Any] | None = None
) -> None:
    """Send every text through a client, and write down the latencies of the warm calls."""
    data, url, in_flight, out = arguments
    with Path(data).open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    with asyncio.Runner(loop_factory=loop) as runner:
        took = runner.run(client(iter(texts), url, int(in_flight)))
    warm = sorted(took[int(in_flight) :])
    late = {"p50": warm[len(warm) // 2] / 1e6, "p99": warm[len(warm) * 99 // 100] / 1e6}
    Path(out).write_text(json.dumps(late), encoding="utf-8")


def aiohttp_client(*arguments: str) -> None:
    """T1 to T4: a bare aiohttp client with pulling workers that keeps nothing but latencies."""
    _ask(_aiohttp, arguments)  # type: ignore[arg-type]


def aiohttp_uvloop(*arguments: str) -> None:
    """The same on uvloop."""
    import uvloop

    _ask(_aiohttp, arguments, loop=uvloop.new_event_loop)  # type: ignore[arg-type]


def pyreqwest_uvloop(*arguments: str) -> None:
    """The same by pyreqwest, where it is installed."""
    import uvloop

    _ask(_pyreqwest, arguments, loop=uvloop.new_event_loop)  # type: ignore[arg-type]


def streams(*arguments: str) -> None:
    """The same by asyncio's streams."""
    _ask(_streams, arguments)  # type: ignore[arg-type]


CLIENTS = (aiohttp_client, aiohttp_uvloop, pyreqwest_uvloop, streams)
FLOORS = {f.__name__: f for f in (in_process, regex_only, libraries, json_loop, folding, *CLIENTS)}

if __name__ == "__main__":
    FLOORS[sys.argv[1]](*sys.argv[2:])
