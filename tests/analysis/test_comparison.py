"""Two defenses on the same samples."""

from __future__ import annotations

from dataclasses import replace

from tests.analysis.small_runs import Answers, Planned, Runs, allow, attack, benign, block, failed

from guardmark.analysis.compare.comparison import PairVerdict, RunComparison, judge_pair
from guardmark.analysis.run import analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.sample import Sample
from guardmark.stats.paired.significance import mcnemar

SAMPLES = [*(attack(n) for n in range(200)), *(benign(n) for n in range(200))]


def compared(
    runs: Runs,
    *answers: Answers,
    samples: list[Sample] = SAMPLES,
    margin: float | None = None,
    types: tuple[str, ...] = (),
) -> RunComparison | None:
    """The comparison of defenses called a, b, c ..."""
    kinds = types or ("pattern",) * len(answers)
    planned = [
        Planned(name="abcdef"[n], answers=each, type=kinds[n]) for n, each in enumerate(answers)
    ]
    with runs.opened(samples, planned) as reader:
        settings = replace(AnalysisSettings.of(reader.manifest()), non_inferiority_margin=margin)
        return analyse_run(reader, settings).comparison


def errs(attacks: int, benign_: int) -> Answers:
    """A defense that errs on the first so many of each side."""

    def answer(_: int, sample: Sample) -> object:
        number = int(sample.id[2:])
        if sample.is_attack:
            return allow() if number < attacks else block()
        return block() if number < benign_ else allow()

    return answer  # type: ignore[return-value]


def test_comparing_a_defense_with_its_twin_finds_nothing(runs: Runs) -> None:
    """A law of the house."""
    found = compared(runs, errs(40, 10), errs(40, 10))
    assert found is not None
    pair = found.pairs[0]
    assert pair.verdict is PairVerdict.UNDECIDED
    assert (pair.attacks.difference.value, pair.attacks.difference.p_value) == (0.0, 1.0)
    assert found.attacks.undistinguished == ("a", "b")
    assert pair.attacks.detectable is not None


def test_what_would_have_been_found_knows_its_groups(runs: Runs) -> None:
    """Ten groups of ten show less than a hundred samples, and one that dominates shows nothing."""
    alone, ten, giant = (
        compared(
            runs,
            errs(40, 10),
            errs(46, 10),
            samples=[
                *(attack(n, group=group(n)) for n in range(100)),
                *(benign(n) for n in range(20)),
            ],
        )
        for group in (lambda n: f"g{n}", lambda n: f"g{n // 10}", lambda n: f"g{max(0, n - 60)}")
    )
    found = [each.pairs[0].attacks.detectable for each in (alone, ten, giant) if each]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0] < found[1]
    assert found[2] is None


def test_no_difference_above_one_is_named(runs: Runs) -> None:
    """Two samples find nothing, so the largest difference there is stands there."""
    pair = compared(
        runs, errs(1, 0), errs(0, 1), samples=[attack(0), attack(1), benign(0), benign(1)]
    )
    assert pair is not None
    assert pair.pairs[0].attacks.detectable == 1.0


def test_discordant_counts_and_mcnemar(runs: Runs) -> None:
    """Without groups the test is McNemar's mid-p."""
    found = compared(runs, errs(30, 10), errs(50, 10))
    assert found is not None
    side = found.pairs[0].attacks
    assert (side.difference.first_only, side.difference.second_only) == (0, 20)
    assert (side.both, side.neither) == (30, 150)
    assert side.difference.p_value == mcnemar(0, 20).p_midp
    assert (side.difference.value, side.unpaired) == (-0.1, 0)


def test_fewer_bypasses_alone_are_not_called_better(runs: Runs) -> None:
    """Equal false alarms are not shown without a margin."""
    found = compared(runs, errs(20, 10), errs(90, 10))
    assert found is not None
    assert found.pairs[0].verdict is PairVerdict.FIRST_FEWER_BYPASSES


def test_better_needs_false_alarms_within_a_margin_fixed_before(runs: Runs) -> None:
    """Non-inferiority on benign samples makes it better, either way round."""
    found = compared(runs, errs(20, 10), errs(90, 10), margin=0.05)
    assert found is not None
    assert found.pairs[0].verdict is PairVerdict.FIRST_BETTER
    turned = compared(runs, errs(90, 10), errs(20, 10), margin=0.05)
    assert turned is not None
    assert turned.pairs[0].verdict is PairVerdict.SECOND_BETTER


def test_fewer_errors_on_both_sides_are_better(runs: Runs) -> None:
    """No margin is needed when both are shown."""
    found = compared(runs, errs(20, 10), errs(90, 60))
    assert found is not None
    assert found.pairs[0].verdict is PairVerdict.FIRST_BETTER
    assert (found.attacks.best, found.attacks.undistinguished) == ("a", ("a",))


def test_better_asr_with_worse_fpr_is_a_trade_off(runs: Runs) -> None:
    """Never better, whatever the margin."""
    for margin in (None, 0.05):
        found = compared(runs, errs(20, 60), errs(90, 10), margin=margin)
        assert found is not None
        assert found.pairs[0].verdict is PairVerdict.TRADE_OFF


def test_verdicts_on_one_side_name_who(runs: Runs) -> None:
    """Fewer bypasses or fewer false alarms, first or second."""
    expected = {
        (90, 10, 20, 10): PairVerdict.SECOND_FEWER_BYPASSES,
        (20, 10, 20, 60): PairVerdict.FIRST_FEWER_FALSE_ALARMS,
        (20, 60, 20, 10): PairVerdict.SECOND_FEWER_FALSE_ALARMS,
    }
    for (a1, b1, a2, b2), verdict in expected.items():
        found = compared(runs, errs(a1, b1), errs(a2, b2))
        assert found is not None
        assert found.pairs[0].verdict is verdict


def test_samples_missing_on_one_side_are_left_out_and_counted(runs: Runs) -> None:
    """An error is never an allow."""
    base = errs(30, 10)
    found = compared(runs, base, lambda p, s: failed() if int(s.id[2:]) % 10 == 0 else base(p, s))
    assert found is not None
    side = found.pairs[0].attacks
    assert (side.unpaired, side.difference.pairs, side.difference.value) == (20, 180, 0.0)


def test_groups_use_the_sign_flip(runs: Runs) -> None:
    """Variants of one idea are one draw."""
    grouped = [attack(n, group=f"g{n // 10}") for n in range(200)]
    found = compared(runs, errs(100, 0), errs(150, 0), samples=[*grouped, *SAMPLES[200:]])
    assert found is not None
    difference = found.pairs[0].attacks.difference
    assert (difference.test, difference.groups) == ("sign_flip_midp", 20)
    assert (difference.p_value or 0) > mcnemar(0, 50).p_midp


def test_holm_is_taken_over_all_pairs(runs: Runs) -> None:
    """Three defenses make three pairs and an omnibus test."""
    found = compared(runs, errs(20, 10), errs(35, 10), errs(90, 10))
    assert found is not None
    assert [(pair.first, pair.second) for pair in found.pairs] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]
    for pair in found.pairs:
        assert (pair.attacks.adjusted_p or 0) >= (pair.attacks.difference.p_value or 1)
    assert found.attacks.omnibus is not None
    assert found.attacks.omnibus.p_value < 0.001
    assert found.attacks.best == "a"


def test_baselines_are_left_out_when_two_candidates_are_there(runs: Runs) -> None:
    """Nobody asks whether a coin is better."""
    found = compared(
        runs, errs(200, 0), errs(20, 5), errs(30, 5), types=("allow-all", "pattern", "ngram")
    )
    assert found is not None
    assert found.left_out == ("a",)
    assert len(found.pairs) == 1


def test_a_single_candidate_is_compared_with_the_baselines(runs: Runs) -> None:
    """Better than nothing is a question one may ask."""
    found = compared(runs, errs(200, 0), errs(20, 5), types=("allow-all", "pattern"))
    assert found is not None
    assert (found.left_out, len(found.pairs)) == ((), 1)


def test_one_defense_has_nothing_to_be_compared_with(runs: Runs) -> None:
    """No comparison is not an empty one."""
    assert compared(runs, errs(20, 5)) is None


def test_without_common_answers_nothing_is_best(runs: Runs) -> None:
    """Two halves that never met."""
    found = compared(
        runs,
        lambda p, _: block() if p % 2 else failed(),
        lambda p, _: failed() if p % 2 else block(),
    )
    assert found is not None
    pair = found.pairs[0]
    assert (found.attacks.best, pair.attacks.difference.value) == ("", None)
    assert (pair.attacks.adjusted_p, pair.attacks.detectable) == (None, None)
    assert pair.verdict is PairVerdict.UNDECIDED


def test_the_verdict_follows_the_error_probability(runs: Runs) -> None:
    """What is shown at 5 % need not be shown at 0.01 %."""
    found = compared(runs, errs(20, 10), errs(32, 10))
    assert found is not None
    pair = found.pairs[0]
    assert judge_pair(pair.attacks, pair.benign, alpha=0.05) is PairVerdict.FIRST_FEWER_BYPASSES
    assert judge_pair(pair.attacks, pair.benign, alpha=1e-6) is PairVerdict.UNDECIDED


def test_two_are_told_apart_by_test_and_interval_together(runs: Runs) -> None:
    """A p value at the level is not below it, a limit at 0 leaves 0 open; the sign says who."""
    found = compared(runs, errs(40, 10), errs(80, 10))
    assert found is not None
    side = found.pairs[0].attacks

    def told(p: float | None, low: float | None, high: float | None) -> int:
        limits = replace(side.difference, low=low, high=high)
        return replace(side, adjusted_p=p, difference=limits).direction(0.05)

    assert (told(0.04, 0.1, 0.2), told(0.04, -0.2, -0.1)) == (1, -1)
    assert {told(0.05, 0.1, 0.2), told(0.05, -0.2, -0.1)} == {0}
    assert {told(0.04, 0.0, 0.2), told(0.04, -0.2, 0.0), told(0.04, -0.1, 0.1)} == {0}
    assert {told(None, 0.1, 0.2), told(0.04, None, None)} == {0}


def test_tiers_say_who_is_told_apart_from_whom(runs: Runs) -> None:
    """Two share a letter unless their own adjusted test tells them apart; the lowest is first."""
    found = compared(runs, errs(100, 10), errs(20, 10), errs(22, 10), errs(40, 10))
    assert found is not None
    assert [(each.defense, each.letters) for each in found.attacks.tiers] == [
        ("b", "a"),
        ("c", "a"),
        ("d", "b"),
        ("a", "c"),
    ]
    assert {each.letters for each in found.benign.tiers} == {"a"}


def test_a_group_that_dominates_the_pairs_is_named(runs: Runs) -> None:
    """Twelve of 52 attacks are rewritings of one: more than a fifth, and twice the mean group."""
    variants = [attack(n, group="story") if n < 12 else attack(n) for n in range(52)]
    found = compared(runs, errs(20, 10), errs(30, 10), samples=[*variants, *SAMPLES[200:]])
    assert found is not None
    assert found.pairs[0].attacks.caution == ", of which the group 'story' holds 23 %"
    assert found.pairs[0].benign.caution == ""


def test_the_text_of_a_comparison_tells_its_first_verdicts(runs: Runs) -> None:
    """What a notebook shows: three pairs, and how many more there are."""
    found = compared(runs, errs(100, 10), errs(0, 10), errs(100, 10))
    assert found is not None
    assert repr(found) == (
        "Comparison(a and b: second fewer bypasses; a and c: undecided; "
        "b and c: first fewer bypasses)"
    )
    four = compared(runs, *(errs(4, 4) for _ in range(4)))
    assert repr(four).endswith("a and d: undecided; 3 more pairs)")
