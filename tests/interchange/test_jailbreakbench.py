"""Artifacts of JailbreakBench: written here in their layout, and the public ones where they lie."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from guardmark.app.results.reporting import finish
from guardmark.app.run.importing import import_run
from guardmark.app.verify.verification import verify
from guardmark.core.errors import DatasetError
from guardmark.core.outcome import VerdictLabel
from guardmark.interchange.imported import ImportedRun, Statements
from guardmark.interchange.importers import read_queried

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PUBLIC = Path(__file__).parents[3] / "shared" / "data" / "original" / "jbb_artifacts"


def jailbreak(index: int, *, broken: object, **changes: Any) -> dict[str, Any]:
    """One behaviour of an artifact."""
    found = {
        "index": index,
        "goal": "say kiwi",
        "behavior": f"Kiwi {index}",
        "category": "Fruit",
        "prompt": f"please say kiwi {index}",
        "response": "kiwi",
        "jailbroken": broken,
    }
    return found | changes


def write(folder: Path, *jailbreaks: dict[str, Any], **parameters: Any) -> Path:
    """Write an artifact."""
    said = {"method": "KIWI", "model": "tutor", "defense": None, **parameters}
    path = folder / "tutor.json"
    path.write_text(json.dumps({"parameters": said, "jailbreaks": list(jailbreaks)}), "utf-8")
    return path


def read(path: Path) -> ImportedRun:
    """Read an artifact; nothing has to be said of it."""
    return read_queried("jailbreakbench", path, Statements())


def test_verdicts_are_those_of_the_artifact(tmp_path: Path) -> None:
    """Jailbroken is unsafe; what is neither true nor false is no verdict."""
    run = read(
        write(
            tmp_path,
            jailbreak(1, broken=True),
            jailbreak(2, broken=False),
            jailbreak(3, broken=None),
        )
    )
    found = [row.answers[0].verdict for row in run.rows]
    assert [each and each.label for each in found] == [
        VerdictLabel.UNSAFE,
        VerdictLabel.SAFE,
        VerdictLabel.MALFORMED,
    ]
    assert [row.sample.lineage for row in run.rows] == ["behavior-1", "behavior-2", "behavior-3"]
    assert run.model == "tutor"


def test_a_defense_is_part_of_what_answered(tmp_path: Path) -> None:
    """Its decisions are not in the file, so it is no guard of its own."""
    run = read(write(tmp_path, jailbreak(1, broken=True), defense="SmoothLLM"))
    assert (run.model, run.guard) == ("tutor with SmoothLLM", "")


def test_behaviours_without_a_prompt_are_left_out_and_counted(tmp_path: Path) -> None:
    """Nothing was asked; the benchmark's own count is told beside."""
    silent = jailbreak(2, broken=False, prompt=None, response=None)
    run = read(write(tmp_path, jailbreak(1, broken=True), silent))
    assert len(run.rows) == 1
    assert "1 behavior without a prompt was left out" in run.warnings[0]
    assert run.warnings[1].endswith("which gives 1 of 2")


def test_a_response_that_is_missing_is_an_error(tmp_path: Path) -> None:
    """Not a refusal, and not safe."""
    (answer,) = read(write(tmp_path, jailbreak(1, broken=False, response=None))).rows[0].answers
    assert answer.response is not None
    assert (answer.response.text, answer.verdict) == (None, None)


@pytest.mark.parametrize("content", ["{}", '{"parameters": {"a": 1}}', "[]", "kiwi"])
def test_what_is_no_artifact_is_refused(tmp_path: Path, content: str) -> None:
    """With what to name instead, where that helps."""
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DatasetError):
        read(path)
    with pytest.raises(DatasetError, match="no jailbreak with a prompt"):
        read(write(tmp_path))


@pytest.mark.parametrize(
    ("name", "broken", "asked"),
    [
        ("DSN__white_box__vicuna-13b-v1.5", 92, 97),
        ("GCG__transfer__gpt-3.5-turbo-1106", 46, 97),
        ("JBC__manual__vicuna-13b-v1.5", 87, 97),
        ("PAIR__black_box__llama-2-7b-chat-hf", 0, 4),
        ("PAIR__black_box__vicuna-13b-v1.5", 66, 79),
    ],
)
def test_public_artifacts_are_scored_with_intervals(
    tmp_path: Path, name: str, broken: int, asked: int
) -> None:
    """Counts that were taken from the files by hand."""
    path = PUBLIC / f"{name}.json"
    if not path.exists():
        pytest.skip("the public artifacts are not here")
    found = import_run("jailbreakbench", path, now=NOW, out=tmp_path / "run")
    told = finish(found.folder, found.config, formats=["json"], texts=False)
    (arm,) = json.loads(told.summary_json)["pipeline"]["arms"]
    rate = arm["system"]["attack_success_rate"]
    assert (rate["successes"], rate["trials"]) == (broken, asked)
    assert rate["low"] <= broken / asked <= rate["high"]
    assert verify(found.folder.path, data=[PUBLIC]).holds
