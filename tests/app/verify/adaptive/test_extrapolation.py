"""The fitted curve of blind tries, by two searches that share nothing."""

from __future__ import annotations

import numpy as np
import pytest

from guardmark.app.verify.adaptive.extrapolation import Told, extrapolate
from guardmark.app.verify.difference import Comparer
from guardmark.stats.attempts.extrapolation import extrapolate_success


def attacks(a: float, b: float, *, count: int, tries: int) -> list[Told]:
    """Draw attacks whose chances are spread by a Beta distribution."""
    generator = np.random.default_rng(5)
    chances = generator.beta(a, b, size=count)
    return [
        Told(group=f"g{n // 2:03}", tries=tries, hits=int(generator.binomial(tries, chance)))
        for n, chance in enumerate(chances)
    ]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (0.5, 2.0),
        (0.1, 0.2),  # nearly all or nothing
        (100.0, 200.0),  # nearly alike
    ],
)
def test_both_searches_end_at_the_same_place(a: float, b: float) -> None:
    """Value and both ends of the band, within a millionth; a ten-thousandth more is found."""
    told = attacks(a, b, count=12, tries=8)
    theirs = extrapolate_success(
        [each.tries for each in told],
        [each.hits for each in told],
        k=32,
        groups=[each.group for each in told],
    )
    found = extrapolate(told, 32, 0.95)
    for name in ("value", "low", "high"):
        comparer = Comparer()
        comparer.value("summary.json", name, said=getattr(theirs, name), found=found[name])
        assert comparer.findings == []
        comparer.value("summary.json", name, said=getattr(theirs, name) + 1e-4, found=found[name])
        assert len(comparer.findings) == 1


def test_the_band_of_many_tries_is_fitted_on_request() -> None:
    """With more than 200 an attack it takes long; what comes out is the same."""
    told = attacks(0.3, 30.0, count=6, tries=201)
    theirs = extrapolate_success(
        [each.tries for each in told],
        [each.hits for each in told],
        k=402,
        groups=[each.group for each in told],
    )
    found = extrapolate(told, 402, 0.95)
    said = {name: getattr(theirs, name) for name in ("value", "low", "high")}
    for is_patient, passed_over in ((False, 2), (True, 0)):
        comparer = Comparer(is_patient=is_patient)
        for name, value in said.items():
            comparer.value("summary.json", name, said=value, found=found[name])
        assert (len(comparer.uncounted), comparer.findings) == (passed_over, [])


def test_what_has_no_fit_has_no_value() -> None:
    """Nothing got through, everything did, or the guess lies too far from the data."""
    for hits, k in ((0, 16), (8, 16), (3, 1_000)):
        told = [Told(group=str(n), tries=8, hits=hits) for n in range(5)]
        assert extrapolate(told, k, 0.95)["value"] is None
