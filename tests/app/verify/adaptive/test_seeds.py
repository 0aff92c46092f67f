"""The second path of `verify` knows every figure of a measurement of several seeds."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.app.verify.adaptive.cards import recount_attacks
from guardmark.app.verify.artefacts.files import check_trace
from guardmark.app.verify.difference import Comparer
from guardmark.app.verify.source import open_source
from guardmark.reports.adaptive.card_json import adaptive_json

sys.path.insert(0, str(Path(__file__).parents[3] / "engine"))
from planted import AtOnce, attack, cards, hardened, keyword, leaker, samples, trace

Json = dict[str, Any]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of defenses that fall, hold and answer at random, at four seeds."""
    import asyncio

    folder = tmp_path_factory.mktemp("seeds")
    rules = {"plain": keyword, "hard": hardened, "luck": leaker(), "all": lambda _: True}
    defenses = tuple(AtOnce(name, rule) for name, rule in rules.items())
    plan = AdaptivePlan(defenses=defenses, seed=7, budget=8, seeds=4)
    asyncio.run(attack(folder, samples(24, 12), plan))
    return folder


@pytest.fixture(scope="module")
def stated(attacked: Path) -> Json:
    """What a summary says of them."""
    return {"adaptive": json.loads(json.dumps(adaptive_json(cards(attacked, seed=0))))}


@pytest.fixture(scope="module")
def recounted(attacked: Path, stated: Json) -> Json:
    """The same from the tables, by the other path."""
    with open_source(attacked / "records.sqlite") as source:
        return {"adaptive": recount_attacks(source, stated)}


def compared(said: Json, found: Json) -> Comparer:
    """Compare as `verify` does."""
    comparer = Comparer()
    comparer.tree("summary.json", "", said=said, found=found)
    return comparer


def test_both_paths_agree_on_every_figure_over_seeds(stated: Json, recounted: Json) -> None:
    """Of steady defenses, of one that answers at random and of one that never falls."""
    comparer = compared(stated, recounted)
    assert comparer.findings == []
    for entry, again in zip(stated["adaptive"], recounted["adaptive"], strict=True):
        assert again["seeds"]["arms"][0]["points"][-1]["rate"]["low"] is not None
        assert set(again["seeds"]) == set(entry["seeds"])


PATHS = (
    (1, "rounds", -1, "full", "value"),
    (2, "rounds", -1, "full", "high"),
    (1, "rounds", 0, "strict", "spread"),
    (1, "arms", 0, "points", 1, "rate", "low"),
    (2, "arms", 2, "points", -1, "rate", "by_seed", 2),
    (1, "blind_asr_at", 2, "rate", "high"),
    (1, "gains", 1, "gain", "low"),
    (2, "null_gain", "value"),
    (2, "robustness_delta", "most"),
    (2, "mean_tries", "low"),
    (1, "area", "blind", "high"),
    (2, "area", "adaptive", "least"),
    (2, "any_seed", "full", "successes"),
    (3, "rounds", -1, "full", "high"),
    (0, "counted", 3),
)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_a_changed_figure_over_seeds_is_found(
    stated: Json, recounted: Json, path: tuple[Any, ...]
) -> None:
    """Each is vouched for by the other path."""
    changed = copy.deepcopy(stated)
    inner = changed["adaptive"][path[0]]["seeds"]
    for step in path[1:-1]:
        inner = inner[step]
    inner[path[-1]] += 0.01
    assert len(compared(changed, recounted).findings) == 1


def test_every_line_of_a_trace_of_several_seeds_is_compared(attacked: Path, tmp_path: Path) -> None:
    """A changed answer at the third seed is named."""
    text = trace(attacked, "plain", "hard", "luck", "all")
    with open_source(attacked / "records.sqlite") as source:
        (tmp_path / "trace.jsonl").write_text(text, encoding="utf-8")
        comparer = Comparer()
        check_trace(tmp_path / "trace.jsonl", source, comparer)
        assert comparer.findings == []
        lines = text.splitlines()
        place = next(i for i, line in enumerate(lines) if '"adaptive/seed-3/blind"' in line)
        flipped = {'"block"': '"allow"', '"allow"': '"block"'}
        old = next(word for word in flipped if word in lines[place])
        lines[place] = lines[place].replace(old, flipped[old])
        (tmp_path / "trace.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        check_trace(tmp_path / "trace.jsonl", source, comparer)
        assert len(comparer.findings) == 1
