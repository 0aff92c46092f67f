"""Read exported spans with OpenTelemetry's own types, and print them as its SDK does."""

import base64
import json
import sys
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

IDS = ("traceId", "spanId", "parentSpanId")


def with_bytes(value: Any) -> Any:
    """Return OTLP's JSON with ids as protobuf's JSON has them: OTLP writes them in hexadecimal."""
    if isinstance(value, list):
        return [with_bytes(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64encode(bytes.fromhex(each)).decode() if key in IDS else with_bytes(each)
        for key, each in value.items()
    }


def plain(attributes: Any) -> dict[str, Any]:
    """Return attributes as the SDK holds them."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


told = {"spans": 0, "errors": 0, "guards": {}, "evaluations": {}, "resource": {}, "sdk": None}
for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
    request = json_format.ParseDict(with_bytes(json.loads(line)), ExportTraceServiceRequest())
    for resource in request.resource_spans:
        told["resource"] = plain(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert len(span.trace_id) == 16
                assert len(span.span_id) == 8
                assert span.end_time_unix_nano >= span.start_time_unix_nano
                attributes = plain(span.attributes)
                guard = attributes["gen_ai.security.guardrail.name"]
                verdict = attributes.get("gen_ai.security.verdict.type", "none")
                counts = told["guards"].setdefault(guard, {})
                counts[verdict] = counts.get(verdict, 0) + 1
                told["spans"] += 1
                told["errors"] += span.status.code == 2
                events = []
                for event in span.events:
                    held = plain(event.attributes)
                    events.append(Event(event.name, held, event.time_unix_nano))
                    label = held["gen_ai.evaluation.score.label"]
                    told["evaluations"][label] = told["evaluations"].get(label, 0) + 1
                made = ReadableSpan(
                    name=span.name,
                    context=SpanContext(
                        int.from_bytes(span.trace_id, "big"),
                        int.from_bytes(span.span_id, "big"),
                        is_remote=False,
                        trace_flags=TraceFlags(TraceFlags.SAMPLED),
                    ),
                    resource=Resource(told["resource"]),
                    attributes=attributes,
                    events=events,
                    kind=SpanKind(span.kind - 1),
                    status=Status(StatusCode(span.status.code)),
                    start_time=span.start_time_unix_nano,
                    end_time=span.end_time_unix_nano,
                    instrumentation_scope=InstrumentationScope(scope.scope.name),
                )
                told["sdk"] = json.loads(made.to_json())
sys.stdout.write(json.dumps(told) + "\n")
