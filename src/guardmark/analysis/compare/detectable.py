"""Which difference a paired comparison would have found."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from guardmark.stats.distributions import two_sided_z

if TYPE_CHECKING:
    from guardmark.core.estimate import Difference

_POWER_Z = 0.8416212335729143
"""Normal quantile of 80 % power."""


def smallest_detectable(
    difference: Difference, design_effect: float | None, confidence: float
) -> float | None:
    """Return the smallest difference found with 80 % power, by the normal approximation.

    Solves d = (z sqrt(q) + z_power sqrt(q - d^2)) / sqrt(n) for the observed discordance q.

    References:
        Miettinen (1968), doi:10.2307/2528297.
    """
    if not difference.pairs or design_effect is None:
        return None
    worth = difference.pairs / design_effect
    discordant = (difference.first_only or 0) + (difference.second_only or 0)
    # Without any discordant pair there is still the chance of having missed one.
    share = max(discordant, 1) / difference.pairs
    z = two_sided_z(confidence)
    found = (z + _POWER_Z) * math.sqrt(share / worth)
    return min(1.0, found)
