"""The headline figures: counts first, failures apart, undefined where nothing was asked."""

from __future__ import annotations

from dataclasses import replace

from tests.analysis.small_runs import (
    Answers,
    Planned,
    Runs,
    allow,
    attack,
    benign,
    block,
    failed,
    garbled,
)

from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.defense.scorecard import (
    Scorecard,
    complement,
    describe_share,
    make_scorecard,
)
from guardmark.analysis.run import analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.manifest import Policy
from guardmark.core.outcome import Decision, ErrorKind, Evidence
from guardmark.core.sample import Sample
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.render.markdown import render_markdown
from guardmark.stats.rates.proportion import wilson

MIXED = [*(attack(n) for n in range(40)), *(benign(n) for n in range(60))]


def card_of(runs: Runs, answers: Answers, samples: list[Sample], **changes: object) -> Scorecard:
    """The scorecard of one defense."""
    with runs.opened(samples, [Planned(name="one", answers=answers)], **changes) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        frame = read_frame(reader, settings)
        return make_scorecard(frame, frame.arms[0])


def test_rates_carry_their_counts_and_wilson_intervals(runs: Runs) -> None:
    """Without groups the interval is plain Wilson."""
    card = card_of(runs, lambda p, _: block() if p % 4 else allow(), MIXED)
    assert (card.attack_success_rate.successes, card.attack_success_rate.trials) == (10, 40)
    assert (card.false_positive_rate.successes, card.false_positive_rate.trials) == (45, 60)
    plain = wilson(10, 40)
    assert card.attack_success_rate.low == 1 - (wilson(30, 40).high or 0)
    assert abs((card.attack_success_rate.low or 0) - (plain.low or 0)) < 1e-12
    assert card.attack_success_rate.method == "wilson"
    assert card.false_negative_rate == card.attack_success_rate


def test_one_measurement_read_from_two_ends(runs: Runs) -> None:
    """ASR and TPR are complements, bounds and all."""
    card = card_of(runs, lambda p, _: block() if p % 3 else allow(), MIXED)
    assert complement(card.true_positive_rate) == card.attack_success_rate
    assert card.true_positive_rate.successes == 40 - card.attack_success_rate.successes


def test_exchanging_block_and_allow_swaps_the_rates(runs: Runs) -> None:
    """A law of the house."""
    one = card_of(runs, lambda p, _: block() if p % 3 else allow(), MIXED)
    other = card_of(runs, lambda p, _: allow() if p % 3 else block(), MIXED)
    assert one.attack_success_rate.successes == other.true_positive_rate.successes
    assert one.true_positive_rate.low == other.true_positive_rate.low or (
        abs((one.attack_success_rate.low or 0) - (other.true_positive_rate.low or 0)) < 1e-12
    )


def test_failures_change_the_answered_share_and_no_rate(runs: Runs) -> None:
    """An error is no decision."""

    def clean(position: int, _: Sample) -> object:
        return block() if position % 2 else allow()

    more = [*MIXED, *(attack(n) for n in range(100, 110)), *(benign(n) for n in range(100, 105))]
    before = card_of(runs, clean, MIXED)  # type: ignore[arg-type]
    after = card_of(
        runs,
        lambda p, s: clean(p, s) if p < 100 else (failed() if p % 2 else garbled()),  # type: ignore[return-value, arg-type]
        more,
    )
    assert after.attack_success_rate.successes == before.attack_success_rate.successes
    assert after.attack_success_rate.trials == before.attack_success_rate.trials
    assert after.false_positive_rate.trials == before.false_positive_rate.trials
    assert (before.answered.successes, before.answered.trials) == (100, 100)
    assert (after.answered.successes, after.answered.trials) == (100, 115)
    assert after.confusion.malformed + after.confusion.errors == 15
    assert after.confusion.total == 115


def test_the_two_bounds_hold_the_rate_between_them(runs: Runs) -> None:
    """All failures as allowed, all as blocked."""
    card = card_of(
        runs, lambda p, s: failed() if p % 5 == 0 else block() if s.is_attack else allow(), MIXED
    )
    opened, closed = card.fail_open, card.fail_closed
    assert (opened.attack_success_rate.successes, opened.attack_success_rate.trials) == (8, 40)
    assert closed.attack_success_rate.successes == 0
    assert (closed.false_positive_rate.successes, closed.false_positive_rate.trials) == (12, 60)
    assert opened.false_positive_rate.successes == 0


def test_errors_are_counted_by_kind(runs: Runs) -> None:
    """What failed says what to mend."""
    card = card_of(
        runs,
        lambda p, _: (
            failed(ErrorKind.TIMEOUT) if p < 3 else failed(ErrorKind.HTTP) if p < 5 else allow()
        ),
        MIXED,
    )
    assert card.confusion.error_kinds == (("timeout", 3), ("http", 2))


def test_the_policy_is_a_row_of_its_own(runs: Runs) -> None:
    """Block on error, allow on malformed."""
    card = card_of(
        runs,
        lambda p, _: failed() if p < 4 else garbled() if p < 10 else block(),
        MIXED,
        on_error=Policy.BLOCK,
        on_malformed=Policy.ALLOW,
    )
    assert card.under_policy is not None
    rate = card.under_policy.attack_success_rate
    assert (rate.successes, rate.trials) == (6, 40)
    assert (card.attack_success_rate.successes, card.attack_success_rate.trials) == (0, 30)


def test_a_policy_that_enforces_nothing_has_no_row(runs: Runs) -> None:
    """Recording is not deciding."""
    assert card_of(runs, lambda _p, _s: allow(), MIXED).under_policy is None


def test_a_policy_for_errors_alone_leaves_malformed_out(runs: Runs) -> None:
    """Recorded answers stay no decision."""
    card = card_of(
        runs,
        lambda p, _: failed() if p < 4 else garbled() if p < 10 else block(),
        MIXED,
        on_error=Policy.FALLBACK_TO_MAIN,
    )
    assert card.under_policy is not None
    rate = card.under_policy.attack_success_rate
    assert (rate.successes, rate.trials) == (4, 34)


def test_attacks_alone_leave_false_alarms_undefined(runs: Runs) -> None:
    """Undefined is not zero."""
    card = card_of(runs, lambda _p, _s: block(), [attack(n) for n in range(20)])
    rate = card.false_positive_rate
    assert (rate.value, rate.low, rate.high, rate.trials) == (None, None, None, 0)
    assert card.true_positive_rate.value == 1.0
    assert card.ratios.balanced_error.value is None
    assert all(each.positive.value is None for each in card.predictive)


def test_benign_samples_alone_leave_attacks_undefined(runs: Runs) -> None:
    """Undefined is not zero, the other way round; the true zero stays."""
    card = card_of(runs, lambda _p, _s: allow(), [benign(n) for n in range(20)])
    assert card.attack_success_rate.value is None
    assert card.false_positive_rate.value == 0.0


def test_no_answer_at_all_leaves_every_rate_undefined(runs: Runs) -> None:
    """A defense that fails everywhere has no rates, and both bounds."""
    card = card_of(runs, lambda _p, _s: failed(ErrorKind.CRASH), MIXED)
    assert card.attack_success_rate.value is None
    assert card.answered.value == 0.0
    assert card.fail_open.attack_success_rate.value == 1.0
    assert card.ratios.prevalence is None


def test_shared_groups_widen_the_interval(runs: Runs) -> None:
    """Ten ideas in four variants each are not forty ideas."""
    grouped = [attack(n, group=f"g{n // 4}") for n in range(40)]
    card = card_of(runs, lambda p, _: block() if (p // 4) % 2 else allow(), [*grouped, *MIXED[40:]])
    rate = card.attack_success_rate
    assert rate.method == "wilson_clustered"
    assert rate.groups == 10
    assert (rate.effective_n or 99) < 20
    assert (rate.design_effect or 0) > 2
    plain = wilson(rate.successes, rate.trials)
    assert (rate.high or 0) - (rate.low or 0) > (plain.high or 0) - (plain.low or 0)


def test_any_bypass_counts_groups(runs: Runs) -> None:
    """One variant that gets through opens its whole group."""
    grouped = [attack(n, group=f"g{n // 4}") for n in range(40)]
    card = card_of(runs, lambda p, _: allow() if p % 8 == 0 else block(), grouped)
    assert card.any_bypass is not None
    assert (card.any_bypass.successes, card.any_bypass.trials) == (5, 10)


def test_groups_that_weigh_the_same_have_their_own_mean_and_limits(runs: Runs) -> None:
    """One group of thirty attacks, all of which pass, weighs as one of two of which none does."""
    samples = [attack(n, group="story" if n < 30 else f"g{n // 2}") for n in range(50)]
    told = card_of(runs, lambda p, _s: allow() if p < 30 else block(), samples).group_mean
    assert told is not None
    assert (told.value, told.trials) == (1 / 11, 11)
    assert told.low is not None
    assert told.high is not None
    assert told.low < 1 / 11 < told.high < 0.6


def test_any_bypass_needs_a_group_of_several(runs: Runs) -> None:
    """Without variants it would repeat the ASR."""
    assert card_of(runs, lambda _p, _s: allow(), MIXED).any_bypass is None


def test_repeats_of_a_sample_are_one_group(runs: Runs) -> None:
    """Asking thrice does not make three samples."""
    card = card_of(runs, lambda p, _: block() if p % 2 else allow(), MIXED, repeats=3)
    rate = card.attack_success_rate
    assert (rate.trials, rate.groups) == (120, 40)
    assert (rate.effective_n or 999) < 41


def test_few_groups_are_marked(runs: Runs) -> None:
    """Nine ideas cannot carry an interval."""
    grouped = [attack(n, group=f"g{n // 5}") for n in range(45)]
    card = card_of(runs, lambda p, _: block() if p % 2 else allow(), [*grouped, *MIXED[40:]])
    assert card.attack_success_rate.few_groups


def test_precision_and_f1_match_their_definition(runs: Runs) -> None:
    """Point values from counts, intervals from the bootstrap, the same for the same seed."""
    samples = [*(attack(n) for n in range(60)), *(benign(n) for n in range(60))]

    def answers(position: int, sample: Sample) -> object:
        return block() if (position % 4 != 0) == sample.is_attack else allow()

    one, two = (card_of(runs, answers, samples) for _ in range(2))  # type: ignore[arg-type]
    assert one.ratios == two.ratios
    hits, alarms = 45, 15
    assert one.ratios.precision.value == hits / (hits + alarms)
    assert one.ratios.f1.value == 2 * hits / (2 * hits + alarms + 15)
    assert one.ratios.balanced_error.value == 0.25
    assert one.ratios.prevalence == 0.5
    assert one.ratios.f1.low is not None
    assert one.ratios.f1.replicates == 2000


def test_texts_that_were_cut_are_rated_by_class(runs: Runs) -> None:
    """Padding brings an attack behind the cut; nothing is said where no text was cut."""

    def answer(position: int, sample: Sample) -> Decision:
        is_cut = sample.is_attack and position % 4 == 0
        return replace(allow(), evidence=Evidence(truncated=True)) if is_cut else block()

    card = card_of(runs, answer, MIXED)
    attacks, benign_ones = card.truncated_attacks, card.truncated_benign
    assert attacks is not None
    assert benign_ones is not None
    assert (attacks.successes, attacks.trials) == (10, 40)
    assert (benign_ones.successes, benign_ones.trials) == (0, 60)
    assert attacks.low is not None
    whole = card_of(runs, lambda _p, _s: block(), MIXED)
    assert whole.truncated_attacks is whole.truncated_benign is None


def test_the_report_tells_how_many_texts_were_cut(runs: Runs) -> None:
    """Under the verdict and in the table of all figures."""

    def answer(_: int, sample: Sample) -> Decision:
        return replace(allow(), evidence=Evidence(truncated=True)) if sample.is_attack else block()

    with runs.opened(MIXED, [Planned(name="one", answers=answer)]) as reader:
        page = render_markdown(build_document(analyse_run(reader)))
    assert "texts were cut to fit it" in page
    line = next(each for each in page.splitlines() if "texts were cut" in each)
    assert "(40/40) of attacks" in line
    assert "(0/60) of benign samples" in line
    assert "Attacks cut to fit it, of those answered" in page


def test_a_share_without_an_interval_is_told_by_its_counts(runs: Runs) -> None:
    """Nothing asked is no zero, and a rate that has limits is told with them."""
    some = card_of(runs, lambda at, _s: allow() if at < 4 else block(), MIXED[:20])
    assert describe_share(some.false_positive_rate) == "0 of 0, no interval"
    assert describe_share(some.attack_success_rate) == "4 of 20 = 0.200 [0.081, 0.416]"


def test_a_card_is_a_row_of_a_table(runs: Runs) -> None:
    """Shares with limits and counts; undefined where nothing was asked, and zero where it is."""
    card = card_of(runs, lambda at, _s: allow() if at < 4 else block(), MIXED[:20])
    row = card.columns()
    assert list(row) == [
        *("attack_success_rate", "attack_success_rate_low", "attack_success_rate_high"),
        *("attack_success_rate_n", "false_positive_rate", "false_positive_rate_low"),
        *("false_positive_rate_high", "false_positive_rate_n"),
        *("answered", "answered_low", "answered_high", "answered_n"),
        *("balanced_error", "balanced_error_low", "balanced_error_high", "malformed", "errors"),
    ]
    assert (row["attack_success_rate"], row["attack_success_rate_n"]) == (0.2, 20)
    assert row["attack_success_rate_low"] == card.attack_success_rate.low
    assert (row["false_positive_rate"], row["false_positive_rate_low"]) == (None, None)
    assert (row["false_positive_rate_n"], row["answered"]) == (0, 1.0)
    none = card_of(runs, lambda _at, _s: block(), MIXED[:20]).columns()
    assert none["attack_success_rate"] == 0.0
