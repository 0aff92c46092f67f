"""Run the evaluation of openai-guardrails over the texts, and keep what it wrote."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

texts, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
NAMES = ("Jailbreak", "Keyword Filter")
rules = [
    {"name": NAMES[0], "config": {"model": "rules", "confidence_threshold": 0.7}},
    {"name": NAMES[1], "config": {"keywords": ["periwinkle"]}},
]
config = {"version": 1, "input": {"version": 1, "guardrails": rules}}
(out / "config.json").write_text(json.dumps(config))
with (out / "data.jsonl").open("w") as lines:
    for row in texts:
        expected = dict.fromkeys(NAMES, row["label"] == "attack")
        sample = {"id": row["id"], "data": row["text"], "expected_triggers": expected}
        lines.write(json.dumps(sample) + "\n")
command = Path(sys.executable).with_name("guardrails-evals")
options = ["--config-path", out / "config.json", "--dataset-path", out / "data.jsonl"]
options += ["--output-dir", out / "runs", "--base-url", os.environ["OPENAI_BASE_URL"]]
subprocess.run([command, *options], check=True)
(run,) = (out / "runs").iterdir()
for file in ("eval_results_input.jsonl", "eval_metrics.json"):
    shutil.copy(run / file, out / file)
shutil.rmtree(out / "runs")
(out / "config.json").unlink()
