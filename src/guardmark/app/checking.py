"""The verb `check`: a configuration looked at from all sides, with live calls on request."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

from guardmark.app.checkup import Checkup, Probe, check
from guardmark.app.config import load_config
from guardmark.app.data import load_data
from guardmark.app.event_loop import run_on_loop
from guardmark.app.network import has_address, open_services
from guardmark.app.parts import build_parts
from guardmark.core.protocols import Closable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.app.parts import BuiltPart, Parts
    from guardmark.core.protocols import Defense
    from guardmark.core.sample import Sample
    from guardmark.datasets.sources import LoadedData
    from guardmark.net import Services

_NS_PER_MS = 1e6


def check_config(path: Path, *, probes: int = 0) -> Checkup:
    """Check a configuration file.

    Args:
        path: The YAML file.
        probes: Live calls to each defense behind a service; none when 0.

    Returns:
        Sizes against the wanted margin, calls, and forecasts.

    Raises:
        ConfigError: If the file holds mistakes.
        DatasetError: If the data cannot be used.
    """
    loaded = load_config(path)
    services = open_services(loaded)
    parts = build_parts(loaded, services)
    data = load_data(loaded)
    seen = run_on_loop(_probe_all(parts, services, data, probes), loaded.config.run)
    everything = (*parts.defenses, *((parts.model,) if parts.model else ()), *parts.judges)
    return check(loaded, everything, data=data, probes=seen)


async def _probe_all(
    parts: Parts, services: Services | None, data: LoadedData, probes: int
) -> list[Probe]:
    samples = _alternating(data, probes) if probes else []
    try:
        return [
            await _probe(built, samples)
            for built in parts.defenses
            if samples and has_address(built.manifest)
        ]
    finally:
        for part in parts.every:
            if isinstance(part, Closable):
                await part.close()
        if services is not None:
            await services.close()


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
