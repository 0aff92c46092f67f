"""A rule ends a run only on evidence that may be looked at at any time."""

from __future__ import annotations

import sqlite3
from array import array
from typing import Any

import numpy as np
import pytest
from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block

from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.early_stop import EarlyStop, Schedule, make_schedule, open_early_stop
from guardmark.analysis.gate import GatePolicy, check_limits
from guardmark.analysis.run import analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.config.stop_rules import StopKind, parse_stop_rule, statements_for
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.store.columns import sample_columns
from guardmark.store.reader import RecordReader


def schedule_of(groups: Any, is_attack: Any, *, seed: int = 7, looks: int = 100) -> Schedule:
    """The schedule of samples without a store."""
    codes = np.asarray(groups)
    rank = np.random.default_rng(seed).permutation(codes.max() + 1)[codes]
    order = np.argsort(rank, kind="stable")
    ends = np.cumsum(np.bincount(rank))
    step = max(1, len(ends) // looks)
    at = [*range(step, len(ends), step), len(ends)]
    return Schedule(
        order=array("q", order.astype(np.int64).tobytes()),
        groups=rank.astype(np.int64),
        is_attack=np.asarray(is_attack, dtype=bool),
        bounds=tuple(int(ends[n - 1]) for n in at),
    )


def rule_of(schedule: Schedule, *rules: str, names: tuple[str, ...] = ("a",)) -> EarlyStop:
    """A rule over some defenses."""
    return EarlyStop(schedule, statements_for(rules, names), defenses=names)


def feed(rule: EarlyStop, blocked: Any, *, name: str = "a", until_done: bool = True) -> int:
    """Answer in order until the rule has enough; how many answers that took."""
    for count, position in enumerate(rule.order, 1):
        rule.observe(name, position, int(blocked[position]))
        if until_done and rule.is_done(name):
            return count
    return len(rule.order)


@pytest.mark.parametrize(
    ("said", "kind", "defense", "is_attack", "limit"),
    [
        ("asr<0.1", StopKind.BELOW, "", True, 0.1),
        (" fpr < .05 ", StopKind.BELOW, "", False, 0.05),
        ("asr+-0.05", StopKind.WIDTH, "", True, 0.05),
        ("fpr±0.02", StopKind.WIDTH, "", False, 0.02),
        ("granite-3.1.asr<0.1", StopKind.BELOW, "granite-3.1", True, 0.1),
        ("a!=b", StopKind.DIFFERENT, "a", True, 0.0),
    ],
)
def test_rules_are_read(
    said: str, kind: StopKind, *, defense: str, is_attack: bool, limit: float
) -> None:
    """What a person types is a rate with a limit or a width, or two defenses."""
    found = parse_stop_rule(said)
    assert (found.kind, found.defense, found.is_attack, found.limit) == (
        kind,
        defense,
        is_attack,
        limit,
    )


@pytest.mark.parametrize("said", ["", "asr", "asr<2", "asr<0", "tpr<0.1", "a!=a", "asr>0.1", "a!="])
def test_what_is_no_rule_is_refused_with_the_rules(said: str) -> None:
    """A mistyped rule must not let a run go on for ever."""
    with pytest.raises(ConfigError, match=r"Rules: asr<0\.1"):
        parse_stop_rule(said)


def test_a_rule_about_an_unknown_defense_is_refused() -> None:
    """A typing mistake is named, with what was meant."""
    with pytest.raises(UnknownName, match="granite"):
        statements_for(["granit.asr<0.1"], ["granite", "other"])


def test_answers_are_looked_at_in_order_whenever_they_come() -> None:
    """However many others are there, no look is taken before the first sample has its answer."""
    plan = schedule_of(np.arange(400), np.ones(400))
    rule = rule_of(plan, "asr<0.5")
    first, *others = rule.order
    for position in others:
        rule.observe("a", position, 1)
    assert not rule.is_done("a")
    rule.observe("a", first, 1)
    assert rule.is_done("a")


def test_groups_stay_together_in_a_seeded_order(runs: Runs) -> None:
    """The same seed gives the same order; another seed another."""
    samples = [attack(n, group=f"g{n % 30}") for n in range(90)]
    with runs.opened(samples, [Planned(name="a", answers=lambda *_: block())]) as reader:
        columns = sample_columns(reader)
        one, same, other = (make_schedule(columns, seed=seed) for seed in (7, 7, 8))
    assert one.order == same.order != other.order
    assert sorted(one.order) == list(range(90))
    in_order = [position % 30 for position in one.order]
    assert all(len(set(in_order[at : at + 3])) == 1 for at in range(0, 90, 3))
    assert one.bounds[-1] == 90
    assert len(one.bounds) == 30


@pytest.mark.parametrize(("rate", "answer"), [(0.02, "yes"), (0.6, "no")])
@pytest.mark.parametrize("size", [1, 3])
def test_a_clear_rate_is_decided_long_before_the_end(rate: float, answer: str, size: int) -> None:
    """Whether far below or far above the limit, a part of the groups is enough."""
    draw = np.random.default_rng(1)
    blocked = draw.random(3000) >= rate
    rule = rule_of(schedule_of(np.arange(3000) // size, np.ones(3000)), "asr<0.2")
    took = feed(rule, blocked)
    (verdict,) = rule.stopped("a")
    assert (verdict.answer, took < 1500) == (answer, True)
    assert answer in rule.reason()
    found = rule.estimate("a", is_attack=True)
    assert found.method == ("beta mixture sequence" if size == 1 else found.method)
    assert found.low is not None
    assert found.high is not None
    assert (found.high < 0.2) if answer == "yes" else (found.low >= 0.2)


def test_a_rate_at_its_limit_is_never_decided() -> None:
    """Undecided data run to the end, and then nothing was stopped."""
    blocked = np.arange(1000) % 10 != 0
    rule = rule_of(schedule_of(np.arange(1000), np.ones(1000)), "asr<0.1")
    assert feed(rule, blocked) == 1000
    assert (rule.reason(), rule.stopped("a"), rule.is_done("a")) == ("", (), False)


def test_a_wanted_width_is_reached() -> None:
    """The half-width asked for is the half-width got."""
    rule = rule_of(schedule_of(np.arange(4000), np.arange(4000) % 2), "fpr+-0.05")
    feed(rule, np.random.default_rng(2).random(4000) < 0.05)
    found = rule.estimate("a", is_attack=False)
    assert found.low is not None
    assert found.high is not None
    assert (found.high - found.low) / 2 <= 0.05
    assert rule.stopped("a")[0].answer == "reached"


@pytest.mark.slow
def test_looking_at_every_hundredth_decides_wrongly_in_few_runs() -> None:
    """At the limit itself, "yes" or "no" is an error in at most one run of twenty."""
    wrong, runs = 0, 200
    for seed in range(runs):
        blocked = np.random.default_rng(seed).random(400) >= 0.1
        rule = rule_of(schedule_of(np.arange(400), np.ones(400), seed=seed), "asr<0.1")
        rule.load("a", np.arange(400), blocked.astype(np.int8))
        wrong += bool(rule.verdicts)
    assert wrong <= runs * 0.05 + 3 * np.sqrt(runs * 0.05 * 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 4])
def test_two_alike_defenses_are_told_apart_in_few_runs(size: int) -> None:
    """The error of the paired test stays at its level, with groups that go one way too."""
    wrong, runs = 0, 150
    for seed in range(runs):
        draw = np.random.default_rng(seed)
        groups = np.arange(400) // size
        one, two = (draw.random(groups.max() + 1)[groups] < 0.8 for _ in range(2))
        rule = rule_of(schedule_of(groups, np.ones(400), seed=seed), "a!=b", names=("a", "b"))
        for name, blocked in (("a", one), ("b", two)):
            rule.load(name, np.arange(400), blocked.astype(np.int8))
        wrong += bool(rule.verdicts)
    assert wrong <= runs * 0.05 + 3 * np.sqrt(runs * 0.05 * 0.95)


@pytest.mark.parametrize("size", [1, 4])
def test_two_different_defenses_are_told_apart(size: int) -> None:
    """The second one needs no more answers, and the difference excludes zero."""
    draw = np.random.default_rng(3)
    one, two = draw.random(2000) < 0.9, draw.random(2000) < 0.5
    rule = rule_of(schedule_of(np.arange(2000) // size, np.ones(2000)), "a!=b", names=("a", "b"))
    assert feed(rule, one) == 2000
    assert feed(rule, two, name="b") < 1000
    found = rule.difference("a", "b", is_attack=True)
    assert found.high is not None
    assert found.p_value is not None
    assert found.value is not None
    assert found.value < -0.2
    assert found.high < 0.02  # the interval gives away more than the test does
    assert found.p_value < 0.05
    assert found.test == "paired e-value"


def test_neither_order_of_arrival_nor_a_pause_moves_a_decision() -> None:
    """Only groups answered without a gap count, at looks fixed beforehand."""
    draw = np.random.default_rng(4)
    blocked = (draw.random(2000) >= 0.05).astype(np.int8)
    plan = schedule_of(np.arange(2000) // 2, np.arange(2000) // 2 % 2)
    straight = rule_of(plan, "asr<0.2")
    stop = feed(straight, blocked)
    jumbled = rule_of(plan, "asr<0.2")
    arrived = list(plan.order[: stop + 200])
    for start in range(0, len(arrived), 16):  # sixteen in flight, the last answered first
        for position in reversed(arrived[start : start + 16]):
            jumbled.observe("a", position, int(blocked[position]))
    resumed = rule_of(plan, "asr<0.2")
    half = np.asarray(plan.order[: stop // 2])
    resumed.load("a", half, blocked[half])
    for position in plan.order[stop // 2 : stop + 5]:
        resumed.observe("a", position, int(blocked[position]))
    assert straight.verdicts == jumbled.verdicts == resumed.verdicts
    for label in (True, False):
        found = [each.estimate("a", is_attack=label) for each in (straight, jumbled, resumed)]
        assert found[0] == found[1] == found[2]


def test_unanswered_samples_are_no_evidence() -> None:
    """Errors neither decide a rule nor hold up those behind them."""
    plan = schedule_of(np.arange(500), np.ones(500))
    failing = rule_of(plan, "asr<0.2")
    failing.load("a", np.arange(500), np.full(500, 3, dtype=np.int8))
    assert not failing.verdicts
    some = rule_of(plan, "asr<0.2")
    some.load("a", np.arange(500), np.where(np.arange(500) % 2, 3, 1).astype(np.int8))
    assert [each.answer for each in some.verdicts.values()] == ["yes"]


def test_a_run_ended_early_is_reported_by_the_sequence(runs: Runs) -> None:
    """Method, counts, greyed slices and words all say that looking decided when to stop."""
    samples = [attack(n) for n in range(400)] + [benign(n) for n in range(400)]
    settings = {"run": {"stop_when": ["asr<0.5", "fpr<0.5"]}}
    planned = [
        Planned(name="a", answers=lambda n, s: block() if s.is_attack and n % 9 else allow()),
        Planned(name="b", answers=lambda n, s: block() if s.is_attack and n % 7 else allow()),
    ]
    with runs.opened(samples, planned, settings=settings) as reader:
        whole = analyse_run(reader)
        order = make_schedule(sample_columns(reader), seed=7).order
        assert AnalysisSettings.of(reader.manifest()).stop_when == ("asr<0.5", "fpr<0.5")
        path = reader.path
    assert all(not each.stopped for each in whole.defenses)
    # A rule that stayed open to the end could have ended it at any look.
    assert (
        whole.defenses[0].card.attack_success_rate.method
        == "beta mixture sequence, median-unbiased value"
    )
    with sqlite3.connect(path) as connection:
        connection.executemany(
            "DELETE FROM records WHERE sample = ?", [(int(at),) for at in order[200:]]
        )
    connection.close()
    with RecordReader(path) as reader:
        found = analyse_run(reader)
    first = found.defenses[0]
    assert [each.answer for each in first.stopped] == ["yes", "yes"]
    card = first.card
    for rate in (card.attack_success_rate, card.true_positive_rate, card.false_positive_rate):
        assert rate.method == "beta mixture sequence, median-unbiased value"
        assert rate.trials < card.confusion.attacks.answered
    assert all(each.is_greyed for table in first.slices for each in table.rates)
    assert found.comparison is not None
    pair = found.comparison.pairs[0]
    assert pair.attacks.difference.test == "paired e-value"
    assert (pair.attacks.detectable, pair.attacks.not_worse) == (None, None)


def test_a_defense_that_was_not_asked_yet_has_no_verdict(runs: Runs) -> None:
    """A run that goes on counts in what is stored, of the defenses that answered at all."""
    samples = [attack(n) for n in range(400)] + [benign(n) for n in range(400)]
    planned = [Planned(name=name, answers=lambda _n, _s: block()) for name in ("a", "b")]
    with runs.opened(samples, planned) as reader:
        path = reader.path
    with sqlite3.connect(path) as connection:
        connection.execute(
            "DELETE FROM records WHERE defense = (SELECT id FROM defenses WHERE name = 'b')"
        )
        connection.execute("DELETE FROM defenses WHERE name = 'b'")
    connection.close()
    with RecordReader(path) as reader:
        rule = open_early_stop(reader, ["asr<0.5"])
    found = [(asked.defense, verdict.answer) for asked, verdict in rule.verdicts.items()]
    assert found == [("a", "yes")]


def test_a_rate_that_goes_with_the_size_of_families_is_that_of_rows(runs: Runs) -> None:
    """Stopped early, a defense has the rate of the full run: the mean over groups is another one."""
    # Every fourth group lets all of its five attacks through, the others their only one never.
    samples = [
        attack(5 * n + k, group=f"g{n}") for n in range(600) for k in range(5 if n % 4 == 0 else 1)
    ]
    samples += [benign(n) for n in range(5000, 5100)]
    leaky = {sample.id for sample in samples if int(sample.group.removeprefix("g") or 1) % 4 == 0}
    planned = Planned(name="a", answers=lambda _, s: allow() if s.id in leaky else block())
    settings = {"run": {"stop_when": ["asr<0.5"]}}
    with runs.opened(samples, [planned], settings=settings) as reader:
        order, path = make_schedule(sample_columns(reader), seed=7).order, reader.path
    with sqlite3.connect(path) as connection:
        later = [(int(at),) for at in order[600:]]
        connection.executemany("DELETE FROM records WHERE sample = ?", later)
    connection.close()
    with RecordReader(path) as reader:
        chosen = AnalysisSettings.of(reader.manifest())
        frame = read_frame(reader, chosen)
        rate = analyse_run(reader).defenses[0].card.attack_success_rate
        (check,) = check_limits(frame, GatePolicy(asr_upper=0.5))
    assert rate.method == "betting sequence"
    assert rate.value == check.value is not None
    assert check.low is not None
    assert check.high is not None
    assert 0.5 < rate.value < 0.75  # 750 of 1,200 rows, while one group in four lets any through
    assert check.low < 0.625 < check.high
    assert rate.group_mean is not None
    assert rate.group_mean < 0.35


@pytest.mark.parametrize("size", [1, 4])
def test_a_width_is_reached_near_one_as_near_zero(size: int) -> None:
    """Half of what lies between the limits counts, not where they lie."""
    plan = schedule_of(np.arange(4000) // size, np.ones(4000))
    taken = []
    for errs in (0.05, 0.95):
        rule = rule_of(plan, "asr+-0.05")
        taken.append(feed(rule, np.random.default_rng(2).random(4000) >= errs))
    low, high = sorted(taken)
    assert high < 4000
    assert high < 1.5 * low


def test_without_a_pair_a_difference_is_undefined() -> None:
    """It says so; with one it says nothing."""
    rule = rule_of(schedule_of(np.arange(400), np.ones(400)), "a!=b", names=("a", "b"))
    before = rule.difference("a", "b", is_attack=True)
    assert (before.value, before.p_value, before.test, before.pairs) == (None, None, "", 0)
    assert before.reason == "no pairs"
    for name, share in (("a", 0.9), ("b", 0.5)):
        blocked = np.random.default_rng(3).random(400) < share
        rule.load(name, np.arange(400), blocked.astype(np.int8))
    after = rule.difference("a", "b", is_attack=True)
    assert after.reason == ""
    assert after.value == pytest.approx((after.first_only - after.second_only) / after.pairs)


def test_the_value_of_a_stop_is_brought_back_towards_the_limit() -> None:
    """The share that ended the run leans away from the limit; the limits stay those of any look."""
    schedule = schedule_of(np.arange(400), np.ones(400, dtype=bool))
    rule = rule_of(schedule, "asr<0.1")
    blocked = np.random.default_rng(3).random(400) > 0.25
    feed(rule, blocked)
    found = rule.final_estimate("a", is_attack=True)
    plain = rule.estimate("a", is_attack=True)
    assert (found.low, found.high, found.successes) == (plain.low, plain.high, plain.successes)
    assert found.value is not None
    assert found.share is not None
    assert 0.1 < found.value < found.share
    assert "median-unbiased" in found.method


@pytest.mark.parametrize("rules", [("asr+-0.05",), ("asr<0.1", "asr<0.3"), ("asr<0.1", "fpr<0.9")])
def test_what_other_rules_end_keeps_the_share(rules: tuple[str, ...]) -> None:
    """A width, two limits of one rate, a rule that stays open: no one table of endings."""
    schedule = schedule_of(np.arange(300), np.arange(300) < 299)
    rule = rule_of(schedule, *rules)
    feed(rule, np.random.default_rng(3).random(300) > 0.5)
    found = rule.final_estimate("a", is_attack=True)
    assert found.unbiased is None or "fpr<0.9" in rules
