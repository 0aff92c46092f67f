"""Many tests at once: adjusted p values of a declared family, and one test over all defenses.

Holm is the default: it controls the chance of any false claim without assumptions.
"""

from __future__ import annotations

from string import ascii_lowercase
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.values import dataclass
from guardmark.stats.distributions import as_p_value, chi_square_upper_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Floats


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p values step by step downwards: never weaker than Bonferroni.

    Args:
        p_values: One p value a test, each in [0, 1]. None (a test that was undefined) stays None
            and does not count in the family; an empty family gives an empty list.

    Raises:
        ValueError: If a value is NaN or outside [0, 1].

    Source: Holm (1979), Scandinavian Journal of Statistics 6:65.
    """

    def step_down(values: Floats) -> Floats:
        order = np.argsort(values, kind="stable")
        adjusted = np.empty(len(order))
        adjusted[order] = np.maximum.accumulate(values[order] * np.arange(len(order), 0, -1))
        return adjusted

    return adjust_family(p_values, step_down)


def adjust_family(
    p_values: Sequence[float | None], adjust: Callable[[Floats], Floats]
) -> list[float | None]:
    """Adjust the defined p values of a family, cut at 1, each put back to its place.

    `adjust` turns the defined p values, shape (n,), into the adjusted ones in the same order; see
    `holm` for the rest.
    """
    positions = [position for position, value in enumerate(p_values) if value is not None]
    values = np.array([value for value in p_values if value is not None], dtype=float)
    bad = ~((values >= 0.0) & (values <= 1.0))
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(
            f"p_values must be in [0, 1], got {values[first]} at position {positions[first]}"
        )
    spread: list[float | None] = [None] * len(p_values)
    for position, value in zip(positions, np.minimum(adjust(values), 1.0).tolist(), strict=True):
        spread[position] = value
    return spread


def tier_letters(count: int, different: Iterable[tuple[int, int]]) -> list[str]:
    """Give letters to ranked things so that two share one unless told apart.

    Args:
        count: How many there are, best first; none gives an empty list.
        different: Pairs of positions in 0..count-1 that a test of their own told apart.

    Returns:
        The letters of each, "a" from the best on; past z they are numbers in brackets.

    Raises:
        ValueError: If a pair names a position that there is not, or one twice.

    Source: Piepho (2004), doi:10.1198/1061860043515 (compact letter display, insert and absorb).
    """
    groups: list[frozenset[int]] = []
    if count:
        groups.append(frozenset(range(count)))
    for pair in different:
        if len(set(pair)) < 2 or not all(0 <= position < count for position in pair):
            raise ValueError(f"different must hold two positions in 0..{count - 1}, got {pair}")
        groups = _parted(groups, pair)
    letters = [""] * count
    for number, group in enumerate(sorted(map(sorted, groups))):
        letter = f"({number + 1})"
        if number < len(ascii_lowercase):
            letter = ascii_lowercase[number]
        for position in group:
            letters[position] += letter
    return letters


def _parted(groups: Sequence[frozenset[int]], pair: tuple[int, int]) -> list[frozenset[int]]:
    """Split every group that holds both of a pair; a half within another group is dropped."""
    kept = [group for group in groups if not group.issuperset(pair)]
    halves = []
    for group in groups:
        if group.issuperset(pair):
            halves += [group - {pair[0]}, group - {pair[1]}]
    return kept + [half for half in halves if not any(half <= other for other in kept)]


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

    q: float | None = None
    degrees_of_freedom: int
    p_value: float = 1.0
    samples: int
    varying: int = 0
    reason: str = ""


def cochran_q(outcomes: ArrayLike) -> CochranQ:
    """Test whether several defenses share one rate on the same, ungrouped samples.

    With two defenses it is McNemar's uncorrected chi-square.

    Args:
        outcomes: Shape (samples, defenses), at least two defenses, entries 0 or 1 (or booleans);
            anything else raises `ValueError`.

    Source: Cochran (1950), doi:10.1093/biomet/37.3-4.256.
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
        reason = "no sample tells the defenses apart"
        return CochranQ(degrees_of_freedom=defenses - 1, samples=samples, reason=reason)
    gap = defenses * int((columns**2).sum()) - total**2
    q = (defenses - 1) * gap / spread
    return CochranQ(
        q=q,
        degrees_of_freedom=defenses - 1,
        p_value=as_p_value(chi_square_upper_tail(q, defenses - 1)),
        samples=samples,
        varying=int(((rows > 0) & (rows < defenses)).sum()),
    )
