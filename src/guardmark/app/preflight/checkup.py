"""The verb `check`: what a configuration will do before anything is spent; calls on request."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from guardmark.app.adapt.attacker import AttackerConfig, build_attacker, probe_attacker
from guardmark.app.data.reading import load_data
from guardmark.app.parts.building import build_parts
from guardmark.app.parts.loading import load_config
from guardmark.app.parts.process import run_on_loop
from guardmark.app.parts.services import close_parts, has_address, open_services
from guardmark.app.preflight.forecast import TextVolume, forecast_parts
from guardmark.stats.planning import trials_for_half_width, wilson_half_width

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.app.adapt.attacker import Attacker
    from guardmark.app.parts.building import BuiltPart, Parts
    from guardmark.app.preflight.forecast import Forecast
    from guardmark.core.manifest import DataManifest
    from guardmark.core.protocols import Defense
    from guardmark.core.sample import Sample
    from guardmark.datasets.loading import LoadedData
    from guardmark.net.client import Services


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


def _tally(data: LoadedData) -> tuple[dict[str, Counter[str]], TextVolume]:
    """Count the samples of each group, by what a figure is about; and how much text there is."""
    tallies = {"attacks": Counter[str](), "benign": Counter[str]()}
    volume = TextVolume()
    for sample in data.samples():
        volume.add(sample.prompt)
        tallies["attacks" if sample.is_attack else "benign"][sample.lineage] += 1
        if sample.is_attack and sample.category:
            tallies.setdefault(sample.category, Counter())[sample.lineage] += 1
    return tallies, volume


def _size(subject: str, groups: Counter[str], *, margin: float, confidence: float) -> SizeCheck:
    count = groups.total()
    width = wilson_half_width(0.5, count, confidence=confidence) if count else None
    return SizeCheck(
        subject=subject,
        samples=count,
        groups=len(groups),
        half_width=width,
        enough=width is not None and width <= margin,
    )


_NS_PER_MS = 1e6


def check_config(path: Path, *, probes: int = 0) -> Checkup:
    """Say what a configuration will do, after some live calls where they are asked for."""
    loaded = load_config(path)
    services = open_services(loaded)
    parts = build_parts(loaded, services)
    helpers = build_attacker(AttackerConfig(loaded=loaded, source=loaded), services)
    data = load_data(loaded)
    samples = _alternating(data, probes) if probes else []
    work = _probe_all(parts, services, helpers=helpers, samples=samples)
    seen = run_on_loop(work, loaded.config.run)
    stats = loaded.config.stats
    tallies, volume = _tally(data)
    views = {built.manifest.name: built.part.view for built in parts.defenses}
    medians = {probe.defense: probe.median_ms for probe in seen}
    return Checkup(
        data=data.manifests,
        warnings=data.warnings,
        margin=stats.margin,
        needed=trials_for_half_width(stats.margin, confidence=stats.confidence),
        sizes=tuple(
            _size(subject, tally, margin=stats.margin, confidence=stats.confidence)
            for subject, tally in tallies.items()
        ),
        forecasts=tuple(forecast_parts(loaded, volume, views=views, median_ms=medians)),
        probes=tuple(seen),
        samples=data.count,
    )


async def _probe_all(
    parts: Parts,
    services: Services | None,
    *,
    helpers: Attacker | None,
    samples: Sequence[Sample],
) -> list[Probe]:
    """Ask each model that helps an attacker for a word, then each defense about the samples."""
    own = () if helpers is None else helpers.parts
    try:
        if not samples:
            return []
        words = [] if helpers is None else await probe_attacker(helpers)
        remote = [built for built in parts.defenses if has_address(built.manifest)]
        probes = [await _probe(built, samples) for built in remote]
        return [*(_word(name, latency_ns) for name, latency_ns in words), *probes]
    finally:
        await close_parts([*parts.every, *(built.part for built in own)], services)


def _word(name: str, latency_ns: int | None) -> Probe:
    took = None if latency_ns is None else latency_ns / _NS_PER_MS
    return Probe(defense=name, outcomes={"answer": 1}, median_ms=took)


def _alternating(data: LoadedData, count: int) -> list[Sample]:
    """The first samples of the data, attacks and benign inputs in turn."""
    attacks: list[Sample] = []
    benign: list[Sample] = []
    for sample in data.samples():
        side = attacks if sample.is_attack else benign
        if len(side) < count:
            side.append(sample)
        if len(attacks) == len(benign) == count:
            break
    mixed = [sample for pair in zip(attacks, benign, strict=False) for sample in pair]
    rest = attacks[len(benign) :] or benign[len(attacks) :]
    return [*mixed, *rest][:count]


async def _probe(built: BuiltPart, samples: Sequence[Sample]) -> Probe:
    defense: Defense = built.part
    decisions = [await defense.decide(sample.prompt) for sample in samples]
    times = [d.latency_ns / _NS_PER_MS for d in decisions if d.latency_ns is not None]
    messages = {d.evidence.message for d in decisions if d.evidence and d.evidence.message}
    return Probe(
        defense=built.manifest.name,
        outcomes=dict(Counter(decision.outcome.value for decision in decisions)),
        median_ms=median(times) if times else None,
        messages=tuple(sorted(messages)),
    )
