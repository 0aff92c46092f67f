"""Whole runs against a service in trouble: the figures stay, the failures are counted."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from guardmark.config.settings import BuildContext
from guardmark.core.manifest import DataManifest, LatencyMode, Policy, RunManifest
from guardmark.core.sample import Label, Prompt, Sample
from guardmark.defenses.http.defense import HttpSettings
from guardmark.engine.plan import Plan
from guardmark.engine.runner import run
from guardmark.engine.supervision import StopSignal
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from guardmark.core.record import Record
    from guardmark.net.client import Services

    Serve = Callable[..., Any]
    Make = Callable[..., Services]
    Trouble = Callable[[int, int], web.StreamResponse | str | None]

COUNT = 120


def _manifest() -> RunManifest:
    return RunManifest(
        name="faults",
        guardmark_version="0",
        config_sha256="c" * 64,
        data_sha256="d" * 64,
        created_utc="2026-11-21T00:00:00Z",
        seed=7,
        repeats=1,
        confidence=0.95,
        min_per_category=100,
        on_malformed=Policy.RECORD,
        on_error=Policy.RECORD,
        latency_mode=LatencyMode.LOADED,
        concurrency=16,
        warmup=0,
        evaluator="",
        parts=(),
        data=(DataManifest(name="x", version="", sha256="e" * 64, attacks=1, benign=1),),
        categories={},
    )


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RecordWriter]:
    """A store with samples; every text is its own number."""
    opened = RecordWriter(tmp_path / "records.sqlite")
    opened.load_samples(
        Sample(
            id=f"s-{number}",
            prompt=Prompt.of_text(str(number)),
            label=Label.ATTACK if number % 2 else Label.BENIGN,
        )
        for number in range(COUNT)
    )
    opened.put_manifest(_manifest())
    yield opened
    opened.close()


def _truth(number: int) -> str:
    """What the service says of a sample, whatever happens on the way."""
    return "block" if number % 3 == 0 else "allow"


def _service(trouble: Trouble) -> Callable[[web.Request], Any]:
    """Answer truthfully, unless there is trouble with this sample at this asking."""
    asked: Counter[int] = Counter()

    async def answer(request: web.Request) -> web.StreamResponse:
        number = int((await request.json())["text"])
        asked[number] += 1
        wrong = trouble(number, asked[number])
        if wrong == "reset":
            assert request.transport is not None
            request.transport.abort()
        if wrong == "half":
            response = web.StreamResponse(headers={"Content-Length": "400"})
            await response.prepare(request)
            await response.write(b'{"flagged": ')
            request.transport.close()  # type: ignore[union-attr]
            return response
        if isinstance(wrong, web.StreamResponse):
            return wrong
        return web.json_response({"flagged": _truth(number) == "block"})

    return answer


def _defense(url: str, services: Services, tmp_path: Path) -> Any:
    settings = HttpSettings.model_validate(
        {"url": url, "body": {"text": {"$input": "text"}}, "blocked": "$.flagged"}
    )
    context = BuildContext(folder=tmp_path, seed=1, services=services, defenses={})
    return settings.build("service", context)


def _records(path: Path) -> dict[int, Record]:
    """Every record by its sample; twice the same sample would be a doubled result."""
    with RecordReader(path) as reader:
        records = list(reader.records(defense="service"))
    by_sample = {record.key.sample: record for record in records}
    assert len(by_sample) == len(records)
    return by_sample


def _draw(number: int, asking: int) -> int:
    """A number from 0 to 9, the same on every machine and in every order."""
    return hashlib.sha256(f"{number} {asking}".encode()).digest()[0] % 10


def _ten_percent_500(number: int, asking: int) -> web.StreamResponse | None:
    return web.Response(status=500) if _draw(number, asking) == 0 else None


def _storm(number: int, asking: int) -> web.StreamResponse | None:
    stormy = asking <= 2 and number < 80
    return web.Response(status=429, headers={"Retry-After": "0.01"}) if stormy else None


def _resets(number: int, asking: int) -> str | None:
    return "reset" if _draw(number, asking) < 3 else None


def _halves(number: int, asking: int) -> str | None:
    return "half" if _draw(number, asking) < 3 else None


@pytest.mark.parametrize("trouble", [_ten_percent_500, _storm, _resets, _halves])
async def test_passing_trouble_changes_no_figure(
    make_services: Make, serve: Serve, *, writer: RecordWriter, tmp_path: Path, trouble: Trouble
) -> None:
    """Retries reach the answer that an untroubled run has, and are on record."""
    server = await serve(_service(trouble))
    defense = _defense(server.url, make_services(retries=10), tmp_path)
    summary = await run(Plan(defenses=(defense,)), writer)
    records = _records(writer.path)
    assert {n: record.outcome for n, record in records.items()} == {
        n: _truth(n) for n in range(COUNT)
    }
    assert (summary.planned, summary.stored) == (COUNT, COUNT)
    tried_again = [r for r in records.values() if r.evidence and len(r.evidence.attempts) > 1]
    assert tried_again
    assert all(r.evidence and r.evidence.attempts[-1].error == "" for r in tried_again)


async def test_lasting_trouble_is_counted_by_its_kind(
    make_services: Make, serve: Serve, writer: RecordWriter, tmp_path: Path
) -> None:
    """An error is an error and a mumble is malformed; neither becomes a block or an allow."""
    damaged = {
        1: ("error", "http", lambda: web.Response(status=500)),
        2: ("malformed", None, lambda: web.json_response(text='{"flagged": tr')),
        3: ("error", "contract", lambda: web.Response(text="<html>", content_type="text/html")),
        4: ("error", "contract", lambda: web.Response(body=b" " * 50_000_000)),
        5: ("error", "connection", lambda: "reset"),
        6: ("malformed", None, lambda: web.json_response({"flagged": "perhaps"})),
        7: ("error", "refused", lambda: web.Response(status=403)),
    }

    def trouble(number: int, _asking: int) -> Any:
        return damaged[number % 10][2]() if number < 40 and number % 10 in damaged else None

    server = await serve(_service(trouble))
    # Server and client share a loop here, and 50 MB keep it from the other answers for a while.
    defense = _defense(server.url, make_services(retries=1, read_timeout_s=60), tmp_path)
    await run(Plan(defenses=(defense,)), writer)
    records = _records(writer.path)
    assert len(records) == COUNT
    for number, record in records.items():
        wanted: tuple[str, str | None] = (_truth(number), None)
        if number < 40 and number % 10 in damaged:
            wanted = damaged[number % 10][:2]
        assert (record.outcome, record.error_kind) == wanted


async def test_an_interrupted_run_continues_where_it_was(
    make_services: Make, serve: Serve, writer: RecordWriter, tmp_path: Path
) -> None:
    """What is in flight is asked again; nothing is stored twice, nothing is missing."""
    stop = StopSignal()
    seen = 0

    def interrupt(_number: int, _asking: int) -> None:
        nonlocal seen
        seen += 1
        if seen == 50:
            stop.set()

    server = await serve(_service(interrupt))
    client = make_services()
    plan = Plan(defenses=(_defense(server.url, client, tmp_path),), concurrency=8)
    first = await run(plan, writer, stop=stop)
    assert 0 < first.stored < COUNT
    second = await run(plan, writer)
    assert second.stored == COUNT
    assert {n: r.outcome for n, r in _records(writer.path).items()} == {
        n: _truth(n) for n in range(COUNT)
    }


async def test_a_service_that_dies_leaves_errors_and_comes_back(
    make_services: Make, serve: Serve, writer: RecordWriter, tmp_path: Path
) -> None:
    """What was asked while it was away is an error; what was asked before and after is right."""
    app = _service(lambda _number, _asking: None)
    seen, is_time = 0, asyncio.Event()

    async def counted(request: web.Request) -> web.StreamResponse:
        nonlocal seen
        seen += 1
        if seen == 30:
            is_time.set()
        await asyncio.sleep(0.002)
        return await app(request)  # type: ignore[no-any-return]

    server = await serve(counted)
    defense = _defense(server.url, make_services(retries=2, backoff_s=0.01), tmp_path)

    async def die_and_come_back() -> None:
        await is_time.wait()
        await server.stop()
        await asyncio.sleep(0.1)
        await serve(counted, port=server.port)

    trouble = asyncio.create_task(die_and_come_back())
    await run(Plan(defenses=(defense,), concurrency=4), writer)
    await trouble
    records = _records(writer.path)
    assert len(records) == COUNT
    for number, record in records.items():
        if record.outcome == "error":
            assert record.error_kind == "connection"
        else:
            assert record.outcome == _truth(number)
