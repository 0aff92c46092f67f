"""One test over many defenses at once: does any of them differ from the rest?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.stats.distributions import as_p_value, chi_square_upper_tail

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True, kw_only=True)
class CochranQ:
    """Cochran's Q over several defenses on the same samples.

    Attributes:
        q: The statistic, or None when no sample tells the defenses apart.
        degrees_of_freedom: Defenses minus one.
        p_value: In (0, 1]; 1 by convention when `q` is None.
        samples: Rows tested.
        varying: Rows on which the defenses disagree.
        reason: Why `q` is undefined, or empty.
    """

    q: float | None
    degrees_of_freedom: int
    p_value: float
    samples: int
    varying: int
    reason: str = ""


def cochran_q(outcomes: ArrayLike) -> CochranQ:
    """Test whether several defenses share one rate on the same, ungrouped samples.

    Args:
        outcomes: Shape (samples, defenses), entries 0 or 1 (or booleans).

    Returns:
        The test. With two defenses it is McNemar's uncorrected chi-square.

    Raises:
        ValueError: If the table is not two-dimensional, has fewer than two defenses, or holds
            anything but 0 and 1.

    References:
        Cochran (1950), doi:10.1093/biomet/37.3-4.256.
    """
    table = np.asarray(outcomes)
    if table.ndim != 2 or table.shape[1] < 2:
        raise ValueError(f"outcomes must have shape (samples, 2 or more), got {table.shape}")
    if not ((table == 0) | (table == 1)).all():
        raise ValueError("outcomes must hold only 0 and 1")
    counts = table.astype(np.int64)
    samples, defenses = counts.shape
    columns, rows = counts.sum(axis=0), counts.sum(axis=1)
    total = int(rows.sum())
    spread = int((rows * (defenses - rows)).sum())
    if spread == 0:
        return CochranQ(
            q=None,
            degrees_of_freedom=defenses - 1,
            p_value=1.0,
            samples=samples,
            varying=0,
            reason="no sample tells the defenses apart",
        )
    gap = defenses * int((columns**2).sum()) - total**2
    q = (defenses - 1) * gap / spread
    return CochranQ(
        q=q,
        degrees_of_freedom=defenses - 1,
        p_value=as_p_value(chi_square_upper_tail(q, defenses - 1)),
        samples=samples,
        varying=int(((rows > 0) & (rows < defenses)).sum()),
    )
