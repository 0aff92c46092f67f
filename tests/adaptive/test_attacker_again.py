"""Round 5 again: at any concurrency, after an interruption, from a trace, and never mixed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.adaptive.attacking import (
    OPEN,
    PROSE,
    REFUSAL,
    Seat,
    Table,
    attacks,
    closed,
    plan_of,
    said,
)
from tests.adaptive.planted import Later, attack, cards, trace

from guardmark.adaptive.asker import stored_tries
from guardmark.adaptive.campaign import check_settings
from guardmark.app.results.try_trace import read_trace
from guardmark.core.errors import IncomparableRuns
from guardmark.engine.supervision import StopSignal
from guardmark.store.reader import RecordReader

MIXED: dict[str, list[object]] = {
    "p": [said("a", "b"), PROSE, said(f"{OPEN} c")],
    "q": [REFUSAL, said("a", "a", strategy="scene"), said("d", "e")],
    "r": [PROSE],
    "s": [said("elsewhere", "b"), (400, "down"), said(f"{OPEN} f")],
}


def strict_judge(first: str, second: str) -> object:
    """Say no to one text, and yes to all others."""
    return {"reason": "", "same": "elsewhere" not in first + second}


async def test_any_concurrency_gives_the_same_bytes(tmp_path: Path, seat: Seat) -> None:
    """Concurrency 1, 8 and 64 write the same trace, models included."""
    written = set()
    for concurrency in (1, 8, 64):
        folder = tmp_path / str(concurrency)
        folder.mkdir()
        models = await seat(Table(dict(MIXED), strict_judge))
        plan = plan_of(
            models, defense=Later("d", closed), streams=2, budget=32, concurrency=concurrency
        )
        await attack(folder, attacks("p", "q", "r", "s"), plan)
        written.add(trace(folder, "d"))
    assert len(written) == 1
    assert '"arm":"adaptive/attacker"' in next(iter(written))


async def test_an_interrupted_round_asks_nothing_twice(tmp_path: Path, seat: Seat) -> None:
    """Stored replies are not asked for again, and the trace is that of one go."""

    class Stopping(Table):
        async def respond(self, request: Any) -> Any:
            if len(self.bodies) == 9:
                stop.set("SIGINT")
            return await super().respond(request)

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    data = attacks("p", "q", "r", "s")
    at_once = Table(dict(MIXED), strict_judge)
    models = await seat(at_once)
    await attack(whole, data, plan_of(models))
    stop = StopSignal()
    table = Stopping(dict(MIXED), strict_judge)
    models = await seat(table)
    first = await attack(parts, data, plan_of(models, concurrency=2), stop=stop)
    assert first.is_interrupted
    with RecordReader(parts / "records.sqlite") as reader:
        earlier = stored_tries(reader)
    await attack(parts, data, plan_of(models), earlier=earlier)
    assert trace(parts, "d") == trace(whole, "d")
    assert len(table.bodies) == len(at_once.bodies)


async def test_a_trace_is_replayed_with_the_words_of_the_models(tmp_path: Path, seat: Seat) -> None:
    """The defense is not asked; figures and bytes come back."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    data = attacks("p", "q", "r", "s")
    models = await seat(Table(dict(MIXED), strict_judge))
    await attack(first, data, plan_of(models))
    (tmp_path / "trace.jsonl").write_text(trace(first, "d"), encoding="utf-8")
    models = await seat(Table(dict(MIXED), strict_judge))
    silent = Later("d", closed)
    plan = plan_of(models, defense=silent)
    positions = {sample.id: place for place, sample in enumerate(data)}
    answers = read_trace(tmp_path / "trace.jsonl", settings=plan.settings, positions=positions)
    await attack(second, data, plan_of(models, defense=silent, trace=answers))
    assert silent.calls == 0
    assert trace(second, "d") == trace(first, "d")
    (one,), (two,) = cards(first), cards(second)
    assert (two.rounds, two.arms, two.attacker) == (one.rounds, one.arms, one.attacker)


async def test_another_model_is_not_mixed_in(tmp_path: Path, seat: Seat) -> None:
    """Neither another attacker model nor none at all may continue these tries."""
    models = await seat(Table({"x": [PROSE]}))
    plan = plan_of(models)
    await attack(tmp_path, attacks("x"), plan)
    assert plan.attacker is not None
    other = replace(plan.attacker, identity={**plan.attacker.identity, "model": "chat other"})
    with RecordReader(tmp_path / "records.sqlite") as reader:
        check_settings(plan, reader)
        with pytest.raises(IncomparableRuns, match="attacker"):
            check_settings(replace(plan, attacker=other), reader)
        with pytest.raises(IncomparableRuns, match="lock"):
            check_settings(replace(plan, attacker=None), reader)
