"""Each export is read back by the tool that it is for; `make interop` builds their environments."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.interop.environments import NEEDS_ENVIRONMENTS, free_port, program, serving
from tests.journeys.command_line import guardmark

from guardmark.datasets.builtin import BUILTIN_SETS

SCRIPTS = Path(__file__).with_name("read_back")

pytestmark = NEEDS_ENVIRONMENTS


def read_back(tool: str, *given: object, **variables: str) -> Any:
    """Run the script of a tool in its environment; return what it prints as JSON."""
    done = subprocess.run(
        [program(tool), "-P", SCRIPTS / f"{tool}.py", *map(str, given)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run of the demo."""
    folder = tmp_path_factory.mktemp("home")
    assert guardmark("demo", "-o", "run", cwd=folder).code == 0
    return folder


def test_opentelemetry_reads_every_span(home: Path) -> None:
    """Its own wire types and its SDK: ids, verdicts, evaluations, as many as there are records."""
    done = guardmark("export", "run", "--to", "otel", cwd=home)
    assert done.code == 0, done.err
    told = read_back("otel", home / "run/spans.otlp.jsonl")
    summary = json.loads((home / "run/summary.json").read_text("utf-8"))
    for defense in summary["defenses"]:
        rates = defense["rates"]
        blocked = [
            rates[name]["successes"] for name in ("true_positive_rate", "false_positive_rate")
        ]
        counts = told["guards"][defense["name"]]
        assert counts.get("block", 0) == sum(blocked)
        assert sum(counts.values()) == rates["answered"]["trials"]
    assert told["spans"] == sum(sum(each.values()) for each in told["guards"].values())
    assert told["resource"]["service.name"] == "guardmark"
    assert set(told["evaluations"]) == {"pass", "fail"}
    assert told["sdk"]["attributes"]["gen_ai.operation.name"] == "run_guardrail"


def test_mlcroissant_reads_every_built_in_data_set() -> None:
    """Files, hashes, record sets: all samples, each once."""
    paths = {each.target: each.folder / "croissant.json" for each in BUILTIN_SETS}
    told = read_back("croissant", *paths.values())
    for builtin in BUILTIN_SETS:
        found = told[str(paths[builtin.target])]
        sealed = json.loads((builtin.folder / "manifest.json").read_text("utf-8"))
        assert found["errors"] == []
        assert found["name"] == builtin.name
        assert len(found["ids"]) == sealed["attacks"] + sealed["benign"]
        assert len(set(found["ids"])) == len(found["ids"])


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """Serve MLflow on loopback, with a database in a folder."""
    port = free_port()
    command = [
        *(program("mlflow", "mlflow"), "server", "--host", "127.0.0.1"),
        *("--port", port, "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"),
        *("--artifacts-destination", folder / "artefacts", "--workers", "1"),
    ]
    with serving(*command, port=port, cwd=folder) as address:
        yield address


def export_to(home: Path, address: str) -> subprocess.CompletedProcess[str]:
    """Export with the guardmark that is installed beside MLflow."""
    return subprocess.run(
        [program("mlflow"), "-m", "guardmark", "export", "run", "--to", "mlflow"],
        cwd=home,
        env={**os.environ, "MLFLOW_TRACKING_URI": address},
        capture_output=True,
        text=True,
        check=False,
    )


def test_mlflow_gives_back_what_it_was_sent_and_nothing_twice(home: Path, tmp_path: Path) -> None:
    """Figures with limits, settings, files; sent again it is found; half done it is gone on with."""
    with mlflow_server(tmp_path) as address:
        for _ in range(2):
            done = export_to(home, address)
            assert done.returncode == 0, done.stderr
        told = read_back("mlflow", "pattern", MLFLOW_TRACKING_URI=address)
        runs = {each["name"]: each for each in told}
        summary = json.loads((home / "run/summary.json").read_text("utf-8"))
        count = 1 + len(summary["defenses"])
        assert len(told) == len(runs) == count, "one for the run, one for each defense"
        _require_figures(home, runs)
        assert {"summary.json", "report.html"} <= set(runs["built-in"]["files"])
        assert runs["pattern"]["files"] == ["pattern.card.json"]
        assert runs["pattern"]["tags"]["mlflow.parentRunId"] == runs["built-in"]["id"]
        assert {each["status"] for each in told} == {"FINISHED"}
        # `pattern` was begun anew and not finished: the next export goes on with it.
        assert export_to(home, address).returncode == 0
        again = {each["name"]: each for each in read_back("mlflow", MLFLOW_TRACKING_URI=address)}
        assert len(again) == count
        assert again["pattern"]["status"] == "FINISHED"
        assert again["pattern"]["metrics"] == runs["pattern"]["metrics"]
        assert again["pattern"]["id"] != runs["pattern"]["id"]
    gone = export_to(home, address)
    assert gone.returncode == 4
    assert "Nothing is lost" in gone.stderr


def _require_figures(home: Path, runs: dict[str, Any]) -> None:
    """Demand that every defense has its figures with limits, as the summary has them."""
    summary = json.loads((home / "run/summary.json").read_text("utf-8"))
    for defense in summary["defenses"]:
        metrics = runs[defense["name"]]["metrics"]
        for name in ("attack_success_rate", "false_positive_rate"):
            rate = defense["rates"][name]
            for ending, key in (("", "value"), ("_low", "low"), ("_high", "high")):
                assert metrics[f"{name}{ending}"] == pytest.approx(rate[key], abs=1e-12)
            assert metrics[f"{name}_trials"] == rate["trials"]
