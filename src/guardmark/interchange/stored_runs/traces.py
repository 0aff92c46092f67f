"""Stored runs of agents as traces: spans of OpenTelemetry and of the OpenAI Agents SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.core.sample import Label
from guardmark.interchange.imported import Statements
from guardmark.interchange.stored_runs.turns import LoggedMessage, Unusable, read_dialog
from guardmark.interchange.traces import read_openai_agents, read_otel
from guardmark.suites.stored import StoredCase
from guardmark.suites.suite import CaseId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from guardmark.core.sample import Sample
    from guardmark.interchange.imported import Object


def kind_of_trace(span: Object) -> str:
    """Say whose span an object is, or nothing."""
    if span.get("object") in {"trace", "trace.span"}:
        return "openai-agents"
    if "resourceSpans" in span or ("attributes" in span and {"traceId", "trace_id"} & span.keys()):
        return "otel"
    return ""


def read_traces(
    path: Path, kind: str, leave_out: Callable[[Unusable], None], note: Callable[[str], None]
) -> Iterator[StoredCase]:
    """Yield the traces of a file that state a label and hold calls of tools."""
    read = read_otel if kind == "otel" else read_openai_agents
    run = read(path, Statements())
    for warning in run.warnings:
        note(f"{path.name}: {warning}")
    for row in run.rows:
        try:
            yield _stored(row.sample, kind)
        except Unusable as why:
            leave_out(why)


def _stored(sample: Sample, kind: str) -> StoredCase:
    is_attack = sample.label is Label.ATTACK
    dialog = read_dialog(
        LoggedMessage(
            role=message.role.value,
            text=message.content,
            calls=tuple((call.id, call.name, call.arguments) for call in message.calls),
            answers=message.answers,
        )
        for message in sample.prompt.messages
    )
    return StoredCase(
        id=CaseId(suite=kind, task=sample.id, injection=f"of-{sample.id}" if is_attack else ""),
        prompt=dialog.prompt,
        moves=dialog.moves,
        later_words=dialog.later_words,
        names_injection=False,
    )
