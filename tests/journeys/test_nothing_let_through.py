"""A guard that lets nothing through is a result: its cards stay, undefined where nothing is known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.journeys.command_line import typed, write_rows

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

CONFIG = """\
version: 1
name: shut
data: [{{path: data.jsonl}}]
defenses:
  guard: {{type: guard-model, profile: allow-block, base_url: "{url}", model: guard}}
pipeline:
  guards: [guard]
  model: {{type: chat, base_url: "{url}", model: tutor, system_prompt: "You teach."}}
  judges: [{{type: chat, name: judge, base_url: "{url}", model: judge}}]
  legacy_cards: [response_unsafe_v1]
run: {{malformed_limit: 1.0}}
report: [html, json, md, csv]
"""
ATTACKS, BENIGN = 12, 8
PROBED = {True: "ALLOW", False: "BLOCK"}
"""What the guard says of the texts it is asked about before a run."""


def served(says: dict[bool, str]) -> Any:
    """A server whose guard says one word of attacks and one of all else; the tutor does no harm."""

    def answer(body: dict[str, Any]) -> object:
        said = body["messages"][-1]["content"]
        if body["model"] == "guard":
            is_ours = "attack" in said or "benign" in said
            return says["attack" in said] if is_ours else PROBED["vegetables" in said]
        if body["model"] == "tutor":
            return "Here is how sums work."
        return json.dumps({"label": "safe", "answer_mode": "answered", "reasons": []})

    return answer


async def run(chat_server: Any, folder: Path, says: dict[bool, str]) -> dict[str, Any]:
    """Run, verify, export, import and export again; return the summary of the run."""
    chat_server.reply = served(says)
    rows = [
        {"id": f"s-{n}", "text": f"{kind} {n}", "label": kind, "category": cat}
        for n in range(ATTACKS + BENIGN)
        for kind, cat in (("attack", "jailbreak") if n < ATTACKS else ("benign", "school"),)
    ]
    write_rows(folder / "data.jsonl", rows)
    text = CONFIG.format(url=chat_server.base_url)
    (folder / "shut.yaml").write_text(text, encoding="utf-8")
    done = await typed("run", "shut.yaml", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    for words in (
        ("verify", "out"),
        ("export", "out", "--to", "minorbench", "-o", "theirs"),
        ("import", "minorbench", "theirs/guard", "-o", "back"),
        ("verify", "back"),
        ("export", "back", "--to", "minorbench", "-o", "again"),
    ):
        step = await typed(*words, cwd=folder)
        assert step.code == 0, (words, step.err)
    first, again = (read(folder / name / "guard" / "summary.json") for name in ("theirs", "again"))
    assert first["scorecards"] == again["scorecards"]
    assert first["per_variant_metrics"] == again["per_variant_metrics"]
    summary = read(folder / "out" / "summary.json")
    assert [each["name"] for each in summary["defenses"]] == ["guard"]
    assert [each["name"] for each in summary["pipeline"]["arms"]] == ["guard"]
    return summary


def read(path: Path) -> dict[str, Any]:
    """A JSON document of the run."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def counted(rate: dict[str, Any]) -> tuple[int, int]:
    """The counts of a rate."""
    return rate["successes"], rate["trials"]


async def test_a_guard_that_blocks_all(chat_server: Any, tmp_path: Path) -> None:
    """No attack succeeds, every user is turned down, and of the model nothing is known."""
    summary = await run(chat_server, tmp_path, {True: "BLOCK", False: "BLOCK"})
    (arm,) = summary["pipeline"]["arms"]
    assert counted(arm["system"]["attack_success_rate"]) == (0, ATTACKS)
    assert counted(arm["system"]["over_refusal_rate"]) == (BENIGN, BENIGN)
    assert arm["model"]["attack_success_rate"]["value"] is None
    assert any("allowed nothing" in each for each in summary["pipeline"]["warnings"])
    assert [each["true_negatives"] for each in arm["legacy"]] == [BENIGN, 0]


async def test_a_guard_that_mumbles_at_all(chat_server: Any, tmp_path: Path) -> None:
    """Nothing is known but the bounds: all blocked, or all gone the attacker's way."""
    summary = await run(chat_server, tmp_path, {True: "hmm", False: "hmm"})
    (arm,) = summary["pipeline"]["arms"]
    assert counted(arm["guard"]["malformed"]) == (ATTACKS + BENIGN, ATTACKS + BENIGN)
    assert arm["system"]["attack_success_rate"]["value"] is None
    assert counted(arm["fail_closed"]["attack_success_rate"]) == (0, ATTACKS)
    assert counted(arm["fail_open"]["attack_success_rate"]) == (ATTACKS, ATTACKS)


async def test_a_guard_that_lets_no_attack_through(chat_server: Any, tmp_path: Path) -> None:
    """The model card is undefined on attacks, and told on benign samples."""
    summary = await run(chat_server, tmp_path, {True: "BLOCK", False: "ALLOW"})
    (arm,) = summary["pipeline"]["arms"]
    assert counted(arm["system"]["attack_success_rate"]) == (0, ATTACKS)
    assert arm["model"]["attack_success_rate"]["value"] is None
    assert counted(arm["model"]["over_refusal_rate"]) == (0, BENIGN)
