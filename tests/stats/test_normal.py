"""The normal quantile and tail without scipy."""

from __future__ import annotations

import pytest

from guardmark.stats.normal import two_sided_p, two_sided_z


def test_the_quantile_is_exact_and_not_1_96() -> None:
    """Four rounded digits would move the last printed digit of an interval."""
    assert two_sided_z(0.95) == pytest.approx(1.959963984540054, abs=1e-14)
    with pytest.raises(ValueError, match="confidence"):
        two_sided_z(1.0)


def test_a_p_value_is_never_zero() -> None:
    """The tail underflows; evidence does not become proof."""
    assert two_sided_p(0.0) == 1.0
    assert two_sided_p(-1.959963984540054) == pytest.approx(0.05, abs=1e-14)
    assert 0 < two_sided_p(60.0) < 1e-300
