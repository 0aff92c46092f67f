"""The verb `check`: sizes, calls, time and cost before anything is spent; live calls on request."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import field
from itertools import islice, zip_longest
from math import ceil, inf, isfinite
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guardmark.app.adapt.attacker import AttackerConfig, build_attacker, probe_attacker
from guardmark.app.parts.building import (
    CHARACTERS_A_TOKEN,
    asked_once,
    build_defenses,
    build_parts,
    close_parts,
    concurrency_of,
    judge_name,
    longest_answer,
    name_at,
    open_services,
    price_at,
    service_address,
)
from guardmark.app.parts.loading import load_config, load_data, require_gate, require_judge
from guardmark.app.parts.prices import require_known_prices, require_measurable
from guardmark.app.run.running import rebuilds
from guardmark.config.installation import Check
from guardmark.core.errors import GuardmarkError
from guardmark.core.place import NO_GUARD, Place, stored_name
from guardmark.core.sample import View
from guardmark.core.values import dataclass
from guardmark.defenses.probe import in_order, limits_of, quote_answer
from guardmark.defenses.profile import list_profiles
from guardmark.engine.execution.cluster import doubts
from guardmark.engine.execution.process import run_on_loop
from guardmark.engine.probing import decide_each, examine_built, probe_judge, time_parts
from guardmark.judges.llm import ASK_AGAIN
from guardmark.reports.chapters.data_sets import training_warnings
from guardmark.stats.rates.proportion import trials_for_half_width, wilson_half_width

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from guardmark.app.adapt.attacker import Attacker
    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.settings import StatsSettings
    from guardmark.config.settings import PriceSettings
    from guardmark.config.source import Keys
    from guardmark.core.chunks import ChunkRule
    from guardmark.core.manifest import DataManifest
    from guardmark.core.sample import Prompt, Sample
    from guardmark.datasets.loading import LoadedData
    from guardmark.engine.plan import BuiltPart, Parts
    from guardmark.net.client import Services

_MODEL: Final = ("pipeline", "model")
_NS_PER_MS: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A figure known within limits; without an upper one it has no bound."""

    at_least: float
    at_most: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What one part will take; no calls where it works in this process.

    Attributes:
        part: Name of the part.
        calls: How many calls it takes.
        seconds: How long they take together, where one of them was timed.
        cost: What they cost, where prices are known.
    """

    part: str
    calls: Span
    seconds: float | None
    cost: Span | None


@dataclass(slots=True)
class TextVolume:
    """How much text the data set holds, as each kind of part is shown it.

    Attributes:
        images: Samples that show one.
        with_documents: Samples.
        in_documents: Characters.
    """

    samples: int = 0
    shown: dict[View, int] = field(default_factory=lambda: dict.fromkeys(View, 0))
    characters: dict[View, int] = field(default_factory=lambda: dict.fromkeys(View, 0))
    images: Counter[View] = field(default_factory=Counter)
    lengths: dict[View, Counter[int]] = field(default_factory=lambda: {v: Counter() for v in View})
    conversations: int = 0
    exchanges: int = 0
    documents: int = 0
    with_documents: int = 0
    in_documents: int = 0

    def mean_units(self, view: View, characters: int) -> float:
        """Return how many units of so many characters a sample has on average; one at least."""
        lengths = self.lengths[view]
        units = sum(max(1, ceil(length / characters)) * n for length, n in lengths.items())
        return units / max(1, lengths.total())

    def add(self, prompt: Prompt) -> None:
        """Count one sample."""
        self.samples += 1
        for view in View:
            text = prompt.shown(view, beside_images=True)
            if text is not None:
                self.images[view] += prompt.shown(view) is None
                self.shown[view] += 1
                self.characters[view] += len(text)
                self.lengths[view][len(text)] += 1
        documents = [len(prompt.messages[index].content) for index in prompt.documents]
        self.documents += len(documents)
        self.with_documents += bool(documents)
        self.in_documents += sum(documents)
        self.conversations += sum(len(message.content) for message in prompt.messages)
        messages = [{"role": m.role.value, "content": m.content} for m in prompt.messages]
        exchange = {"conversation": messages, "answer": ""}
        self.exchanges += len(json.dumps(exchange, ensure_ascii=False))


class _Work(NamedTuple):
    """Calls of one part, and the tokens that they read and write together; inf where unknown.

    Attributes:
        units: Of text, where its price counts them.
    """

    calls: float = 0.0
    read: float = 0.0
    written: float = 0.0
    units: float = 0.0

    def and_more(self, other: _Work) -> _Work:
        """Return both together."""
        return _Work(*map(sum, zip(self, other, strict=True)))

    def cost(self, price: PriceSettings) -> float:
        """What it costs; what is free may be of unknown length."""
        money = self.calls * price.per_call + self.units * price.per_unit
        prices = (self.read, price.input_per_1k), (self.written, price.output_per_1k)
        for tokens, per_1k in prices:
            money += tokens * per_1k / 1000 if per_1k else 0.0
        return money


def forecast_parts(
    loaded: LoadedConfig,
    volume: TextVolume,
    *,
    views: Mapping[str, View],
    median_ms: Mapping[str, float | None],
) -> Iterator[Forecast]:
    """Say what each part of a configuration will take; views are those of the defenses."""
    limits = [
        _Limit(loaded=loaded, volume=volume, views=views, is_most=is_most)
        for is_most in (False, True)
    ]
    for name in loaded.config.defenses:
        works = [limit.of_defense(("defenses", name)) for limit in limits]
        yield _forecast(loaded, name, works, median_ms=median_ms.get(name))
    if loaded.config.pipeline is None:
        return
    yield _forecast(loaded, "model", [{_MODEL: limit.of_model()} for limit in limits])
    judges = loaded.config.pipeline.judges
    for index in range(len(judges)):
        path = ("pipeline", "judges", str(index))
        members = [part for part in loaded.parts if part[:3] == path]
        works = [{each: limit.of_judge(each) for each in members} for limit in limits]
        yield _forecast(loaded, judge_name(judges, index), works)


def forecast_attack(
    loaded: LoadedConfig, built: BuiltPart, samples: Sequence[Sample], calls: Span
) -> Forecast:
    """Say what so many calls of a defense will take, about texts as long as those of the data."""
    volume, name, works = TextVolume(), built.manifest.name, []
    for sample in samples:
        volume.add(sample.prompt)
    views = {name: built.part.capabilities.view}
    for is_most, wanted in ((False, calls.at_least), (True, calls.at_most or 0.0)):
        limit = _Limit(loaded=loaded, volume=volume, views=views, is_most=is_most)
        once = limit.of_defense(("defenses", name))
        share = wanted / max(1.0, sum(work.calls for work in once.values()))
        works.append({path: _Work(*(each * share for each in once[path])) for path in once})
    return _forecast(loaded, name, works)


def _forecast(
    loaded: LoadedConfig,
    name: str,
    works: Sequence[Mapping[Keys, _Work]],
    *,
    median_ms: float | None = None,
) -> Forecast:
    """Add up what a part and those it is made of take at least and at most, behind services."""
    least, most = works
    remote: list[Keys] = []
    prices: list[tuple[Keys, PriceSettings]] = []
    for path in most:
        price = price_at(loaded, path)
        if price is not None:
            prices.append((path, price))
        if price is not None or service_address(loaded.parts[path]):
            remote.append(path)
    if loaded.config.run.cache:
        least = dict.fromkeys(remote, _Work())  # every answer may be kept already
    calls = sum(most[path].calls for path in remote)
    seconds = None
    if median_ms is not None and len(remote) == 1:
        at_once = concurrency_of(loaded).get(name_at(loaded, remote[0]))
        at_once = at_once or getattr(loaded.parts[remote[0]], "processes", None)
        seconds = calls * median_ms / 1000 / (at_once or loaded.config.run.concurrency)
    cost = None
    if remote and len(prices) == len(remote):
        low = sum(least[path].cost(price) for path, price in prices)
        high = sum(most[path].cost(price) for path, price in prices)
        cost = Span(at_least=low, at_most=high if isfinite(high) else None)
    at_least = sum(least[path].calls for path in remote)
    span = Span(at_least=at_least, at_most=calls)
    return Forecast(part=name, calls=span, seconds=seconds, cost=cost)


def chunk_rules(loaded: LoadedConfig) -> list[tuple[str, str, ChunkRule]]:
    """Return the arms whose guard is asked while the answer grows, with guard and rule."""
    pipeline = loaded.config.pipeline
    return [
        (name, arm.guards_at()[Place.OUTPUT][0], arm.chunks)
        for name, arm in ({} if pipeline is None else pipeline.arms).items()
        if arm.chunks is not None
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """What parts take: at most, or at least, where whatever may be spared is spared."""

    loaded: LoadedConfig
    volume: TextVolume
    views: Mapping[str, View]
    is_most: bool

    def of_defense(self, path: Keys) -> dict[Keys, _Work]:
        """Return the work of a defense, or that of the defenses it is made of."""
        settings: Any = self.loaded.parts[path]
        of = getattr(settings, "of", ())
        if not of:
            return {path: self._deciding(path[-1])}
        work: dict[Keys, _Work] = {}
        rule = getattr(settings, "rule", "")
        stops_early = getattr(settings, "short_circuit", False) or rule == "first"
        for position, member in enumerate((of,) if isinstance(of, str) else of):
            for below, each in self.of_defense(("defenses", member)).items():
                is_spared = position and stops_early and not self.is_most
                before = work.get(below, _Work())
                work[below] = before if is_spared else before.and_more(each)
        return work

    def _deciding(self, name: str) -> _Work:
        """Return the work of one defense at every place where it stands."""
        pipeline = self.loaded.config.pipeline
        if pipeline is None:
            return self._deciding_before(name)
        work = _Work()
        if name in pipeline.guards_at(Place.OUTPUT):
            work = self._deciding_behind(name)
        if name in pipeline.guards_at(Place.CONTEXT):
            work = work.and_more(self._deciding_in_context(name))
        elsewhere = (*pipeline.guards_at(Place.OUTPUT), *pipeline.guards_at(Place.CONTEXT))
        if name in pipeline.guards_at(Place.INPUT) or name not in elsewhere:
            work = work.and_more(self._deciding_before(name))
        return work

    def _deciding_in_context(self, name: str) -> _Work:
        """A guard at `context` is asked about each document, or once about all of a sample."""
        config, settings = self.loaded.config, self.loaded.parts["defenses", name]
        arms = [] if config.pipeline is None else [*config.pipeline.arms.values()]
        arms = [arm for arm in arms if name in arm.guards_at().get(Place.CONTEXT, ())]
        is_certain = any(
            arm.guards_at().get(Place.CONTEXT, ())[:1] == (name,)
            and Place.INPUT not in arm.guards_at()
            for arm in arms
        )
        shown = 0
        if any(name not in arm.shown_all for arm in arms):
            shown += self.volume.documents
        if any(name in arm.shown_all for arm in arms):
            shown += self.volume.with_documents
        calls = 0.0
        if is_certain or self.is_most:
            calls = float(shown * config.run.repeats)
        calls *= getattr(settings, "calls_each", 1) * self._most_texts(name, Place.CONTEXT)
        read = self._read(settings, self.volume.in_documents / max(1, shown))
        work = self._work(calls, read, settings)
        price = price_at(self.loaded, ("defenses", name))
        if price is None or not price.per_unit:
            return work
        units = calls * self.volume.mean_units(View.DOCUMENT, price.unit_characters)
        return work._replace(units=units)

    def _deciding_behind(self, name: str) -> _Work:
        """A guard behind the model is asked about each answer at most, with its request."""
        config, settings = self.loaded.config, self.loaded.parts["defenses", name]
        arms = () if config.pipeline is None else config.pipeline.arms.values()
        is_certain = False
        for places in (arm.guards_at() for arm in arms):
            is_first = places.get(Place.OUTPUT, ())[:1] == (name,)
            is_certain = is_certain or (is_first and Place.INPUT not in places)
        calls = 0.0
        if is_certain or self.is_most:
            calls = float(self.volume.samples * config.run.repeats)
        calls *= getattr(settings, "calls_each", 1) * self._most_texts(name, Place.OUTPUT)
        calls *= self._most_prefixes(name)
        shown = self.volume.conversations / max(1, self.volume.samples)
        read = self._read(settings, shown) + self._written(self.loaded.parts[_MODEL])
        work = self._work(calls, read, settings)
        price = price_at(self.loaded, ("defenses", name))
        if price is None or not price.per_unit:
            return work
        units = calls * self.volume.mean_units(View.CONVERSATION, price.unit_characters)
        return work._replace(units=units)

    def _deciding_before(self, name: str) -> _Work:
        """A defense is asked about each sample once a repeat, and a few times to warm up."""
        config, settings = self.loaded.config, self.loaded.parts["defenses", name]
        view, volume = self.views.get(name, View.TEXT), self.volume
        shown, characters, answer = volume.shown[view], volume.characters[view], 0.0
        if view is View.RESPONSE and config.pipeline is not None:
            shown, characters = volume.samples, volume.conversations
            answer = self._written(self.loaded.parts[_MODEL])
        is_repeated = view is View.RESPONSE or name not in asked_once(self.loaded)
        repeats = config.run.repeats if is_repeated else 1
        texts = self._most_texts(name, Place.INPUT)
        calls = float(shown * repeats + min(config.latency.warmup, shown))
        calls += (texts - 1) * shown * config.run.repeats
        calls *= getattr(settings, "calls_each", 1)  # a guard model asked about several risks
        read = self._read(settings, characters / max(1, shown)) + answer
        work = self._work(calls, read, settings)
        price = price_at(self.loaded, ("defenses", name))
        if price is None or not price.per_unit:
            return work
        return work._replace(units=calls * volume.mean_units(view, price.unit_characters))

    def _most_prefixes(self, name: str) -> int:
        """Return about how many prefixes of an answer a guard may be asked, all of it included."""
        rules = [rule for _, guard, rule in chunk_rules(self.loaded) if guard == name]
        if not self.is_most or not rules:
            return 1
        longest = longest_answer(self.loaded)
        shown: set[int] = set()
        for rule in rules:
            calls = rule.most_calls
            if longest is not None:
                calls = min(calls, rule.calls(longest))
            shown.update((rule.every or 0) * number for number in range(1, calls))
        return len(shown) + 1

    def _answers(self) -> float:
        """How many answers the target model gives: each sample has at most one a repeat."""
        pipeline = self.loaded.config.pipeline
        guards = [] if pipeline is None else pipeline.guards
        arms = () if pipeline is None else pipeline.arms.values()
        after = {name for name, view in self.views.items() if view is View.RESPONSE}
        is_certain = not {NO_GUARD, *after}.isdisjoint(guards)
        is_certain = is_certain or any(Place.INPUT not in arm.guards_at() for arm in arms)
        most = float(self.volume.samples * self.loaded.config.run.repeats)
        if is_certain or self.is_most:
            return most
        return 0.0

    def _most_texts(self, part: str, place: Place | None = None) -> int:
        """Return of how many texts a part may be asked for a sample, by who may rewrite before it.

        A part is a guard at a place, the model, or the judges.
        """
        if not self.is_most:
            return 1
        seen: set[tuple[str, ...]] = {()}
        pipeline = self.loaded.config.pipeline
        for arm in () if pipeline is None else pipeline.arms.values():
            guards = [(name, at) for at, names in arm.guards_at().items() for name in names]
            seen |= self._texts_before(guards, part, place)
        for name in () if pipeline is None else pipeline.guards:
            if name == NO_GUARD:
                continue
            at = Place.OUTPUT if self.views.get(name) is View.RESPONSE else Place.INPUT
            seen |= self._texts_before([(name, at)], part, place)
        return len(seen)

    def _texts_before(
        self, guards: Sequence[tuple[str, Place]], part: str, place: Place | None
    ) -> set[tuple[str, ...]]:
        """Return who may have written what a part of an arm is shown: every choice of guards."""
        written: list[tuple[str, ...]] = [()]
        for name, at in guards:
            if (name, at) == (part, place):
                return set(written)
            if part == "model" and at is Place.OUTPUT:
                break
            is_context = at is Place.CONTEXT  # a document that is left out is another request
            if is_context or getattr(self.loaded.parts["defenses", name], "rewritten", None):
                written += [(*each, stored_name(name, at)) for each in written]
        if place is not None:
            return set()
        return set(written)

    def of_model(self) -> _Work:
        """Return the work of the target model."""
        settings = self.loaded.parts[_MODEL]
        shown = self.volume.conversations / max(1, self.volume.samples)
        calls = self._answers() * self._most_texts("model")
        return self._work(calls, self._read(settings, shown), settings)

    def of_judge(self, path: Keys) -> _Work:
        """A judge is shown every answer, and asked again when its own cannot be read."""
        settings: Any = self.loaded.parts[path]
        texts = self._most_texts("judge")
        if self.is_most:  # and what had gone out before a block
            texts += len(chunk_rules(self.loaded)) * texts
        model, calls = self.loaded.parts[_MODEL], self._answers() * texts
        shown = self.volume.exchanges / max(1, self.volume.samples) + len(self._before(model))
        read = self._read(settings, shown) + self._written(model)
        work = self._work(calls, read, settings)
        # Asked again, it reads what it has read and written before.
        more = self._written(settings) + len(ASK_AGAIN) / CHARACTERS_A_TOKEN
        for again in range(1, getattr(settings, "retries", 0) + 1) if self.is_most else ():
            work = work.and_more(self._work(calls, read + more * again, settings))
        return work

    def _work(self, calls: float, read: float, settings: Any) -> _Work:
        if not calls:
            return _Work()
        return _Work(calls, calls * read, calls * self._written(settings))

    def _read(self, settings: Any, characters: float) -> float:
        """Tokens that one call reads: what is always told before, and the material."""
        return (len(self._before(settings)) + characters) / CHARACTERS_A_TOKEN

    def _before(self, settings: Any) -> str:
        """What a part is told before every material: a system prompt, a policy, a rubric."""
        before = getattr(settings, "before", None)
        if before is None:
            return ""
        return str(before(self.loaded.folder))

    def _written(self, settings: Any) -> float:
        most: int | None = 1
        if self.is_most:
            most = getattr(settings, "most_written", None)
        if most is None:
            return inf
        return float(most)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeCheck:
    """How sharp one figure can be with the samples there are.

    Attributes:
        subject: What the figure is about: attacks, benign samples, or a category.
        samples: How many samples there are.
        groups: Groups they fall into.
        half_width: Half the width of its interval at 50 %, or None without samples.
        enough: Whether that is within the wanted margin.
    """

    subject: str
    samples: int
    groups: int
    half_width: float | None
    enough: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a few live calls showed.

    Attributes:
        by_label: Label of each sample, and what came of it.
        answer: One native answer that could not be read, and the paths in it that may decide.
    """

    defense: str
    outcomes: Mapping[str, int] = field(default_factory=dict)
    by_label: tuple[tuple[str, str], ...] = ()
    median_ms: float | None = None
    messages: tuple[str, ...] = ()
    answer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """Everything `guardmark check` says.

    Attributes:
        data: The data sets, with hashes and counts.
        warnings: What to look at before the run.
        margin: Wanted half width of an interval.
        needed: Independent samples that reach it in the worst case.
        sizes: How sharp each figure can be.
        forecasts: What each part will take.
        probes: What a few live calls showed.
        samples: How many samples there are.
    """

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
    for sample in data.every_sample():
        volume.add(sample.prompt)
        if not sample.is_labelled:
            continue
        tallies["attacks" if sample.is_attack else "benign"][sample.lineage] += 1
        if sample.is_attack and sample.category:
            tallies.setdefault(sample.category, Counter())[sample.lineage] += 1
    return tallies, volume


def _size(subject: str, groups: Counter[str], stats: StatsSettings) -> SizeCheck:
    samples = groups.total()
    width = None
    if samples:
        width = wilson_half_width(0.5, samples, confidence=stats.confidence)
    return SizeCheck(
        subject=subject,
        samples=samples,
        groups=len(groups),
        half_width=width,
        enough=width is not None and width <= stats.margin,
    )


def check_config(path: Path, *, probes: int = 0) -> Checkup:
    """Say what a configuration will do, after some live calls where they are asked for."""
    loaded = load_config(path)
    services = open_services(loaded)
    parts = build_parts(loaded, services)
    require_gate(loaded.config, list(loaded.config.defenses))
    require_judge(loaded.config)
    require_known_prices(loaded)
    require_measurable(loaded, loaded.config.run.budget)
    helpers = build_attacker(AttackerConfig(loaded=loaded, source=loaded), services)
    data = load_data(loaded)
    doubtful = tuple(_advise_on_ray(loaded, parts, data))
    samples = _alternating(data, probes) if probes else []
    work = _probe_all(parts, services, helpers=helpers, samples=samples)
    seen = run_on_loop(work, uvloop=bool(loaded.config.run.uvloop))
    stats = loaded.config.stats
    tallies, volume = _tally(data)
    views = {built.manifest.name: built.part.capabilities.view for built in parts.defenses}
    medians = {probe.defense: probe.median_ms for probe in seen}
    return Checkup(
        data=data.manifests,
        warnings=(
            *(*data.warnings, *doubtful, *_advise_on_images(parts, volume)),
            *_advise_on_chunks(loaded),
            *training_warnings(parts.manifests, data.manifests),
        ),
        margin=stats.margin,
        needed=trials_for_half_width(stats.margin, confidence=stats.confidence),
        sizes=tuple(_size(subject, groups, stats) for subject, groups in tallies.items()),
        forecasts=tuple(forecast_parts(loaded, volume, views=views, median_ms=medians)),
        probes=tuple(seen),
        samples=data.count,
    )


def _advise_on_ray(loaded: LoadedConfig, parts: Parts, data: LoadedData) -> Iterator[str]:
    """Say where workers on a cluster gain nothing, after a few calls here of what they would do."""
    run, elsewhere = loaded.config.run, rebuilds(loaded, parts)
    local = [built for built in parts.defenses if built.manifest.name in elsewhere]
    if run.cluster is not None:
        prompts = [sample.prompt for sample in _alternating(data, 8)]
        each_s = 0.0
        if prompts:
            each_s = run_on_loop(time_parts(local, prompts))
        yield from doubts(run.cluster, each_s, calls=data.count * run.repeats, parts=len(local))


def _advise_on_chunks(loaded: LoadedConfig) -> Iterator[str]:
    """Say how often a guard may be asked about one answer, where it is asked while it grows."""
    for arm, guard, rule in chunk_rules(loaded):
        longest = longest_answer(loaded)
        if longest is None:
            yield (
                f"The arm {arm} asks {guard} at most {rule.most_calls:,} times about one answer "
                "(most_calls); how long the model's answers may be is not known."
            )
            continue
        calls = min(rule.calls(longest), rule.most_calls)
        yield (
            f"The arm {arm} asks {guard} at most {calls:,} {'time' if calls == 1 else 'times'} "
            f"about one answer (of {longest:,} characters, as long as the model may write)."
        )


def _advise_on_images(parts: Parts, volume: TextVolume) -> Iterator[str]:
    """Say which defenses cannot be asked about samples with images."""
    for built in parts.defenses:
        count = volume.images[built.part.capabilities.view]
        if count and not built.part.capabilities.takes_images:
            yield (
                f"{count:,} of {volume.samples:,} samples show an image, and {built.manifest.name} "
                "takes texts only: they are not sent, and count as errors (skipped)."
            )


async def _probe_all(
    parts: Parts, services: Services | None, *, helpers: Attacker | None, samples: Sequence[Sample]
) -> list[Probe]:
    """Show judges known answers; ask helpers of an attacker for a word, defenses about samples."""
    own = () if helpers is None else helpers.parts
    try:
        judges = [each for each in parts.judges if samples or each.manifest.type == "rules"]
        messages = {each.manifest.name: await probe_judge(each) for each in judges}
        doubts = [Probe(defense=name, messages=words) for name, words in messages.items() if words]
        if not samples:
            return doubts
        words = [] if helpers is None else await probe_attacker(helpers)
        remote = [built for built in parts.defenses if built.calls_service]
        probes = [await _probe(built, samples) for built in remote]
        answered = [
            Probe(defense=name, outcomes={"answer": 1}, median_ms=ns and ns / _NS_PER_MS)
            for name, ns in words
        ]
        return [*answered, *probes, *doubts]
    finally:
        await close_parts([*parts.every, *(built.part for built in own)], services)


def _alternating(data: LoadedData, count: int) -> list[Sample]:
    """The first samples of the data, attacks and benign inputs in turn."""
    attacks = (sample for sample in data.samples() if sample.is_attack)
    benign = (sample for sample in data.samples() if not sample.is_attack)
    pairs = zip_longest(attacks, benign)
    return list(islice((sample for pair in pairs for sample in pair if sample), count))


async def _probe(built: BuiltPart, samples: Sequence[Sample]) -> Probe:
    decisions = await decide_each(built, [sample.prompt for sample in samples])
    times = [d.latency_ns / _NS_PER_MS for d in decisions if d.latency_ns is not None]
    messages = {d.evidence.message for d in decisions if d.evidence and d.evidence.message}
    return Probe(
        defense=built.manifest.name,
        outcomes=dict(Counter(decision.outcome.value for decision in decisions)),
        by_label=tuple(
            (sample.label.value, decision.outcome.value)
            for sample, decision in zip(samples, decisions, strict=True)
        ),
        median_ms=median(times) if times else None,
        messages=tuple(sorted(messages)),
        answer=next(filter(None, (quote_answer(each.evidence) for each in decisions)), ""),
    )


def examine_config(path: Path) -> dict[str, Sequence[Check]]:
    """Check each defense: whether it is there, can be read and is steady, and its limits."""
    loaded = load_config(path)
    work = _examine_all(loaded, open_services(loaded))
    return run_on_loop(work, uvloop=bool(loaded.config.run.uvloop))


async def _examine_all(
    loaded: LoadedConfig, services: Services | None
) -> dict[str, Sequence[Check]]:
    """Build and ask one defense after the other: one that cannot be built stops no other."""
    found: dict[str, Sequence[Check]] = {}
    stated = {entry.name: entry.limits for entry in list_profiles()}
    try:
        for name in loaded.config.defenses:
            settings = loaded.parts["defenses", name]
            limits = limits_of(settings, stated.get(getattr(settings, "profile", ""), ""))
            try:
                (built,) = build_defenses(loaded, services, only=[name])
            except GuardmarkError as error:
                missing = Check("installed", str(error), is_fine=False, is_needed=True)
                found[name] = in_order([missing, limits])
                continue
            version = built.manifest.version or "version not stated: set version"
            there = Check("installed", f"{built.manifest.type}, {version}", is_fine=True)
            found[name] = in_order([there, *await examine_built(built), limits])
            await close_parts([built.part], None)
    finally:
        await close_parts([], services)
    return found
