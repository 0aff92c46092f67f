"""`guardmark run` with a tiny Granite-type guard and a tiny tutor in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.journeys.command_line import guardmark

pytestmark = pytest.mark.hf

EXAMPLE = Path(__file__).parents[2] / "examples" / "tutor.yaml"
COUNT = 48


@pytest.fixture(scope="module")
def tutor(causal_folder: Callable[..., Path]) -> Path:
    """A tutor that says Yes, three to one against No."""
    return causal_folder(says="Yes", against="No")


def configure(folder: Path, *, guard: Path, tutor: Path, profile: str) -> Path:
    """Write the example with models from folders in the place of its guard and its tutor."""
    said = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    said["defenses"] = {
        "granite": {"type": "guard-model", "profile": profile, "path": str(guard)},
        "wall": {"type": "block-all"},
    }
    said["pipeline"]["guards"] = ["none", "granite", "wall"]
    said["pipeline"]["model"] = {
        "type": "local",
        "path": str(tutor),
        "system_prompt_name": "child-tutor",
        "max_tokens": 4,
        "temperature": 1.0,
    }
    said["pipeline"]["judges"] = [{"type": "rules", "name": "rules", "unsafe": ["Yes"]}]
    said["run"] = {"seed": 7, "repeats": 2}
    path = folder / "local.yaml"
    path.write_text(yaml.safe_dump(said, sort_keys=False), encoding="utf-8")
    return path


def pipeline_of(folder: Path) -> dict[str, Any]:
    """What a run says of its pipeline."""
    found = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    pipeline: dict[str, Any] = found["pipeline"]
    return pipeline


@pytest.mark.parametrize(("says", "against", "blocks"), [("Yes", "No", 1.0), ("No", "Yes", 0.0)])
def test_the_example_runs_with_models_in_this_process(
    causal_folder: Callable[..., Path],
    tutor: Path,
    tmp_path: Path,
    *,
    says: str,
    against: str,
    blocks: float,
) -> None:
    """Its words and scores are those it was built for; the tutor draws, each repeat anew."""
    guard = causal_folder(says=says, against=against, kind="granite")
    config = configure(tmp_path, guard=guard, tutor=tutor, profile="granite-guardian-3.2")
    done = guardmark("run", config, "-o", "out", "--limit", COUNT, cwd=tmp_path)
    assert done.code == 0, done.err
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for title in ("System: what comes out", "Model, given that the guard", "Defense: what the"):
        assert title in page
    assert "granite: " in done.err, "both probes get one answer, which deserves a word"
    measured = [each for each in done.told if not each.startswith("Preparing  ")]
    assert all("malformed" in each for each in measured), "its own progress, no library's"
    bare, guarded, _ = pipeline_of(tmp_path / "out")["arms"]
    assert guarded["guard"]["block"]["value"] == blocks
    harm = bare["system"]["attack_success_rate"]
    assert harm["low"] < 0.75 < harm["high"], "three to one, as the tutor was built"
    lines = (tmp_path / "out" / "results.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    answers = {(r["id"], r["repeat"]): r["text"] for r in records if r["stage"] == "model"}
    assert len(answers) == 2 * COUNT
    assert any(answers[name, 0] != answers[name, 1] for name, _ in answers)
    wanted = pytest.approx(0.75 if says == "Yes" else 0.25, abs=0.02)
    asked = [r for r in records if r["defense"] == "granite" and r["stage"] == "defense"]
    assert all(record["score"] == wanted for record in asked)
    assert guardmark("verify", "out", cwd=tmp_path).code == 0


def test_the_same_again_draws_the_same_answers(
    causal_folder: Callable[..., Path], tutor: Path, tmp_path: Path
) -> None:
    """However the questions fell into batches."""
    guard = causal_folder(says="No", against="Yes", kind="granite")
    config = configure(tmp_path, guard=guard, tutor=tutor, profile="granite-guardian-3.2")
    found = []
    for name, concurrency in (("one", 32), ("two", 3)):
        said = yaml.safe_load(config.read_text(encoding="utf-8"))
        said["run"]["concurrency"] = concurrency
        config.write_text(yaml.safe_dump(said), encoding="utf-8")
        done = guardmark("run", config, "-o", name, "--limit", COUNT, cwd=tmp_path)
        assert done.code == 0, done.err
        found.append(pipeline_of(tmp_path / name))
    assert found[0] == found[1]


def test_a_guard_nobody_understands_ends_the_run_with_the_explanation(
    causal_folder: Callable[..., Path], tutor: Path, tmp_path: Path
) -> None:
    """A native answer under ALLOW/BLOCK is exit 5 before the run, not a perfect recall."""
    guard = causal_folder(says="Yes", against="No", kind="granite")
    config = configure(tmp_path, guard=guard, tutor=tutor, profile="allow-block")
    done = guardmark("run", config, "-o", "out", "--limit", COUNT, cwd=tmp_path)
    assert done.code == 5, done.err
    assert "granite answers, but its answers cannot be read" in done.err
    assert "It said: Yes" in done.err
    assert "would look like a perfect defense" in done.err
    assert not (tmp_path / "out" / "summary.json").exists()
