"""Checks of what callers hand to the estimators, with messages that name the argument.

Each returns its value in the type that the maths wants and raises `ValueError` otherwise; NaN is
never in range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Flags = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

_SPARE: Final = 8  # marks cost a byte each, the keys eight


class Counts(NamedTuple):
    """Trials with the property, and all eligible trials.

    Attributes:
        successes: Trials with the property, within `trials`.
        trials: Eligible trials, at least 0.
    """

    successes: int
    trials: int


class GroupCounts(NamedTuple):
    """Events and rows of each group, shape (groups,); each has rows once empty ones are dropped.

    Attributes:
        successes: Per group, shape (k,), each within its size.
        sizes: Rows per group, shape (k,), each at least 1.
    """

    successes: Ints
    sizes: Ints


class ScoredSamples(NamedTuple):
    """Whether each sample is an attack, and its finite score; both of shape (n,).

    Attributes:
        attack: Whether each sample is an attack, shape (n,).
        score: Its score, shape (n,).
    """

    attack: Flags
    score: Floats


def require_fraction(name: str, value: float) -> float:
    """Return the value when it lies strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must be in (0, 1), got {value}")
    return float(value)


def require_rate(name: str, value: float) -> float:
    """Return the value when it lies in [0, 1]."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must be in [0, 1], got {value}")
    return float(value)


def require_count(name: str, value: float, *, least: int = 0) -> int:
    """Return the value as an int when it is a whole number of at least `least`."""
    if not (value >= least and value == value // 1):
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value}")
    return int(value)


def require_part(successes: float, trials: float, *, name: str = "successes") -> Counts:
    """Return both counts when the successes, called `name` in an error, are part of the trials."""
    whole, part = require_count("trials", trials), require_count(name, successes)
    if part > whole:
        raise ValueError(f"{name} must be in 0..{whole}, got {part}")
    return Counts(part, whole)


def require_counts(name: str, values: ArrayLike) -> Ints:
    """Return a one-dimensional int64 array of whole numbers of at least 0."""
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
    return array.astype(np.int64, copy=False)


def require_group_counts(successes: ArrayLike, sizes: ArrayLike) -> GroupCounts:
    """Return checked counts per group, successes within sizes, groups without rows left out.

    A group without rows says nothing about a rate; it must not lend its weight as a group.
    """
    events, rows = require_counts("successes", successes), require_counts("sizes", sizes)
    require_equal_lengths(successes=len(events), sizes=len(rows))
    if (events > rows).any():
        group = int((events > rows).argmax())
        raise ValueError(
            f"successes must not exceed sizes: group {group} has {events[group]} of {rows[group]}"
        )
    used = rows > 0
    if used.all():
        return GroupCounts(events, rows)
    return GroupCounts(events.compress(used), rows.compress(used))


def require_tries(tries: ArrayLike, successes: ArrayLike) -> tuple[Ints, Ints]:
    """Return tries and successes per sample, shape (n,) each, successes within tries."""
    n, c = require_counts("tries", tries), require_counts("successes", successes)
    require_equal_lengths(tries=len(n), successes=len(c))
    if bool((c > n).any()):
        raise ValueError("successes must not exceed tries")
    return n, c


def require_equal_lengths(**lengths: int) -> None:
    """Check that arrays that belong together are equally long; the message names each."""
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"lengths must be equal, got {listed}")


def label_column(labels: ArrayLike, *, name: str = "labels") -> Flags:
    """Return booleans, shape (n,), of a column of booleans or of the numbers 0 and 1."""
    import numpy as np

    column = np.asarray(labels)
    if column.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got shape {column.shape}")
    if column.dtype == np.bool_ or not column.size:
        return column.astype(np.bool_)
    if column.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be true/false or 0/1, got {column.dtype}")
    if not bool(np.all((column == 0) | (column == 1))):
        raise ValueError(f"{name} must be true/false or 0/1, got other values")
    return column.astype(np.bool_)


def number_column(values: ArrayLike, *, name: str) -> Floats:
    """Return 64-bit floats, shape (n,), of a column of finite numbers.

    The message says how many are NaN or infinite, and where the first stands.
    """
    import numpy as np

    column = np.asarray(values)
    if column.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got shape {column.shape}")
    if column.size and column.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numbers, got {column.dtype}")
    numbers = column.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise ValueError(f"{name} must be finite: {bad.size} are not, the first at index {bad[0]}")
    return numbers


def group_column(groups: ArrayLike | None, length: int) -> Ints:
    """Number the groups of `length` rows from 0 on; None: every row is its own group.

    Equal names get equal numbers; there must be one name a row.
    """
    import numpy as np

    if groups is None:
        return np.arange(length, dtype=np.int64)
    names = np.asarray(groups)
    if names.shape != (length,):
        raise ValueError(f"groups must name one group per row: {length} rows, got {names.shape}")
    if length and names.dtype.kind in "iu" and names.min() >= 0:
        return distinct_keys(names, span=int(names.max()) + 1)[1].astype(np.int64)
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def distinct_keys(
    keys: NDArray[np.int64], *, span: int
) -> tuple[NDArray[np.int64], NDArray[np.signedinteger]]:
    """Return the distinct keys, rising, and the place of each among them; all lie below `span`."""
    import numpy as np

    if span > _SPARE * len(keys):
        distinct, places = np.unique(keys, return_inverse=True)
        return distinct, places
    # Marking what occurs costs far less than sorting, while the marks fit the memory of the keys.
    occurs = np.zeros(span, dtype=np.bool_)
    occurs[keys] = True
    present: NDArray[np.int64] = np.flatnonzero(occurs)
    ranks = np.cumsum(occurs, dtype=np.int32) - 1
    return present, ranks.take(keys)


def scored_samples(labels: ArrayLike, scores: ArrayLike) -> ScoredSamples:
    """Read labels (true for an attack) and finite scores that belong together."""
    attack, score = label_column(labels), number_column(scores, name="scores")
    require_equal_lengths(labels=len(attack), scores=len(score))
    return ScoredSamples(attack, score)
