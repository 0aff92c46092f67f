"""Recorded exchanges: the same answers again, offline, without a secret on file."""

from __future__ import annotations

import json
import os
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from guardmark.core.errors import ConfigError, StorageError
from guardmark.core.outcome import ErrorKind
from guardmark.net.client import Services
from guardmark.store.locks import try_lock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Serve = Callable[..., Any]
    Make = Callable[..., Services]

BODIES = [b'{"text": "one"}', b"\xff\x00 not text", '{"text": "zwei \u2028"}'.encode()]


def _counting() -> Callable[[web.Request], Any]:
    numbers = count()

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        if body == b"fail":
            return web.Response(status=400, text="no " + request.headers["X-Key"])
        return web.Response(body=str(next(numbers)).encode() + b" \xfe " + body)

    return answer


def _endpoint(client: Services, base: str) -> Any:
    return client.endpoint(
        base + "/check?key=in-the-url",
        headers={"X-Plain": "p"},
        secret_headers={"X-Key": "sk-12345"},
    )


async def test_a_replay_gives_the_recorded_answers(
    make_services: Make, serve: Serve, tmp_path: Path
) -> None:
    """Byte for byte, times and failures included, equal requests in their order."""
    server = await serve(_counting())
    recorder = make_services(record=tmp_path / "c.jsonl")
    sent = [*BODIES, BODIES[0], b"fail"]
    first = [await _endpoint(recorder, server.url).send(body) for body in sent]
    await server.stop()
    player = make_services(replay=tmp_path / "c.jsonl", offline=True)
    again = [await _endpoint(player, server.url).send(body) for body in sent]
    assert [(e.status, e.error_kind, e.service_ns, e.attempts) for e in again] == [
        (e.status, e.error_kind, e.service_ns, e.attempts) for e in first
    ]
    assert [e.body for e in again[:4]] == [e.body for e in first[:4]]
    assert first[0].body != first[3].body
    assert all(e.replayed for e in again)


async def test_no_secret_is_on_file(make_services: Make, serve: Serve, tmp_path: Path) -> None:
    """Not the header, not its echo, not what a caller has hidden."""
    server = await serve(_counting())
    recorder = make_services(record=tmp_path / "c.jsonl")
    recorder.redactor.hide("in-the-url")
    endpoint = _endpoint(recorder, server.url)
    await endpoint.send(b"fail")
    await endpoint.send(b'{"key": "sk-12345"}')
    written = (tmp_path / "c.jsonl").read_text()
    assert "sk-12345" not in written
    assert "in-the-url" not in written
    assert "X-Key" not in written.replace("x-key", "X-Key")


async def test_another_key_replays_the_same_cassette(
    make_services: Make, serve: Serve, tmp_path: Path
) -> None:
    """A colleague has a key of her own, or none."""
    server = await serve(_counting())
    recorder = make_services(record=tmp_path / "c.jsonl")
    await recorder.endpoint(server.url, secret_headers={"X-Key": "hers-123"}).send(b"x")
    player = make_services(replay=tmp_path / "c.jsonl")
    again = await player.endpoint(server.url, secret_headers={"X-Key": "his-4567"}).send(b"x")
    assert again.status == 200


@pytest.mark.parametrize("change", ["body", "url", "header", "method", "once more"])
async def test_what_was_not_recorded_is_refused(
    make_services: Make, serve: Serve, tmp_path: Path, change: str
) -> None:
    """A replay invents nothing, and does not pass off one answer as two."""
    server = await serve(_counting())
    recorder = make_services(record=tmp_path / "c.jsonl")
    await recorder.endpoint(server.url).send(b"x")
    player = make_services(replay=tmp_path / "c.jsonl")
    endpoint = player.endpoint(
        server.url + ("/other" if change == "url" else ""),
        method="PUT" if change == "method" else "POST",
        headers={"X-Tenant": "b"} if change == "header" else {},
    )
    if change == "once more":
        assert (await endpoint.send(b"x")).status == 200
    exchange = await endpoint.send(b"y" if change == "body" else b"x")
    assert exchange.error_kind is ErrorKind.REFUSED
    assert "cassette" in exchange.message


async def test_a_line_that_was_cut_off_is_dropped(
    make_services: Make, serve: Serve, tmp_path: Path
) -> None:
    """A killed run leaves half a line; recording goes on behind the last whole one."""
    server = await serve(_counting())
    path = tmp_path / "c.jsonl"
    recorder = make_services(record=path)
    await recorder.endpoint(server.url).send(b"x")
    await recorder.close()
    with path.open("ab") as file:
        file.write(b'{"guardmark_cassette": 1, "key": "ab')
    assert (await make_services(replay=path).endpoint(server.url).send(b"x")).status == 200
    continued = make_services(record=path)
    await continued.endpoint(server.url).send(b"z")
    lines = path.read_bytes().splitlines()
    assert [json.loads(line)["request"] for line in lines] == ["x", "z"]


async def test_two_runs_do_not_record_into_one_cassette(
    make_services: Make, serve: Serve, tmp_path: Path
) -> None:
    """The second would cut off what the first is writing."""
    path = tmp_path / "c.jsonl"
    first = make_services(record=path)
    with pytest.raises(StorageError, match="recorded by another run"):
        Services(record=path, record_lock=try_lock)
    await first.endpoint((await serve(_counting())).url).send(b"x")
    await first.close()
    assert len(path.read_bytes().splitlines()) == 1
    await Services(record=path).close()


@pytest.mark.parametrize("field", ["response", "service_ns", "status", "attempts", "key"])
async def test_an_answer_that_was_edited_is_not_replayed(
    make_services: Make, serve: Serve, tmp_path: Path, field: str
) -> None:
    """It is named with its line: figures of a replay are those of the recording or none."""
    path = tmp_path / "c.jsonl"
    recorder = make_services(record=path)
    endpoint = recorder.endpoint((await serve(_counting())).url)
    for body in (b"x", b"y"):
        await endpoint.send(body)
    await recorder.close()
    first, second = map(json.loads, path.read_bytes().splitlines())
    second[field] = first["key"] if field == "key" else "201"
    path.write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n")
    with pytest.raises(ConfigError, match="line 2: this exchange was changed"):
        Services(replay=path)


@pytest.mark.parametrize(
    "edited",
    [
        {"status": "200"},
        {"service_ns": -5},
        {"service_ns": 10**30},
        {"service_ns": float("nan")},
        {"content_type": 5},
        {"message": ["x"]},
        {"attempts": [["a", "b", 5, None]]},
        {"session": float("inf")},
        {"key": {"x": 1}},
    ],
    ids=str,
)
async def test_a_value_of_another_type_is_not_replayed(
    make_services: Make, serve: Serve, tmp_path: Path, edited: dict[str, object]
) -> None:
    """A stranger's cassette may have no seal; what it says is checked all the same."""
    path = tmp_path / "c.jsonl"
    recorder = make_services(record=path)
    await recorder.endpoint((await serve(_counting())).url).send(b"x")
    await recorder.close()
    line = json.loads(path.read_bytes()) | {"question": ["far", 0, 0]} | edited
    del line["seal"]
    path.write_text(f"{json.dumps(line)}\n")
    with pytest.raises(ConfigError, match="line 1: guardmark did not record this exchange"):
        Services(replay=path)


def test_what_is_no_file_or_too_large_is_not_read(tmp_path: Path) -> None:
    """A pipe would hold the run for ever, a line without end would fill the memory."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    with (tmp_path / "hole.jsonl").open("wb") as file:
        file.truncate(3 << 30)
    for name, reason in (("pipe.jsonl", "it is not a file"), ("hole.jsonl", "64 MiB or more")):
        with pytest.raises(ConfigError, match=reason):
            Services(replay=tmp_path / name)


@pytest.mark.parametrize("line", [b"[" * 100_000, b"[]", b"null", b"7", b"\xff\xfe", b"{}"])
def test_a_line_of_another_kind_is_named(tmp_path: Path, line: bytes) -> None:
    """However odd it is."""
    (tmp_path / "c.jsonl").write_bytes(line + b"\n")
    with pytest.raises(ConfigError, match="line 1: guardmark did not record this exchange"):
        Services(replay=tmp_path / "c.jsonl")


def test_a_file_that_is_no_cassette_is_named(tmp_path: Path) -> None:
    """With the line that gave it away."""
    (tmp_path / "c.jsonl").write_text('{"text": "a data set"}\n')
    with pytest.raises(ConfigError, match="line 1"):
        Services(replay=tmp_path / "c.jsonl")
    with pytest.raises(ConfigError, match="--record"):
        Services(replay=tmp_path / "missing.jsonl")
    with pytest.raises(ConfigError, match="not both"):
        Services(replay=tmp_path / "c.jsonl", record=tmp_path / "d.jsonl")


def test_a_cassette_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A folder stands where the file should be."""
    with pytest.raises(StorageError):
        Services(record=tmp_path)
