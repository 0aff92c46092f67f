"""Attackers without shared memory: every attack is a unit of its own."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.adaptive.planted import (
    AtOnce,
    Later,
    attack,
    cards,
    hardened,
    keyword,
    lottery,
    samples,
    trace,
)

from guardmark.adaptive.asker import stored_tries
from guardmark.adaptive.campaign import AdaptivePlan, check_settings
from guardmark.app.results.try_trace import read_trace
from guardmark.attacks.battery import Lock, lock_differences, lock_text, require_lock
from guardmark.core.errors import IncomparableRuns
from guardmark.core.outcome import Decision
from guardmark.core.sample import Prompt, Sample
from guardmark.engine.supervision import StopSignal
from guardmark.reports.chapters.adaptive.attack_success import holding_sentence
from guardmark.reports.chapters.adaptive.chapter import threat_card
from guardmark.store.reader import RecordReader


def plan_of(rule: Callable[[str], bool], *, shared: bool, concurrency: int = 16) -> AdaptivePlan:
    """Plan an attack on one defense."""
    return AdaptivePlan(
        defenses=(Later("d", rule),),
        seed=7,
        budget=16,
        concurrency=concurrency,
        shares_memory=shared,
    )


async def tries_of(folder: Path, data: list[Sample], plan: AdaptivePlan) -> dict[str, list[object]]:
    """Attack, and return the search tries of each attack, in order."""
    await attack(folder, data, plan)
    found: defaultdict[str, list[object]] = defaultdict(list)
    for line in trace(folder, "d").splitlines()[1:]:
        row = json.loads(line)
        if row["arm"] == "adaptive" and row["account"] == "search":
            found[row["sample"]].append((row["round"], row["chain"], row["text"], row["outcome"]))
    return found


async def test_an_attack_is_searched_alike_in_any_company(tmp_path: Path) -> None:
    """Without the other half of the attacks, the tries of this half are the same, one by one."""
    data = samples(16, 4)
    half = [each for i, each in enumerate(data) if i % 2 == 0 or not each.is_attack]
    plan = plan_of(lottery, shared=False)
    for name in ("whole", "part"):
        (tmp_path / name).mkdir()
    whole = await tries_of(tmp_path / "whole", data, plan)
    part = await tries_of(tmp_path / "part", half, plan)
    assert part
    assert part == {sample: whole[sample] for sample in part}


async def test_with_memory_company_matters(tmp_path: Path) -> None:
    """The same comparison finds a difference where attacks learn from each other."""
    data = samples(16, 4)
    half = [each for i, each in enumerate(data) if i % 2 == 0 or not each.is_attack]
    plan = plan_of(lottery, shared=True)
    for name in ("whole", "part"):
        (tmp_path / name).mkdir()
    whole = await tries_of(tmp_path / "whole", data, plan)
    part = await tries_of(tmp_path / "part", half, plan)
    assert part != {sample: whole[sample] for sample in part}


async def test_it_is_said_what_was_shared(tmp_path: Path) -> None:
    """Threat model, headline and settings name it; no diagnosis is claimed or paid for."""
    await attack(tmp_path, samples(12, 4), plan_of(keyword, shared=False))
    (card,) = cards(tmp_path)
    told = dict(threat_card(card))
    assert told["Memory"].startswith("none")
    assert told["Knowledge"].startswith("K0")
    assert "not made" in told["Diagnosis"]
    assert "knowledge K0" in holding_sentence(card)
    assert card.settings["memory"] == "none"
    assert not any(account == "diagnosis" for _, account in card.calls)


async def test_any_concurrency_gives_the_same_bytes(tmp_path: Path) -> None:
    """Searches side by side do not disturb each other."""
    written = set()
    for concurrency in (1, 64):
        folder = tmp_path / str(concurrency)
        folder.mkdir()
        plan = plan_of(hardened, shared=False, concurrency=concurrency)
        await attack(folder, samples(10, 4), plan)
        written.add(trace(folder, "d"))
    assert len(written) == 1


async def test_an_interrupted_search_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Stored answers take the place of calls, as with memory."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    data, stop = samples(10, 4), StopSignal()

    class Stopping(AtOnce):
        calls = 0

        def decide(self, prompt: Prompt) -> Decision:
            self.calls += 1
            if self.calls == 600:
                stop.set("SIGINT")
            return super().decide(prompt)

    def plan(defense: object) -> AdaptivePlan:
        return AdaptivePlan(defenses=(defense,), seed=7, budget=16, shares_memory=False)  # type: ignore[arg-type]

    await attack(whole, data, plan(AtOnce("d", hardened)))
    assert (await attack(parts, data, plan(Stopping("d", hardened)), stop=stop)).is_interrupted
    with RecordReader(parts / "records.sqlite") as reader:
        earlier = stored_tries(reader)
    await attack(parts, data, plan(AtOnce("d", hardened)), earlier=earlier)
    assert trace(parts, "d") == trace(whole, "d")


async def test_tries_of_both_kinds_are_not_mixed(tmp_path: Path) -> None:
    """Neither on the same records nor in a replay."""
    data = samples(6, 4)
    await attack(tmp_path, data, plan_of(keyword, shared=False))
    (tmp_path / "trace.jsonl").write_text(trace(tmp_path, "d"), encoding="utf-8")
    other = plan_of(keyword, shared=True)
    with (
        RecordReader(tmp_path / "records.sqlite") as reader,
        pytest.raises(IncomparableRuns, match="memory: none, now shared"),
    ):
        check_settings(other, reader)
    positions = {sample.id: place for place, sample in enumerate(data)}
    with pytest.raises(IncomparableRuns, match="memory"):
        read_trace(tmp_path / "trace.jsonl", settings=other.settings, positions=positions)


def test_the_lock_says_what_is_remembered() -> None:
    """Locks of both kinds differ in that, and are refused for each other."""
    alone = Lock(shares_memory=False)
    assert lock_differences(lock_text(alone)) == ("search/memory",)
    with pytest.raises(IncomparableRuns, match="search/memory"):
        require_lock(lock_text(), alone)
