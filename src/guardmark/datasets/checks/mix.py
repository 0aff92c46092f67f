"""How far a data set is from the traffic of a deployment, and which weights correct for it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guardmark.core.errors import ConfigError, did_you_mean, listed
from guardmark.core.sample import Label

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from guardmark.core.sample import Sample


DIMENSIONS = ("category", "topic", "language", "length")
"""`category` says what attacks are about, `topic` the same of benign inputs."""

OTHER = "(other)"
_RATED = (Label.ATTACK, Label.BENIGN)
_BAND = re.compile(r"(\d+)(?:-(\d+)|\+)")
_ROUNDS = 200
_SETTLED = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """The shares of a deployment along one facet."""

    name: str
    shares: Mapping[str, float]
    bands: Mapping[str, tuple[int, float]]

    def labels(self) -> tuple[Label, ...]:
        """Return the labels that the dimension speaks of."""
        return {"category": (Label.ATTACK,), "topic": (Label.BENIGN,)}.get(self.name, _RATED)

    def value_of(self, sample: Sample) -> str:
        """Return the stated value a sample falls under, or `(other)`."""
        if self.name == "length":
            size = len(sample.prompt.words)
            fits = (name for name, (low, high) in self.bands.items() if low <= size <= high)
            return next(fits, OTHER)
        value = sample.language if self.name == "language" else sample.category
        return value if value in self.shares else OTHER

    def target(self) -> dict[str, float]:
        """Return the share of every value, the others' included, summing to 1."""
        return {**self.shares, OTHER: max(0.0, 1.0 - sum(self.shares.values()))}


@dataclass(frozen=True, slots=True, kw_only=True)
class MixDistance:
    """How far the samples of one label are from the deployment along one facet."""

    dimension: str
    label: Label
    total_variation: float
    absent: tuple[str, ...]
    absent_share: float


def read_mix(stated: Mapping[str, Mapping[str, float]]) -> tuple[Dimension, ...]:
    """Check the shares that a configuration states."""
    dimensions = []
    for name, shares in stated.items():
        if name not in DIMENSIONS:
            hint = did_you_mean(name, DIMENSIONS)
            raise ConfigError(f"no facet is called {name!r}.{hint} Known: {listed(DIMENSIONS)}.")
        total = sum(shares.values())
        if total > 1 + 1e-6:
            raise ConfigError(f"the shares of {name} add to {total:.4g}, more than 1.")
        bands = _bands(shares) if name == "length" else {}
        dimensions.append(Dimension(name=name, shares=dict(shares), bands=bands))
    return tuple(dimensions)


def mix_of(every: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """Return the shares of a reference along each facet that it states, as a configuration does."""
    (length,) = read_mix({"length": dict.fromkeys(("0-199", "200-1999", "2000+"), 0.0)})
    values = {
        "category": [s.category for s in every if s.is_attack],
        "topic": [s.category for s in every if not s.is_attack],
        "language": [s.language for s in every],
        "length": [length.value_of(s) for s in every],
    }
    counts = {name: Counter(filter(None, each)) for name, each in values.items()}
    return {
        name: {value: count / each.total() for value, count in sorted(each.items())}
        for name, each in counts.items()
        if each
    }


def mix_distances(samples: Iterable[Sample], mix: Sequence[Dimension]) -> tuple[MixDistance, ...]:
    """Measure how far samples are from a deployment."""
    every = list(samples)
    return tuple(
        _distance([s for s in every if s.label is label], dimension, label)
        for dimension in mix
        for label in dimension.labels()
        if any(s.label is label for s in every)
    )


def mix_weights(samples: Sequence[Sample], mix: Sequence[Dimension]) -> tuple[float, ...]:
    """Return weights that give samples the shares of a deployment.

    Attacks and benign samples are weighed apart, so that neither rate depends on the other's
    number. Several dimensions are met at once by raking: one after the other is set right
    until nothing moves. Values that the deployment has and the samples lack cannot be met;
    the others then share their part (see `mix_distances`).

    References:
        Deming & Stephan (1940), doi:10.1214/aoms/1177731829.
    """
    weights = [1.0] * len(samples)
    for label in _RATED:
        positions = [index for index, sample in enumerate(samples) if sample.label is label]
        stated = [dimension for dimension in mix if label in dimension.labels()]
        if not positions or not stated:
            continue
        raked = _rake([samples[index] for index in positions], stated)
        for index, weight in zip(positions, raked, strict=True):
            weights[index] = weight
    return tuple(weights)


def effective_samples(weights: Iterable[float]) -> float:
    """Return how many equally weighted samples the weighted ones are worth.

    References:
        Kish (1965), Survey Sampling, section 8.2.
    """
    values = list(weights)
    squares = sum(weight * weight for weight in values)
    return sum(values) ** 2 / squares if squares else 0.0


def _bands(shares: Iterable[str]) -> dict[str, tuple[int, float]]:
    bands: dict[str, tuple[int, float]] = {}
    for name in shares:
        match = _BAND.fullmatch(name.replace(" ", ""))
        low = int(match[1]) if match else 0
        high = int(match[2]) if match and match[2] else float("inf")
        if match is None or high < low:
            raise ConfigError(
                f"length: {name!r} is not a band of characters.\n"
                "Write them like 0-199, 200-1999, 2000+."
            )
        clash = next((n for n, (a, b) in bands.items() if a <= high and low <= b), None)
        if clash is not None:
            raise ConfigError(f"length: the bands {clash} and {name} overlap.")
        bands[name] = (low, high)
    return bands


def _distance(samples: Sequence[Sample], dimension: Dimension, label: Label) -> MixDistance:
    counts = Counter(map(dimension.value_of, samples))
    target = dimension.target()
    apart = sum(abs(counts[value] / len(samples) - share) for value, share in target.items())
    absent = [value for value, share in target.items() if share > _SETTLED and not counts[value]]
    return MixDistance(
        dimension=dimension.name,
        label=label,
        total_variation=apart / 2,
        absent=tuple(absent),
        absent_share=sum(target[value] for value in absent),
    )


def _rake(samples: Sequence[Sample], mix: Sequence[Dimension]) -> list[float]:
    import numpy as np  # on use: most commands weigh nothing

    facets = []
    for dimension in mix:
        values, codes = np.unique(list(map(dimension.value_of, samples)), return_inverse=True)
        # The shares of the values there are, scaled to 1 in place of those there are not.
        shares = np.array([*map(dimension.target().__getitem__, values.tolist())])
        facets.append((codes, shares / shares.sum() if shares.any() else shares + 1 / len(shares)))
    weights = np.ones(len(samples))
    for _ in range(_ROUNDS):
        before = weights
        for codes, shares in facets:
            sums = np.bincount(codes, weights)
            factors = shares * weights.sum() / np.where(sums, sums, 1.0)
            weights = weights * factors[codes]
        if np.abs(weights - before).max() < _SETTLED:
            break
    return list(map(float, weights / weights.mean() if weights.any() else weights + 1))
