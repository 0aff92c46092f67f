"""Columns of labels, numbers and groups, checked once at the door of the maths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def label_column(labels: ArrayLike, *, name: str = "labels") -> NDArray[np.bool_]:
    """Read a column of yes-or-no labels.

    Args:
        labels: Booleans, or the numbers 0 and 1; one dimension.
        name: What the column is called in an error.

    Returns:
        The labels as booleans, shape (n,).

    Raises:
        ValueError: If the column has more than one dimension or holds another value.
    """
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


def number_column(values: ArrayLike, *, name: str) -> NDArray[np.float64]:
    """Read a column of finite numbers.

    Args:
        values: Numbers; one dimension.
        name: What the column is called in an error.

    Returns:
        The numbers as 64-bit floats, shape (n,).

    Raises:
        ValueError: If the column is no numbers, has more than one dimension, or holds a NaN or
            an infinity (the message says how many and where the first stands).
    """
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


def group_column(groups: ArrayLike | None, length: int) -> NDArray[np.int64]:
    """Number the groups of rows from 0 on.

    Args:
        groups: One group name per row, or None when every row is its own group.
        length: How many rows there are.

    Returns:
        One number per row, shape (length,); equal names have equal numbers.

    Raises:
        ValueError: If there is not one group per row.
    """
    if groups is None:
        return np.arange(length, dtype=np.int64)
    names = np.asarray(groups)
    if names.shape != (length,):
        raise ValueError(f"groups must name one group per row: {length} rows, got {names.shape}")
    return np.unique(names, return_inverse=True)[1].astype(np.int64)
