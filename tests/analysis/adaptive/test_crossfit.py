"""The best repair, chosen on some attacks and counted on others."""

from __future__ import annotations

import numpy as np
import pytest

from guardmark.analysis.adaptive.operators import (
    HELD,
    RepairFit,
    best_of,
    cross_fit_repairs,
    read_repairs,
)
from guardmark.analysis.adaptive.rows import AdaptiveRecords, Try
from guardmark.analysis.defense.counts import SampleRates

ATTACKS = 40
ATTACK = np.arange(2 * ATTACKS) < ATTACKS
RATES = SampleRates(np.arange(2 * ATTACKS, dtype=np.int32), 0.95)
SIDE = np.arange(2 * ATTACKS) % 2 == 0
"""Even samples on one half, odd ones on the other."""


def battle(*tries: Try) -> AdaptiveRecords:
    """Return a measurement of which only repairs are told."""
    return AdaptiveRecords(
        name="d",
        findings={},
        settings={},
        baseline={},
        stories={},
        battery={},
        rest={"repair": tries},
        calls={},
        again=(),
        unanswered=0,
        usage={},
    )


def answers(name: str, *, closes: set[int], loses: set[int] = frozenset()) -> list[Try]:  # type: ignore[assignment]
    """Say what a repair did: bypasses it closes, benign texts it loses; none of it lets in."""
    told = [(place, "repair", place not in closes) for place in range(ATTACKS)]
    told += [(place, "repair", place not in loses) for place in range(ATTACKS, 2 * ATTACKS)]
    told += [(place, HELD, False) for place in range(ATTACKS)]
    return [
        Try(place, "repair", round_, name, "", f"{name}{place}", passed, is_free=False)
        for place, round_, passed in told
    ]


def fit(*tries: list[Try], side: np.ndarray = SIDE) -> RepairFit:
    """Cross-fit some repairs."""
    found = cross_fit_repairs(
        battle(*(each for told in tries for each in told)),
        ATTACK,
        side=side,
        rates=RATES,
    )
    assert found is not None
    return found


EVEN, ODD = set(range(0, ATTACKS, 2)), set(range(1, ATTACKS, 2))


def test_a_repair_that_suits_all_keeps_its_share() -> None:
    """Chosen on either half, it closes as much of the other: nothing is lost by the split."""
    found = fit(answers("nfkd", closes=set(range(30))), answers("case", closes={1}))
    assert found.chosen == ("nfkd", "nfkd")
    assert (found.closed.successes, found.closed.trials) == (30, 40)
    assert (found.cost.successes, found.cost.trials) == (0, 40)
    assert (found.opened.successes, found.opened.trials) == (0, 40)
    assert found.closed.low is not None


def test_a_repair_that_suits_what_it_was_chosen_on_closes_nothing_else() -> None:
    """In sample one closes a good half; counted on the other half both close next to nothing."""
    told = (answers("nfkd", closes=EVEN | {1}), answers("case", closes=ODD | {0}))
    everything = battle(*(each for rows in told for each in rows))
    best = best_of(read_repairs(everything, ATTACK, RATES))
    assert best is not None
    assert best.closed.successes == 21
    found = fit(*told)
    assert set(found.chosen) == {"nfkd", "case"}
    assert (found.closed.successes, found.closed.trials) == (2, 40)


def test_costs_are_counted_where_it_was_not_chosen() -> None:
    """A repair that costs benign texts of one half alone is chosen on the other."""
    lost = set(range(ATTACKS, 2 * ATTACKS, 2))
    found = fit(answers("nfkd", closes=set(range(ATTACKS)), loses=lost))
    assert set(found.chosen) == {"nfkd", None}
    assert (found.closed.successes, found.closed.trials) == (20, 40)
    assert (found.cost.successes, found.cost.trials) == (20, 40)


def test_where_nothing_helps_a_half_nothing_is_closed_on_the_other() -> None:
    """The rule may choose no cleaning: its bypasses stay open and are in the denominator."""
    found = fit(answers("nfkd", closes=EVEN))
    assert set(found.chosen) == {"nfkd", None}
    assert (found.closed.successes, found.closed.trials) == (0, 40)


@pytest.mark.parametrize(("cases", "halves"), [(set(range(10, 20)), 2), (EVEN - {0}, 1)])
def test_steps_together_need_both_to_help_on_the_half_that_chooses(
    cases: set[int], halves: int
) -> None:
    """All data put them together; a half that would not have done so cannot choose them."""
    found = fit(
        answers("nfkd", closes=set(range(10))),
        answers("case", closes=cases),
        answers("nfkd+case", closes=set(range(20)) | cases),
    )
    assert found.chosen.count("nfkd+case") == halves


def test_too_few_groups_are_undefined_and_not_zero() -> None:
    """Four groups of bypasses on a half choose nothing; the reason says how many there are."""
    side = np.zeros(2 * ATTACKS, dtype=bool)
    side[:4] = True
    found = fit(answers("nfkd", closes=set(range(30))), side=side)
    assert found.chosen == ()
    assert (found.closed.value, found.closed.trials) == (None, 0)
    assert "36 and 4 groups" in found.reason


def test_no_repairs_give_none() -> None:
    """Nothing was tried: nothing is said."""
    none = cross_fit_repairs(battle(), ATTACK, side=SIDE, rates=RATES)
    assert none is None
