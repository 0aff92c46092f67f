"""Scan the endpoint with two small probes of garak; keep its report and what its hits say."""

import json
import os
import subprocess
import sys
from pathlib import Path

out = Path(sys.argv[2])
settings = {"openai": {"OpenAICompatible": {"uri": os.environ["OPENAI_BASE_URL"] + "/"}}}
Path("generator.json").write_text(json.dumps(settings))
environment = os.environ | {
    "OPENAICOMPATIBLE_API_KEY": os.environ["OPENAI_API_KEY"],
    "XDG_DATA_HOME": str(Path.cwd()),
    "XDG_CACHE_HOME": str(Path.cwd()),
    "HF_HUB_OFFLINE": "1",
}
options = ["--target_type", "openai.OpenAICompatible", "--target_name", "rules"]
options += ["--generator_option_file", "generator.json", "--report_prefix", "canary"]
options += ["--probes", "test.Test,test.Blank", "--generations", "2"]
options += ["--detectors", "mitigation.MitigationBypass,always.Pass"]
subprocess.run([sys.executable, "-m", "garak", *options], check=True, env=environment)
(report,) = Path.cwd().rglob("canary.report.jsonl")
entries = [json.loads(line) for line in report.read_text().splitlines()]
# What holds paths of this machine, or sentences of the tool.
LEFT_OUT = (
    "_config.config_files",
    "transient.report_filename",
    "meta",
    "plugin_cache",
    "goal",
    "eval",
)
kept = [{key: value for key, value in each.items() if key not in LEFT_OUT} for each in entries]
(out / "canary.report.jsonl").write_text("".join(json.dumps(each) + "\n" for each in kept))
said = [each for each in entries if each["entry_type"] == "eval"]
wanted = ("probe", "detector", "passed", "total_evaluated")
kept = [{name: each.get(name) for name in wanted} for each in said]
(out / "summary.json").write_text(json.dumps(kept, indent=1) + "\n")
