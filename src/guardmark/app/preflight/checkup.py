"""What a configuration will do, before anything is spent: files, sizes, calls, time, money."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guardmark.app.data.reading import load_data
from guardmark.app.parts.services import is_below
from guardmark.stats.planning import trials_for_half_width, wilson_half_width

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.app.parts.building import BuiltPart
    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.core.manifest import DataManifest
    from guardmark.core.sample import Sample
    from guardmark.datasets.loading import LoadedData

_CHARACTERS_A_TOKEN = 4
"""Rule of thumb for English; the forecast says that it is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeCheck:
    """How sharp one figure can be with the samples there are."""

    subject: str
    samples: int
    groups: int
    half_width: float | None
    enough: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What one defense will take."""

    defense: str
    calls: int
    seconds: float | None
    cost: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a few live calls showed."""

    defense: str
    outcomes: Mapping[str, int]
    median_ms: float | None
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """Everything `guardmark check` says."""

    data: tuple[DataManifest, ...]
    warnings: tuple[str, ...]
    margin: float
    needed: int
    sizes: tuple[SizeCheck, ...]
    forecasts: tuple[Forecast, ...]
    probes: tuple[Probe, ...]
    samples: int


@dataclass(slots=True)
class _Tally:
    samples: int = 0
    groups: set[str] = field(default_factory=set)

    def add(self, sample: Sample) -> None:
        self.samples += 1
        self.groups.add(sample.lineage)


def check(
    loaded: LoadedConfig,
    parts: Sequence[BuiltPart],
    *,
    data: LoadedData | None = None,
    probes: Sequence[Probe] = (),
) -> Checkup:
    """Say what a configuration will do."""
    data = data or load_data(loaded)
    stats = loaded.config.stats
    tallies, characters = _tally(data)
    sizes = [
        _size(subject, tally, margin=stats.margin, confidence=stats.confidence)
        for subject, tally in tallies.items()
    ]
    medians = {probe.defense: probe.median_ms for probe in probes}
    return Checkup(
        data=data.manifests,
        warnings=data.warnings,
        margin=stats.margin,
        needed=trials_for_half_width(stats.margin, confidence=stats.confidence),
        sizes=tuple(sizes),
        forecasts=tuple(
            _forecast(part, loaded, samples=data.count, characters=characters, medians=medians)
            for part in parts
        ),
        probes=tuple(probes),
        samples=data.count,
    )


def _tally(data: LoadedData) -> tuple[dict[str, _Tally], int]:
    tallies = {"attacks": _Tally(), "benign": _Tally()}
    characters = 0
    for sample in data.samples():
        characters += len(sample.prompt.text)
        tallies["attacks" if sample.is_attack else "benign"].add(sample)
        if sample.is_attack and sample.category:
            tallies.setdefault(sample.category, _Tally()).add(sample)
    return tallies, characters


def _size(subject: str, tally: _Tally, *, margin: float, confidence: float) -> SizeCheck:
    width = wilson_half_width(0.5, tally.samples, confidence=confidence) if tally.samples else None
    return SizeCheck(
        subject=subject,
        samples=tally.samples,
        groups=len(tally.groups),
        half_width=width,
        enough=width is not None and width <= margin,
    )


def _forecast(
    part: BuiltPart,
    loaded: LoadedConfig,
    *,
    samples: int,
    characters: int,
    medians: Mapping[str, float | None],
) -> Forecast:
    settings, config = part.manifest.settings, loaded.config
    url = str(settings.get("url") or settings.get("base_url") or "")
    if not url:
        return Forecast(defense=part.manifest.name, calls=0, seconds=None, cost=None)
    calls = samples * config.run.repeats + config.latency.warmup
    concurrency = next(
        (s.concurrency for base, s in config.services.items() if is_below(url, base)), None
    )
    median = medians.get(part.manifest.name)
    at_once = concurrency or config.run.concurrency
    price = config.prices.get(part.manifest.name) or config.prices.get(
        str(settings.get("model") or "")
    )
    cost = None
    if price is not None:
        tokens = characters * config.run.repeats / _CHARACTERS_A_TOKEN
        cost = calls * price.per_call + tokens / 1000 * price.input_per_1k
    return Forecast(
        defense=part.manifest.name,
        calls=calls,
        seconds=None if median is None else calls * median / 1000 / at_once,
        cost=cost,
    )
