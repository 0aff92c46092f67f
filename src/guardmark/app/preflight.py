"""The verb `check`: sizes, calls, time and cost before anything is spent; live calls on request."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.adapt.attacker import AttackerConfig, build_attacker, probe_attacker
from guardmark.app.parts.building import build_parts
from guardmark.app.parts.loading import load_config, load_data, require_gate
from guardmark.app.parts.services import (
    close_parts,
    has_address,
    is_below,
    judge_name,
    open_services,
    service_address,
)
from guardmark.core.sample import View
from guardmark.engine.execution.process import run_on_loop
from guardmark.engine.plan import NO_GUARD
from guardmark.judges.llm import ASK_AGAIN
from guardmark.stats.rates.proportion import trials_for_half_width, wilson_half_width

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from guardmark.app.adapt.attacker import Attacker
    from guardmark.app.parts.building import BuiltPart, Parts
    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.settings import StatsSettings
    from guardmark.config.settings import PriceSettings
    from guardmark.config.source import Place
    from guardmark.core.manifest import DataManifest
    from guardmark.core.protocols import Defense
    from guardmark.core.sample import Prompt, Sample
    from guardmark.datasets.loading import LoadedData
    from guardmark.net.client import Services

CHARACTERS_A_TOKEN: Final = 4
"""Rule of thumb for English."""
ASSUMPTIONS: Final = (
    "Costs assume 4 characters a token, and answers of 1 token up to max_tokens. Not counted: "
    "templates that a server puts around messages, and calls repeated after a failure."
)
_MODEL: Final = ("pipeline", "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A figure known within limits; without an upper one, nobody knows how large it can be."""

    at_least: float = 0.0
    at_most: float | None = 0.0

    def __add__(self, other: Span) -> Span:
        """Add two figures."""
        known = self.at_most is not None and other.at_most is not None
        return Span(
            at_least=self.at_least + other.at_least,
            at_most=(self.at_most or 0.0) + (other.at_most or 0.0) if known else None,
        )

    def __mul__(self, other: Span | float) -> Span:
        """Multiply two figures."""
        by = other if isinstance(other, Span) else Span(at_least=other, at_most=other)
        known = self.at_most is not None and by.at_most is not None
        return Span(
            at_least=self.at_least * by.at_least,
            at_most=(self.at_most or 0.0) * (by.at_most or 0.0) if known else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What one part will take; no calls where it works in this process."""

    part: str
    calls: Span
    seconds: float | None
    cost: Span | None


@dataclass(slots=True)
class TextVolume:
    """How much text the data set holds, as each kind of part is shown it."""

    samples: int = 0
    shown: dict[View, int] = field(default_factory=lambda: dict.fromkeys(View, 0))
    characters: dict[View, int] = field(default_factory=lambda: dict.fromkeys(View, 0))
    conversations: int = 0
    exchanges: int = 0

    def add(self, prompt: Prompt) -> None:
        """Count one sample."""
        self.samples += 1
        for view in View:
            text = prompt.shown(view)
            if text is not None:
                self.shown[view] += 1
                self.characters[view] += len(text)
        self.conversations += sum(len(message.content) for message in prompt.messages)
        messages = [{"role": m.role.value, "content": m.content} for m in prompt.messages]
        exchange = {"conversation": messages, "answer": ""}
        self.exchanges += len(json.dumps(exchange, ensure_ascii=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """Calls of one part, and the tokens that they read and write together."""

    calls: Span = Span()
    read: Span = Span()
    written: Span = Span()

    def __add__(self, other: _Work) -> _Work:
        return _Work(
            calls=self.calls + other.calls,
            read=self.read + other.read,
            written=self.written + other.written,
        )

    def perhaps(self) -> _Work:
        """The same work, of which nothing may be needed."""
        return _Work(
            calls=replace(self.calls, at_least=0.0),
            read=replace(self.read, at_least=0.0),
            written=replace(self.written, at_least=0.0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What a forecast is of."""

    loaded: LoadedConfig
    volume: TextVolume
    views: Mapping[str, View]


def forecast_parts(
    loaded: LoadedConfig,
    volume: TextVolume,
    *,
    views: Mapping[str, View],
    median_ms: Mapping[str, float | None],
) -> Iterator[Forecast]:
    """Say what each part of a configuration will take; views are those of the defenses."""
    config, run = loaded.config, _Run(loaded=loaded, volume=volume, views=views)
    for name in config.defenses:
        work = _defense_work(run, ("defenses", name))
        yield _forecast(run, name, work, median_ms=median_ms.get(name))
    if config.pipeline is None:
        return
    yield _forecast(run, "model", {_MODEL: _model_work(run)})
    for index in range(len(config.pipeline.judges)):
        path = ("pipeline", "judges", str(index))
        members = [p for p in loaded.parts if p[:3] == path and _is_remote(run, p)]
        work = {member: _judge_work(run, member) for member in members}
        yield _forecast(run, judge_name(config.pipeline.judges, index), work)


def _forecast(
    run: _Run,
    name: str,
    work: Mapping[Place, _Work],
    *,
    median_ms: float | None = None,
) -> Forecast:
    """Add up what a part and those it is made of take, as far as they call services."""
    is_kept = run.loaded.config.run.cache
    remote = {
        path: each.perhaps() if is_kept else each
        for path, each in work.items()
        if _is_remote(run, path)
    }
    calls = sum((each.calls for each in remote.values()), Span())
    seconds = None
    if median_ms is not None and calls.at_most is not None and len(remote) == 1:
        seconds = calls.at_most * median_ms / 1000 / _at_once(run, next(iter(remote)))
    costs = [_cost(each, _price(run, path)) for path, each in remote.items()]
    known = [cost for cost in costs if cost is not None]
    cost = sum(known, Span()) if known and len(known) == len(costs) else None
    return Forecast(part=name, calls=calls, seconds=seconds, cost=cost)


def _is_remote(run: _Run, path: Place) -> bool:
    return bool(service_address(run.loaded.parts[path]))


def _at_once(run: _Run, path: Place) -> int:
    address = service_address(run.loaded.parts[path])
    services = run.loaded.config.services.items()
    limits = (each.concurrency for base, each in services if is_below(address, base))
    return next(limits, None) or run.loaded.config.run.concurrency


def _price(run: _Run, path: Place) -> PriceSettings | None:
    """The price as the run will know it; a service without a model is priced by its name."""
    settings: Any = run.loaded.parts[path]
    prices = run.loaded.config.prices
    own: PriceSettings | None = getattr(settings, "price", None)
    return own or prices.get(path[-1]) or prices.get(getattr(settings, "model", ""))


def _cost(work: _Work, price: PriceSettings | None) -> Span | None:
    if price is None:
        return None
    cost = work.calls * price.per_call + work.read * (price.input_per_1k / 1000)
    # Where answers cost nothing, it does not matter that nobody knows how long they get.
    return cost + work.written * (price.output_per_1k / 1000) if price.output_per_1k else cost


def _defense_work(run: _Run, path: Place) -> dict[Place, _Work]:
    """Return the work of a defense, or that of the defenses it is made of."""
    settings: Any = run.loaded.parts[path]
    of = getattr(settings, "of", ())
    if not of:
        return {path: _deciding(run, path[-1])}
    work: dict[Place, _Work] = {}
    stops_early = getattr(settings, "short_circuit", False) or (
        getattr(settings, "rule", "") == "first"
    )
    for position, member in enumerate((of,) if isinstance(of, str) else of):
        for below, each in _defense_work(run, ("defenses", member)).items():
            asked = each.perhaps() if position and stops_early else each
            work[below] = work.get(below, _Work()) + asked
    return work


def _deciding(run: _Run, name: str) -> _Work:
    """A defense is asked about each sample once a repeat, and a few times to warm up."""
    config, settings = run.loaded.config, run.loaded.parts["defenses", name]
    view = run.views.get(name, View.TEXT)
    shown, characters, answer = run.volume.shown[view], run.volume.characters[view], Span()
    if view is View.RESPONSE and config.pipeline is not None:
        shown, characters = run.volume.samples, run.volume.conversations
        answer = _answer_tokens(run.loaded.parts[_MODEL])
    calls = float(shown * config.run.repeats + min(config.latency.warmup, shown))
    calls *= getattr(settings, "calls_each", 1)  # a guard model asked about several risks
    each = _tokens(run, settings, characters / max(1, shown)) + answer
    return _work(Span(at_least=calls, at_most=calls), each, settings)


def _answers(run: _Run) -> Span:
    """How many answers the target model gives: each sample has at most one a repeat."""
    pipeline = run.loaded.config.pipeline
    most = float(run.volume.samples * run.loaded.config.run.repeats)
    guards = [] if pipeline is None else pipeline.guards
    is_certain = any(guard == NO_GUARD or run.views.get(guard) is View.RESPONSE for guard in guards)
    return Span(at_least=most if is_certain else 0.0, at_most=most)


def _model_work(run: _Run) -> _Work:
    settings = run.loaded.parts[_MODEL]
    each = _tokens(run, settings, run.volume.conversations / max(1, run.volume.samples))
    return _work(_answers(run), each, settings)


def _judge_work(run: _Run, path: Place) -> _Work:
    """A judge is shown every answer, and asked again when its own cannot be read."""
    settings: Any = run.loaded.parts[path]
    model = run.loaded.parts[_MODEL]
    shown = run.volume.exchanges / max(1, run.volume.samples) + len(_before(run, model))
    each = _tokens(run, settings, shown) + _answer_tokens(model)
    calls = _answers(run)
    work = total = _work(calls, each, settings)
    own = _answer_tokens(settings) + _as_tokens(len(ASK_AGAIN))
    for again in range(1, getattr(settings, "retries", 0) + 1):
        # Asked again, it reads what it has read and written before.
        total += replace(work, read=work.read + calls * own * again).perhaps()
    return total


def _work(calls: Span, tokens: Span, settings: Any) -> _Work:
    return _Work(calls=calls, read=calls * tokens, written=calls * _answer_tokens(settings))


def _tokens(run: _Run, settings: Any, characters: float) -> Span:
    """Tokens that one call reads: what is always told before, and the material."""
    return _as_tokens(len(_before(run, settings)) + characters)


def _as_tokens(characters: float) -> Span:
    tokens = characters / CHARACTERS_A_TOKEN
    return Span(at_least=tokens, at_most=tokens)


def _before(run: _Run, settings: Any) -> str:
    """What a part is told before every material: a system prompt, a policy, a rubric."""
    before = getattr(settings, "before", None)
    return "" if before is None else str(before(run.loaded.folder))


def _answer_tokens(settings: Any) -> Span:
    most = getattr(settings, "most_written", None)
    return Span(at_least=1.0, at_most=None if most is None else float(most))


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


def _size(subject: str, groups: Counter[str], stats: StatsSettings) -> SizeCheck:
    samples = groups.total()
    width = wilson_half_width(0.5, samples, confidence=stats.confidence) if samples else None
    return SizeCheck(
        subject=subject,
        samples=samples,
        groups=len(groups),
        half_width=width,
        enough=width is not None and width <= stats.margin,
    )


_NS_PER_MS = 1e6


def check_config(path: Path, *, probes: int = 0) -> Checkup:
    """Say what a configuration will do, after some live calls where they are asked for."""
    loaded = load_config(path)
    services = open_services(loaded)
    parts = build_parts(loaded, services)
    require_gate(loaded.config, list(loaded.config.defenses))
    helpers = build_attacker(AttackerConfig(loaded=loaded, source=loaded), services)
    data = load_data(loaded)
    samples = _alternating(data, probes) if probes else []
    work = _probe_all(parts, services, helpers=helpers, samples=samples)
    seen = run_on_loop(work, uvloop=loaded.config.run.uvloop)
    stats = loaded.config.stats
    tallies, volume = _tally(data)
    views = {built.manifest.name: built.part.view for built in parts.defenses}
    medians = {probe.defense: probe.median_ms for probe in seen}
    return Checkup(
        data=data.manifests,
        warnings=data.warnings,
        margin=stats.margin,
        needed=trials_for_half_width(stats.margin, confidence=stats.confidence),
        sizes=tuple(_size(subject, groups, stats) for subject, groups in tallies.items()),
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
        answered = [
            Probe(
                defense=name,
                outcomes={"answer": 1},
                median_ms=None if latency_ns is None else latency_ns / _NS_PER_MS,
            )
            for name, latency_ns in words
        ]
        return [*answered, *probes]
    finally:
        await close_parts([*parts.every, *(built.part for built in own)], services)


def _alternating(data: LoadedData, count: int) -> list[Sample]:
    """The first samples of the data, attacks and benign inputs in turn."""
    attacks = islice((sample for sample in data.samples() if sample.is_attack), count)
    benign = islice((sample for sample in data.samples() if not sample.is_attack), count)
    pairs = zip_longest(attacks, benign)
    return [sample for pair in pairs for sample in pair if sample is not None][:count]


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
