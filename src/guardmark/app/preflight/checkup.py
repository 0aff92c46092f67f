"""What a configuration will do, before anything is spent: files, sizes, calls, time, money."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guardmark.app.data.reading import load_data
from guardmark.app.preflight.forecast import TextVolume, forecast_parts
from guardmark.stats.planning import trials_for_half_width, wilson_half_width

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.app.parts.building import BuiltPart
    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.preflight.forecast import Forecast
    from guardmark.core.manifest import DataManifest
    from guardmark.core.sample import Sample
    from guardmark.datasets.loading import LoadedData


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeCheck:
    """How sharp one figure can be with the samples there are."""

    subject: str
    samples: int
    groups: int
    half_width: float | None
    enough: bool


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
    defenses: Sequence[BuiltPart],
    *,
    data: LoadedData | None = None,
    probes: Sequence[Probe] = (),
) -> Checkup:
    """Say what a configuration will do."""
    data = data or load_data(loaded)
    stats = loaded.config.stats
    tallies, volume = _tally(data)
    sizes = [
        _size(subject, tally, margin=stats.margin, confidence=stats.confidence)
        for subject, tally in tallies.items()
    ]
    views = {built.manifest.name: built.part.view for built in defenses}
    medians = {probe.defense: probe.median_ms for probe in probes}
    return Checkup(
        data=data.manifests,
        warnings=data.warnings,
        margin=stats.margin,
        needed=trials_for_half_width(stats.margin, confidence=stats.confidence),
        sizes=tuple(sizes),
        forecasts=tuple(forecast_parts(loaded, volume, views=views, median_ms=medians)),
        probes=tuple(probes),
        samples=data.count,
    )


def _tally(data: LoadedData) -> tuple[dict[str, _Tally], TextVolume]:
    tallies = {"attacks": _Tally(), "benign": _Tally()}
    volume = TextVolume()
    for sample in data.samples():
        volume.add(sample.prompt)
        tallies["attacks" if sample.is_attack else "benign"].add(sample)
        if sample.is_attack and sample.category:
            tallies.setdefault(sample.category, _Tally()).add(sample)
    return tallies, volume


def _size(subject: str, tally: _Tally, *, margin: float, confidence: float) -> SizeCheck:
    width = wilson_half_width(0.5, tally.samples, confidence=confidence) if tally.samples else None
    return SizeCheck(
        subject=subject,
        samples=tally.samples,
        groups=len(tally.groups),
        half_width=width,
        enough=width is not None and width <= margin,
    )
