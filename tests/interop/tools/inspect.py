"""Evaluate the texts with Inspect; keep its log as JSON and as it writes it by default."""

import json
import sys
from pathlib import Path

from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

texts, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
samples = [
    Sample(input=r["text"], target="PERIWINKLE", id=r["id"], metadata={"label": r["label"]})
    for r in texts
]
for form in ("eval", "json"):
    task = Task(
        name="canary",
        dataset=MemoryDataset(samples if form == "json" else samples[:4]),
        solver=generate(),
        scorer=includes(),
        config=GenerateConfig(max_retries=0, timeout=20),
    )
    (log,) = evaluate(
        task,
        model="openai-api/openai/rules",
        epochs=2,
        log_dir=str(out),
        log_format=form,
        fail_on_error=False,
        display="none",
    )
values = [each.scores["includes"].value for each in log.samples if each.scores]
said = {"scored": len(values), "correct": values.count("C"), "samples": len(log.samples)}
said["errors"] = sum(each.error is not None for each in log.samples)
said["accuracy"] = log.results.scores[0].metrics["accuracy"].value
(out / "summary.json").write_text(json.dumps(said, indent=1) + "\n")
(packed,) = out.glob("*_canary_*.eval")
packed.rename(out / "canary.eval")
(plain,) = out.glob("*_canary_*.json")
written = json.loads(plain.read_text())
for sample in written["samples"]:  # what happened is told at length, with paths of this machine
    sample |= {
        "events": [],
        "error": sample.get("error") and {"message": sample["error"]["message"]},
    }
    sample.pop("error_retries", None)
(out / "canary.json").write_text(json.dumps(written, indent=1) + "\n")
plain.unlink()
