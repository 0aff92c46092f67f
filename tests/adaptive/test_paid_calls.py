"""A kill at any moment: what was asked is on disk, and only what has no answer is asked again."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.adaptive.planted import attack, cards, keyword, samples, trace

from guardmark.adaptive.asker import stored_tries
from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.core.outcome import ALLOWED, BLOCKED, Decision
from guardmark.core.sample import Prompt, View
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter
from guardmark.store.under_way import UNDER_WAY

CONCURRENCY = 8


class Paid:
    """A service that counts what it is asked; at one call the folder is copied, as a kill leaves it."""

    view = View.TEXT
    name = "paid"

    def __init__(self, folder: Path, kill_at: int = 0) -> None:
        self.folder = folder
        self.kill_at = kill_at
        self.asked: list[str] = []

    async def decide(self, prompt: Prompt) -> Decision:
        """Answer after others got their turn."""
        self.asked.append(prompt.text)
        if len(self.asked) == self.kill_at:
            shutil.copytree(self.folder, self.folder.with_name("killed"))
        await asyncio.sleep(0.0005 * (len(prompt.text) % 7))
        return BLOCKED if keyword(prompt.text) else ALLOWED


async def _attack(folder: Path, *, kill_at: int = 0) -> Paid:
    defense = Paid(folder, kill_at)
    plan = AdaptivePlan(defenses=(defense,), seed=7, budget=6, concurrency=CONCURRENCY, seeds=2)
    earlier = None
    if (folder / "records.sqlite").exists():
        with RecordReader(folder / "records.sqlite") as reader:
            earlier = stored_tries(reader)
    await attack(folder, samples(12, 8), plan, earlier=earlier)
    return defense


def _paid(folder: Path) -> tuple[int, int]:
    """Count the stored answers that were paid for, and the calls possibly billed without one."""
    with RecordReader(folder / "records.sqlite") as reader:
        tries = stored_tries(reader).values()
        return sum(not each.is_free for each in tries), reader.status().possibly_billed


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))]
)
async def test_only_what_has_no_answer_is_asked_again(tmp_path: Path, number: int) -> None:
    """Every call that left is an answer in the records or counted as possibly billed."""
    for name in ("whole", "out"):
        (tmp_path / name).mkdir()
    whole = await _attack(tmp_path / "whole")
    kill_at = random.Random(number).randrange(1, len(whole.asked))
    await _attack(tmp_path / "out", kill_at=kill_at)
    killed = tmp_path / "killed"
    answered, open_calls = _paid(killed)
    assert answered + open_calls == kill_at
    with RecordWriter(killed / "records.sqlite") as writer:
        assert writer.unanswered == open_calls
    assert not (killed / UNDER_WAY).exists()

    resumed = await _attack(killed)
    assert len(resumed.asked) == len(whole.asked) - answered
    assert Counter(resumed.asked) <= Counter(whole.asked)
    assert _paid(killed) == (len(whole.asked), open_calls)
    assert trace(killed, "paid") == trace(tmp_path / "whole", "paid")
    first, second = (replace(cards(each)[0], costs=None) for each in (killed, tmp_path / "whole"))
    assert first == second


async def test_answers_are_committed_while_others_are_awaited(tmp_path: Path) -> None:
    """What is lost is bounded by time, not by the size of a wave."""
    folder = tmp_path / "out"
    folder.mkdir()
    stored: list[int] = []

    class Slow(Paid):
        async def decide(self, prompt: Prompt) -> Decision:
            if prompt.text.startswith("What") and not stored:
                stored.append(0)
                await asyncio.sleep(0.7)
                stored[0] = _paid(self.folder)[0]
            return BLOCKED if keyword(prompt.text) else ALLOWED

    data = samples(40, 1)
    plan = AdaptivePlan(defenses=(Slow(folder),), seed=7, budget=4, concurrency=CONCURRENCY)
    await attack(folder, data, plan)
    assert stored == [40]
