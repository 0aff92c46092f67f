"""A service that streams its answer, against real loopback servers."""

from __future__ import annotations

import asyncio
import json
from http.server import ThreadingHTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from aiohttp import web
from pydantic import ValidationError

from guardmark.app.registry import settings_model
from guardmark.config.settings import BuildContext
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome, StreamTrace
from guardmark.core.sample import Prompt
from guardmark.net.client import Services
from guardmark.net.service import ServiceLimits
from guardmark.store.codec import evidence_from_json, evidence_to_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Ask = Callable[..., Awaitable[Decision]]

STREAM = {"each": "$.chunk", "blocked": "$.blocked", "end": "[DONE]"}
END = b"data: [DONE]\n\n"
EVENTS = "text/event-stream"


def event(chunk: str, *, blocked: bool = False) -> bytes:
    """Write one server-sent event."""
    return f"data: {json.dumps({'chunk': chunk, 'blocked': blocked})}\n\n".encode()


def build(services: Services, **settings: object) -> Any:
    """Build a defense from its settings."""
    given = {"body": {"text": {"$input": "text"}}, **settings}
    model = settings_model("defense", "http").model_validate(given)
    context = BuildContext(folder=Path(), seed=1, services=services, defenses={})
    return model.build("vendor", context)  # type: ignore[attr-defined]


@pytest.fixture
async def ask(serve: Any) -> Ask:
    """Ask a service that sends these pieces, with a pause of 20 ms before each."""

    async def ask_one(
        *pieces: bytes,
        kind: str = EVENTS,
        hangs: bool = False,
        cuts: bool = False,
        most_mib: int = 8,
        **settings: Any,
    ) -> Decision:
        async def reply(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": kind})
            await response.prepare(request)
            for piece in pieces:
                await asyncio.sleep(0.02 if len(pieces) < 10 else 0)
                await response.write(piece)
            if hangs:
                await asyncio.sleep(3)
            if cuts and request.transport is not None:
                request.transport.abort()
            return response

        limits = ServiceLimits(
            connect_timeout_s=10,
            read_timeout_s=0.5 if hangs else 10,
            retries=0,
            max_response_bytes=most_mib << 20,
        )
        client = Services(default=limits)
        try:
            server = await serve(reply)
            defense = build(client, url=server.url, **({"stream": STREAM} | settings))
            decision = await defense.decide(Prompt.of_text("hello"))
        finally:
            await client.close()
        assert isinstance(decision, Decision)
        return decision

    return ask_one


def trace(decision: Decision) -> StreamTrace:
    """Return how an answer streamed."""
    assert decision.evidence is not None
    return decision.evidence.stream[0]


async def test_what_had_gone_out_before_the_block_is_counted(ask: Ask) -> None:
    """The part that blocks has not gone out."""
    decision = await ask(event("0123456789"), event("abcde"), event("x", blocked=True), END)
    out = trace(decision)
    assert (decision.outcome, out.characters, out.chunks) == (Outcome.BLOCK, 15, 2)
    assert out.first_ns is not None
    assert out.block_ns is not None
    assert 20_000_000 <= out.first_ns < out.block_ns - 20_000_000


async def test_an_end_that_the_settings_do_not_name_is_named_in_the_error(ask: Ask) -> None:
    """It is read as a part that is no JSON, which would tell nobody what to do."""
    stream = {name: value for name, value in STREAM.items() if name != "end"}
    decision = await ask(event("0123456789"), END, stream=stream)
    assert decision.outcome is Outcome.MALFORMED
    assert decision.evidence is not None
    assert 'add  end: "[DONE]"  to stream' in decision.evidence.message


async def test_streams_that_end_share_a_connection(serve: Any) -> None:
    """Connecting again for each answer would add its time to all of them."""
    connections = set()

    async def reply(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        connections.add(request.transport.get_extra_info("peername"))
        response = web.StreamResponse(headers={"Content-Type": EVENTS})
        await response.prepare(request)
        for piece in (event("ab"), event("cd"), END):
            await response.write(piece)
        return response

    client = Services(default=ServiceLimits(retries=0))
    try:
        defense = build(client, url=(await serve(reply)).url, stream=STREAM)
        for _ in range(5):
            decision = await defense.decide(Prompt.of_text("hello"))
            assert decision.outcome is Outcome.ALLOW
    finally:
        await client.close()
    assert len(connections) == 1


async def test_a_block_in_the_first_chunk_lets_nothing_out(ask: Ask) -> None:
    """Time to the first chunk is undefined then, and not zero."""
    out = trace(await ask(event("secret", blocked=True), END))
    assert (out.characters, out.chunks, out.first_ns) == (0, 0, None)
    assert out.block_ns is not None


async def test_a_stream_that_ends_without_a_block_is_allowed(ask: Ask) -> None:
    """All of it went out."""
    decision = await ask(event("ab"), event("cd"), END)
    out = trace(decision)
    assert (decision.outcome, out.characters, out.block_ns) == (Outcome.ALLOW, 4, None)


async def test_a_block_after_the_end_is_ignored(ask: Ask) -> None:
    """Nothing is read after the end, in the same piece or in a later one."""
    late = event("x", blocked=True)
    for pieces in ([event("ab"), END + late], [event("ab"), END, late]):
        assert (await ask(*pieces)).outcome is Outcome.ALLOW


@pytest.mark.parametrize("cuts", [False, True])
async def test_a_stream_cut_in_the_middle_is_a_failure(ask: Ask, *, cuts: bool) -> None:
    """Whether the connection breaks or just closes before the end."""
    decision = await ask(event("ab"), event("cd")[:9], cuts=cuts)
    assert (decision.outcome, decision.error_kind) == (Outcome.ERROR, ErrorKind.CONNECTION)


async def test_a_stream_that_never_ends_is_a_timeout(ask: Ask) -> None:
    """What came is no decision; but an end or a block that came is, whatever hangs after it."""
    decision = await ask(event("ab"), hangs=True)
    assert (decision.outcome, decision.error_kind) == (Outcome.ERROR, ErrorKind.TIMEOUT)
    assert (await ask(event("ab"), END, hangs=True)).outcome is Outcome.ALLOW
    assert (await ask(event("ab", blocked=True), hangs=True)).outcome is Outcome.BLOCK


async def test_a_stream_of_10_mb_is_refused(ask: Ask) -> None:
    """It breaks the contract of an answer, in many events or in one line."""
    for pieces in ([event("a" * 500_000)] * 21, [b"data: " + b"a" * 10_500_000]):
        decision = await ask(*pieces, END)
        assert (decision.outcome, decision.error_kind) == (Outcome.ERROR, ErrorKind.CONTRACT)
        assert decision.evidence is not None
        assert "max_answer_mib" in decision.evidence.message


async def test_a_stream_of_10_mb_has_a_decision_where_it_may_be_so_long(ask: Ask) -> None:
    """Under a larger limit to its end; a block that comes early counts under any limit."""
    long = [event("a" * 500_000)] * 21
    assert trace(await ask(*long, END, most_mib=16)).characters == 10_500_000
    early = await ask(event("ab"), event("x", blocked=True), *long, END)
    assert (early.outcome, trace(early).characters) == (Outcome.BLOCK, 2)


async def test_an_answer_in_many_small_parts_is_read(ask: Ask) -> None:
    """The limit of values holds for a line, not for all of a long answer together."""
    inner = {"content": "word ", "role": None, "tool_calls": None, "function_call": None}
    choice = {"index": 0, "delta": inner, "logprobs": None, "finish_reason": None}
    part = {"id": "x", "object": "chunk", "model": "m", "choices": [choice], "blocked": False}
    line = b"data: " + json.dumps(part).encode() + b"\n\n"
    stream = STREAM | {"each": "$.choices[0].delta.content"}
    decision = await ask(*[line * 100] * 120, END, stream=stream)
    assert (decision.outcome, trace(decision).characters) == (Outcome.ALLOW, 60_000)
    dense = b'data: {"chunk": "a", "blocked": false, "more": [' + b"0," * 100_000 + b"0]}\n\n"
    decision = await ask(dense, END)
    assert (decision.outcome, decision.error_kind) == (Outcome.ERROR, ErrorKind.CONTRACT)


async def test_what_a_part_does_not_say_is_never_guessed(ask: Ask) -> None:
    """A part that is no JSON, a block that is no boolean, and a stream without a decision."""
    for piece in (
        b"data: {broken\n\n",
        b'data: {"blocked": "no"}\n\n',
        b'data: {"chunk": "a"}\n\n',
    ):
        assert (await ask(piece, END)).outcome is Outcome.MALFORMED


async def test_json_lines_end_with_the_answer(ask: Ask) -> None:
    """Where no end is named; a last line that is cut is a failure."""
    stream = {"each": "$.chunk", "blocked": "$.blocked"}
    lines = [b'{"chunk": "ab", "blocked": false}\n', b'{"chunk": "c", "blocked": false}']
    kind = "application/x-ndjson"
    assert trace(await ask(*lines, kind=kind, stream=stream)).characters == 3
    cut = await ask(lines[0], lines[1][:-3], kind=kind, stream=stream)
    assert (cut.outcome, cut.error_kind) == (Outcome.ERROR, ErrorKind.CONNECTION)


async def test_openai_deltas_and_named_events(ask: Ask) -> None:
    """Deltas block by their finish reason; an event may be the end by its name."""

    def delta(text: str, finish: str | None = None) -> bytes:
        choice = {"delta": {"content": text}, "finish_reason": finish}
        return f": ping\n\ndata: {json.dumps({'choices': [choice]})}\r\n\r\n".encode()

    deltas = {
        "stream": {
            "each": "$.choices[0].delta.content",
            "blocked": "$.choices[0].finish_reason",
            "end": "[DONE]",
        },
        "blocked_when": {"one_of": ["content_filter"], "allowed": ["stop", None]},
    }
    blocked = await ask(delta("ab"), delta("", "content_filter"), END, **deltas)
    assert (blocked.outcome, trace(blocked).characters) == (Outcome.BLOCK, 2)
    assert (await ask(delta("ab"), delta("", "stop"), END, **deltas)).outcome is Outcome.ALLOW
    named = await ask(
        b"event: part\n" + event("ab"),
        b"event: done\ndata: {}\n\n",
        stream=STREAM | {"end": "done"},
    )
    assert (named.outcome, trace(named).characters) == (Outcome.ALLOW, 2)


def counted(text: str, tokens: int | None, *, blocked: bool = False) -> bytes:
    """Write one event with the tokens of the answer so far."""
    return f"data: {json.dumps({'chunk': text, 'blocked': blocked, 'n': tokens})}\n\n".encode()


async def test_tokens_are_those_that_the_service_counted(ask: Ask) -> None:
    """As stated with or after the last chunk that went out; the part that blocks counts nothing."""
    block = counted("x", 9, blocked=True)
    for pieces, expected in (
        ((counted("ab", 1), counted("cd", 3), block), 3),
        ((counted("ab", 1), counted("cd", None), block), None),  # who knows what "cd" was
        ((counted("ab", None), counted("", 2), block), 2),
        ((counted("ab", None), counted("cd", None), block), None),
        ((block,), 0),
        ((counted("ab", None), counted("cd", None), counted("", 4), END), 4),  # usage at the end
    ):
        out = trace(await ask(*pieces, stream=STREAM | {"tokens": "$.n"}))
        assert out.tokens == expected
    assert trace(await ask(counted("ab", 1), block)).tokens is None


async def test_a_count_that_is_none_leaves_the_decision(ask: Ask) -> None:
    """Words, fractions and true are no count of tokens; what was decided stands."""
    for value in ("three", 1.5, True, -1):
        pieces = (counted("ab", value), event("x", blocked=True))  # type: ignore[arg-type]
        decision = await ask(*pieces, stream=STREAM | {"tokens": "$.n"})
        assert (decision.outcome, trace(decision).tokens) == (Outcome.BLOCK, None)


async def test_a_stream_without_the_setting_names_it(ask: Ask) -> None:
    """The error says what to write."""
    decision = await ask(event("ab"), END, stream=None, blocked="$.blocked")
    assert decision.outcome is Outcome.ERROR
    assert decision.evidence is not None
    assert "needs the setting stream" in decision.evidence.message


def test_settings_of_a_stream_name_one_place_of_the_decision() -> None:
    """Neither none nor two, and nothing beside it that a stream is not read for."""
    model = settings_model("defense", "http")
    base = {"url": "http://127.0.0.1:1", "body": {"text": {"$input": "text"}}}
    each = {"stream": {"each": "$.chunk"}}
    for more in (each, {"stream": STREAM, "blocked": "$.b"}, {"stream": STREAM, "reason": "$.r"}):
        with pytest.raises(ValidationError, match="stream"):
            model.model_validate(base | more)
    model.model_validate(base | each | {"blocked": "$.b"})


def test_evidence_of_a_stream_is_stored_and_read_back() -> None:
    """What is undefined stays so."""
    evidence = Evidence(stream=(StreamTrace(characters=20, chunks=2, first_ns=5),))
    assert evidence_from_json(evidence_to_json(evidence)) == evidence
    evidence = Evidence(stream=(StreamTrace(characters=20, chunks=2, tokens=7),))
    assert evidence_from_json(evidence_to_json(evidence)) == evidence


async def test_the_case_of_streaming(shared_dir: Path) -> None:
    """Its service and settings, with `stream` added: two chunks of ten go out, the third blocks."""
    cases = shared_dir / "cases"
    specification = spec_from_file_location("services_of_cases", cases / "services.py")
    assert specification is not None
    assert specification.loader is not None
    services = module_from_spec(specification)
    specification.loader.exec_module(services)
    server = ThreadingHTTPServer(("127.0.0.1", 0), services.Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    given = yaml.safe_load((cases / "streaming.yaml").read_text())["defenses"]["s"]
    settings = {key: given[key] for key in ("body", "blocked")}
    client = Services(default=ServiceLimits(connect_timeout_s=10, read_timeout_s=10))
    address = f"http://127.0.0.1:{server.server_address[1]}/stream"
    stream = {"each": "$.chunk", "end": "[DONE]"}
    defense = build(client, url=address, stream=stream, **settings)
    rows = [json.loads(line) for line in (cases / "plain.jsonl").read_text().splitlines()]
    texts = {str(row.get("text") or row.get("prompt")) for row in rows}
    try:
        for text in sorted(texts)[:4] + sorted(texts)[-4:]:
            decision = await defense.decide(Prompt.of_text(text))
            out = trace(decision)
            if "secret" in text.lower():
                assert (decision.outcome, out.characters, out.chunks) == (Outcome.BLOCK, 20, 2)
                assert out.block_ns is not None
                assert out.block_ns >= 60_000_000
            else:
                assert (decision.outcome, out.block_ns) == (Outcome.ALLOW, None)
    finally:
        await client.close()
        server.shutdown()
        server.server_close()
