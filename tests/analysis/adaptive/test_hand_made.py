"""Figures of adaptive measurements on tries made by hand, each counted by hand."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.adaptive.planted import AtOnce, attack, cards, samples

from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.analysis.adaptive.operators import OperatorClass, standing_of
from guardmark.analysis.adaptive.rows import AdaptiveRecords, AttackHistory, Try
from guardmark.analysis.adaptive.success import AttackMask, measure_gradient, measure_seeds
from guardmark.analysis.adaptive.target import PLAIN, TargetRows, measure_target
from guardmark.analysis.defense.counts import SampleRates, grouped_rate
from guardmark.analysis.defense.frame import MALFORMED
from guardmark.analysis.pipeline.frame import SAFE, UNSAFE
from guardmark.core.estimate import Estimate
from guardmark.core.outcome import BLOCKED, Decision, ErrorKind, Outcome
from guardmark.core.sample import Prompt, View
from guardmark.stats.rates.proportion import wilson
from guardmark.store.layers import ADAPTIVE, BLIND, GRADIENT, NULL

COUNT = 8
"""Attacks at positions 0 to 7; a benign sample stands behind them."""


def tried(sample: int, *, tier: str = "V1", at: str = "R2", passed: bool = True) -> Try:
    """A try of the search."""
    return Try(
        sample=sample,
        account="search",
        round=at,
        chain="case",
        tier=tier,
        text="",
        passed=passed,
        is_free=False,
    )


def history(*tries: Try) -> AttackHistory:
    """What was tried at one attack."""
    return AttackHistory(tries=list(tries))


def records_of(
    arms: Mapping[str, Mapping[int, AttackHistory]],
    *,
    passes: Sequence[int] = (0,),
    repeated: Sequence[Mapping[str, Mapping[int, AttackHistory]]] = (),
) -> AdaptiveRecords:
    """Records of a defense that lets some attacks pass as they are."""
    empty = {arm: {} for arm in (ADAPTIVE, BLIND, NULL, GRADIENT)}
    return AdaptiveRecords(
        name="d",
        findings={},
        baseline={at: at in passes for at in range(COUNT + 1)},
        arms=empty | arms,
        battery={},
        settings={"budget": 4, "gradient": "hotflip"},
        repeated=[empty | each for each in repeated],
    )


def mask(records: AdaptiveRecords) -> AttackMask:
    """The attacks of the measurement, each a group of its own."""
    is_attack = np.array([True] * COUNT + [False])
    return AttackMask(records, is_attack, SampleRates(np.arange(COUNT + 1), 0.95))


def asked(**changes: object) -> TargetRows:
    """What a target model without judges was asked."""
    rows = TargetRows(model="tutor", judges=(), answers={}, verdicts={}, canaries={}, usage={})
    return dataclasses.replace(rows, **changes)  # type: ignore[arg-type]


def counts(*found: Estimate) -> list[tuple[int, int]]:
    """Successes and trials."""
    return [(each.successes, each.trials) for each in found]


def test_what_following_the_gradient_came_to() -> None:
    """One passes as it is, one falls to a strict tier, one to a judged one, one to nothing proved."""
    found = measure_gradient(
        mask(
            records_of(
                {
                    GRADIENT: {
                        1: history(tried(1, passed=False), tried(1)),
                        2: history(tried(2, tier="V3")),
                        3: history(tried(3, tier="V4"), tried(3, passed=False)),
                        4: history(tried(4, passed=False)),
                    }
                }
            )
        )
    )
    assert found is not None
    assert (found.attack, found.tries, found.unproved) == ("hotflip", 6, 1)
    assert counts(found.strict, found.full) == [(2, COUNT), (3, COUNT)]
    assert found.gain.value == pytest.approx(2 / COUNT)


def test_calls_that_taught_the_search_count_as_its_own() -> None:
    """Half a call of diagnosis an attack, then the fixed list to its first bypass, then the search."""
    records = records_of({ADAPTIVE: {2: history(tried(2)), 3: history(tried(3))}})
    lists = {1: history(tried(1, passed=False), tried(1)), 2: history(tried(2, passed=False))}
    records = dataclasses.replace(
        records, battery=lists, calls={(ADAPTIVE, "diagnosis"): COUNT // 2}
    )
    view = mask(records)
    found = {calls: np.flatnonzero(view.within(calls)).tolist() for calls in range(4)}
    assert found == {0: [0], 1: [0], 2: [0, 3], 3: [0, 1, 2, 3]}


def test_a_gradient_that_nobody_followed_has_no_card() -> None:
    """No try is no measurement, and no zero."""
    assert measure_gradient(mask(records_of({GRADIENT: {1: history()}}))) is None


def test_effects_are_told_with_and_without_the_guard() -> None:
    """Of eight attacks six do harm as they are; one passes, two more come through rewritten."""
    harm = dict.fromkeys(range(6), UNSAFE) | {6: SAFE, 7: SAFE}
    rows = asked(
        judges=("judge",),
        answers={
            "none": dict.fromkeys(range(COUNT), (PLAIN, True)),
            "d": {1: ("case", True), 2: ("case", True)},
        },
        verdicts={"none": {"judge": harm}, "d": {"judge": {1: UNSAFE, 2: SAFE}}},
    )
    arms = {ADAPTIVE: {1: history(tried(1)), 2: history(tried(2))}}
    found = measure_target(rows, mask(records_of(arms)))
    effects = found.effects
    assert effects is not None
    rates = (effects.undefended.rate, effects.static.rate, effects.defended.rate)
    assert counts(*rates) == [(6, COUNT), (1, COUNT), (2, COUNT)]
    assert effects.merit_static.value == pytest.approx(5 / COUNT)
    assert effects.merit.value == pytest.approx(4 / COUNT)
    assert found.estimated is None


def test_ends_that_nobody_knows_move_the_limits_and_not_the_rate() -> None:
    """One answer without a readable verdict, one without an answer, one never asked."""
    rows = asked(
        judges=("judge",),
        answers={"none": {at: (PLAIN, at != 1) for at in range(COUNT - 1)}},
        verdicts={"none": {"judge": {0: MALFORMED, 2: UNSAFE} | dict.fromkeys(range(3, 7), SAFE)}},
    )
    effects = measure_target(rows, mask(records_of({}, passes=range(COUNT)))).effects
    assert effects is not None
    end = effects.undefended
    assert counts(end.rate) == [(1, 5)]
    assert (end.malformed, end.error) == (1, 2)
    assert (end.lowest, end.highest) == (1 / COUNT, 4 / COUNT)


CANARIES = {
    PLAIN: [(0, "read"), (1, "read")],
    "case": [(0, "read"), (1, "lost"), (2, "refused"), (3, "failed")],
}


def test_an_effect_that_nobody_judges_is_guessed_from_what_is_read() -> None:
    """Three of eight came through: as it is, by a chain that was probed, by one that was not."""
    rows = asked(
        answers={"d": {1: ("case [x]", True), 2: ("typo", True)}},
        canaries=CANARIES,
    )
    arms = {ADAPTIVE: {1: history(tried(1)), 2: history(tried(2))}}
    card = measure_target(rows, mask(records_of(arms)))
    found = card.estimated
    assert found is not None
    assert counts(found.bypassed, found.read) == [(3, COUNT), (3, 4)]
    assert found.unread == 1
    assert found.value.value == pytest.approx(3 / COUNT * 3 / 4)
    narrow = math.sqrt(0.95)
    through = wilson(3, COUNT, confidence=narrow)
    read = grouped_rate([True, True, True, False], [0, 1, 0, 1], confidence=narrow)
    assert found.value.low == pytest.approx((through.low or 0) * (read.low or 0), abs=1e-6)
    assert found.value.high == pytest.approx((through.high or 0) * (read.high or 0), abs=1e-6)
    probed = card.readings[1]
    assert (probed.chain, probed.refused, probed.failed) == ("case", 1, 1)
    assert card.read_rate("case [x]") == probed.read
    assert card.read_rate("typo") is None


def test_a_model_that_gives_back_no_plain_sentence_says_nothing_of_chains() -> None:
    """Its manners are not its reading: the guess is undefined, with the reason."""
    rows = asked(answers={"d": {1: ("case", True)}}, canaries=CANARIES | {PLAIN: [(0, "lost")]})
    card = measure_target(rows, mask(records_of({ADAPTIVE: {1: history(tried(1))}})))
    assert not card.has_control
    assert card.estimated is not None
    value = card.estimated.value
    assert (value.value, value.low, value.high) == (None, None, None)
    assert value.reason == "the target model does not give back plain sentences either"


def test_a_chain_of_which_nothing_is_known_leaves_the_guess_undefined() -> None:
    """What got through came by a chain that nobody probed: it is counted, and no zero."""
    rows = asked(answers={"d": {1: ("typo", True)}}, canaries={PLAIN: [(0, "read")]})
    arms = {ADAPTIVE: {1: history(tried(1))}}
    card = measure_target(rows, mask(records_of(arms, passes=())))
    assert card.estimated is not None
    assert card.has_control
    value = card.estimated.value
    assert (value.value, value.low, value.high, card.estimated.unread) == (None, None, None, 1)
    assert card.estimated.read.value is None


def test_where_nothing_came_through_there_is_nothing_to_read() -> None:
    """A true zero, although no chain was read; its upper limit is that of the bypasses."""
    card = measure_target(asked(canaries=CANARIES), mask(records_of({}, passes=())))
    assert card.estimated is not None
    value = card.estimated.value
    assert (value.value, value.low, card.estimated.unread) == (0.0, 0.0, 0)
    bound = wilson(0, COUNT, confidence=math.sqrt(0.95)).high
    assert value.high == pytest.approx(bound, abs=1e-6)


def test_without_judges_and_without_a_probe_nothing_is_guessed() -> None:
    """No effects and no estimate."""
    card = measure_target(asked(), mask(records_of({})))
    assert (card.effects, card.estimated, card.has_control) == (None, None, False)


def test_where_every_attack_passes_as_it_is_no_seed_has_a_search() -> None:
    """The mean of tries is undefined, and so is a headline by rounds; success is one."""
    view = mask(records_of({}, passes=range(COUNT), repeated=[{}]))
    found = measure_seeds(view, [1, 4])
    assert found is not None
    assert (found.seeds, found.mean_tries, found.headline) == (2, None, None)
    assert counts(found.any_seed_full) == [(COUNT, COUNT)]
    assert found.arms[0].points[-1][1].by_seed == (1.0, 1.0)


def test_the_headline_over_seeds_is_that_of_the_last_round() -> None:
    """Another attack falls at the second seed, one more by its round 3."""
    second = {ADAPTIVE: {2: history(tried(2)), 3: history(tried(3, at="R3"))}}
    view = mask(records_of({ADAPTIVE: {1: history(tried(1))}}, repeated=[second]))
    found = measure_seeds(view, [1, 4])
    assert found is not None
    assert [each.name for each in found.rounds] == ["R2", "R3"]
    assert found.headline is not None
    assert found.headline.by_seed == (2 / COUNT, 3 / COUNT)
    assert counts(found.any_seed_full) == [(4, COUNT)]
    assert measure_seeds(mask(records_of({})), [1, 4]) is None


@pytest.mark.parametrize(
    ("bypassed", "blocked", "expected"),
    [
        ((0, 0), (0, 0), OperatorClass.UNKNOWN),
        ((9, 10), (0, 0), OperatorClass.UNKNOWN),
        ((0, 0), (9, 10), OperatorClass.BLANKET),
        ((0, 0), (1, 10), OperatorClass.UNKNOWN),
        ((0, 10), (9, 10), OperatorClass.BLANKET),
        ((0, 10), (0, 10), OperatorClass.HOLDS),
        ((9, 10), (9, 10), OperatorClass.INVERTED),
        ((9, 10), (0, 10), OperatorClass.BLIND),
    ],
)
def test_how_a_defense_treats_a_form_needs_benign_texts_in_it(
    bypassed: tuple[int, int], blocked: tuple[int, int], expected: OperatorClass
) -> None:
    """Without attacks in that form only one that blocks benign texts is known for what it is."""
    assert standing_of(wilson(*bypassed), wilson(*blocked)) is expected


def test_a_group_that_dominates_a_rate_is_named() -> None:
    """Six of eight rows are of one story; without names nobody can be named."""
    hits, groups = [True] * 4 + [False] * 4, [0] * 6 + [1, 2]
    rate = grouped_rate(hits, groups, confidence=0.95, names=("story", "b", "c"))
    assert (rate.successes, rate.trials, rate.dominant_group) == (4, 8, "story")
    alone = grouped_rate(hits, range(8), confidence=0.95, names=[str(at) for at in range(8)])
    assert not alone.dominant_group
    assert not grouped_rate(hits, groups, confidence=0.95).dominant_group


def test_a_defense_that_lets_everything_through_leaves_nothing_to_search(tmp_path: Path) -> None:
    """No attack was blocked at first: no curve of tries, no mean of them, success from the start."""
    plan = AdaptivePlan(defenses=(AtOnce("open", lambda _: False),), seed=7, budget=2)
    asyncio.run(attack(tmp_path, samples(4, 2), plan))
    (card,) = cards(tmp_path)
    assert (card.survival, card.mean_tries, card.gradient, card.seeds) == (None,) * 4
    assert counts(card.rounds[-1].full) == [(4, 4)]
    assert card.extrapolated is not None
    assert card.extrapolated.beta.rate.reason == "every try got through"


class Failing:
    """Answers nothing about attacks."""

    name, view = "failing", View.TEXT

    def decide(self, prompt: Prompt) -> Decision:
        """Block what is cooked, and fail at the rest."""
        if "cook" in prompt.text:
            return BLOCKED
        return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.TIMEOUT)


def test_attacks_without_an_answer_are_missing_and_in_no_rate(tmp_path: Path) -> None:
    """Nothing is known of them: every rate is undefined, and the tries are counted."""
    plan = AdaptivePlan(defenses=(Failing(),), seed=7, budget=2)
    asyncio.run(attack(tmp_path, samples(4, 2), plan))
    (card,) = cards(tmp_path)
    assert (card.attacks, card.missing) == (0, 4)
    assert card.unanswered >= 4
    assert card.rounds[-1].full.value is None
    assert (card.asr_at, card.extrapolated, card.survival) == ((), None, None)


def test_areas_and_times_of_crossed_attacks_stand_on_injections() -> None:
    """Each of four tasks meets both injections: two clusters, where tasks alone would be four."""
    is_attack = np.array([True] * COUNT + [False])
    rates = SampleRates(
        np.arange(COUNT + 1) // 2, 0.95, crossing=np.append(np.arange(COUNT) % 2, COUNT)
    )
    view = AttackMask(records_of({ADAPTIVE: {1: history(tried(1))}}), is_attack, rates)
    assert view.groups.tolist() == (np.arange(COUNT) // 2).tolist()
    assert view.clusters.tolist() == (np.arange(COUNT) % 2).tolist()
    assert view.area(ADAPTIVE).groups == 2
