"""The second path of `verify` knows every figure of an adaptive measurement."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.app.verify.adaptive.cards import (
    recount_attack_pairs,
    recount_attack_seconds,
    recount_attacks,
)
from guardmark.app.verify.difference import Comparer
from guardmark.app.verify.source import open_source
from guardmark.reports.adaptive.card_json import adaptive_json
from guardmark.reports.adaptive.costs import seconds_json
from guardmark.reports.adaptive.pairs import pairs_json

sys.path.insert(0, str(Path(__file__).parents[3] / "engine"))
from planted import AtOnce, attack, cards, folding, hardened, keyword, leaker, samples

from guardmark.analysis.adaptive.pairs import compare_adaptive

Json = dict[str, Any]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of defenses that fall, hold and answer at random."""
    import asyncio

    folder = tmp_path_factory.mktemp("attacked")
    rules = {"plain": keyword, "folds": folding, "hard": hardened, "luck": leaker()}
    defenses = tuple(AtOnce(name, rule) for name, rule in rules.items())
    plan = AdaptivePlan(defenses=defenses, seed=7, budget=16)
    asyncio.run(attack(folder, samples(30, 24), plan))
    return folder


@pytest.fixture(scope="module")
def stated(attacked: Path) -> Json:
    """What a summary says of them."""
    found = cards(attacked, seed=0)
    said = {
        "adaptive": adaptive_json(found),
        "adaptive_pairs": pairs_json(compare_adaptive(found, confidence=0.95)),
        "seconds": {card.name: seconds_json(card.costs) for card in found},
    }
    return json.loads(json.dumps(said))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def recounted(attacked: Path, stated: Json) -> Json:
    """The same from the tables, by the other path."""
    with open_source(attacked / "records.sqlite") as source:
        return {
            "adaptive": recount_attacks(source, stated),
            "adaptive_pairs": recount_attack_pairs(source),
            "seconds": recount_attack_seconds(source),
        }


def compared(said: Json, found: Json) -> Comparer:
    """Compare as `verify` does."""
    comparer = Comparer()
    comparer.tree("summary.json", "", said=said, found=found)
    return comparer


def test_both_paths_agree_on_every_figure(stated: Json, recounted: Json) -> None:
    """Of steady defenses and of one that answers at random; thousands of values."""
    comparer = compared(stated, recounted)
    assert comparer.findings == []
    assert comparer.compared > 5_000


def leaves(tree: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the place of every number."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from leaves(value, (*path, number))
    elif isinstance(tree, int | float) and not isinstance(tree, bool):
        yield path


PATHS = (
    ("adaptive", 0, "rounds", -1, "full", "successes"),
    ("adaptive", 0, "rounds", 1, "strict", "low"),
    ("adaptive", 1, "arms", 0, "at_budget", "successes"),
    ("adaptive", 1, "arms", 1, "points", 0, 1),
    ("adaptive", 2, "blind_asr_at", 1, "rate", "value"),
    ("adaptive", 2, "gains", 0, "gain", "first_only"),
    ("adaptive", 2, "gains", 0, "gain", "groups"),
    ("adaptive", 3, "null_gain", "value"),
    ("adaptive", 3, "null_gain", "confidence"),
    ("adaptive", 3, "null_gain", "p_value"),
    ("adaptive", 0, "robustness_delta", "groups"),
    ("adaptive", 0, "robustness_delta", "value"),
    ("adaptive", 0, "battery", "full", "successes"),
    ("adaptive", 0, "area", "adaptive", "value"),
    ("adaptive", 2, "area", "blind", "high"),
    ("adaptive", 0, "area", "given_up"),
    ("adaptive", 0, "mean_tries"),
    ("adaptive", 0, "operators", 3, "bypassed", "successes"),
    ("adaptive", 0, "operators", 3, "benign_blocked", "trials"),
    ("adaptive", 0, "operators", 10, "expansion", "median"),
    ("adaptive", 0, "operators", 22, "wrapper_blocked", "trials"),
    ("adaptive", 0, "operators", 22, "decoded", "successes"),
    ("adaptive", 0, "operators", 5, "unique"),
    ("adaptive", 0, "repairs", 2, "closed", "successes"),
    ("adaptive", 0, "repairs", 2, "cost", "trials"),
    ("adaptive", 1, "repairs", 2, "opened", "trials"),
    ("adaptive", 0, "repair_fit", "closed", "successes"),
    ("adaptive", 0, "repair_fit", "cost", "trials"),
    ("adaptive", 1, "repair_fit", "opened", "high"),
    ("adaptive", 1, "transfers", 0, "passed", "successes"),
    ("adaptive", 0, "calls", "adaptive:battery"),
    ("adaptive", 0, "calls_per_bypass"),
    ("adaptive", 0, "costs", "calls", "per_attack"),
    ("adaptive_pairs", 0, "area", "difference", "value"),
    ("adaptive_pairs", 1, "outcome", "difference", "second_only"),
    ("adaptive_pairs", 2, "attacks"),
    ("adaptive_pairs", 1, "area", "difference", "high"),
    ("adaptive_pairs", 0, "area", "adjusted_p"),
    ("adaptive_pairs", 1, "outcome", "difference", "p_value"),
    ("adaptive", 0, "gains", 1, "gain", "low"),
    ("adaptive", 3, "reliability", "successes"),
    ("adaptive", 0, "blind_asr_at", 0, "rate", "high"),
    ("adaptive", 0, "extrapolated", "rate", "low"),
    ("seconds", "plain", "total"),
)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_a_changed_figure_is_found(stated: Json, recounted: Json, path: tuple[Any, ...]) -> None:
    """Each is vouched for by the other path alone, not by writing the report again."""
    changed = copy.deepcopy(stated)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] += 1
    assert len(compared(changed, recounted).findings) == 1


DIFFERENCES = (("gains", 0, "gain"), ("gains", -1, "gain"), ("null_gain",), ("robustness_delta",))


def inside(entry: Any, path: tuple[Any, ...]) -> Any:
    """Return what stands at a place."""
    for step in path:
        entry = entry[step]
    return entry


@pytest.mark.parametrize("field", ["method", "test", "reason"])
@pytest.mark.parametrize("path", DIFFERENCES, ids=lambda path: path[0])
def test_another_name_of_method_or_test_is_found(
    stated: Json, recounted: Json, path: tuple[Any, ...], field: str
) -> None:
    """What a difference rests on is as much a part of it as its value."""
    changed = copy.deepcopy(stated)
    inside(changed["adaptive"][1], path)[field] = "another"
    (finding,) = compared(changed, recounted).findings
    assert finding.place.endswith(f"{path[-1]}.{field}")


def down(text: str) -> bool:
    """Fail on every text."""
    raise TimeoutError(f"no answer to {len(text)} characters")


UNDEFINED = {
    "nothing answered": (down, samples(6, 4), (None, 0, 0, "no pairs")),
    "one group": (
        keyword,
        [replace(each, group="g") for each in samples(6, 4)],
        (0.0, 6, 1, "one group only: nothing shows how groups differ"),
    ),
}


@pytest.mark.parametrize("case", UNDEFINED)
def test_an_undefined_difference_says_why_on_both_paths(tmp_path: Path, case: str) -> None:
    """No zero and no limits in its place: null, its counts and the reason."""
    import asyncio

    rule, data, expected = UNDEFINED[case]
    plan = AdaptivePlan(defenses=(AtOnce("d", rule),), seed=7, budget=4)
    asyncio.run(attack(tmp_path, data, plan))
    said = {"adaptive": json.loads(json.dumps(adaptive_json(cards(tmp_path, seed=0))))}
    with open_source(tmp_path / "records.sqlite") as source:
        found = {"adaptive": recount_attacks(source, said)}
    assert compared(said, found).findings == []
    for path in DIFFERENCES:
        told, again = inside(said["adaptive"][0], path), inside(found["adaptive"][0], path)
        assert told == again
        assert (told["low"], told["high"], told["p_value"], told["test"]) == (None, None, None, "")
        assert (told["pairs"], told["groups"], told["reason"]) == expected[1:]
    assert said["adaptive"][0]["null_gain"]["value"] == expected[0]


def test_a_row_that_is_left_out_is_missed(stated: Json, attacked: Path) -> None:
    """The order of a table is taken from the file, its rows are not."""
    fewer = copy.deepcopy(stated)
    del fewer["adaptive"][0]["operators"][7]
    with open_source(attacked / "records.sqlite") as source:
        found = recount_attacks(source, fewer)
    findings = compared(fewer, {"adaptive": found}).findings
    assert any("operators (entries)" in str(finding) for finding in findings)


def test_every_number_is_vouched_for(stated: Json, recounted: Json) -> None:
    """Limits and p values of gains, areas, extrapolation and what passed again are no exception."""
    told, known = set(leaves(stated)), set(leaves(recounted))
    searched = {path for path in told - known if "extrapolated" in path}
    assert {path[-1] for path in searched} <= {"value", "low", "high"}
    assert told - known - searched == set()
    changed = copy.deepcopy(stated)
    for path in told:
        inner = changed
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] += max(1e-5, abs(inner[path[-1]]) / 1000)
    places = {finding.place for finding in compared(changed, recounted).findings}
    assert len(places) == len(told)
