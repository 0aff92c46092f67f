"""Spans of OpenTelemetry: written from a run, read from guards in use, taken over OTLP/HTTP."""

from __future__ import annotations

import gzip
import http.client
import json
import subprocess
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.cards.test_card import CONFIG, rows
from tests.journeys.command_line import guardmark, words

from guardmark.interchange.otel import decision_lines
from guardmark.net.otlp import Collector


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and its spans."""
    folder = tmp_path_factory.mktemp("home")
    lines = [json.dumps(row) for row in rows()]
    (folder / "data.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "bench.yaml").write_text(CONFIG, encoding="utf-8")
    for command in (("run", "bench.yaml", "-o", "run"), ("export", "run", "--to", "otel")):
        done = guardmark(*command, cwd=folder)
        assert done.code == 0, done.err
    return folder


def spans_of(path: Path) -> list[dict[str, Any]]:
    """Return all spans of a file."""
    requests = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [
        span
        for request in requests
        for resource in request["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def test_every_decision_is_a_span_and_no_text_of_a_sample_is_in_it(home: Path) -> None:
    """Ids are unique, times follow, and the evaluation says whether the decision was right."""
    path = home / "run/spans.otlp.jsonl"
    spans = spans_of(path)
    assert len(spans) == 3 * 120
    assert len({span["spanId"] for span in spans}) == len(spans)
    assert all(len(span["traceId"]) == 32 and len(span["spanId"]) == 16 for span in spans)
    assert all(int(s["endTimeUnixNano"]) >= int(s["startTimeUnixNano"]) for s in spans)
    assert "grow" not in path.read_text("utf-8")
    right = sum(
        attribute["value"].get("stringValue") == "pass"
        for span in spans
        for event in span["events"]
        for attribute in event["attributes"]
    )
    summary = json.loads((home / "run/summary.json").read_text("utf-8"))
    rates = [each["rates"] for each in summary["defenses"]]
    assert right == sum(
        each["true_positive_rate"]["successes"]
        + each["false_positive_rate"]["trials"]
        - each["false_positive_rate"]["successes"]
        for each in rates
    )


def test_what_was_exported_is_watched_with_the_same_counts(home: Path) -> None:
    """A round trip: blocked, ASR and FPR of each defense."""
    done = guardmark("watch", "run/spans.otlp.jsonl", "--otel", "--json", cwd=home)
    assert done.code == 0, done.err
    told = {each["defense"]: each for each in json.loads(done.out)["defenses"]}
    summary = json.loads((home / "run/summary.json").read_text("utf-8"))
    for each in summary["defenses"]:
        live = {rate["name"]: rate["live"] for rate in told[each["name"]]["rates"]}
        for name, rate in (("asr", "attack_success_rate"), ("fpr", "false_positive_rate")):
            assert live[name]["successes"] == each["rates"][rate]["successes"]
            assert live[name]["trials"] == each["rates"][rate]["trials"]


def span(**attributes: str) -> dict[str, Any]:
    """Return a span as a guard in use writes it."""
    listed = [
        {"key": key.replace("__", "."), "value": {"stringValue": value}}
        for key, value in attributes.items()
    ]
    return {"traceId": "a" * 32, "spanId": "b" * 16, "name": "x", "attributes": listed}


def request_of(*spans: dict[str, Any]) -> bytes:
    """Return a request of OTLP that holds some spans."""
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}).encode()


GUARD = {"gen_ai__operation__name": "run_guardrail", "gen_ai__security__guardrail__name": "g"}


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ({"gen_ai__security__verdict__type": "allow"}, "allow"),
        ({"gen_ai__security__verdict__type": "WARN"}, "allow"),
        ({"gen_ai__security__decision__type": "deny"}, "block"),
        ({"gen_ai__security__verdict__type": "modify"}, "modify"),
        ({"gen_ai__security__verdict__type": "allow", "error__type": "timeout"}, "error"),
        ({}, "None"),
    ],
)
def test_the_word_of_a_verdict_is_the_decision(given: dict[str, str], outcome: str) -> None:
    """A failed call is an error even where a verdict stands; what is no decision is not one."""
    (line,) = decision_lines(request_of(span(**GUARD, **given)))
    assert json.loads(line)["outcome"] == outcome


def test_spans_of_other_things_are_passed_over_and_broken_lines_are_counted(
    tmp_path: Path,
) -> None:
    """Cut, no request, doubled: nothing is counted twice and nothing silently."""
    blocked = span(**GUARD, gen_ai__security__verdict__type="block")
    whole = request_of(span(gen_ai__operation__name="chat"), blocked)
    lines = [
        whole,
        whole,
        whole[:40],
        b"{}",
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [1]}]}]}',
    ]
    (tmp_path / "spans.jsonl").write_bytes(b"\n".join(lines))
    done = guardmark("watch", "spans.jsonl", "--otel", "--json", cwd=tmp_path)
    told = json.loads(done.out)
    (defense,) = told["defenses"]
    live = {rate["name"]: rate["live"] for rate in defense["rates"]}
    assert (live["blocked"]["successes"], live["blocked"]["trials"]) == (1, 1)
    assert (told["lines"]["unreadable"], told["lines"]["repeated"]) == (3, 1)


def test_spans_that_come_out_of_order_count_the_same(tmp_path: Path) -> None:
    """The last sent first, and two requests as one: a decision has no order."""
    spans = []
    for number, word in enumerate(("block", "allow", "block")):
        made = span(
            **GUARD, gen_ai__security__verdict__type=word, guardmark__sample__id=f"s{number}"
        )
        spans.append({**made, "startTimeUnixNano": str(1_000 + number)})
    counts = set()
    for lines in (
        [request_of(each) for each in spans],
        [request_of(each) for each in spans[::-1]],
        [request_of(*spans[::-1])],
    ):
        (tmp_path / "spans.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        done = guardmark("watch", "spans.jsonl", "--otel", "--json", cwd=tmp_path)
        (defense,) = json.loads(done.out)["defenses"]
        live = {rate["name"]: rate["live"] for rate in defense["rates"]}
        counts.add((live["blocked"]["successes"], live["blocked"]["trials"]))
    assert counts == {(2, 3)}


def post(address: str, body: bytes, **headers: str) -> int:
    """Send a request, and return the status."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    try:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        connection.request("POST", parts.path, body, named)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_collector_takes_what_can_be_read_and_says_why_it_does_not() -> None:
    """JSON, packed or not; other types, other paths and bombs are refused."""
    collector = Collector(0)
    body = request_of(span(**GUARD, gen_ai__security__verdict__type="block"))
    kind = {"Content_Type": "application/json"}
    try:
        assert post(collector.address, body, **kind) == 200
        assert post(collector.address, gzip.compress(body), Content_Encoding="gzip", **kind) == 200
        assert post(collector.address, b"x", Content_Encoding="gzip", **kind) == 400
        bomb = gzip.compress(bytes(64 << 20))
        assert post(collector.address, bomb, Content_Encoding="gzip", **kind) == 400
        assert post(collector.address, body, Content_Type="text/plain") == 415
        assert post(collector.address.replace("traces", "logs"), body, **kind) == 404
    finally:
        threading.Timer(0.2, collector.close).start()
    assert list(collector) == [body, body]


@pytest.mark.slow
def test_the_sdk_of_opentelemetry_sends_to_a_watch_that_stops_at_a_broken_limit(
    tmp_path: Path,
) -> None:
    """Over OTLP/HTTP in protobuf, as its exporter does, until the limit is shown to be broken."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the SDK")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    command = words("watch", "--listen", "0", "--limit", "blocked<=0.1")
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stderr is not None
        address = watching.stderr.readline().rsplit(" ", 1)[-1].strip()
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
        tracer = provider.get_tracer("app")
        for number in range(400):
            with tracer.start_as_current_span("run_guardrail g") as current:
                current.set_attribute("gen_ai.operation.name", "run_guardrail")
                current.set_attribute("gen_ai.security.guardrail.name", "g")
                verdict = "block" if number % 2 else "allow"
                current.set_attribute("gen_ai.security.verdict.type", verdict)
        provider.force_flush()
        out, _ = watching.communicate(timeout=60)
        provider.shutdown()
    assert watching.returncode == 1
    assert "BROKEN g: blocked above 10 %" in out


@pytest.mark.parametrize("typed", [("watch",), ("watch", "-", "--listen", "0")])
def test_a_stream_comes_from_one_place(tmp_path: Path, typed: tuple[str, ...]) -> None:
    """A file, standard input, or a port."""
    done = guardmark(*typed, cwd=tmp_path)
    assert done.code == 2
    assert "--listen" in done.err
