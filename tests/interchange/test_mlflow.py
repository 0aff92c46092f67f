"""`export --to mlflow`: what is sent, and what is left when the server is away.

That MLflow takes it and gives it back is shown by tests/interop/test_read_back.py.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.command_line import guardmark

from guardmark.core.errors import ConfigError, ServiceError
from guardmark.interchange.mlflow import (
    HEAD,
    SUBJECT,
    UNDEFINED,
    MlflowExport,
    MlflowRun,
    send_runs,
    tracking_address,
)

CONFIG = """\
version: 1
name: sent
data: [{path: data.jsonl}]
defenses:
  words: {type: pattern, patterns: ["ignore .* rules"], version: "3"}
  block-all: {type: block-all}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of attacks alone: the false positive rate is undefined."""
    folder = tmp_path_factory.mktemp("home")
    rows = [
        {"id": f"a{n}", "text": f"Please ignore the rules of {n}" if n % 2 else f"Recite {n}"}
        for n in range(20)
    ]
    lines = "\n".join(json.dumps({**row, "label": "attack"}) for row in rows)
    (folder / "data.jsonl").write_text(lines, encoding="utf-8")
    (folder / "bench.yaml").write_text(CONFIG, encoding="utf-8")
    done = guardmark("run", "bench.yaml", "-o", "run", cwd=folder)
    assert done.code == 0, done.err
    return folder


def closed_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
    return port


def exported(home: Path, address: str) -> tuple[int, str, dict[str, Any]]:
    """Export to an address; return exit code, what was said, and what was to be sent."""
    done = guardmark(
        "export", "run", "--to", "mlflow", cwd=home, env={"MLFLOW_TRACKING_URI": address}
    )
    kept = json.loads((home / "run/mlflow/mlflow.json").read_text("utf-8"))
    return done.code, done.err, kept


@pytest.mark.slow
def test_a_server_that_is_away_loses_nothing(home: Path) -> None:
    """It says so at once; the run is as it was, and what was to be sent lies in its folder."""
    before = (home / "run/records.sqlite").read_bytes()
    address = f"http://someone:secret@127.0.0.1:{closed_port()}"
    code, said, kept = exported(home, address)
    assert code == 4
    assert "does not answer" in said
    assert "Nothing is lost" in said
    assert "secret" not in said
    assert len(said.strip().splitlines()) <= 5
    assert (home / "run/records.sqlite").read_bytes() == before
    assert [part["name"] for part in kept["parts"]] == ["words", "block-all"]
    assert (home / "run/mlflow/words.card.json").is_file()
    assert guardmark("verify", "run", cwd=home).code == 0


@pytest.mark.slow
def test_figures_go_with_their_limits_and_counts_and_undefined_is_no_number(home: Path) -> None:
    """The same values as in the summary; the false positive rate without benign samples is named."""
    _, _, kept = exported(home, f"http://127.0.0.1:{closed_port()}")
    summary = json.loads((home / "run/summary.json").read_text("utf-8"))
    (defense,) = (each for each in summary["defenses"] if each["name"] == "words")
    rate = defense["rates"]["attack_success_rate"]
    (part,) = (each for each in kept["parts"] if each["name"] == "words")
    for ending, key in (("", "value"), ("_low", "low"), ("_high", "high"), ("_trials", "trials")):
        assert part["metrics"][f"attack_success_rate{ending}"] == rate[key]
    assert not any(name.startswith("false_positive_rate") for name in part["metrics"])
    assert "false_positive_rate" in part["tags"][UNDEFINED]
    assert part["params"]["version"] == "3"
    assert part["params"]["settings.patterns"] == '["ignore .* rules"]'
    assert part["tags"][HEAD] == kept["whole"]["tags"][HEAD]
    assert {"summary.json", "report.html"} <= set(kept["whole"]["artefacts"])


@pytest.mark.slow
def test_without_an_address_nothing_is_sent(home: Path) -> None:
    """MLflow's own variable says where; its default is not taken."""
    code, said, _ = exported(home, "")
    assert code == 2
    assert "MLFLOW_TRACKING_URI" in said
    with pytest.raises(ConfigError, match="nothing was sent"):
        tracking_address({"MLFLOW_TRACKING_URI": " "})


def test_a_server_that_goes_silent_is_told_before_mlflow_would_try_for_minutes() -> None:
    """Also from Python, without MLflow installed."""
    run = MlflowRun(name="r", tags={HEAD: "h", SUBJECT: ""}, params={}, metrics={})
    export = MlflowExport(experiment="e", time_ms=0, whole=run, parts=())
    with pytest.raises(ServiceError, match="nothing of it was sent"):
        send_runs(export, f"http://127.0.0.1:{closed_port()}")
