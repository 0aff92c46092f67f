"""An answer that streams, in server-sent events or JSON lines, read as a decision.

What comes after the end or after a block is never read. A stream that stops before its end is a
failure, whatever it had let pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome, StreamTrace
from guardmark.core.values import dataclass
from guardmark.net.events import MARK, USUAL_END, split_events, split_lines
from guardmark.parsing.objects import read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.defenses.http.values import BlockedRule, JsonPath
    from guardmark.net.events import StreamPart
    from guardmark.net.service import Exchange

EVENTS: Final = "text/event-stream"
JSON_LINES: Final = frozenset(
    {
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/x-jsonlines",
        "application/jsonlines",
        "application/json-lines",
    }
)
ACCEPTED: Final = f"{EVENTS}, application/x-ndjson"
_CUT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """Where the parts of a stream say what.

    Attributes:
        each: Where a chunk of text stands.
        blocked: Where a part says whether the service blocks.
        blocked_rule: What the values there mean.
        end: Data, or the name of an event, that ends the stream; None where its end is its end.
        tokens: Where a part says how many tokens there are of the answer so far, itself included.
    """

    each: JsonPath
    blocked: JsonPath
    blocked_rule: BlockedRule
    end: str | None
    tokens: JsonPath | None = None

    def is_last(self, line: bytes) -> bool:
        """Tell whether nothing after a line is to be read: it ends the stream, or blocks."""
        text = line.decode("utf-8", "replace").strip().removeprefix(MARK)
        text = text.removeprefix("data:").strip()
        if self.end is not None and text.removeprefix("event:").strip() == self.end:
            return True
        try:
            return self.blocked_rule(self.blocked.find(read_json(text.encode()))) is True
        except (ValueError, RecursionError):
            return False  # a line of an event with several; the whole is read afterwards


class _Unreadable(Exception):
    """A part came, and the rules do not fit it."""


def read_stream(rules: StreamRules, exchange: Exchange) -> Decision:
    """Read a stream that came without a failure of the wire as a decision."""
    if exchange.content_type == EVENTS:
        parts = split_events(exchange.body)
    elif exchange.content_type in JSON_LINES:
        parts = split_lines(exchange.body)
    else:
        kind = exchange.content_type or "of no stated type"
        message = f"the answer is {kind}, neither {EVENTS} nor JSON lines, as stream says"
        return _failed(exchange, message, ErrorKind.CONTRACT)
    try:
        return _read(rules, parts, exchange)
    except (_Unreadable, ValueError, RecursionError) as error:
        return Decision(
            outcome=Outcome.MALFORMED,
            latency_ns=exchange.service_ns,
            evidence=Evidence(message=str(error)),
        )


def _read(rules: StreamRules, parts: Iterator[StreamPart], exchange: Exchange) -> Decision:
    """Read the parts of a stream up to its end, or to a block."""
    out = StreamTrace(characters=0, chunks=0, tokens=None)
    if rules.tokens is not None:
        out = replace(out, tokens=0)
    is_ended = rules.end is None
    is_decided = False
    for part in parts:
        if rules.end is not None and rules.end in {part.data, part.name}:
            is_ended = True
            break
        if not part.data:
            continue  # keeps the connection alive
        document = _document(part)
        if document is _CUT:
            is_ended = False
            break
        is_blocked = _is_blocked(rules, document)
        arrival_ns = _arrival(exchange, part.line)
        if is_blocked:
            return _decided(exchange, Outcome.BLOCK, replace(out, block_ns=arrival_ns))
        is_decided = is_decided or is_blocked is False
        before = out
        out = _with_chunk(out, _text(rules.each, document), arrival_ns)
        if rules.tokens is not None:
            out = _with_count(out, before, _count(rules.tokens, document))
    if not is_ended:
        return _broken_off(exchange, rules)
    if not is_decided:
        raise _Unreadable(f"no part of the stream says anything at {rules.blocked.text}")
    return _decided(exchange, Outcome.ALLOW, out)


def _broken_off(exchange: Exchange, rules: StreamRules) -> Decision:
    missing = f"{rules.end} did not come"
    if rules.end is None:
        missing = "the last line is cut"
    message = f"the stream broke off before its end: {missing}"
    return _failed(exchange, message, ErrorKind.CONNECTION)


def _document(part: StreamPart) -> object:
    """Return the value of a part, or that it was cut."""
    try:
        return read_json(part.data.encode())
    except (ValueError, RecursionError) as error:
        if not part.is_whole:
            return _CUT
        what = f"line {part.line + 1} of the stream: {error}"
        if part.data == USUAL_END:
            what = f'the stream ends with {USUAL_END}: add  end: "{USUAL_END}"  to stream'
        raise _Unreadable(what) from error


def _with_chunk(out: StreamTrace, text: str, arrival_ns: int | None) -> StreamTrace:
    """Count a chunk that goes out; an empty one is none."""
    if not text:
        return out
    if not out.chunks:
        out = replace(out, first_ns=arrival_ns)
    return replace(out, characters=out.characters + len(text), chunks=out.chunks + 1)


def _with_count(out: StreamTrace, before: StreamTrace, tokens: int | None) -> StreamTrace:
    """Take the service's count of tokens; a chunk of text without one leaves it unknown."""
    if tokens is None and out.chunks == before.chunks:
        return out
    return replace(out, tokens=tokens)


def _count(path: JsonPath, document: object) -> int | None:
    """Return how many tokens a part says there are; None where it says no such number."""
    for value in path.find(document):
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def _is_blocked(rules: StreamRules, document: object) -> bool | None:
    """Return what a part says of a block; None where it says nothing."""
    values = rules.blocked.find(document)
    is_blocked = rules.blocked_rule(values)
    if is_blocked is None and any(value is not None for value in values):
        raise _Unreadable(f"the value at {rules.blocked.text} is {str(values[0])[:60]}")
    return is_blocked


def _text(path: JsonPath, document: object) -> str:
    """Return the chunk of text that a part holds; empty where it holds none."""
    values = [value for value in path.find(document) if value is not None]
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) != len(values):
        raise _Unreadable(f"the chunk at {path.text} is not a text")
    return "".join(texts)


def _arrival(exchange: Exchange, line: int) -> int | None:
    """Return when a line had come; a cassette does not hold it."""
    arrivals = exchange.arrivals_ns
    if not arrivals:
        return None
    if line >= len(arrivals):
        return exchange.service_ns
    return arrivals[line]


def _decided(exchange: Exchange, outcome: Outcome, trace: StreamTrace) -> Decision:
    return Decision(
        outcome=outcome, latency_ns=exchange.service_ns, evidence=Evidence(stream=(trace,))
    )


def _failed(exchange: Exchange, message: str, kind: ErrorKind) -> Decision:
    return Decision(
        outcome=Outcome.ERROR,
        error_kind=kind,
        latency_ns=exchange.service_ns,
        evidence=Evidence(message=message),
    )
