"""Who is clearly lowest in a category, of so many that are looked at."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block

from guardmark.analysis.compare.categories import category_rows
from guardmark.analysis.run import analyse_run
from guardmark.core.outcome import Decision
from guardmark.core.sample import Sample


@pytest.mark.parametrize(("categories", "lowest"), [(1, "strict"), (8, "")])
def test_the_lowest_of_one_of_many_categories_is_held_to_their_error(
    runs: Runs, categories: int, lowest: str
) -> None:
    """None against ten of sixty: clear in one category, and in one of eight no more."""
    samples = [
        replace(attack(60 * at + number), category=f"topic {at}")
        for at in range(categories)
        for number in range(60)
    ]

    def lax(_: int, sample: Sample) -> Decision:
        is_through = sample.category == "topic 0" and int(sample.id[2:]) % 60 < 10
        return allow() if is_through else block()

    planned = [
        Planned(name="strict", answers=lambda _at, _sample: block()),
        Planned(name="lax", answers=lax),
    ]
    with runs.opened([*samples, *(benign(n) for n in range(4))], planned) as reader:
        defenses = analyse_run(reader).defenses
    rows = {row.category: row for row in category_rows(defenses, is_attack=True)}
    assert len(rows) == categories
    assert rows["topic 0"].lowest == lowest
    assert {row.lowest for name, row in rows.items() if name != "topic 0"} <= {""}
