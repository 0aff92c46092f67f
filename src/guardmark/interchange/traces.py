"""Traces of agents: the OpenAI Agents SDK's, and spans of OpenTelemetry with the GenAI attributes.

A trace is a sample: what the user asked, the calls and results in order, what guards answered and
what came out. No trace says whether it was an attack: a person states it, or its metadata do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import DatasetError
from guardmark.core.outcome import ErrorKind, Evidence, Outcome, Response
from guardmark.core.sample import Message, Prompt, Role, Sample, ToolCall
from guardmark.interchange.imported import (
    ImportedAnswer,
    ImportedRun,
    Object,
    bytes_of,
    decision_of,
    inner,
    label_of,
    object_of,
    objects_of,
    one_of,
    rows_of,
    why_unlabelled,
    word,
)
from guardmark.parsing.labels import read_is_blocked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from guardmark.core.outcome import Decision
    from guardmark.core.sample import Label
    from guardmark.interchange.imported import Statements

_HINT: Final = "Name a file of spans: JSON lines, or one JSON document."
_TEXTLESS: Final = "whose spans hold no words of a user (was recording of content switched off?)"


@dataclass(slots=True, kw_only=True)
class _Trace:
    """What the spans of one trace say."""

    name: str
    asked: str = ""
    answer: str | None = None
    model: str = ""
    failure: str = ""
    label: object = None
    steps: list[Message] = field(default_factory=list)
    guards: dict[str, list[object]] = field(default_factory=dict)


def read_openai_agents(path: Path, statements: Statements) -> ImportedRun:
    """Read traces as the exporters of the OpenAI Agents SDK write them."""
    return _read(path, statements, tool="openai-agents", take=_take_agents_span)


def read_otel(path: Path, statements: Statements) -> ImportedRun:
    """Read spans of OpenTelemetry, flat or as OTLP writes them in JSON."""
    return _read(path, statements, tool="otel", take=_take_otel_span)


def _read(
    path: Path,
    statements: Statements,
    *,
    tool: str,
    take: Callable[[dict[str, _Trace], Object], None],
) -> ImportedRun:
    data, warnings = bytes_of(path, hint=_HINT), list[str]()
    traces: dict[str, _Trace] = {}
    seen: dict[str, Object] = {}
    for span in _spans(path, data, warnings):
        own = word(span, "id") or word(span, "spanId") or word(span, "span_id")
        if own and seen.setdefault(own, span) != span:
            raise DatasetError(f"{path} holds the span {own[:60]!r} twice, with two contents.")
        if not own or seen[own] is span:
            take(traces, span)
    if not traces:
        raise DatasetError(f"{path} holds no spans of {tool}.\n{_HINT}")
    names: set[str] = set()
    for trace in traces.values():
        names.update(trace.guards)
    guard = ""
    if names:
        guard = one_of(names, statements.model, "guard", path)
    pairs = (_pair(trace, guard, statements.label) for trace in traces.values())
    rows = rows_of(pairs, "trace", warnings)
    if not rows:
        left_out = "".join(f"{warning}.\n" for warning in warnings[:2])
        raise DatasetError(
            f"{path} holds no trace with words and a label.\n{left_out}"
            "Next: if all of them are one of both, say which: --label attack or --label benign."
        )
    models = {trace.model for trace in traces.values()} - {""}
    return ImportedRun(
        tool=tool,
        guard=guard,
        model="+".join(sorted(models)) or "agent",
        rows=rows,
        files={path.name: sha256(data).hexdigest()},
        readings=tuple(_readings(guard)),
        warnings=(*warnings, *_cannot_know(traces.values())),
    )


def _cannot_know(traces: Iterable[_Trace]) -> Iterator[str]:
    """Say what such traces do not tell."""
    wordless = sum(not trace.asked.strip() and bool(trace.guards) for trace in traces)
    if wordless:
        yield (
            f"{wordless:,} traces hold what a guard answered and no words of a user: they count, "
            "with their id in place of a text"
        )
    yield "a trace does not say whether harm came out: no verdict was taken"


def _readings(guard: str) -> Iterator[str]:
    if guard:
        yield f"the decision was read from the guard {guard!r}: triggered = blocked"
    yield "the answer was read from the last model span, calls and results from the spans of tools"


def _spans(path: Path, data: bytes, warnings: list[str]) -> Iterator[Object]:
    """Yield spans in the order of their beginning, of lines, a document, or OTLP's nesting."""
    spans: list[Object] = []
    if path.suffix.lower() == ".json":
        spans.extend(_unpacked(object_of(data, str(path), hint=_HINT)))
    else:
        for _, row in objects_of(data, path, warnings):
            spans.extend(_unpacked(row))
    yield from sorted(spans, key=_begun)


def _begun(span: Object) -> tuple[int, str]:
    """Return when a span began, as what puts spans in order: a shorter number comes first."""
    stated = word(span, "startTimeUnixNano") or word(span, "started_at") or word(span, "start_time")
    digits = 0
    if stated.isdigit():
        digits = len(stated)
    return digits, stated


def _unpacked(document: Object) -> Iterator[Object]:
    """Yield the spans of a document, however it nests them; else the document is a span."""
    for resource in _list(document, "resourceSpans"):
        for scope in _list(resource, "scopeSpans"):
            yield from _list(scope, "spans")
    for name in ("data", "spans"):
        yield from _list(document, name)
    if not any(name in document for name in ("resourceSpans", "data", "spans")):
        yield document


def _list(holder: Object, name: str) -> list[Object]:
    """Return the objects that a field lists."""
    return _objects(holder.get(name))


def _objects(value: object) -> list[Object]:
    """Return the objects of a list; nothing where it is no list."""
    if not isinstance(value, list):
        return []
    return [member for member in value if isinstance(member, dict)]


def _take_agents_span(traces: dict[str, _Trace], span: Object) -> None:
    """Add what a span of the OpenAI Agents SDK says to its trace."""
    kind = word(span, "object")
    name = word(span, "trace_id")
    if kind == "trace":
        name = word(span, "id")
    if kind not in {"trace", "trace.span"} or not name:
        return
    trace = traces.setdefault(name, _Trace(name=name))
    if kind == "trace":
        trace.label = inner(span, "metadata").get("label")
        return
    held, kind = inner(span, "span_data"), word(inner(span, "span_data"), "type")
    fault = word(inner(span, "error"), "message")
    if kind == "guardrail":
        is_blocked = None
        if not fault:
            is_blocked = held.get("triggered")
        trace.guards.setdefault(word(held, "name") or "guardrail", []).append(is_blocked)
    elif kind == "function":
        _add_call(trace, word(held, "name"), held.get("input"), held.get("output"))
    elif kind in {"generation", "response"}:
        trace.model = word(held, "model") or trace.model
        _take_messages(trace, held.get("input"), held.get("output"))
        trace.failure = fault


def _take_otel_span(traces: dict[str, _Trace], span: Object) -> None:
    name = (
        word(span, "traceId") or word(span, "trace_id") or word(inner(span, "context"), "trace_id")
    )
    attributes = _attributes(span.get("attributes"))
    if not name or not any(key.startswith("gen_ai.") for key in attributes):
        return
    trace = traces.setdefault(name, _Trace(name=name))
    label = attributes.get("guardmark.label", attributes.get("label"))
    if label is not None:
        trace.label = label
    operation = word(attributes, "gen_ai.operation.name")
    if operation == "execute_tool":
        arguments = attributes.get("gen_ai.tool.call.arguments")
        result = attributes.get("gen_ai.tool.call.result")
        _add_call(trace, word(attributes, "gen_ai.tool.name"), arguments, result)
    elif "gen_ai.input.messages" in attributes or "gen_ai.output.messages" in attributes:
        trace.model = word(attributes, "gen_ai.request.model") or trace.model
        shown = attributes.get("gen_ai.input.messages")
        answered = attributes.get("gen_ai.output.messages")
        _take_messages(trace, shown, answered)
        trace.failure = word(attributes, "error.type")
    for event in _list(span, "events"):
        evaluated = _attributes(event.get("attributes"))
        guard = word(evaluated, "gen_ai.evaluation.name")
        if guard:
            label = evaluated.get("gen_ai.evaluation.score.label")
            trace.guards.setdefault(guard, []).append(label)


def _attributes(stated: object) -> Object:
    """Return attributes as plain values, from OTLP's list of typed ones or an object."""
    if isinstance(stated, dict):
        return stated
    attributes: Object = {}
    for pair in _objects(stated):
        # OTLP writes a value as an object whose only member names its type.
        attributes[word(pair, "key")] = next(iter(inner(pair, "value").values()), None)
    return attributes


def _add_call(trace: _Trace, name: str, arguments: object, result: object) -> None:
    """Keep a call and its result, as the messages that an agent would have seen."""
    own = f"call-{len(trace.steps) // 2 + 1}"
    call = ToolCall(own, name or "tool", _text_of(arguments) or "{}")
    trace.steps.append(Message(role=Role.ASSISTANT, content="", calls=(call,)))
    trace.steps.append(Message(role=Role.TOOL, content=_text_of(result), answers=own))


def _take_messages(trace: _Trace, shown: object, said: object) -> None:
    """Take the first words of a user, and the last words of the model."""
    turns = _turns(shown)
    users = [text for role, text in turns if role == "user" and text.strip()]
    if users and not trace.asked:
        trace.asked = users[-1]
    answers = [text for role, text in _turns(said) if role != "user" and text.strip()]
    if answers:
        trace.answer = answers[-1]


def _turns(value: object) -> list[tuple[str, str]]:
    """Read messages as roles and texts: a list, such a list as JSON, or a text of the user."""
    if isinstance(value, str):
        if not value:
            return []
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return [("user", str(value))]
    turns = []
    for turn in _objects(value):
        content: Any = turn.get("content", turn.get("parts"))
        if not isinstance(content, list):
            content = [content]
        turns.append((word(turn, "role") or "assistant", "\n".join(_words(content))))
    return turns


def _words(parts: list[Any]) -> Iterator[str]:
    """Yield the texts of the parts of a content."""
    for part in parts:
        text = part
        if isinstance(part, dict):
            text = part.get("text", part.get("content"))
        if isinstance(text, str) and text:
            yield text


def _text_of(value: object) -> str:
    """Return a value as text, as JSON where it is none."""
    if value is None:
        return ""
    text = value
    if not isinstance(text, str):
        text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def _pair(
    trace: _Trace, guard: str, stated: Label | None
) -> tuple[Sample | str, ImportedAnswer | None]:
    """Turn a trace into a sample and what came of it, or say why it is left out."""
    label = label_of(trace.label, stated)
    decision = response = None
    if guard:
        decision = _decision(trace.guards.get(guard))
    is_stopped = decision is not None and decision.outcome is Outcome.BLOCK
    if trace.answer is not None or not is_stopped:
        # Where a guard stopped the trace, the model was never asked: that is no failure of it.
        response = _response(trace)
    answer = ImportedAnswer(decision=decision, response=response)
    if label is None:
        return why_unlabelled(trace.label), answer
    if not trace.asked.strip() and guard not in trace.guards:
        return _TEXTLESS, answer
    text = _text_of(trace.asked) or f"(the trace {trace.name} holds no words of a user)"
    asked = Message(role=Role.USER, content=text)
    sample = Sample(
        id=trace.name,
        prompt=Prompt(messages=(asked, *trace.steps), under_test=0),
        label=label,
        source="trace",
    )
    return sample, answer


def _decision(said: list[object] | None) -> Decision:
    """Blocked where the guard ever was; allowed only where each of its answers is known."""
    if said is None:
        return decision_of(None, "this guard was not asked in this trace")
    answers = [read_is_blocked(answer) for answer in said]
    if True in answers:
        return decision_of(is_blocked=True)
    if None in answers:
        return decision_of(is_blocked=None)
    return decision_of(is_blocked=False)


def _response(trace: _Trace) -> Response:
    """Read what the model answered."""
    if trace.answer is not None and not trace.failure:
        return Response(text=_text_of(trace.answer))
    why = Evidence(message=trace.failure or "the trace holds no answer")
    return Response(text=None, error_kind=ErrorKind.CRASH, evidence=why)
