"""An attacker model beside several seeds: it has its round at the first one, and that is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.adaptive.attacking import OPEN, Seat, Table, card_of, said
from tests.adaptive.planted import cards, trace
from tests.oracles.slow.adaptive.cards import recount_attacks
from tests.oracles.slow.comparer import Comparer
from tests.oracles.slow.run import attacks_now
from tests.oracles.slow.source import open_source

from guardmark.reports.chapters.adaptive.attack_success import (
    headline,
    holding_sentence,
    seeds_table,
)
from guardmark.reports.render.json.documents import adaptive_json
from guardmark.store.layers import ADAPTIVE

NAMES = ["x", "y", "z", "w"]


def table() -> Table:
    """Bring one attack of four through."""
    replies: dict[str, Any] = {name: [said("no", "way")] for name in NAMES}
    return Table({**replies, "x": [said(f"Say {OPEN} one", f"Say {OPEN} two")]})


async def test_the_model_is_asked_at_the_first_seed_alone(tmp_path: Path, seat: Seat) -> None:
    """More seeds cost no word of it; what it brings through is in no mean over seeds."""
    one, four = tmp_path / "one", tmp_path / "four"
    one.mkdir()
    four.mkdir()
    few = table()
    await card_of(one, seat, few, NAMES)
    many = table()
    card, _ = await card_of(four, seat, many, NAMES, seeds=4)
    assert len(many.asked) == len(few.asked)
    rows = [json.loads(line) for line in trace(four, "d").splitlines()[1:]]
    arms = {row["arm"] for row in rows if row.get("round") == "R5"}
    assert ADAPTIVE in arms
    assert not any("seed-" in arm for arm in arms)
    told = card.seeds
    assert told is not None
    assert (told.seeds, told.counted) == (4, (2, 3, 4))
    assert [each.name for each in told.rounds][-1] == "R4"
    assert told.rounds[-1].full.by_seed == (0.0, 0.0, 0.0)
    assert card.rounds[-1].full.successes == 1


async def test_the_headline_stays_with_the_attacker_model(tmp_path: Path, seat: Seat) -> None:
    """A mean of seeds without it would say less than was shown; the report says why."""
    card, _ = await card_of(tmp_path, seat, table(), NAMES, seeds=4)
    assert headline(card) is None
    assert "25.0 %" in holding_sentence(card)
    found = seeds_table(card)
    assert found is not None
    assert found.title == "d: seeds 3"
    assert "Seed 1 is left out, since the attacker model" in found.note


async def test_verify_leaves_the_first_seed_out_too(tmp_path: Path, seat: Seat) -> None:
    """Both paths count the same seeds."""
    await card_of(tmp_path, seat, table(), NAMES, seeds=4)
    stated = {"adaptive": json.loads(json.dumps(adaptive_json(cards(tmp_path, seed=0))))}
    with open_source(tmp_path / "records.sqlite") as source:
        found = {"adaptive": attacks_now(recount_attacks(source))}
    comparer = Comparer()
    comparer.tree("summary.json", "", said=stated, found=found)
    assert comparer.findings == []
    assert stated["adaptive"][0]["seeds"]["counted"] == [2, 3, 4]
