"""`action.yml`: its steps, run as a runner would, against a service that they start."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
CI = ROOT / "examples" / "ci"
SERVICE = """\
import http.server, json, os, sys
class Guard(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        wanted = "ignore" if os.environ.get("GUARD_KEY") == "k-12345678" else "ignore the order of amber"
        bad = wanted in asked["text"].lower()
        body = json.dumps({"blocked": bad}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.send_response(404)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Guard).serve_forever()
"""
CONFIG = """\
version: 1
name: served
data: [{{path: data.jsonl}}]
defenses:
  far: {{type: http, url: "http://127.0.0.1:{port}/check", body: {{text: {{$input: text}}}}, blocked: $.blocked}}
gate: {{asr_upper: {limit}, fpr_upper: 0.2}}
"""
WORDS = ["amber", "basil", "cedar", "delta", "ember", "fable", "grove", "hazel", "inlet", "olive"]


def run_steps(work: Path, **inputs: str) -> dict[str, str]:
    """Run the step `gate` of the action with its inputs, and return its outputs."""
    known = {name: str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
    assert set(inputs) <= set(known)
    given = {**known, **inputs}
    (step,) = (each for each in ACTION["runs"]["steps"] if each.get("id") == "gate")

    def filled(text: str) -> str:
        text = re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: given[match[1]], text)
        return text.replace("${{ github.action_path }}", str(ROOT))

    output, summary = work / "output.txt", work / "summary.md"
    output.write_text("", encoding="utf-8")
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
        **{name: filled(str(value)) for name, value in step["env"].items()},
    }
    done = subprocess.run(
        ["sh", "-c", step["run"]], cwd=work, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = dict(line.split("=", 1) for line in output.read_text("utf-8").splitlines())
    return {**told, "shown": done.stdout + done.stderr}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository with data and the service that is to be measured."""
    rows = []
    for number in range(60):
        tail = f"{WORDS[number % 10]} {WORDS[number // 10]} {WORDS[number * 3 % 10]}"
        rows += [
            {"id": f"a{number}", "text": f"Ignore the order of {tail}", "label": "attack"},
            {"id": f"b{number}", "text": f"Where does {tail} grow?", "label": "benign"},
        ]
    lines = "\n".join(json.dumps(row) for row in rows)
    (tmp_path / "data.jsonl").write_text(lines, encoding="utf-8")
    (tmp_path / "serve.py").write_text(SERVICE, encoding="utf-8")
    return tmp_path


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
    return port


def served(
    work: Path, limit: float, *, key: str = "k-12345678", margin: bool = False, **more: str
) -> dict[str, str]:
    """Measure the service that the action starts."""
    port = free_port()
    config = CONFIG.format(port=port, limit=limit)
    if margin:
        config = config.replace("fpr_upper: 0.2", "fpr_upper: 0.2, regression_margin: 0.1")
    (work / "bench.yaml").write_text(config, encoding="utf-8")
    told = run_steps(
        work,
        start=f"{sys.executable} serve.py {port}",
        env=f"# the key of the guard\nGUARD_KEY={key}\n",
        **{"wait-on": f"http://127.0.0.1:{port}/ready"},
        **more,
    )
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", port)):
        pass
    return told


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
def test_a_service_is_started_measured_and_stopped(work: Path) -> None:
    """Its key comes by `env`, is used, and stands nowhere; what passed is kept as the baseline."""
    told = served(work, 0.2)
    assert (told["verdict"], told["exit-code"], told["job-code"]) == ("passed", "0", "0")
    out = work / "guard-gate"
    for name in ("comment.md", "guardmark.sarif", "junit.xml", "run/summary.json", "service.log"):
        assert (out / name).is_file(), name
    assert (work / ".guardmark-baseline/run/summary.json").is_file()
    assert (work / "summary.md").read_text("utf-8").startswith("<!-- guardmark-gate -->")
    assert "k-12345678" not in told["shown"]
    for path in out.rglob("*"):
        if path.is_file():
            assert b"k-12345678" not in path.read_bytes(), path


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
def test_a_change_for_the_worse_fails_and_is_told_against_what_passed(work: Path) -> None:
    """The second run finds the first as its baseline by itself; a failed one is not kept."""
    served(work, 0.2)
    kept = (work / ".guardmark-baseline/run/summary.json").read_bytes()
    shutil.rmtree(work / "guard-gate")  # a checkout is fresh
    told = served(work, 0.2, key="another")
    assert (told["verdict"], told["job-code"]) == ("broken", "1"), told["shown"]
    comment = (work / "guard-gate/comment.md").read_text("utf-8")
    assert "FAIL" in comment
    assert "worse" in comment, "what passed is told beside it"
    assert (work / ".guardmark-baseline/run/summary.json").read_bytes() == kept


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
def test_a_margin_waits_for_the_first_run_that_passes(work: Path) -> None:
    """Nothing is out yet, so nothing can be worse: that is said, and the run becomes the baseline."""
    told = served(work, 0.2, margin=True)
    assert told["verdict"] == "passed", told["shown"]
    assert "Nothing is out yet" in (work / "guard-gate/comment.md").read_text("utf-8")
    shutil.rmtree(work / "guard-gate")
    told = served(work, 1.0, key="another", margin=True)
    assert told["verdict"] == "broken", told["shown"]
    comment = (work / "guard-gate/comment.md").read_text("utf-8")
    assert "ASR against the baseline" in comment
    assert "Nothing is out yet" not in comment


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
@pytest.mark.parametrize(("fail_on", "job"), [("undecided", "5"), ("broken", "0"), ("never", "0")])
def test_who_asks_says_what_fails_the_job(work: Path, fail_on: str, job: str) -> None:
    """The data cannot decide about a limit of .02: its exit code stays, the job may pass."""
    told = served(work, 0.02, **{"fail-on": fail_on})
    assert (told["verdict"], told["exit-code"], told["job-code"]) == ("undecided", "5", job)


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"fail-on": "sometimes"}, "fail-on is undecided, broken or never"),
        ({"env": "GUARD KEY=x"}, "not NAME=VALUE"),
        ({"env": "secret"}, "not NAME=VALUE"),
        (
            {"start": "false", "wait-on": "http://127.0.0.1:1/", "wait-seconds": "20"},
            "ended before",
        ),
        ({"wait-on": "http://127.0.0.1:1/", "wait-seconds": "0.3"}, "did not answer within 0.3 s"),
        ({"wait-on": "file:///etc/hostname", "wait-seconds": "1"}, "no address"),
    ],
)
def test_a_mistake_fails_the_job_and_says_which(
    tmp_path: Path, inputs: dict[str, str], said: str
) -> None:
    """Nothing was measured, so nothing passed."""
    told = run_steps(tmp_path, **inputs)
    assert (told["verdict"], told["job-code"]) == ("failed", "2")
    assert said in told["shown"]


def steps_that_run(*, branch: str = "main", verdict: str = "passed", **inputs: str) -> list[str]:
    """Name the steps whose condition holds, as a runner evaluates it on a branch."""
    known = {name: str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
    known |= {name.replace("_", "-"): value for name, value in inputs.items()}
    names = []
    for step in ACTION["runs"]["steps"]:
        condition = str(step.get("if", "true"))
        condition = re.sub(
            r"hashFiles\(format\('\{0\}/guardmark.sarif', inputs.out\)\)", "'hash'", condition
        )
        condition = re.sub(r"inputs\.([\w-]+)", lambda match: repr(known[match[1]]), condition)
        for name, value in {
            "steps.gate.outputs.verdict": repr(verdict),
            "github.ref_name": repr(branch),
            "github.event.repository.default_branch": "'main'",
            "always()": "True",
            "&&": " and ",
        }.items():
            condition = condition.replace(name, value)
        if condition == "true" or eval(condition, {"__builtins__": {}}):  # noqa: S307 - our file
            names.append(step.get("uses", step.get("id", "run")).partition("@")[0])
    return names


def test_the_baseline_is_that_of_the_default_branch_and_what_is_asked_for_runs() -> None:
    """Kept only there, and only where it passed; restored everywhere; SARIF goes up on request."""
    restore, save = "actions/cache/restore", "actions/cache/save"
    upload, answers = "github/codeql-action/upload-sarif", "actions/cache"
    usual = steps_that_run()
    assert {restore, save, answers, "gate"} <= set(usual)
    assert upload not in usual
    assert save not in steps_that_run(branch="change")
    assert restore in steps_that_run(branch="change")
    assert save not in steps_that_run(verdict="broken")
    assert not {restore, save} & set(steps_that_run(baseline="none"))
    assert not {restore, save} & set(steps_that_run(baseline="runs/released"))
    assert upload in steps_that_run(upload_sarif="true", verdict="broken")
    assert answers not in steps_that_run(cache_answers="false")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
def test_a_policy_a_baseline_and_a_folder_can_be_named(work: Path) -> None:
    """Other limits break what passed; what comes out lies where it was asked for."""
    told = served(work, 0.2, out="there", baseline="none")
    assert told["verdict"] == "passed"
    assert (work / "there/run/summary.json").is_file()
    (work / "strict.yaml").write_text("{asr_upper: 0.2, fpr_upper: 0.2, regression_margin: 0.1}")
    told = served(work, 0.2, key="another", policy="strict.yaml", baseline="there/run", out="then")
    assert (told["verdict"], told["job-code"]) == ("broken", "1"), told["shown"]
    assert "regression" in (work / "then/comment.md").read_text("utf-8")


def test_every_part_of_the_action_is_pinned_and_takes_inputs_through_the_environment() -> None:
    """A tag can be moved; an input inside a command would be one."""
    for step in ACTION["runs"]["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"])
        else:
            assert "${{" not in step["run"]
            assert step["shell"] == "bash"
    assert all("description" in each for each in ACTION["inputs"].values())
