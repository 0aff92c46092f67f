"""What the calls of an attack are for, in the words of its forecast and of its report."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.search import SEEDS_AGAIN
from guardmark.adaptive.state import Account
from guardmark.attacks.battery import battery
from guardmark.store.layers import (
    BLIND,
    GRADIENT,
    NULL,
    REPAIRED,
    REPAIRED_FIRST,
    first_layer,
    is_target_layer,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.adaptive.campaign import AdaptivePlan


class Purpose(StrEnum):
    """Why somebody is asked."""

    FIRST_LOOK = "first look and diagnosis"
    FIXED_LIST = "fixed list, passes confirmed"
    SEARCH = "search"
    CONTROLS = "control arms"
    TWIN = "benign texts and wrappers"
    REPAIR = "repair, and the attack on it"
    TRANSFER = "what beat another defense"
    TARGET = "target model"
    JUDGES = "judges of its answers"
    CANARIES = "canaries to the target model"
    ATTACKER = "attacker model"
    SAMENESS = "judge of sameness"
    CRITIC = "critic"


_OF_ACCOUNT: Final = {
    Account.BASELINE: Purpose.FIRST_LOOK,
    Account.DIAGNOSIS: Purpose.FIRST_LOOK,
    Account.BATTERY: Purpose.FIXED_LIST,
    Account.CONFIRM: Purpose.FIXED_LIST,
    Account.SEARCH: Purpose.SEARCH,
    Account.TWIN: Purpose.TWIN,
    Account.WRAPPER: Purpose.TWIN,
    Account.REWORDED: Purpose.TWIN,
    Account.REPAIR: Purpose.REPAIR,
    Account.TRANSFER: Purpose.TRANSFER,
    Account.UNDEFENDED: Purpose.TARGET,
    Account.EFFECT: Purpose.TARGET,
    Account.VERDICT: Purpose.JUDGES,
    Account.COMPREHENSION: Purpose.CANARIES,
    Account.ATTACKER: Purpose.ATTACKER,
    Account.TWIN_ATTACKER: Purpose.ATTACKER,
    Account.EQUIVALENCE: Purpose.SAMENESS,
    Account.TWIN_EQUIVALENCE: Purpose.SAMENESS,
    Account.CRITIC: Purpose.CRITIC,
}
_OF_LAYER: Final = {
    NULL: Purpose.CONTROLS,
    BLIND: Purpose.CONTROLS,
    GRADIENT: Purpose.CONTROLS,
    REPAIRED: Purpose.REPAIR,
    REPAIRED_FIRST: Purpose.REPAIR,
}
_TWIN_TEXTS: Final = 200
_AROUND: Final = 60  # harmless texts that the diagnosis asks about
_EXAMINED: Final = 80  # calls about one attack that it takes apart
_CONFIRMED: Final = 30  # calls of an attack that confirm what passed


def purpose_of(layer: str, account: Account) -> Purpose:
    """Return what a call was for."""
    if is_target_layer(layer):
        return _OF_ACCOUNT[account]
    return _OF_LAYER.get(first_layer(layer), _OF_ACCOUNT[account])


def by_purpose(calls: Mapping[tuple[str, Account], int]) -> dict[Purpose, int]:
    """Add up calls by what they were for, in the order of the purposes."""
    counts: Counter[Purpose] = Counter()
    for (layer, account), count in calls.items():
        counts[purpose_of(layer, account)] += count
    return {purpose: counts[purpose] for purpose in Purpose if counts[purpose]}


def most_of_defense(
    plan: AdaptivePlan, *, samples: int, benign: int, blocked: int
) -> dict[Purpose, int]:
    """Return about how often one defense is asked at most: no attack gets through early."""
    fixed, search = len(battery(plan.battery)) + len(plan.own), blocked * plan.budget
    examined = min(40, blocked, max(10, blocked // 10))
    first_look = min(4 * samples, samples + 180) + _AROUND + examined * _EXAMINED
    fixed_list = blocked * (fixed + _CONFIRMED)
    # A try on a repaired defense is two calls: the text as it is, and the cleaned one.
    attacked_again = 2 * (first_look + fixed_list + SEEDS_AGAIN * search)
    most = {
        Purpose.FIRST_LOOK: first_look,
        Purpose.FIXED_LIST: fixed_list,
        Purpose.SEARCH: plan.seeds * search,
    }
    if plan.has_controls:
        most[Purpose.CONTROLS] = 2 * plan.seeds * search
        most[Purpose.TWIN] = 60 * min(benign, _TWIN_TEXTS)
    if plan.has_repair:
        most[Purpose.REPAIR] = 10 * min(samples, 600) + blocked * fixed + search + attacked_again
    return most


def most_of_others(
    plan: AdaptivePlan, *, attacks: int, blocked: Mapping[str, int]
) -> dict[Purpose, int]:
    """Return how often target model, judges and helpers are asked at most."""
    most: Counter[Purpose] = Counter()
    if len(plan.defenses) > 1:
        most[Purpose.TRANSFER] = (len(plan.defenses) - 1) * sum(blocked.values())
    if plan.target is not None:
        most[Purpose.TARGET] = attacks + sum(blocked.values())
        most[Purpose.JUDGES] = len(plan.target.judges) * most[Purpose.TARGET]
        most[Purpose.CANARIES] = plan.target.canaries * (1 + len(battery(plan.battery)))
    if plan.attacker is not None:
        # A reply that cannot be read is asked for once more; the bound counts it for the attacks.
        replies = len(plan.defenses) * (plan.attacker.max_calls + 2 * plan.attacker.twin)
        written = replies * plan.attacker.candidates
        most[Purpose.ATTACKER] = replies
        if plan.attacker.judge is not None:
            most[Purpose.SAMENESS] = 2 * plan.attacker.votes * written
        if plan.attacker.critic is not None:
            most[Purpose.CRITIC] = 2 * written
    return dict(most)
