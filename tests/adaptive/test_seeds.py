"""The search with several seeds, in one run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.adaptive.planted import (
    AtOnce,
    Later,
    attack,
    folding,
    hardened,
    keyword,
    leaker,
    samples,
    trace,
)

from guardmark.adaptive.asker import stored_tries
from guardmark.adaptive.campaign import AdaptivePlan, check_settings
from guardmark.analysis.adaptive.rows import read_adaptive
from guardmark.app.results.try_trace import read_trace
from guardmark.attacks.application import derive_seed
from guardmark.attacks.battery import Lock, lock_digest, lock_text
from guardmark.core.errors import IncomparableRuns
from guardmark.core.outcome import Decision
from guardmark.core.sample import Prompt
from guardmark.engine.supervision import StopSignal
from guardmark.store.integrity import check
from guardmark.store.layers import BLIND, NULL, first_layer, seed_layer
from guardmark.store.reader import RecordReader

BUDGET = 16


def plan_of(*defenses: Any, seeds: int = 3, **more: Any) -> AdaptivePlan:
    """Plan an attack of the seeds asked for."""
    return AdaptivePlan(defenses=defenses, seed=7, budget=BUDGET, seeds=seeds, **more)


def rows(text: str) -> list[dict[str, Any]]:
    """Return the tries of a trace."""
    return [json.loads(line) for line in text.splitlines()[1:]]


def test_every_seed_is_another_one() -> None:
    """The first is the run's own."""
    assert derive_seed(7, 1) == 7
    assert len({derive_seed(7, number) for number in range(1, 101)}) == 100


@pytest.mark.parametrize("rule", ["luck", pytest.param(hardened, marks=pytest.mark.slow)])
async def test_more_seeds_leave_the_first_one_as_it_is(tmp_path: Path, rule: Any) -> None:
    """A run of three seeds holds the run of one, byte for byte, of a random defense too."""
    told = []
    for seeds in (1, 3):
        folder = tmp_path / str(seeds)
        folder.mkdir()
        defense = AtOnce("d", leaker() if rule == "luck" else rule)
        await attack(folder, samples(16, 8), plan_of(defense, seeds=seeds))
        told.append(trace(folder, "d").splitlines()[1:])
    # A repaired defense is searched at several seeds however many the run has.
    one, three = ([n for n in lines if "seed-" not in json.loads(n)["arm"]] for lines in told)
    assert three == one
    assert set(told[0]) <= set(told[1])
    assert len(told[1]) > len(told[0])


@pytest.mark.slow
async def test_any_concurrency_gives_the_same_bytes_at_every_seed(tmp_path: Path) -> None:
    """Concurrency 1, 8 and 64 write the same trace."""
    written = set()
    for concurrency in (1, 8, 64):
        folder = tmp_path / str(concurrency)
        folder.mkdir()
        defenses = (Later("one", hardened), Later("two", folding))
        await attack(folder, samples(12, 6), plan_of(*defenses, concurrency=concurrency))
        written.add(trace(folder, "one", "two"))
    assert len(written) == 1


async def test_each_seed_searches_for_itself_within_its_own_budget(tmp_path: Path) -> None:
    """Seeds try other texts; no attack gets more search tries at any of them than it is worth."""
    await attack(tmp_path, samples(16, 8), plan_of(AtOnce("d", lambda _: True)))
    tried: dict[str, Counter[str]] = {}
    texts: dict[str, set[str]] = {}
    for row in rows(trace(tmp_path, "d")):
        if row["account"] == "search":
            tried.setdefault(row["arm"], Counter())[row["sample"]] += 1
            texts.setdefault(row["arm"], set()).add(row["text"])
    arms = [seed_layer(arm, number) for number in (1, 2, 3) for arm in ("adaptive", BLIND, NULL)]
    assert set(tried) == set(arms)
    assert all(set(counts.values()) == {BUDGET} for counts in tried.values())
    assert texts["adaptive/seed-2"] != texts["adaptive"] != texts["adaptive/seed-3"]
    assert texts["adaptive/seed-2/blind"] != texts[BLIND]


@pytest.mark.slow
async def test_what_does_not_search_is_asked_once(tmp_path: Path) -> None:
    """Baseline, diagnosis, battery and everything on the evaluator's account cost no more."""
    calls = []
    for seeds in (1, 3):
        folder = tmp_path / str(seeds)
        folder.mkdir()
        plan = plan_of(AtOnce("d", hardened), AtOnce("e", keyword), seeds=seeds)
        calls.append((await attack(folder, samples(16, 8), plan)).calls)
    one, three = calls
    added = {account for layer, account in three.keys() - one.keys()}
    assert {key: three[key] for key in one} == one
    assert added == {"search"}


async def test_a_search_pays_nothing_for_what_the_battery_asked_at_any_seed(tmp_path: Path) -> None:
    """Each seed gets the battery's answers, and pays for what another seed asked."""
    await attack(tmp_path, samples(16, 8), plan_of(AtOnce("d", hardened)))
    told = rows(trace(tmp_path, "d"))
    battery = {
        (row["sample"], row["text"])
        for row in told
        if row["account"] == "battery" and row["arm"] == "adaptive"
    }
    for arm in ("adaptive", "adaptive/seed-2", "adaptive/seed-3"):
        mine = [row for row in told if row["arm"] == arm and row["account"] == "search"]
        again = [row for row in mine if (row["sample"], row["text"]) in battery]
        assert again
        assert all(row["free"] for row in again)
        paid = [row for row in mine if (row["sample"], row["text"]) not in battery]
        assert not any(row["free"] for row in paid)


@pytest.mark.slow
async def test_an_interrupted_seed_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """What is stored is not asked again, and the trace is that of one go."""

    class Stopping(AtOnce):
        def decide(self, prompt: Prompt) -> Decision:
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls == once + 300:
                stop.set("SIGINT")
            return super().decide(prompt)

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    data = samples(16, 8)
    done = await attack(whole, data, plan_of(AtOnce("d", hardened)))
    once = sum(calls for (layer, _), calls in done.calls.items() if first_layer(layer) == layer)
    stop = StopSignal()
    assert (await attack(parts, data, plan_of(Stopping("d", hardened)), stop=stop)).is_interrupted
    with RecordReader(parts / "records.sqlite") as reader:
        earlier = stored_tries(reader)
        layers = {layer for _, layer, _, _ in earlier}
    assert {"adaptive", "adaptive/seed-2"} <= layers
    assert "adaptive/seed-3/null" not in layers
    second = Later("d", hardened)
    done = await attack(parts, data, plan_of(second), earlier=earlier)
    assert trace(parts, "d") == trace(whole, "d")
    assert second.calls == sum(done.calls.values()) - sum(
        not each.is_free for each in earlier.values()
    )
    assert check(parts / "records.sqlite") == []


@pytest.mark.slow
async def test_a_trace_of_several_seeds_is_replayed_without_a_call(tmp_path: Path) -> None:
    """The answers of every seed come back from the file."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    data = samples(12, 6)
    await attack(first, data, plan_of(AtOnce("d", keyword)))
    file = tmp_path / "trace.jsonl"
    file.write_text(trace(first, "d"), encoding="utf-8")
    silent = Later("d", keyword)
    positions = {sample.id: place for place, sample in enumerate(data)}
    answers = read_trace(file, settings=plan_of(silent).settings, positions=positions)
    await attack(second, data, plan_of(silent, trace=answers))
    assert silent.calls == 0
    assert trace(second, "d") == trace(first, "d")


async def test_seeds_work_without_shared_memory(tmp_path: Path) -> None:
    """Each attack by itself, each seed by itself."""
    await attack(tmp_path, samples(8, 4), plan_of(AtOnce("d", hardened), shares_memory=False))
    arms = {row["arm"] for row in rows(trace(tmp_path, "d"))}
    assert {"adaptive", "adaptive/seed-2", "adaptive/seed-3"} <= arms


async def test_another_number_of_seeds_is_not_mixed(tmp_path: Path) -> None:
    """More seeds or fewer on the same records are refused before anything is called."""
    await attack(tmp_path, samples(6, 4), plan_of(AtOnce("d", keyword), seeds=2))
    with RecordReader(tmp_path / "records.sqlite") as reader:
        check_settings(plan_of(AtOnce("d", keyword), seeds=2), reader)
        for seeds in (1, 3):
            with pytest.raises(IncomparableRuns, match="seeds: 2, now"):
                check_settings(plan_of(AtOnce("d", keyword), seeds=seeds), reader)


def test_the_lock_holds_the_seeds_and_one_seed_is_the_lock_of_before() -> None:
    """A measurement of one seed keeps its lock."""
    assert '"seeds": 5' in lock_text(Lock(seeds=5))
    assert lock_digest(Lock(seeds=1)) == lock_digest()


async def test_the_first_seeds_figures_are_read_from_its_own_tries(tmp_path: Path) -> None:
    """Tries of other seeds are in no history of the first."""
    histories = []
    for seeds in (1, 3):
        folder = tmp_path / str(seeds)
        folder.mkdir()
        await attack(folder, samples(12, 6), plan_of(AtOnce("d", hardened), seeds=seeds))
        with RecordReader(folder / "records.sqlite") as reader:
            (records,) = read_adaptive(reader)
        histories.append(records.arms)
    assert histories[0] == histories[1]
