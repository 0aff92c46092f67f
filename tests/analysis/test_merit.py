"""No defense is offered that another one undercuts on both rates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from guardmark.analysis.compare.merit import find_dominated


def rates(asr: float | None, fpr: float | None) -> Any:
    """A pair of rates with these points."""
    return SimpleNamespace(
        attack_success_rate=SimpleNamespace(value=asr),
        false_positive_rate=SimpleNamespace(value=fpr),
    )


def test_one_that_is_worse_on_both_sides_is_named_with_the_other() -> None:
    """As beta (77.0, 11.9) beside delta (73.8, 7.3)."""
    given_rates = {
        "beta": rates(0.77, 0.119),
        "delta": rates(0.738, 0.073),
        "eps": rates(0.9, 0.01),
    }
    assert find_dominated(given_rates) == {"beta": "delta"}


def test_equal_rates_and_unknown_ones_beat_nobody() -> None:
    """A rate without trials says nothing."""
    assert find_dominated({"a": rates(0.1, 0.1), "b": rates(0.1, 0.1)}) == {}
    assert find_dominated({"a": rates(0.1, None), "b": rates(0.2, 0.2)}) == {}


@given(
    st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3),
        st.tuples(st.integers(0, 5), st.integers(0, 5)),
        min_size=1,
    )
)
def test_somebody_is_always_left(points: dict[str, tuple[int, int]]) -> None:
    """Whoever undercuts is not undercut by those it undercuts."""
    dominated = find_dominated({name: rates(*map(float, each)) for name, each in points.items()})
    assert len(dominated) < len(points)
    for name, other in dominated.items():
        assert points[other][0] <= points[name][0]
        assert points[other][1] <= points[name][1]
        assert points[other] != points[name]
