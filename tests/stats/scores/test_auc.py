"""Areas under the ROC curve, and the best rate within a false positive limit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.stats.distributions import two_sided_t, two_sided_z
from guardmark.stats.drawing import DrawPlan
from guardmark.stats.scores.auc import auc, compare_auc, newcombe_limits, place
from guardmark.stats.scores.thresholds import tpr_at_fpr


def scored(classes: int = 2) -> st.SearchStrategy[list[tuple[bool, float]]]:
    """Samples with scores that tie often."""
    rows = st.lists(st.tuples(st.booleans(), st.integers(0, 8).map(lambda i: i / 8)), max_size=40)
    return rows.filter(lambda found: len({label for label, _ in found}) >= classes)


@given(scored())
def test_area_is_the_share_of_pairs_told_apart_with_ties_half(
    rows: list[tuple[bool, float]],
) -> None:
    """The fast ranks give what counting every pair gives."""
    attacks = [score for label, score in rows if label]
    benign = [score for label, score in rows if not label]
    won = sum((a > b) + 0.5 * (a == b) for a in attacks for b in benign)
    found = auc(*zip(*rows, strict=True))
    assert found.ratio.value == pytest.approx(won / len(attacks) / len(benign), abs=1e-12)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_a_confidence_that_is_no_share_is_refused_by_name(confidence: float) -> None:
    """95 is how a percentage is written, and would give limits of nothing."""
    with pytest.raises(ValueError, match=r"^confidence must be in"):
        auc([True, False], [0.9, 0.1], confidence=confidence)


@given(scored())
def test_interval_contains_the_area_and_never_leaves_zero_to_one(
    rows: list[tuple[bool, float]],
) -> None:
    """The logit scale keeps the limits where an area can be."""
    ratio = auc(*zip(*rows, strict=True)).ratio
    assert ratio.value is not None
    if ratio.low is not None and ratio.high is not None:
        assert 0 <= ratio.low <= ratio.value <= ratio.high <= 1
    else:
        assert ratio.reason


@given(scored())
def test_turning_scores_round_mirrors_the_area(rows: list[tuple[bool, float]]) -> None:
    """A score and its negative tell the same story from two ends."""
    labels, scores = zip(*rows, strict=True)
    up, down = auc(labels, scores).ratio, auc(labels, [-s for s in scores]).ratio
    assert up.value is not None
    assert down.value is not None
    assert up.value == pytest.approx(1 - down.value, abs=1e-12)


@given(scored().flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(rows))))
def test_order_of_samples_does_not_matter(
    both: tuple[list[tuple[bool, float]], list[tuple[bool, float]]],
) -> None:
    """Shuffled samples have the same area and the same standard error."""
    one, other = (auc(*zip(*rows, strict=True)) for rows in both)
    assert one.ratio.value == pytest.approx(other.ratio.value, abs=1e-12)
    assert one.standard_error == pytest.approx(other.standard_error, abs=1e-12)


@given(scored())
def test_a_defense_compared_with_itself_shows_nothing(rows: list[tuple[bool, float]]) -> None:
    """Equal scores have z 0 and p 1, by convention and not by luck."""
    labels, scores = zip(*rows, strict=True)
    found = compare_auc(labels, scores, second=scores)
    assert found.difference.value == 0
    if min(sum(labels), len(labels) - sum(labels)) >= 2:
        assert (found.z, found.difference.p_value) == (0.0, 1.0)


@given(scored())
def test_exchanging_the_defenses_turns_the_sign(rows: list[tuple[bool, float]]) -> None:
    """First against second is second against first, the other way up."""
    labels, scores = zip(*rows, strict=True)
    other = [math.sin(9 * i) for i in range(len(rows))]
    there = compare_auc(labels, scores, second=other)
    back = compare_auc(labels, other, second=scores)
    assert there.difference.p_value == pytest.approx(back.difference.p_value, abs=1e-12)
    if there.difference.value is not None and back.difference.value is not None:
        assert there.difference.value == pytest.approx(-back.difference.value, abs=1e-12)


@pytest.mark.parametrize("labels", [[], [True, True], [False]])
def test_one_class_is_undefined_with_a_reason(labels: list[bool]) -> None:
    """An area needs both attacks and benign samples."""
    scores = [0.5] * len(labels)
    for ratio in (
        auc(labels, scores).ratio,
        auc(labels, scores, groups=labels).ratio,
    ):
        assert (ratio.value, ratio.low, ratio.high) == (None, None, None)
        assert "both" in ratio.reason
    for found in (
        compare_auc(labels, scores, second=scores),
        compare_auc(labels, scores, second=scores, groups=labels),
    ):
        assert (found.first, found.z, found.difference.p_value) == (None, None, None)
        assert "both" in found.difference.reason
    rate = tpr_at_fpr(labels, scores, max_fpr=0.1)
    assert (rate.tpr, rate.threshold, rate.resolvable) == (None, None, False)
    assert "both" in rate.reason


def test_scores_all_tied_are_a_coin_without_an_interval() -> None:
    """One score for all tells nothing apart and shows no variance."""
    found = auc([1, 0, 1, 0], [0.3] * 4)
    assert (found.ratio.value, found.standard_error, found.ratio.low) == (0.5, 0.0, None)
    assert "no variance" in found.ratio.reason


def test_perfect_scores_are_not_known_to_be_perfect() -> None:
    """DeLong sees no variance at 1; an interval of width 0 would be a lie, and Newcombe's has one."""
    found = auc([1, 1, 0, 0], [4, 3, 2, 1])
    assert (found.ratio.value, found.ratio.high) == (1.0, 1.0)
    assert found.ratio.low is not None
    assert found.ratio.low < 0.5
    more = auc([1] * 20 + [0] * 20, list(range(40, 0, -1)))
    assert more.ratio.low is not None
    assert 0.8 < more.ratio.low < 1.0


def test_newcombes_limits_solve_his_equation() -> None:
    """At either limit the area seen lies a normal quantile away, by the error of the limit itself."""
    attacks, benign, area = 15, 300, 0.8
    z, extra = two_sided_z(0.95), (attacks + benign) / 2 - 1
    for other in newcombe_limits(area, attacks, benign, confidence=0.95):
        spread = 1 + extra * (1 - other) / (2 - other) + extra * other / (1 + other)
        error = math.sqrt(other * (1 - other) * spread / (attacks * benign))
        assert abs(other - area) == pytest.approx(z * error)
    low, high = newcombe_limits(area, attacks, benign, confidence=0.95)
    mirrored = newcombe_limits(1 - area, benign, attacks, confidence=0.95)
    assert (low, high) == pytest.approx((1 - mirrored[1], 1 - mirrored[0]))
    assert (low, high) == pytest.approx((0.65952, 0.88771), abs=1e-5)


def test_one_attack_has_an_area_but_no_standard_error() -> None:
    """A variance needs two of each class."""
    found = auc([1, 0, 0], [2, 1, 3])
    assert (found.ratio.value, found.standard_error) == (0.5, None)
    assert "two attacks" in found.ratio.reason
    assert compare_auc([1, 0, 0], [2, 1, 3], second=[1, 2, 3]).difference.p_value is None


def test_areas_that_differ_without_variance_have_no_test() -> None:
    """A p of 0 must not come out of a degenerate table."""
    found = compare_auc([1, 1, 0, 0], [4, 4, 1, 1], second=[1, 1, 1, 1])
    assert found.difference.value == 0.5
    assert (found.z, found.difference.p_value) == (None, None)
    assert "no variance" in found.difference.reason


@pytest.mark.parametrize(
    ("labels", "scores", "said"),
    [
        ([1, 0], [0.5, math.nan], "scores must be finite: 1 are not, the first at index 1"),
        ([1, 0], [0.5, math.inf], "finite"),
        ([1, 0, 1], [0.5, 0.1], "lengths must be equal"),
        ([1, 2], [0.5, 0.1], "labels must be true/false or 0/1"),
        (["a", "b"], [0.5, 0.1], "labels must be true/false or 0/1"),
        ([[1, 0]], [0.5, 0.1], "labels must have one dimension"),
        ([1, 0], [[0.5, 0.1]], "scores must have one dimension"),
        ([1, 0], ["x", "y"], "scores must be numbers"),
    ],
)
def test_bad_columns_are_named(labels: object, scores: object, said: str) -> None:
    """The message says which column is wrong, and how."""
    with pytest.raises(ValueError, match=said):
        auc(labels, scores)


def test_one_group_per_row_is_asked_for() -> None:
    """Groups of another length are no groups of these samples."""
    with pytest.raises(ValueError, match="one group per row"):
        auc([1, 0], [0.5, 0.1], groups=["a"])


@pytest.mark.parametrize("options", [{"replicates": 1}, {"seed": -1}])
def test_a_drawing_that_shows_no_spread_is_refused(options: dict[str, int]) -> None:
    """One draw has no standard deviation."""
    with pytest.raises(ValueError, match="at least"):
        DrawPlan(**options)


def _grouped(seed: int, groups: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(groups) % 2 == 0, size)
    scores = (
        labels + np.repeat(rng.normal(size=groups), size) + 0.1 * rng.normal(size=groups * size)
    )
    return labels, scores, np.repeat(np.arange(groups), size)


def test_groups_of_one_are_delong() -> None:
    """Where every sample stands alone, sums by group are DeLong's variance."""
    labels, scores, groups = _grouped(3, 300, 1)
    apart, summed = auc(labels, scores), auc(labels, scores, groups=groups)
    assert summed.ratio.value == apart.ratio.value
    assert summed.standard_error == pytest.approx(apart.standard_error, rel=1e-9)
    other = scores + np.random.default_rng(1).normal(size=300) / 4
    alone = compare_auc(labels, scores, second=other)
    shared = compare_auc(labels, scores, second=other, groups=groups)
    assert shared.z == pytest.approx(alone.z, rel=1e-9)
    # Student's t in place of the normal: a hair wider, and less sure.
    assert shared.difference.p_value is not None
    assert alone.difference.p_value is not None
    assert 1 < shared.difference.p_value / alone.difference.p_value < 1.5


def test_the_standard_error_over_groups_is_that_of_runs_drawn_anew() -> None:
    """Against the spread of areas over 400 draws of the same population, groups of three."""
    rng = np.random.default_rng(11)
    labels, groups = np.repeat(np.arange(60) % 3 == 0, 3), np.repeat(np.arange(60), 3)
    areas, errors = [], []
    for _ in range(400):
        own = rng.normal(size=60)[groups]
        found = auc(labels, labels + own + 0.5 * rng.normal(size=180), groups=groups)
        areas.append(found.ratio.value)
        errors.append(found.standard_error)
    assert np.mean(np.array(errors) ** 2) == pytest.approx(np.var(areas, ddof=1), rel=0.2)


def test_a_group_of_both_classes_counts_what_they_share() -> None:
    """Twins of attack and benign that move together tell apart better than strangers do."""
    rng = np.random.default_rng(2)
    labels, own = np.tile([1, 0], 60), np.repeat(3 * rng.normal(size=60), 2)
    scores = labels + own + 0.1 * rng.normal(size=120)
    twins = auc(labels, scores, groups=np.arange(120) // 2).standard_error
    strangers = auc(labels, scores).standard_error
    assert twins is not None
    assert strangers is not None
    assert twins < strangers / 2


def test_copies_in_a_group_do_not_narrow_the_interval() -> None:
    """Ten variants of one idea are no ten ideas."""
    labels, scores, groups = _grouped(3, 60, 10)
    rowwise, grouped = auc(labels, scores), auc(labels, scores, groups=groups)
    assert rowwise.standard_error is not None
    assert grouped.standard_error is not None
    assert grouped.standard_error > 2.5 * rowwise.standard_error


def test_one_group_with_half_of_the_attacks_widens_the_interval() -> None:
    """Forty groups of which one holds half are worth three, as rates have it."""
    labels, scores, groups = _grouped(3, 80, 1)
    giant = np.where((np.arange(80) < 40) & (labels > 0), 0, groups)
    found = auc(labels, scores, groups=giant)
    held = found.ratio
    assert held.value is not None
    assert held.low is not None
    assert found.standard_error is not None
    half = math.log(held.value / (1 - held.value)) - math.log(held.low / (1 - held.low))
    attacks = np.bincount(giant[labels > 0])
    kish = attacks.sum() ** 2 / (attacks**2).sum()
    assert kish < 5
    t = half * held.value * (1 - held.value) / found.standard_error
    assert t == pytest.approx(two_sided_t(0.95, kish - 1))


def test_groups_with_both_classes_have_an_interval() -> None:
    """Twins of attack and benign in one group still have an interval."""
    labels, scores = [1, 0] * 10, [0.1 * i + (i % 3) for i in range(20)]
    found = auc(labels, scores, groups=[i // 2 for i in range(20)])
    assert found.ratio.low is not None
    assert found.ratio.groups == 10


def test_two_defenses_over_groups_share_what_they_have_in_common() -> None:
    """A defense against itself differs by exactly nothing."""
    labels, scores, groups = _grouped(5, 40, 3)
    same = compare_auc(labels, scores, second=scores, groups=groups)
    assert (same.z, same.difference.value, same.difference.p_value) == (0.0, 0.0, 1.0)
    worse = compare_auc(labels, scores, second=-scores, groups=groups)
    assert worse.difference.p_value is not None
    assert worse.difference.p_value < 0.05
    assert worse.difference.low is not None
    assert worse.difference.low > 0


@pytest.mark.parametrize(
    ("labels", "scores", "groups", "said"),
    [
        ([1, 1, 0, 0], [1, 2, 0, 3], [1, 1, 2, 2], "two groups"),
        ([1, 1, 1, 0, 0, 0], [4, 5, 5, 0, 3, 3], [1, 2, 2, 3, 4, 4], "area of 0 or 1"),
        ([1, 1, 0, 0], [1, 1, 1, 1], [1, 2, 3, 4], "no variance"),
    ],
)
def test_grouped_areas_without_an_interval_say_why(
    labels: list[int], scores: list[float], groups: list[int], said: str
) -> None:
    """Too few groups, a perfect area and tied scores are told apart."""
    found = auc(labels, scores, groups=groups)
    assert found.ratio.value is not None
    assert (found.ratio.low, found.ratio.high) == (None, None)
    assert said in found.ratio.reason


def test_grouped_areas_that_differ_without_variance_have_no_test() -> None:
    """No spread between groups is no evidence."""
    scores = ([4, 4, 1, 1], [1, 1, 1, 1])
    found = compare_auc([1, 1, 0, 0], scores[0], second=scores[1], groups=[1, 2, 3, 4])
    assert (found.difference.value, found.z, found.difference.p_value) == (0.5, None, None)
    few = compare_auc([1, 1, 0, 0], scores[0], second=scores[1], groups=[1, 1, 2, 2])
    assert "two groups" in few.difference.reason


@given(scored(), st.sampled_from([0.0, 0.05, 0.125, 0.25, 0.5, 1.0]))
def test_no_allowed_threshold_reaches_a_higher_rate(
    rows: list[tuple[bool, float]], limit: float
) -> None:
    """The chosen threshold keeps the limit and no other that keeps it blocks more attacks."""
    labels, scores = zip(*rows, strict=True)
    found = tpr_at_fpr(labels, scores, max_fpr=limit)
    assert found.tpr is not None
    assert found.fpr is not None
    assert found.fpr <= limit
    for threshold in set(scores):
        hit = [label for label, score in rows if score >= threshold]
        if (len(hit) - sum(hit)) / found.benign <= limit:
            assert sum(hit) / found.attacks <= found.tpr
            assert found.threshold is not None


def test_nothing_may_be_blocked_when_a_benign_sample_scores_highest() -> None:
    """Without an allowed threshold the rate is a true zero."""
    found = tpr_at_fpr([1, 0], [0.1, 0.9], max_fpr=0.01)
    assert (found.tpr, found.fpr, found.threshold) == (0.0, 0.0, None)


@pytest.mark.parametrize(
    ("limit", "benign", "resolvable"), [(0.01, 99, False), (0.01, 100, True), (0.07, 15, True)]
)
def test_a_limit_is_resolved_from_its_inverse_on(
    limit: float, benign: int, *, resolvable: bool
) -> None:
    """With 99 benign samples one block is already more than 1 %."""
    found = tpr_at_fpr([1] + [0] * benign, [1.0] + [0.0] * benign, max_fpr=limit)
    assert found.resolvable is resolvable
    assert bool(found.reason) is not resolvable


@pytest.mark.parametrize(
    ("limit", "needed", "proof"),
    [(0.01, 100, 299), (0.05, 20, 59), (0.0, None, None), (1.0, 1, 1)],
)
def test_needed_numbers_are_told(limit: float, needed: int | None, proof: int | None) -> None:
    """1 % can be resolved with 100 benign samples and shown with 299."""
    found = tpr_at_fpr([1, 0], [0.9, 0.1], max_fpr=limit)
    assert (found.needed_benign, found.needed_for_proof) == (needed, proof)


def test_a_product_a_hair_short_of_a_whole_number_counts_as_whole() -> None:
    """0.07 of 100 benign samples is seven, whatever the float says."""
    labels = [1] + [0] * 100
    scores = [0.5] + [0.9] * 7 + [0.1] * 93
    assert tpr_at_fpr(labels, scores, max_fpr=0.07).tpr == 1.0


@pytest.mark.parametrize("limit", [-0.1, 1.1, math.nan])
def test_a_limit_that_is_no_rate_is_refused(limit: float) -> None:
    """A false positive rate lies between 0 and 1."""
    with pytest.raises(ValueError, match="max_fpr"):
        tpr_at_fpr([1, 0], [0.9, 0.1], max_fpr=limit)


def test_extreme_areas_keep_their_limits_inside() -> None:
    """A huge half-width on the logit scale neither overflows nor leaves [0, 1]."""
    labels = [1, 1] + [0] * 400
    scores = [0.5, 399.5, *range(400)]
    ratio = auc(labels, scores, confidence=1 - 1e-12).ratio
    assert ratio.low is not None
    assert ratio.high is not None
    assert 0 <= ratio.low < ratio.high <= 1


@given(scored())
def test_a_placement_is_a_share_of_the_other_class_with_ties_half(
    rows: list[tuple[bool, float]],
) -> None:
    """An attack stands above this share of benign samples, a benign sample below this of attacks."""
    labels = np.array([label for label, _ in rows])
    values = np.array([score for _, score in rows])
    placed, attacks, benign = place(labels, values), values[labels], values[~labels]
    over = [((each > benign) + (each == benign) / 2).mean() for each in attacks]
    under = [((attacks > each) + (attacks == each) / 2).mean() for each in benign]
    assert placed.attacks == pytest.approx(over)
    assert placed.benign == pytest.approx(under)
