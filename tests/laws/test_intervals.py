"""Laws that every interval for a rate obeys, from one table of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.alternatives import (
    clopper_pearson_lower,
    clopper_pearson_upper,
    jeffreys,
    survey_beta,
    survey_logit,
    wilson_cc,
)

from guardmark.core.estimate import Estimate
from guardmark.stats.rates.clustered import any_per_group, wilson_default, wilson_default_slices
from guardmark.stats.rates.proportion import (
    clopper_pearson,
    wilson,
)

Interval = Callable[..., Estimate]
Groups = Sequence[tuple[int, int]]

TWO_SIDED = [wilson, wilson_cc, clopper_pearson, jeffreys]
PLAIN = [*TWO_SIDED, clopper_pearson_upper, clopper_pearson_lower]
GROUPED = [wilson_default, survey_logit, survey_beta, any_per_group]

two_sided = pytest.mark.parametrize("interval", TWO_SIDED, ids=lambda f: f.__name__)
plain = pytest.mark.parametrize("interval", PLAIN, ids=lambda f: f.__name__)
grouped = pytest.mark.parametrize("interval", GROUPED, ids=lambda f: f.__name__)


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int]:
    """Events among at least one trial."""
    trials = draw(st.integers(1, 5000))
    return draw(st.integers(0, trials)), trials


@st.composite
def group_lists(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Events among rows, for two groups or more."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=2, max_size=30))
    return [(draw(st.integers(0, size)), size) for size in sizes]


confidences = st.floats(0.5, 0.999)


def bounds(estimate: Estimate) -> tuple[float, float]:
    """Both bounds of a defined estimate."""
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


def apply(interval: Interval, groups: Groups, **options: float) -> Estimate:
    """Hand a list of groups to an estimator of grouped rows."""
    return interval([x for x, _ in groups], [m for _, m in groups], **options)


@plain
@given(pair=counts(), confidence=confidences)
def test_an_interval_holds_its_estimate_and_stays_in_0_to_1(
    interval: Interval, pair: tuple[int, int], confidence: float
) -> None:
    """A rate outside its own interval would be absurd on a page."""
    estimate = interval(*pair, confidence=confidence)
    low, high = bounds(estimate)
    assert estimate.value is not None
    assert 0.0 <= low <= estimate.value <= high <= 1.0


@two_sided
@given(pair=counts(), confidence=confidences)
def test_swapping_success_and_failure_mirrors_the_interval(
    interval: Interval, pair: tuple[int, int], confidence: float
) -> None:
    """Blocked and bypassed are the same measurement read from two ends."""
    successes, trials = pair
    low, high = bounds(interval(successes, trials, confidence=confidence))
    other_low, other_high = bounds(interval(trials - successes, trials, confidence=confidence))
    assert (low, high) == pytest.approx((1 - other_high, 1 - other_low), abs=1e-10)


@two_sided
@given(pair=counts())
def test_twice_the_trials_at_the_same_rate_are_narrower(
    interval: Interval, pair: tuple[int, int]
) -> None:
    """More evidence never widens."""
    low, high = bounds(interval(*pair))
    more_low, more_high = bounds(interval(2 * pair[0], 2 * pair[1]))
    assert more_high - more_low < high - low


@plain
@given(pair=counts(), confidence=st.floats(0.5, 0.98))
def test_more_confidence_is_wider(
    interval: Interval, pair: tuple[int, int], confidence: float
) -> None:
    """A stronger claim needs more room."""
    low, high = bounds(interval(*pair, confidence=confidence))
    wide_low, wide_high = bounds(interval(*pair, confidence=confidence + 0.015))
    assert wide_low <= low
    assert wide_high >= high


@plain
@given(pair=counts())
def test_one_more_event_never_lowers_a_bound(interval: Interval, pair: tuple[int, int]) -> None:
    """Bounds rise with the count."""
    successes, trials = pair
    low, high = bounds(interval(successes, trials + 1))
    more_low, more_high = bounds(interval(successes + 1, trials + 1))
    assert more_low >= low
    assert more_high >= high


@given(pair=counts())
def test_clopper_pearson_is_never_narrower_than_jeffreys(pair: tuple[int, int]) -> None:
    """A guarantee costs width."""
    low, high = bounds(clopper_pearson(*pair))
    mid_low, mid_high = bounds(jeffreys(*pair))
    assert low <= mid_low + 1e-12
    assert high >= mid_high - 1e-12


@grouped
@given(groups=group_lists(), confidence=confidences)
def test_a_grouped_interval_is_defined_and_around_its_rate_or_says_why(
    interval: Interval, groups: Groups, confidence: float
) -> None:
    """Never a NaN, never a silent None."""
    estimate = apply(interval, groups, confidence=confidence)
    assert estimate.value is not None
    if estimate.low is None or estimate.high is None:
        assert estimate.reason
    else:
        assert 0.0 <= estimate.low <= estimate.value <= estimate.high <= 1.0


@grouped
@given(groups=group_lists(), data=st.data())
def test_the_order_of_groups_does_not_matter(
    interval: Interval, groups: Groups, data: st.DataObject
) -> None:
    """Records come in whatever order calls return."""
    shuffled = data.draw(st.permutations(groups))
    one, other = apply(interval, groups), apply(interval, shuffled)
    assert one.value == other.value
    assert one.low == pytest.approx(other.low, abs=1e-9)
    assert one.high == pytest.approx(other.high, abs=1e-9)


@given(groups=group_lists(), confidence=confidences)
def test_the_default_mirrors_too(groups: Groups, confidence: float) -> None:
    """Groups do not break the symmetry of blocked and bypassed."""
    swapped = [(size - events, size) for events, size in groups]
    low, high = bounds(apply(wilson_default, groups, confidence=confidence))
    other = bounds(apply(wilson_default, swapped, confidence=confidence))
    assert (low, high) == pytest.approx((1 - other[1], 1 - other[0]), abs=1e-9)


@given(groups=group_lists())
def test_the_default_never_claims_more_than_wilson_on_rows(groups: Groups) -> None:
    """Groups can only take away, and at most down to one row's worth a mean group."""
    estimate = apply(wilson_default, groups)
    events, rows = sum(x for x, _ in groups), sum(m for _, m in groups)
    low, high = bounds(estimate)
    plain_low, plain_high = bounds(wilson(events, rows))
    assert low <= plain_low + 1e-12
    assert high >= plain_high - 1e-12
    assert estimate.design_effect is not None
    limit = sum(m * m for _, m in groups) / rows
    assert 1.0 - 1e-12 <= estimate.design_effect <= limit + 1e-12


@given(st.lists(st.booleans(), min_size=1, max_size=200), confidences)
def test_the_default_on_singletons_is_wilson_bit_for_bit(
    outcomes: list[bool], confidence: float
) -> None:
    """So a data set without variants reads the same everywhere."""
    default = wilson_default(outcomes, [1] * len(outcomes), confidence=confidence)
    assert bounds(default) == bounds(wilson(sum(outcomes), len(outcomes), confidence=confidence))


@given(groups=group_lists(), cut=st.integers(0, 30))
def test_a_slice_that_is_everything_equals_the_whole(groups: Groups, cut: int) -> None:
    """And slices side by side do not disturb each other."""
    events, sizes = [x for x, _ in groups], [m for _, m in groups]
    whole = wilson_default_slices(events, sizes, slices=[0] * len(groups), slice_count=1)[0]
    assert whole == wilson_default(events, sizes)
    cut = min(cut, len(groups))
    halves = wilson_default_slices(
        events, sizes, slices=[int(place >= cut) for place in range(len(groups))], slice_count=2
    )
    assert sum(half.trials for half in halves) == whole.trials
    if cut > 0:
        assert halves[0] == wilson_default(events[:cut], sizes[:cut])
