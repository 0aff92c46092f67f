"""A chat model that streams its answers, at real loopback servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from guardmark.config.settings import BuildContext, PriceSettings
from guardmark.core.outcome import ErrorKind, Evidence, Response, StreamTrace, TextChunk
from guardmark.core.sample import Prompt
from guardmark.models.chat import ChatModelSettings
from guardmark.net.chat import read_chat
from guardmark.net.chat_stream import join_chat
from guardmark.net.client import Services
from guardmark.net.service import Exchange, ServiceLimits
from guardmark.store.codec import evidence_from_json, evidence_to_json

if TYPE_CHECKING:
    from tests.conftest import Serve

    Ask = Callable[..., Awaitable[Response]]

HI = Prompt.of_text("hi")
END = b"data: [DONE]\n\n"
USED = {"prompt_tokens": 7, "completion_tokens": 3}


def event(delta: object = None, finish: str | None = None, **fields: object) -> bytes:
    """Write one event of a streamed answer."""
    choices = []
    if delta is not None or finish is not None:
        choices = [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    return f"data: {json.dumps({'choices': choices, **fields})}\n\n".encode()


def words(*texts: str, finish: str = "stop") -> list[bytes]:
    """Write a whole streamed answer of some pieces of text, with its usage and its end."""
    pieces = [event({"role": "assistant", "content": ""})]
    pieces += [event({"content": text}) for text in texts]
    return [*pieces, event(finish=finish), event(usage=USED), END]


def build(services: Services, url: str, **said: object) -> Any:
    """Build a model that streams."""
    given = {"base_url": f"{url}/v1", "model": "tutor", "stream": True, **said}
    context = BuildContext(folder=Path(), seed=7, services=services, defenses={})
    return ChatModelSettings.model_validate(given).build("model", context)


@pytest.fixture
async def ask(serve: Serve) -> Ask:
    """Ask a server that sends these pieces; the connection is cut or hangs where it says so."""

    async def ask_one(
        *pieces: bytes,
        kind: str = "text/event-stream",
        pause_s: float = 0.0,
        hangs: bool = False,
        cuts: bool = False,
        most_mib: int = 8,
        retries: int = 0,
        **said: Any,
    ) -> Response:
        async def reply(request: web.Request) -> web.StreamResponse:
            asked.append(await request.json())
            response = web.StreamResponse(headers={"Content-Type": kind})
            await response.prepare(request)
            for piece in pieces:
                await asyncio.sleep(pause_s)
                await response.write(piece)
            if hangs:
                await asyncio.sleep(3)
            if cuts and request.transport is not None:
                request.transport.abort()
            return response

        asked: list[dict[str, Any]] = []
        limits = ServiceLimits(
            connect_timeout_s=10,
            read_timeout_s=0.5 if hangs else 20,
            retries=retries,
            backoff_s=0.001,
            max_response_bytes=most_mib << 20,
        )
        client = Services(default=limits)
        try:
            server = await serve(reply)
            response = await build(client, server.url, **said).answer(HI)
        finally:
            await client.close()
        assert isinstance(response, Response)
        assert all(each["stream"] is True for each in asked)
        assert len(asked) == retries + 1 or response.error_kind is None
        return response

    return ask_one


def evidence(response: Response) -> Evidence:
    """Return what lies behind an answer."""
    assert response.evidence is not None
    return response.evidence


async def test_pieces_are_one_answer_with_the_times_of_its_first_and_last_text(ask: Ask) -> None:
    """An empty piece, the reason to finish and the usage are no text."""
    response = await ask(*words("Ap", "ples", " are red."), pause_s=0.02)
    assert response.text == "Apples are red."
    assert evidence(response).finish_reason == "stop"
    (trace,) = evidence(response).stream
    assert (trace.characters, trace.chunks) == (15, 3)
    assert trace.first_ns is not None
    assert trace.last_ns is not None
    assert response.latency_ns is not None
    assert 40_000_000 <= trace.first_ns <= trace.last_ns - 40_000_000
    assert trace.last_ns <= response.latency_ns - 40_000_000


async def test_tokens_and_money_are_asked_for_and_counted(serve: Serve) -> None:
    """The usage comes after the answer, in an event without a choice."""
    asked: list[dict[str, Any]] = []

    async def reply(request: web.Request) -> web.Response:
        asked.append(await request.json())
        return web.Response(body=b"".join(words("Hello")), content_type="text/event-stream")

    server = await serve(reply)
    client = Services(default=ServiceLimits(retries=0))
    try:
        price = {"input_per_1k": 1.0, "output_per_1k": 2.0, "per_call": 0.5}
        response = await build(client, server.url, price=price).answer(HI)
    finally:
        await client.close()
    assert asked[0]["stream_options"] == {"include_usage": True}
    usage = evidence(response).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (7, 3)
    assert usage.cost == pytest.approx(0.5 + 0.007 + 0.006)


async def test_a_refusal_in_its_own_field_is_a_refusal(ask: Ask) -> None:
    """Its pieces are what the user sees."""
    pieces = [event({"refusal": "I can"}), event({"refusal": "not."}), event(finish="stop"), END]
    response = await ask(*pieces)
    assert (response.text, evidence(response).native_action) == ("I cannot.", "refusal")
    assert evidence(response).stream[0].characters == 9


async def test_thoughts_in_a_field_of_their_own_are_no_text_of_the_answer(ask: Ask) -> None:
    """The first text is the first that a user sees."""
    pieces = [event({"reasoning_content": "let me "}), event({"reasoning_content": "think"})]
    response = await ask(*pieces, *words("Yes."), pause_s=0.01)
    assert response.text == "Yes."
    assert evidence(response).raw == "let me think"
    assert evidence(response).stream[0].chunks == 1


async def test_thoughts_before_the_answer_are_no_text_of_the_answer(ask: Ask) -> None:
    """Tags may come in pieces; a piece that ends the thoughts and begins the answer is text."""
    response = await ask(*words("<thi", "nk>hm, well</think", ">\n\nYe", "s."), pause_s=0.01)
    assert response.text == "Yes."
    (trace,) = evidence(response).stream
    assert (trace.characters, trace.chunks) == (4, 2)
    assert trace.first_ns is not None
    assert trace.first_ns >= 40_000_000


async def test_a_character_whose_halves_come_in_two_pieces_is_one(ask: Ask) -> None:
    """As servers send it that cut a text by its UTF-16 units."""
    first, last = b'{"content": "a \\ud83c"}', b'{"content": "\\udf4e"}'
    form = b'data: {"choices": [{"index": 0, "delta": %b}]}\n\n'
    response = await ask(form % first, form % last, event(finish="stop"), END)
    assert response.text == "a \N{RED APPLE}"


def _streamed(document: dict[str, Any], size: int) -> bytes:
    """Write an answer as a server streams it, with texts and arguments in pieces of a size."""
    events: list[dict[str, Any]] = []
    choice = document["choices"][0]
    message = choice["message"]
    for name in ("reasoning_content", "content", "refusal"):
        text = message.get(name) or ""
        for at in range(0, len(text), size):
            events.append({"delta": {name: text[at : at + size]}})
    for number, call in enumerate(message.get("tool_calls", ())):
        arguments = call["function"]["arguments"]
        opened = {**call, "index": number, "function": {**call["function"], "arguments": ""}}
        events.append({"delta": {"tool_calls": [opened]}})
        for at in range(0, len(arguments), size):
            piece = {"index": number, "function": {"arguments": arguments[at : at + size]}}
            events.append({"delta": {"tool_calls": [piece]}})
    events.append({"delta": {}, "finish_reason": choice["finish_reason"]})
    lines = [json.dumps({"choices": [{"index": 0, **each}]}) for each in events]
    lines.append(json.dumps({"choices": [], "usage": document["usage"]}))
    return b"".join(f"data: {line}\n\n".encode() for line in [*lines, "[DONE]"])


_CALLS = [
    {
        "id": f"call_{name}",
        "type": "function",
        "function": {"name": name, "arguments": '{"to": "Ann", "text": "PLUM-1"}'},
    }
    for name in ("send", "send_later")
]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    "message",
    [
        {"content": "Apples are red; ÄÖ 苹果 \N{RED APPLE}."},
        {"content": "Yes.", "reasoning_content": "one\ntwo"},
        {"content": None, "refusal": "I cannot help with that."},
        {"content": "I send it.", "tool_calls": _CALLS},
        {"content": None, "tool_calls": _CALLS[:1]},
        {"content": ""},
    ],
)
def test_a_streamed_answer_reads_as_the_same_answer_at_once(
    message: dict[str, Any], size: int
) -> None:
    """Text, refusal, thoughts, calls of tools, reason and usage, whatever the pieces."""
    reason = "tool_calls" if "tool_calls" in message else "stop"
    document = {"choices": [{"message": message, "finish_reason": reason}], "usage": USED}
    at_once = Exchange(status=200, body=json.dumps(document).encode(), service_ns=5)
    joined = join_chat(_streamed(document, size))
    assert joined is not None
    parts = Exchange(status=200, body=joined.body, service_ns=5)
    price = PriceSettings(input_per_1k=1.0, output_per_1k=1.0)
    assert read_chat(parts, price) == read_chat(at_once, price)


def test_calls_that_come_whole_and_without_an_index_are_told_apart_by_their_ids() -> None:
    """As some gateways send them: each call at once."""
    pieces = [event({"tool_calls": [call]}) for call in _CALLS]
    joined = join_chat(b"".join([*pieces, event(finish="tool_calls"), END]))
    assert joined is not None
    assert json.loads(joined.body)["choices"][0]["message"]["tool_calls"] == _CALLS


async def test_an_answer_that_comes_at_once_although_a_stream_was_asked_for_counts(
    ask: Ask,
) -> None:
    """It has no time to its first text, and nothing stands for one."""
    message = {"role": "assistant", "content": "At once."}
    document = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": USED}
    response = await ask(json.dumps(document).encode(), kind="application/json")
    assert response.text == "At once."
    assert evidence(response).stream == ()
    assert evidence(response).usage is not None


async def test_a_stream_cut_in_the_middle_is_tried_again_and_is_then_an_error(ask: Ask) -> None:
    """What had come is no answer."""
    response = await ask(event({"content": "Half an"}), cuts=True, retries=2)
    assert (response.text, response.error_kind) == (None, ErrorKind.CONNECTION)
    assert len(evidence(response).attempts) == 3
    assert evidence(response).stream == ()


async def test_a_stream_that_ends_without_its_end_is_an_error(ask: Ask) -> None:
    """Neither a finish reason nor [DONE]: the server, or somebody between, gave up."""
    response = await ask(event({"content": "Half an"}), retries=1)
    assert (response.text, response.error_kind) == (None, ErrorKind.CONNECTION)
    assert "broke off before its end: neither a finish reason nor [DONE] came" in (
        evidence(response).message
    )
    assert len(evidence(response).attempts) == 2


async def test_an_event_cut_in_the_middle_is_an_error(ask: Ask) -> None:
    """Its line never came to its end."""
    response = await ask(event({"content": "Half an"}), b'data: {"choices": [{"del')
    assert (response.text, response.error_kind) == (None, ErrorKind.CONNECTION)


async def test_an_answer_with_its_reason_is_whole_without_the_mark_at_the_end(ask: Ask) -> None:
    """Some servers end the connection in place of saying [DONE]."""
    response = await ask(*words("All of it.")[:-1])
    assert response.text == "All of it."
    assert evidence(response).usage is not None


async def test_nothing_is_read_after_the_end(ask: Ask) -> None:
    """A client has stopped there."""
    response = await ask(*words("All of it."), event({"content": " And more."}))
    assert response.text == "All of it."


@pytest.mark.parametrize(
    "failure",
    [
        event(error={"code": 503, "message": "out of memory"}),
        b'event: error\ndata: {"code": 503, "message": "out of memory"}\n\n',
        b"event: error\ndata: out of memory\n\n",
    ],
)
async def test_an_error_event_in_the_stream_is_tried_again_and_is_then_an_error(
    ask: Ask, failure: bytes
) -> None:
    """Whatever had come before it; the server's words are kept."""
    response = await ask(event({"content": "Half an"}), failure, END, retries=1)
    assert (response.text, response.error_kind) == (None, ErrorKind.HTTP)
    assert "out of memory" in evidence(response).message
    assert len(evidence(response).attempts) == 2


async def test_a_stream_that_never_ends_is_a_timeout(ask: Ask) -> None:
    """Within the time limit of the service, however much had come."""
    started = perf_counter()
    response = await ask(event({"content": "Half an"}), hangs=True)
    assert (response.text, response.error_kind) == (None, ErrorKind.TIMEOUT)
    assert perf_counter() - started < 2.5


async def test_ten_megabytes_are_refused_by_default(ask: Ask) -> None:
    """As any answer above the limit of its service is."""
    response = await ask(*[event({"content": "x" * 10_000})] * 1_000, event(finish="stop"), END)
    assert (response.text, response.error_kind) == (None, ErrorKind.CONTRACT)
    assert "max_answer_mib" in evidence(response).message


async def test_ten_megabytes_in_many_pieces_are_read_where_that_is_allowed(ask: Ask) -> None:
    """In time that grows with the answer, not with its square."""
    started = perf_counter()
    pieces = [event({"content": "x" * 100}) * 100] * 900
    response = await ask(*pieces, event(finish="stop"), END, most_mib=32)
    assert response.text == "x" * 9_000_000
    assert perf_counter() - started < 15


async def test_a_filter_that_stops_before_the_first_word_is_a_block_of_the_provider(
    ask: Ask,
) -> None:
    """As it is of an answer at once."""
    response = await ask(event(finish="content_filter"), END)
    assert (response.text, response.error_kind) == (None, None)
    assert response.blocked_at is not None


@pytest.mark.parametrize("junk", [b"data: no json\n\n", b"data: 5\n\n", event({"content": 5})])
async def test_a_part_that_is_none_of_the_protocol_is_an_error(ask: Ask, junk: bytes) -> None:
    """It is not left out in silence."""
    response = await ask(event({"content": "Half an"}), junk, *words("more"))
    assert (response.text, response.error_kind) == (None, ErrorKind.CONTRACT)


@pytest.mark.parametrize(
    "refusal", ["Unknown parameter: 'stream_options'.", "include_usage is not supported"]
)
async def test_a_server_that_refuses_to_state_usage_gets_a_clear_error(
    chat_server: Any, refusal: str
) -> None:
    """It names both ways out; nothing is left out in silence, as tokens would be unknown."""
    chat_server.reply = lambda _: (400, json.dumps({"error": {"message": refusal}}))
    client = Services(default=ServiceLimits(retries=0))
    try:
        url = chat_server.base_url.removesuffix("/v1")
        response = await build(client, url).answer(HI)
        assert response.error_kind is ErrorKind.HTTP
        assert refusal in response.evidence.message
        assert "leave out stream: true" in response.evidence.message
        assert "options: {stream_options: null}" in response.evidence.message
        await build(client, url, options={"stream_options": None}).answer(HI)
    finally:
        await client.close()
    assert "stream_options" in chat_server.requests[0]
    assert "stream_options" not in chat_server.requests[-1]
    assert chat_server.requests[-1]["stream"] is True


async def test_streams_share_a_connection(serve: Serve) -> None:
    """Connecting again for each answer would add its time to all of them."""
    connections = set()

    async def reply(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        connections.add(request.transport.get_extra_info("peername"))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in words("a", "b"):
            await response.write(piece)
        return response

    server = await serve(reply)
    client = Services(default=ServiceLimits(retries=0))
    try:
        model = build(client, server.url)
        for _ in range(5):
            assert (await model.answer(HI)).text == "ab"
    finally:
        await client.close()
    assert len(connections) == 1


async def test_a_secret_in_two_pieces_is_hidden_as_one_in_a_piece_is(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may say its key again, and pieces may part it anywhere."""
    monkeypatch.setenv("GATEWAY_KEY", "plum-4f5e6d7c8b9a")

    async def reply(_: web.Request) -> web.Response:
        body = b"".join(words("My key is plum-4f5", "e6d7c8b9a, and hello."))
        return web.Response(body=body, content_type="text/event-stream")

    server = await serve(reply)
    client = Services(default=ServiceLimits(retries=0))
    try:
        response = await build(client, server.url, api_key={"env": "GATEWAY_KEY"}).answer(HI)
    finally:
        await client.close()
    assert response.text is not None
    assert "and hello" in response.text
    assert "plum" not in response.text


async def test_a_cassette_gives_back_the_answer_and_its_times(serve: Serve, tmp_path: Path) -> None:
    """What is recorded is the answer put together, with when its texts had come."""

    async def reply(_: web.Request) -> web.Response:
        return web.Response(body=b"".join(words("a", "b")), content_type="text/event-stream")

    server = await serve(reply)
    file = tmp_path / "cassette.jsonl"
    answers = []
    for how in ("record", "replay"):
        client = Services(default=ServiceLimits(retries=0), **{how: file})  # type: ignore[arg-type]
        try:
            answers.append(await build(client, server.url).answer(HI))
        finally:
            await client.close()
        await server.stop()
    assert answers[0].text == "ab"
    assert answers[0].evidence.stream == answers[1].evidence.stream
    assert answers[0] == answers[1]


def test_times_of_a_stream_are_stored() -> None:
    """And read back as they were."""
    trace = StreamTrace(characters=20, chunks=2, first_ns=5, last_ns=9)
    kept = Evidence(stream=(trace,))
    assert evidence_from_json(evidence_to_json(kept)) == kept


def test_a_model_that_does_not_stream_is_configured_as_before() -> None:
    """Its settings are written without the new one, so that its runs stay the same."""
    given = {"base_url": "http://127.0.0.1:1/v1", "model": "m"}
    assert "stream" not in ChatModelSettings.model_validate(given).model_dump()
    streamed = ChatModelSettings.model_validate({**given, "stream": True}).model_dump()
    assert streamed["stream"] is True


def test_a_stream_among_the_options_is_told_where_to_stand() -> None:
    """Its answers could not be read."""
    given = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "options": {"stream": True}}
    with pytest.raises(ValidationError, match="write stream: true beside options"):
        ChatModelSettings.model_validate(given)


def test_pieces_with_text_are_placed_by_their_lines() -> None:
    """So that each has the time of its line."""
    joined = join_chat(b"".join(words("ab", "c")))
    assert joined is not None
    assert joined.texts == ((2, 2), (4, 3))
    assert TextChunk(end=2, arrival_ns=1).end == 2
