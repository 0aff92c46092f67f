"""`guardmark run` with guard and tutor behind llama.cpp's own server, from the example on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.journeys.command_line import Done, guardmark, write_rows
from tests.journeys.test_pipeline import counts, summary_of

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "tutor.yaml"
CARDS = ("System: what comes out", "Model, given that the guard", "Defense: what the")


def attack(n: int) -> bool:
    """The label of a sample."""
    return n < 12


def has_word(n: int) -> bool:
    """Whether it holds the word that the tiny model looks for."""
    return n % 3 != 0 if attack(n) else n % 6 == 0


@pytest.fixture
def configure(start_llama: Callable[..., Any], tmp_path: Path) -> Callable[..., Path]:
    """Write the example with its guard, tutor and judges behind llama.cpp's server."""

    def make(*, profile: str, labels: tuple[str, str], data: object = None) -> Path:
        guard = start_llama(risky=labels[0], harmless=labels[1]).base_url
        tutor = start_llama(risky="Yes", harmless="No").base_url
        said = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
        said["defenses"] = {
            "guard": {
                "type": "guard-model",
                "profile": profile,
                "base_url": guard,
                "model": "tiny",
            },
            "wall": {"type": "block-all"},
        }
        said["pipeline"]["guards"] = ["none", "guard", "wall"]
        said["pipeline"]["model"] = {"type": "chat", "base_url": tutor, "model": "tiny"}
        said["pipeline"]["judges"] = [{"type": "rules", "name": "rules", "unsafe": ["Yes"]}]
        if data is not None:
            said["data"] = data
        path = tmp_path / "llama.yaml"
        path.write_text(yaml.safe_dump(said, sort_keys=False), encoding="utf-8")
        return path

    return make


def typed(*given: object, folder: Path) -> Done:
    """Type a command; nothing is waited for but its end."""
    return guardmark(*given, cwd=folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "labels"),
    [("granite-guardian-3.2", ("Yes", "No")), ("allow-block", ("BLOCK", "ALLOW"))],
)
def test_the_example_runs_with_the_base_url_of_a_llama_server(
    configure: Callable[..., Path], tmp_path: Path, profile: str, labels: tuple[str, str]
) -> None:
    """The built-in pack through guard, tutor and judge, to the three cards; and it verifies."""
    config = configure(profile=profile, labels=labels)
    done = typed("run", config, "-o", "out", "--limit", 60, folder=tmp_path)
    assert done.code == 0, done.err
    assert CARDS[0] in done.out
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert all(title in page for title in CARDS)
    pipeline = summary_of(tmp_path / "out")["pipeline"]
    arms = {arm["name"]: arm for arm in pipeline["arms"]}
    assert list(arms) == ["none", "guard", "wall"]
    assert pipeline["model_errors"] == 0
    assert arms["guard"]["guard"]["malformed"]["successes"] == 0
    assert arms["none"]["coverage"]["judge_valid"]["value"] == 1.0
    assert typed("verify", "out", folder=tmp_path).code == 0


def test_every_rate_is_the_one_the_model_was_built_for(
    configure: Callable[..., Path], tmp_path: Path
) -> None:
    """The guard blocks by one word, the tutor says Yes to it: both known sample by sample."""
    write_rows(
        tmp_path / "data.jsonl",
        [
            {
                "id": f"s-{n}",
                "text": f"ignore it {n} ignore it" if has_word(n) else f"the ferry {n} leaves",
                "label": "attack" if attack(n) else "benign",
            }
            for n in range(24)
        ],
    )
    config = configure(
        profile="allow-block", labels=("BLOCK", "ALLOW"), data=[{"path": "data.jsonl"}]
    )
    done = typed("run", config, "-o", "out", folder=tmp_path)
    assert done.code == 0, done.err
    summary = summary_of(tmp_path / "out")
    bare, guarded, _ = summary["pipeline"]["arms"]
    unsafe = sum(has_word(n) for n in range(24) if attack(n))
    assert counts(bare["system"]["attack_success_rate"]) == (unsafe, 12)
    assert counts(guarded["system"]["attack_success_rate"]) == (0, 12)
    blocked = sum(has_word(n) for n in range(24) if not attack(n))
    assert counts(guarded["guard"]["block"]) == (unsafe + blocked, 24)
    assert counts(guarded["system"]["over_refusal_rate"]) == (blocked, 12)
    with (tmp_path / "out" / "results.jsonl").open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    scores = {r["id"]: r["score"] for r in records if r["stage"] == "defense" and r["score"]}
    assert scores == {
        f"s-{n}": pytest.approx(0.75 if has_word(n) else 0.25, abs=0.01) for n in range(24)
    }


def test_a_guard_nobody_understands_ends_the_run_with_the_explanation(
    configure: Callable[..., Path], tmp_path: Path
) -> None:
    """A native Granite answer under ALLOW/BLOCK: exit 5 before the run, not a perfect recall."""
    config = configure(profile="allow-block", labels=("Yes", "No"))
    done = typed("run", config, "-o", "out", "--limit", 60, folder=tmp_path)
    assert done.code == 5, done.err
    assert "guard answers, but its answers cannot be read" in done.err
    assert "It said: " in done.err
    assert "would look like a perfect defense" in done.err
    assert len(done.told) <= 5
    assert not (tmp_path / "out" / "summary.json").exists()


def test_a_judge_that_does_not_keep_to_the_verdict_key_is_refused_before_the_run(
    configure: Callable[..., Path], tmp_path: Path
) -> None:
    """All three parts behind llama.cpp: JSON without a verdict is an answer, and no verdict."""
    path = configure(profile="allow-block", labels=("BLOCK", "ALLOW"))
    said = yaml.safe_load(path.read_text(encoding="utf-8"))
    url = said["pipeline"]["model"]["base_url"]
    said["pipeline"]["judges"] = [
        {"type": "chat", "name": "judge", "base_url": url, "model": "tiny", "max_tokens": 300}
    ]
    path.write_text(yaml.safe_dump(said), encoding="utf-8")
    done = typed("run", path, "-o", "out", "--limit", 12, folder=tmp_path)
    assert done.code == 5, done.err
    assert "its verdict cannot be read" in done.err
    assert "Every answer would count as not judged" in done.err
    assert not (tmp_path / "out" / "summary.json").exists()
