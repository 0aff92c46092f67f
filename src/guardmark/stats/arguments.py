"""Checks of what callers hand to the estimators, with messages that name the argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


class Counts(NamedTuple):
    """Events among trials.

    Attributes:
        successes: Trials with the property.
        trials: Eligible trials.
    """

    successes: int
    trials: int


class GroupCounts(NamedTuple):
    """Events and rows of each group, as equally long integer arrays.

    Attributes:
        successes: Rows with the property, one entry a group.
        sizes: Rows, one entry a group; at least 1 each once empty groups are dropped.
    """

    successes: NDArray[np.int64]
    sizes: NDArray[np.int64]


def require_fraction(name: str, value: float) -> float:
    """Return the value when it lies strictly between 0 and 1.

    Raises:
        ValueError: If it does not, NaN included; the message names the argument.
    """
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must be in (0, 1), got {value}")
    return float(value)


def require_rate(name: str, value: float) -> float:
    """Return the value when it lies in [0, 1].

    Raises:
        ValueError: If it does not, NaN included; the message names the argument.
    """
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must be in [0, 1], got {value}")
    return float(value)


def require_count(name: str, value: float) -> int:
    """Return the value as an int when it is a whole number of at least 0.

    Raises:
        ValueError: If it is negative, fractional or NaN; the message names the argument.
    """
    if not (value >= 0 and value == value // 1):
        raise ValueError(f"{name} must be a whole number of at least 0, got {value}")
    return int(value)


def require_part(successes: float, trials: float) -> Counts:
    """Return both counts when the successes are part of the trials.

    Raises:
        ValueError: If a count is no count, or there are more successes than trials.
    """
    part, whole = require_count("successes", successes), require_count("trials", trials)
    if part > whole:
        raise ValueError(f"successes must be in 0..{whole}, got {part}")
    return Counts(part, whole)


def require_counts(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Return a one-dimensional int64 array of counts.

    Raises:
        ValueError: If an entry is negative, fractional or NaN, or the shape is not a line.
    """
    import numpy as np

    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got {array.ndim} dimensions")
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.dtype.kind not in "buif":
        raise ValueError(f"{name} must hold numbers, got {array.dtype}")
    if array.dtype.kind == "f" and not (
        np.isfinite(array).all() and (array == np.floor(array)).all()
    ):
        raise ValueError(f"{name} must hold whole numbers, got a fraction or NaN")
    if array.dtype.kind != "u" and array.min() < 0:
        raise ValueError(f"{name} must be at least 0, got {array.min()}")
    return array.astype(np.int64)


def require_group_counts(successes: ArrayLike, sizes: ArrayLike) -> GroupCounts:
    """Return checked counts per group, groups without rows left out.

    A group without rows says nothing about a rate; it must not lend its weight as a group.

    Raises:
        ValueError: On unequal lengths, a bad count, or more successes than rows.
    """
    events, rows = require_counts("successes", successes), require_counts("sizes", sizes)
    require_equal_lengths(successes=len(events), sizes=len(rows))
    if (events > rows).any():
        group = int((events > rows).argmax())
        raise ValueError(
            f"successes must not exceed sizes: group {group} has {events[group]} of {rows[group]}"
        )
    used = rows > 0
    return GroupCounts(events, rows) if used.all() else GroupCounts(events[used], rows[used])


def require_equal_lengths(**lengths: int) -> None:
    """Check that arrays that belong together are equally long.

    Raises:
        ValueError: If they are not; the message names each with its length.
    """
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"lengths must be equal, got {told}")
