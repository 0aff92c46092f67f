"""Traces that are not what they should be: refused by their first wrong line, never half read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.adaptive.attacking import Seat, Table, attacks, closed, plan_of, said
from tests.adaptive.planted import AtOnce, attack, trace

from guardmark.app.results.try_trace import read_target_trace, read_trace
from guardmark.core.errors import IncomparableRuns, StoreError
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome, ScoreKind
from guardmark.core.sample import Prompt

HEAD = {
    "kind": "guardmark adaptive trace",
    "version": 1,
    "defenses": ["d"],
    "settings": {"seed": 7},
}
ROW = {
    "defense": "d",
    "arm": "adaptive",
    "try": 1,
    "sample": "a1",
    "account": "search",
    "round": "R1",
    "chain": None,
    "tier": None,
    "text": "0" * 16,
    "free": False,
    "outcome": "block",
    "score": None,
    "error": None,
}


def read(folder: Path, *lines: object, settings: dict[str, object] | None = None) -> list[Any]:
    """Write lines and read them as a trace of a run with one sample."""
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    found = read_trace(path, settings=settings or {"seed": 7}, positions={"a1": 3})
    return list(found.values())


def test_a_row_is_read_as_it_was_written(tmp_path: Path) -> None:
    """With what a blocker said, that it failed, and details that only its round knows."""
    told = {**ROW, "try": 2, "reason": "a rule", "score": 0.5, "score_kind": "class_prob"}
    failed = {**ROW, "try": 3, "round": "R0", "outcome": "error", "error": "timeout", "guess": 4}
    first, second, third = read(
        tmp_path, HEAD, {**ROW, "complaint": True}, told, failed, {**ROW, "arm": "target/model"}
    )
    assert first.evidence.message
    assert (first.sample, first.number, first.score_kind) == (3, 1, ScoreKind.NONE)
    assert (second.evidence.reason, second.score) == ("a rule", 0.5)
    assert second.score_kind is ScoreKind.CLASS_PROB
    assert (third.error_kind, third.subject.details) == (ErrorKind.TIMEOUT, {"guess": 4})
    assert third.evidence is None


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "its first line is not that of a trace"),
        ([[]], "its first line is not that of a trace"),
        ([{**HEAD, "version": 2}], "it is not of version 1"),
        ([{**HEAD, "kind": "something else"}], "it is not of version 1"),
    ],
)
def test_a_file_that_is_no_trace_says_which_one_is(
    tmp_path: Path, lines: list[object], said: str
) -> None:
    """By its first line, before any row is looked at."""
    with pytest.raises(StoreError, match=said) as refused:
        read(tmp_path, *lines)
    assert "name a trace.jsonl that guardmark adapt wrote" in str(refused.value)


@pytest.mark.parametrize(
    "row",
    [
        {**ROW, "defense": "e"},
        {**ROW, "sample": "another"},
        {**ROW, "outcome": "maybe"},
        {**ROW, "error": "bad luck"},
        {name: value for name, value in ROW.items() if name != "tier"},
        7,
    ],
    ids=["defense", "sample", "outcome", "error", "lacks tier", "no row"],
)
def test_a_row_that_is_not_of_this_run_refuses_the_whole_trace(tmp_path: Path, row: object) -> None:
    """A trace that was read in part would be another measurement."""
    assert len(read(tmp_path, HEAD, ROW)) == 1
    with pytest.raises(IncomparableRuns, match="this run has not, or a damaged line"):
        read(tmp_path, HEAD, ROW, row)


def test_a_trace_with_other_settings_names_them(tmp_path: Path) -> None:
    """A budget or seed of its own asks for other texts."""
    with pytest.raises(IncomparableRuns, match="was made with another seed, budget"):
        read(tmp_path, HEAD, ROW, settings={"seed": 8, "budget": 16})


@pytest.mark.parametrize("lines", [[], [{"arm": "target"}], [[]]])
def test_answers_of_a_target_model_begin_with_who_it_is(
    tmp_path: Path, lines: list[object]
) -> None:
    """A file that does not say so is none."""
    path = tmp_path / "target.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    with pytest.raises(StoreError, match="its first line names no target model"):
        read_target_trace(path, settings={}, positions={})


class Talker(AtOnce):
    """Says why it blocks."""

    def decide(self, prompt: Prompt) -> Decision:
        """Apply the rule."""
        decision = super().decide(prompt)
        is_allowed = decision.outcome is Outcome.ALLOW
        return decision if is_allowed else replace(decision, evidence=Evidence(reason="a list"))


async def test_why_a_blocker_blocked_is_in_the_trace_where_an_attacker_model_was_told(
    tmp_path: Path, seat: Seat
) -> None:
    """A replay has to tell it again; the rounds before ask nobody who would read it."""
    models = await seat(Table({"h1": [said("no", "nope")]}))
    plan = plan_of(models, defense=Talker("d", closed))
    await attack(tmp_path, attacks("h1"), plan)
    rows = [json.loads(line) for line in trace(tmp_path, "d").splitlines()[1:]]
    told = [row for row in rows if row["arm"] == "adaptive" and row["round"] == "R5"]
    assert told
    assert {row.get("reason") for row in told} == {"a list"}
    assert not any("reason" in row for row in rows if row["round"] != "R5")
    path = tmp_path / "trace.jsonl"
    path.write_text(trace(tmp_path, "d"), encoding="utf-8")
    kept = read_trace(path, settings=plan.settings, positions={"h1": 0, "soup": 1}).values()
    found = [each for each in kept if each.evidence is not None]
    assert {each.evidence.reason for each in found} == {"a list"}
    assert len(found) == len(told)
