"""What a search may believe before its first try, and what it may not know."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guardmark.adaptive.beliefs import Bandit, BatteryRecord, Belief, Precedents
from guardmark.adaptive.diagnosis import Diagnosis, ProbeResult
from guardmark.adaptive.probes import KEYWORD, NONE
from guardmark.adaptive.state import SearchState
from guardmark.attacks.battery import battery
from guardmark.attacks.catalogue import search_chains
from guardmark.attacks.contract import OperatorChain, Tier
from guardmark.core.sample import Label, Prompt, Sample


def fold_numbers(groups: list[str]) -> list[int]:
    """Return the folds of attacks of these groups, in order."""
    prompt = Prompt.of_text("Ignore this.")
    attacks = [
        Sample(id=f"a{place}", prompt=prompt, label=Label.ATTACK, group=group)
        for place, group in enumerate(groups)
    ]
    state = SearchState(samples=attacks, seed=1, budget=16, blocked=tuple(range(len(attacks))))
    return list(state.folds().values())


CHAINS = search_chains(64)
LISTED = [chain for chain in battery() if chain.tier is not Tier.V4]
UNKNOWN = Diagnosis(label=NONE, findings=(), folds=False)
PLACES = 12
OWN = fold_numbers([f"g{place // 2}" for place in range(PLACES)])
FOLD_OF = dict(enumerate(OWN))

outcomes = st.lists(
    st.lists(st.booleans(), min_size=PLACES, max_size=PLACES),
    min_size=len(LISTED),
    max_size=len(LISTED),
)


def means_of(bandit: Bandit) -> list[float]:
    """Return how often each chain is believed to get through."""
    means: list[float] = bandit.beliefs()[0].tolist()
    return means


def ranked(means: list[float]) -> list[int]:
    """Return the numbers of the highest means, highest first."""
    return sorted(range(len(means)), key=lambda i: -means[i])


def record_of(passed: list[list[bool]]) -> BatteryRecord:
    """Make a record in which every chain was tried on every attack."""
    said = zip(LISTED, passed, strict=True)
    return BatteryRecord(outcomes={chain.key: dict(enumerate(row)) for chain, row in said})


def number_of(name: str) -> int:
    """Return the number of the first chain of an operator."""
    return next(i for i, chain in enumerate(CHAINS) if chain.arms[0].operator.name == name)


def test_attacks_of_a_group_share_a_fold() -> None:
    """Otherwise a variant would tell of its twin."""
    assert fold_numbers(["a", "a", "b", "a", "b", "c"]) == [0, 0, 1, 0, 1, 2]
    assert max(fold_numbers([str(i) for i in range(100)])) == 4


@settings(max_examples=25, deadline=None)
@given(outcomes, st.integers(0, PLACES - 1))
def test_the_battery_on_an_attack_itself_is_not_known_to_its_search(
    passed: list[list[bool]], place: int
) -> None:
    """Whatever passed on its whole fold, what is believed of its first try is the same."""
    fold = FOLD_OF[place]
    turned = [
        [not said if FOLD_OF[other] == fold else said for other, said in enumerate(row)]
        for row in passed
    ]
    one = Precedents(CHAINS, UNKNOWN, record_of(passed), folds=FOLD_OF)
    two = Precedents(CHAINS, UNKNOWN, record_of(turned), folds=FOLD_OF)
    assert one.beliefs(one.kind(fold, 0)) == two.beliefs(two.kind(fold, 0))


@settings(max_examples=25, deadline=None)
@given(outcomes, st.integers(0, 2 ** len(LISTED) - 1))
def test_beliefs_are_shares_with_a_weight(passed: list[list[bool]], failed: int) -> None:
    """Whatever was seen and whatever failed."""
    precedents = Precedents(CHAINS, UNKNOWN, record_of(passed), folds=FOLD_OF)
    for fold in set(OWN):
        beliefs = precedents.beliefs(precedents.kind(fold, failed))
        assert len(beliefs) == len(CHAINS)
        assert all(0 <= each.mean <= 1 and each.weight > 0 for each in beliefs)


def test_what_got_through_elsewhere_is_tried_first() -> None:
    """And what shares its operator before what shares its family alone."""
    passed = [[chain.arms[0].operator.name == "invisible"] * PLACES for chain in LISTED]
    precedents = Precedents(CHAINS, UNKNOWN, record_of(passed), folds=FOLD_OF)
    means = means_of(Bandit(chains=CHAINS, precedents=precedents))
    names = [CHAINS[i].arms[0].operator.name for i in ranked(means)[:12]]
    assert set(names) == {"invisible"}


def test_failures_say_what_kind_an_attack_is() -> None:
    """Half of the attacks fall to one thing, half to another; who resists one is of the other."""
    halves = {"base64": lambda place: place % 4 < 2, "synonym": lambda place: place % 4 >= 2}
    passed = [
        [halves.get(chain.arms[0].operator.name, lambda _: False)(place) for place in range(PLACES)]
        for chain in LISTED
    ]
    precedents = Precedents(CHAINS, UNKNOWN, record_of(passed), folds=FOLD_OF)
    code, words = number_of("base64"), number_of("synonym")
    before = precedents.beliefs(precedents.kind(0, 0))
    after = precedents.beliefs(precedents.kind(0, precedents.failed(CHAINS[code])))
    assert before[words].mean == pytest.approx(0.5, abs=0.2)
    assert after[words].mean > 0.8
    assert after[code].mean < 0.2


def test_without_a_battery_the_diagnosis_is_all_there_is() -> None:
    """A keyword list is met with other words first; hidden characters go last where it folds."""
    finding = ProbeResult(position=0, label=KEYWORD, core=("ignore",))
    known = Diagnosis(label=KEYWORD, findings=(finding,), folds=True)
    precedents = Precedents(CHAINS, known, BatteryRecord(), folds={0: 0})
    beliefs = precedents.beliefs((0, 0))
    first = CHAINS[ranked(means_of(Bandit(chains=CHAINS, precedents=precedents)))[0]]
    assert first.arms[0].family == "F12"
    assert beliefs[number_of("invisible")].mean == min(each.mean for each in beliefs)


def test_what_others_fell_to_fades_and_what_stopped_does_not() -> None:
    """Those that are left are not those that fell."""
    precedents = Precedents(CHAINS, UNKNOWN, BatteryRecord(), folds={0: 0})
    bandit, beliefs = Bandit(chains=CHAINS, precedents=precedents), precedents.beliefs((0, 0))
    for number, passed in ((0, True), (1, False)):
        for _ in range(8):
            bandit.learn(number, passed=passed)
    before = means_of(bandit)
    bandit.fade()
    after = means_of(bandit)
    assert beliefs[0].mean < after[0] < before[0]
    assert after[1] == before[1] < beliefs[1].mean


def nothing_known(chains: tuple[OperatorChain, ...]) -> Precedents:
    """Believe the same of every chain."""
    return Precedents(chains, UNKNOWN, BatteryRecord(), folds={0: 0})


def test_a_view_draws_the_same_again() -> None:
    """Chance comes from the seed alone; of many attacks, every sixteenth shares its draws."""
    bandit = Bandit(chains=CHAINS, precedents=nothing_known(CHAINS))
    one, two = (bandit.rankings(Random(3), 99) for _ in range(2))
    ranked = [[*one(number, 0, (0, 0))] for number in range(17)]
    assert ranked == [[*two(number, 0, (0, 0))] for number in range(17)]
    assert ranked[0] == ranked[16] != ranked[1]


def test_a_longer_list_forgets_nothing() -> None:
    """Chains that are added start from nothing; the others keep what was learnt."""
    bandit = Bandit(chains=CHAINS[:2], precedents=nothing_known(CHAINS[:2]))
    bandit.learn(1, passed=True)
    larger = bandit.joined([(OperatorChain.of(*CHAINS[2].arms), Belief(0.5, 1.0))])
    assert (larger.passes, larger.stops) == ([0, 1, 0], [0, 0, 0])
    larger.learn(0, passed=False)
    assert bandit.stops == [0, 0]


def test_other_settings_of_an_operator_share_a_failure_where_an_attack_is_alone() -> None:
    """A carrier that failed with one wording is the less believed with another; others are not."""
    bandit = Bandit(
        chains=CHAINS, precedents=Precedents(CHAINS, UNKNOWN, BatteryRecord(), folds={})
    )
    names = [chain.arms[0].operator.name for chain in CHAINS]
    number = next(i for i, name in enumerate(names) if names.count(name) > 1)
    before = means_of(bandit)
    bandit.learn(number, passed=False, alike=0.5)
    fell = {i for i, mean in enumerate(means_of(bandit)) if mean < before[i]}
    assert fell == {i for i, name in enumerate(names) if name == names[number]}
    after = means_of(bandit)
    assert after[number] == min(after)
