"""Traces of agents: what guards answered, what was called, and what nobody can know from them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from guardmark.app.results.reporting import finish
from guardmark.app.run.importing import import_run
from guardmark.app.verify.verification import verify
from guardmark.core.errors import DatasetError
from guardmark.core.outcome import Outcome
from guardmark.core.sample import Label, Role
from guardmark.interchange.imported import ImportedRun, Statements
from guardmark.interchange.importers import read_run

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Json = dict[str, Any]


def span(trace: str, own: str, **data: Any) -> Json:
    """A span of the Agents SDK."""
    return {"object": "trace.span", "id": f"{trace}-{own}", "trace_id": trace, "span_data": data}


def generation(trace: str, asked: str, said: str | None) -> Json:
    """A span of a model."""
    output = [] if said is None else [{"role": "assistant", "content": said}]
    shown = [{"role": "system", "content": "be kind"}, {"role": "user", "content": asked}]
    return span(trace, "g", type="generation", model="m", input=shown, output=output)


def guardrail(trace: str, *, triggered: object, name: str = "words") -> Json:
    """A span of a guard."""
    return span(trace, name, type="guardrail", name=name, triggered=triggered)


def write(folder: Path, *spans: Json, name: str = "t.jsonl") -> Path:
    """Write spans, one a line."""
    path = folder / name
    path.write_text("".join(json.dumps(each) + "\n" for each in spans), encoding="utf-8")
    return path


def read(path: Path, tool: str = "openai-agents", **stated: Any) -> ImportedRun:
    """Read traces, all of attacks unless told otherwise."""
    return read_run(tool, path, Statements(**{"label": Label.ATTACK, **stated}))


def test_calls_and_results_stay_in_their_order(tmp_path: Path) -> None:
    """Behind what the user asked, which is under test."""
    call = span("t1", "f", type="function", name="pay", input='{"to": "kiwi"}', output="paid")
    (row,) = read(write(tmp_path, generation("t1", "pay the bill", "done"), call)).rows
    asked, called, result = row.sample.prompt.messages
    assert row.sample.prompt.text == "pay the bill"
    assert (asked.role, called.calls[0].name, called.calls[0].arguments) == (
        Role.USER,
        "pay",
        '{"to": "kiwi"}',
    )
    assert (result.role, result.content) == (Role.TOOL, "paid")
    assert result.answers == called.calls[0].id
    assert row.answers[0].response is not None
    assert row.answers[0].response.text == "done"


def test_a_guard_that_stopped_the_model_leaves_no_failure(tmp_path: Path) -> None:
    """Its trace counts, though nobody wrote down what was asked."""
    run = read(
        write(
            tmp_path,
            guardrail("t1", triggered=True),
            guardrail("t2", triggered=False),
            generation("t2", "say kiwi", "kiwi"),
        )
    )
    first, second = (row.answers[0] for row in run.rows)
    assert first.decision is not None
    assert first.decision.outcome is Outcome.BLOCK
    assert first.response is None
    assert second.decision is not None
    assert second.decision.outcome is Outcome.ALLOW
    assert any("1 traces hold what a guard answered and no words" in each for each in run.warnings)


def test_a_guard_that_failed_or_was_not_asked_decided_nothing(tmp_path: Path) -> None:
    """An error is no allow, and neither is silence."""
    broken = guardrail("t1", triggered=False) | {"error": {"message": "boom"}}
    spans = [generation(f"t{n}", f"say kiwi {n}", "kiwi") for n in (1, 2)]
    run = read(write(tmp_path, broken, *spans))
    outcomes = [row.answers[0].decision.outcome for row in run.rows if row.answers[0].decision]
    assert outcomes == [Outcome.MALFORMED, Outcome.ERROR]


def test_one_guard_of_several_is_named(tmp_path: Path) -> None:
    """Whose rates they are is not guessed."""
    path = write(
        tmp_path, guardrail("t1", triggered=True), guardrail("t1", triggered=False, name="other")
    )
    with pytest.raises(DatasetError, match="holds 2 guards: other, words"):
        read(path)
    (row,) = read(path, model="other").rows
    assert row.answers[0].decision is not None
    assert row.answers[0].decision.outcome is Outcome.ALLOW


def test_a_trace_without_a_label_is_nothing_by_itself(tmp_path: Path) -> None:
    """Traffic is not attacks; metadata may say what a trace was."""
    path = write(tmp_path, generation("t1", "say kiwi", "kiwi"))
    with pytest.raises(DatasetError, match="if all of them are one of both, say which"):
        read_run("openai-agents", path, Statements())
    told = {"object": "trace", "id": "t1", "metadata": {"label": "benign"}}
    path = write(tmp_path, told, generation("t1", "say kiwi", "kiwi"))
    assert not read(path).rows[0].sample.is_attack


@pytest.mark.parametrize("form", ["flat", "nested"])
def test_spans_of_opentelemetry_are_read_flat_and_nested(tmp_path: Path, form: str) -> None:
    """Attributes as an object or as a list of typed values."""
    asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "say kiwi"}]}])
    said = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "kiwi"}]}])
    chat = {
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": asked,
        "gen_ai.output.messages": said,
    }
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.arguments": "{}",
        "gen_ai.tool.call.result": "herbs",
    }
    spans = [
        {"traceId": "t", "spanId": str(at), "startTimeUnixNano": str(at), "attributes": each}
        for at, each in enumerate((chat, tool))
    ]
    if form == "nested":
        for each in spans:
            stated: Any = each["attributes"]
            each["attributes"] = [
                {"key": k, "value": {"stringValue": v}} for k, v in stated.items()
            ]
        spans = [{"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}]
    run = read(write(tmp_path, *spans), tool="otel")
    (row,) = run.rows
    assert (run.model, run.guard) == ("m", "")
    assert row.sample.prompt.text == "say kiwi"
    assert row.sample.prompt.messages[1].calls[0].name == "look"
    assert row.sample.prompt.messages[2].content == "herbs"


def test_traces_become_a_run_that_verifies(tmp_path: Path) -> None:
    """From the file to a report."""
    spans = [
        each
        for n in range(6)
        for each in (
            guardrail(f"t{n}", triggered=n % 2 == 0),
            generation(f"t{n}", f"say kiwi {n}", "kiwi"),
        )
    ]
    found = import_run(
        "openai-agents",
        write(tmp_path, *spans),
        now=NOW,
        out=tmp_path / "run",
        statements=Statements(label=Label.ATTACK),
    )
    told = finish(found.folder, found.config, formats=["json", "html"])
    (card,) = json.loads(told.summary_json)["defenses"]
    rate = card["rates"]["attack_success_rate"]
    assert (rate["successes"], rate["trials"]) == (3, 6)
    assert verify(found.folder.path).mismatches == ()
