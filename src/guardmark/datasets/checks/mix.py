"""How far a data set is from the traffic of a deployment, and which weights correct for it."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from guardmark.core.errors import ConfigError, did_you_mean, listed
from guardmark.core.sample import Label
from guardmark.core.values import dataclass

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
    """The shares of a deployment along one facet.

    Attributes:
        name: The facet, one of `DIMENSIONS`.
        shares: The share of each stated value, in [0, 1].
        bands: Lowest and highest length of each value of `length`; empty for other facets.
    """

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
            for name, (low, high) in self.bands.items():
                if low <= size <= high:
                    return name
            return OTHER
        value = sample.category
        if self.name == "language":
            value = sample.language
        if value not in self.shares:
            return OTHER
        return value

    def target(self) -> dict[str, float]:
        """Return the share of every value, the others' included, summing to 1."""
        return {**self.shares, OTHER: max(0.0, 1.0 - sum(self.shares.values()))}


@dataclass(frozen=True, slots=True, kw_only=True)
class MixDistance:
    """How far the samples of one label are from the deployment along one facet.

    Attributes:
        dimension: The facet.
        label: Whose samples are compared.
        total_variation: Half the sum of the differences of shares, in [0, 1].
        absent: Stated values that no sample has.
        absent_share: The share of the deployment that these have.
    """

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
        bands = {}
        if name == "length":
            bands = _bands(shares)
        dimensions.append(Dimension(name=name, shares=dict(shares), bands=bands))
    return tuple(dimensions)


def mix_of(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """Return the shares of a reference along each facet that it states, as a configuration does."""
    (length,) = read_mix({"length": dict.fromkeys(("0-199", "200-1999", "2000+"), 0.0)})
    counts: dict[str, Counter[str]] = {name: Counter() for name in DIMENSIONS}
    for sample in samples:
        if sample.is_attack:
            counts["category"][sample.category] += 1
        else:
            counts["topic"][sample.category] += 1
        counts["language"][sample.language] += 1
        counts["length"][length.value_of(sample)] += 1
    shares = {}
    for name, counted in counts.items():
        del counted[""]  # what is not stated is no value
        total = counted.total()
        if total:
            shares[name] = {value: count / total for value, count in sorted(counted.items())}
    return shares


def mix_distances(samples: Iterable[Sample], mix: Sequence[Dimension]) -> tuple[MixDistance, ...]:
    """Measure how far samples are from a deployment."""
    by_label: dict[Label, list[Sample]] = {}
    for sample in samples:
        by_label.setdefault(sample.label, []).append(sample)
    distances = []
    for dimension in mix:
        for label in dimension.labels():
            if label in by_label:
                distances.append(_distance(by_label[label], dimension, label))
    return tuple(distances)


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
    positions: dict[Label, list[int]] = {}
    for position, sample in enumerate(samples):
        positions.setdefault(sample.label, []).append(position)
    for label in _RATED:
        stated = [dimension for dimension in mix if label in dimension.labels()]
        if label not in positions or not stated:
            continue
        raked = _rake([samples[position] for position in positions[label]], stated)
        for position, weight in zip(positions[label], raked, strict=True):
            weights[position] = weight
    return tuple(weights)


def effective_samples(weights: Iterable[float]) -> float:
    """Return how many equally weighted samples the weighted ones are worth.

    References:
        Kish (1965), Survey Sampling, section 8.2.
    """
    total = squares = 0.0
    for weight in weights:
        total += weight
        squares += weight * weight
    if not squares:
        return 0.0
    return total**2 / squares


def _bands(shares: Iterable[str]) -> dict[str, tuple[int, float]]:
    """Read bands of lengths, such as 0-199 and 2000+; overlapping ones are refused."""
    bands: dict[str, tuple[int, float]] = {}
    for name in shares:
        match = _BAND.fullmatch(name.replace(" ", ""))
        low, high = 0, float("inf")
        if match is not None:
            low = int(match[1])
            if match[2]:
                high = int(match[2])
        if match is None or high < low:
            raise ConfigError(
                f"length: {name!r} is not a band of characters.\n"
                "Write them like 0-199, 200-1999, 2000+."
            )
        for other, (lowest, highest) in bands.items():
            if lowest <= high and low <= highest:
                raise ConfigError(f"length: the bands {other} and {name} overlap.")
        bands[name] = (low, high)
    return bands


def _distance(samples: Sequence[Sample], dimension: Dimension, label: Label) -> MixDistance:
    """Measure how far the samples of one label are from the deployment along one facet."""
    counts = Counter(map(dimension.value_of, samples))
    apart = absent_share = 0.0
    absent = []
    for value, share in dimension.target().items():
        apart += abs(counts[value] / len(samples) - share)
        if share > _SETTLED and not counts[value]:
            absent.append(value)
            absent_share += share
    return MixDistance(
        dimension=dimension.name,
        label=label,
        total_variation=apart / 2,
        absent=tuple(absent),
        absent_share=absent_share,
    )


def _rake(samples: Sequence[Sample], mix: Sequence[Dimension]) -> list[float]:
    """Weigh samples so that each facet in turn has its shares, until nothing moves."""
    import numpy as np  # on use: most commands weigh nothing

    facets = []
    for dimension in mix:
        values, codes = np.unique(list(map(dimension.value_of, samples)), return_inverse=True)
        # The shares of the values there are, scaled to 1 in place of those there are not.
        target = dimension.target()
        shares = np.array([target[value] for value in values.tolist()])
        if shares.any():
            shares = shares / shares.sum()
        else:
            shares = np.full(len(shares), 1 / len(shares))
        facets.append((codes, shares))
    weights = np.ones(len(samples))
    for _ in range(_ROUNDS):
        before = weights
        for codes, shares in facets:
            sums = np.bincount(codes, weights)
            factors = shares * weights.sum() / np.where(sums, sums, 1.0)
            weights = weights * factors[codes]
        if np.abs(weights - before).max() < _SETTLED:
            break
    if not weights.any():
        return [1.0] * len(samples)
    return [float(weight) for weight in weights / weights.mean()]
