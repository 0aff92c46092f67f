"""What watching the defense is worth: the adaptive arm against the blind one at equal tries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.adaptive.fortified import (
    FoldingNgrams,
    anchored_clauses,
    folding_families,
    keyword_families,
    readable_samples,
)
from tests.adaptive.planted import AtOnce, attack, folding, keyword, samples

from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.analysis.adaptive.rows import read_adaptive
from guardmark.analysis.defense.counts import grouped_difference
from guardmark.core.estimate import Difference
from guardmark.core.sample import Sample
from guardmark.store.layers import ADAPTIVE, BLIND
from guardmark.store.reader import RecordReader

pytestmark = pytest.mark.slow

BUDGET = 64
NEVER = BUDGET + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """One attack, attacked in two ways by one seed.

    Attributes:
        defense: Name of the planted defense.
        group: Of the attack.
        seed: Of the run.
        adaptive: Tries to the first bypass of the adaptive arm; over the budget for none.
        blind: The same of the blind arm.
    """

    defense: str
    group: str
    seed: int
    adaptive: int
    blind: int


async def races(
    folder: Path, data: list[Sample], *defenses: object, seeds: tuple[int, ...]
) -> list[Race]:
    """Attack some defenses with several seeds, into real records, and read how both arms did."""
    found = []
    for seed in seeds:
        place = folder / str(seed)
        place.mkdir(parents=True)
        plan = AdaptivePlan(defenses=defenses, seed=seed, budget=BUDGET)  # type: ignore[arg-type]
        await attack(place, data, plan)
        with RecordReader(place / "records.sqlite") as reader:
            for records in read_adaptive(reader):
                for position, history in records.arms[ADAPTIVE].items():
                    found.append(
                        Race(
                            defense=records.name,
                            group=f"{records.name} {data[position].group or data[position].id}",
                            seed=seed,
                            adaptive=history.first() or NEVER,
                            blind=records.arms[BLIND][position].first() or NEVER,
                        )
                    )
    return found


def gain(found: list[Race], k: int) -> Difference:
    """Adaptive minus blind at k tries, attacks of a group and their seeds taken together."""
    numbers = {group: i for i, group in enumerate(dict.fromkeys(race.group for race in found))}
    return grouped_difference(
        np.array([race.adaptive <= k for race in found]),
        np.array([race.blind <= k for race in found]),
        groups=np.array([numbers[race.group] for race in found]),
        confidence=0.95,
    )


async def four_kinds(
    folder: Path, *, attacks: int, step: int, seeds: tuple[int, ...]
) -> list[Race]:
    """Attack the fortified defense of each kind."""
    by_rule = (
        AtOnce("keyword", keyword_families),
        AtOnce("anchored", anchored_clauses),
        AtOnce("folding", folding_families),
    )
    data = samples(attacks, 20)
    found = await races(folder / "rules", data, *by_rule, seeds=seeds)
    ngrams = FoldingNgrams("ngrams")
    return found + await races(folder / "ngrams", readable_samples(step), ngrams, seeds=seeds)


def check_gains(found: list[Race], seeds: tuple[int, ...]) -> None:
    """At 16 and at 64 tries the gain is above zero for certain; at none is it below."""
    assert {race.defense for race in found} == {"keyword", "anchored", "folding", "ngrams"}
    for k in (16, 64):
        assert gain(found, k).low > 0, k
        for seed in seeds:
            assert gain([race for race in found if race.seed == seed], k).value > 0, (k, seed)
    for name in ("keyword", "anchored", "folding", "ngrams"):
        own = [race for race in found if race.defense == name]
        for k in (1, 2, 5, 16, 64):
            assert gain(own, k).value >= 0, (name, k)


async def test_learning_is_worth_something_against_each_kind_of_defense(tmp_path: Path) -> None:
    """Pooled over four kinds, the interval of the gain lies above zero at 16 and 64 tries."""
    seeds = (11, 12)
    check_gains(await four_kinds(tmp_path, attacks=40, step=4, seeds=seeds), seeds)


@pytest.mark.soak
async def test_learning_is_worth_something_over_many_seeds(tmp_path: Path) -> None:
    """The same with five seeds and more attacks."""
    seeds = (21, 22, 23, 24, 25)
    check_gains(await four_kinds(tmp_path, attacks=120, step=1, seeds=seeds), seeds)


@pytest.mark.parametrize("rule", [keyword, folding])
async def test_the_first_tries_are_no_worse_than_chance(tmp_path: Path, rule: object) -> None:
    """What the battery did to other attacks makes a better first choice than a draw."""
    found = await races(tmp_path, samples(80, 40), AtOnce("d", rule), seeds=(1, 2))  # type: ignore[arg-type]
    assert gain(found, 1).low > 0
    assert gain(found, 2).value >= 0
