"""The verb `check`: a configuration looked at from all sides, with live calls on request."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

from guardmark.app.adapt.attacker import AttackerConfig, build_attacker, probe_attacker
from guardmark.app.data.reading import load_data
from guardmark.app.parts.building import build_parts
from guardmark.app.parts.event_loop import run_on_loop
from guardmark.app.parts.loading import load_config
from guardmark.app.parts.services import has_address, open_services
from guardmark.app.preflight.checkup import Checkup, Probe, check
from guardmark.core.protocols import Closable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.app.adapt.attacker import Attacker
    from guardmark.app.parts.building import BuiltPart, Parts
    from guardmark.core.protocols import Defense
    from guardmark.core.sample import Sample
    from guardmark.datasets.loading import LoadedData
    from guardmark.net.client import Services

_NS_PER_MS = 1e6


def check_config(path: Path, *, probes: int = 0) -> Checkup:
    """Check a configuration file."""
    loaded = load_config(path)
    services = open_services(loaded)
    parts = build_parts(loaded, services)
    helpers = build_attacker(AttackerConfig(loaded=loaded, source=loaded), services)
    data = load_data(loaded)
    samples = _alternating(data, probes) if probes else []
    work = _probe_all(parts, services, helpers=helpers, samples=samples)
    seen = run_on_loop(work, loaded.config.run)
    return check(loaded, parts.defenses, data=data, probes=seen)


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
        return [
            *(_word(name, latency_ns) for name, latency_ns in words),
            *[
                await _probe(built, samples)
                for built in parts.defenses
                if has_address(built.manifest)
            ],
        ]
    finally:
        for part in (*parts.every, *(built.part for built in own)):
            if isinstance(part, Closable):
                await part.close()
        if services is not None:
            await services.close()


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
