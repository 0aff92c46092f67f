"""Trace a guard and an assistant with MLflow over every text; write each trace as a line."""

import json
import os
import sys
from pathlib import Path

texts, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"

import mlflow  # noqa: E402 - reads its variables when it is imported
from mlflow.entities import SpanType  # noqa: E402

mlflow.set_tracking_uri(f"file://{Path.cwd() / 'runs'}")
mlflow.set_experiment("canary")
for row in texts:
    with mlflow.start_span("assistant", span_type=SpanType.CHAIN) as chain:
        chain.set_inputs({"messages": [{"role": "user", "content": row["text"]}]})
        with mlflow.start_span("canary-guard", span_type=SpanType.GUARDRAIL) as guard:
            guard.set_inputs(row["text"])
            if "<<break>>" in row["text"]:
                guard.set_status("ERROR")
            else:
                guard.set_outputs({"blocked": "PERIWINKLE" in row["text"], "score": 0.5})
        chain.set_outputs("Certainly.")
        mlflow.update_current_trace(tags={"label": row["label"], "sample_id": row["id"]})
mlflow.flush_trace_async_logging()
traces = mlflow.search_traces(return_type="list", max_results=1_000)
with (out / "traces.jsonl").open("w") as lines:
    for trace in traces:
        document = trace.to_dict()
        # Where this machine keeps its files is nobody's business.
        document["info"]["tags"].pop("mlflow.artifactLocation", None)
        document["info"]["trace_metadata"].pop("mlflow.source.name", None)
        document["info"]["trace_metadata"].pop("mlflow.user", None)
        lines.write(json.dumps(document) + "\n")
