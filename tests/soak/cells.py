"""A setting of a simulation: what is promised there, how a run is drawn, and what was seen."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Marks = Iterable[bool]


class Shown(NamedTuple):
    """In which share of the runs of a cell something held, or happened."""

    figure: str
    setting: str
    promised: str
    share: float
    error: float  # Monte Carlo standard error
    runs: int


@dataclass(frozen=True, kw_only=True)
class SoakCell:
    """A figure in a setting: what holds in at least, or happens in at most, a share of the runs."""

    figure: str
    setting: str
    marks: Callable[[np.random.Generator, int], Marks]
    at_least: float | None = 0.93
    at_most: float | None = None
    runs: int = 600

    @property
    def name(self) -> str:
        """The cell, spelled out."""
        return f"{self.figure}, {self.setting}"

    @property
    def promised(self) -> str:
        """The promise, as the table tells it."""
        if self.at_most is not None:
            return f"at most {self.at_most:g}"
        return f"at least {self.at_least:g}"

    def draw(self, runs: int | None = None) -> Shown:
        """Draw runs: the same cell draws the same ones, whatever other cells there are."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        marks = np.fromiter(self.marks(rng, runs or self.runs), dtype=bool)
        share, count = float(marks.mean()), len(marks)
        error = math.sqrt(max(share * (1 - share), 0.25 / count) / count)
        return Shown(self.figure, self.setting, self.promised, share, error, count)

    def keeps(self, shown: Shown) -> bool:
        """Tell whether the promise is kept, but for three errors of a simulation at its limit."""
        promised = self.at_least if self.at_most is None else self.at_most
        assert promised is not None
        noise = 3 * math.sqrt(promised * (1 - promised) / shown.runs)
        if self.at_most is not None:
            return shown.share <= promised + noise
        return shown.share >= promised - noise


def events_of(rng: np.random.Generator, sizes: Ints, *, rate: float, icc: float) -> Ints:
    """Events in each group, beta-binomial with this correlation; sizes of any shape."""
    if not icc:
        return rng.binomial(sizes, rate)
    scale = (1 - icc) / icc
    return rng.binomial(sizes, rng.beta(rate * scale, (1 - rate) * scale, sizes.shape))


def alike(groups: int, size: int) -> Ints:
    """Groups of one size."""
    return np.full(groups, size)


def giant(groups: int, share: float) -> Ints:
    """One group with this share of all rows among groups of four."""
    sizes = np.full(groups, 4)
    sizes[0] = round(share * 4 * (groups - 1) / (1 - share))
    return sizes


def skewed(groups: int) -> Ints:
    """Groups of which one in seven is ten times as large."""
    return np.where(np.arange(groups) % 7 == 0, 10, 1)


def holds(low: float | None, truth: float, high: float | None) -> bool:
    """Whether the limits hold the truth; none at all do not."""
    return low is not None and high is not None and low <= truth <= high
