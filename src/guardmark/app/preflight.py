"""The verb `check`: sizes, calls, time and cost before anything is spent; live calls on request."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import field
from itertools import zip_longest
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
    members_of,
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
    lengths: dict[View, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    conversations: int = 0
    exchanges: int = 0
    documents: int = 0
    with_documents: int = 0
    in_documents: int = 0

    def mean_units(self, view: View, characters: int) -> float:
        """Return how many units of so many characters a sample has on average; one at least."""
        lengths = self.lengths[view]
        units = 0
        for length, samples in lengths.items():
            units += samples * max(1, ceil(length / characters))
        return units / max(1, lengths.total())

    def add(self, prompt: Prompt) -> None:
        """Count one sample."""
        self.samples += 1
        for view in View:
            text = prompt.shown(view, beside_images=True)
            if text is not None:
                if prompt.shown(view) is None:
                    self.images[view] += 1
                self.shown[view] += 1
                self.characters[view] += len(text)
                self.lengths[view][len(text)] += 1
        documents = [len(prompt.messages[index].content) for index in prompt.documents]
        if documents:
            self.documents += len(documents)
            self.with_documents += 1
            self.in_documents += sum(documents)
        messages = []
        for message in prompt.messages:
            self.conversations += len(message.content)
            messages.append({"role": message.role.value, "content": message.content})
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
            if per_1k:
                money += tokens * per_1k / 1000
        return money


def forecast_parts(
    loaded: LoadedConfig,
    volume: TextVolume,
    *,
    views: Mapping[str, View],
    median_ms: Mapping[str, float | None],
) -> Iterator[Forecast]:
    """Say what each part of a configuration will take; views are those of the defenses."""
    at_least = _Limit(loaded=loaded, volume=volume, views=views, is_most=False)
    at_most = _Limit(loaded=loaded, volume=volume, views=views, is_most=True)
    for name in loaded.config.defenses:
        path = ("defenses", name)
        least, most = at_least.of_defense(path), at_most.of_defense(path)
        yield _forecast(loaded, name, least, most, median_ms=median_ms.get(name))
    if loaded.config.pipeline is None:
        return
    least, most = {_MODEL: at_least.of_model()}, {_MODEL: at_most.of_model()}
    yield _forecast(loaded, "model", least, most)
    judges = loaded.config.pipeline.judges
    for index in range(len(judges)):
        least, most = {}, {}
        for part in loaded.parts:  # a judge, and the members of a panel
            if part[:3] == ("pipeline", "judges", str(index)):
                least[part] = at_least.of_judge(part)
                most[part] = at_most.of_judge(part)
        yield _forecast(loaded, judge_name(judges, index), least, most)


def forecast_attack(
    loaded: LoadedConfig, built: BuiltPart, samples: Sequence[Sample], calls: Span
) -> Forecast:
    """Say what so many calls of a defense will take, about texts as long as those of the data."""
    volume, name = TextVolume(), built.manifest.name
    for sample in samples:
        volume.add(sample.prompt)
    views = {name: built.part.capabilities.view}
    path = ("defenses", name)
    at_least = _Limit(loaded=loaded, volume=volume, views=views, is_most=False)
    at_most = _Limit(loaded=loaded, volume=volume, views=views, is_most=True)
    least = _scaled(at_least.of_defense(path), calls.at_least)
    most = _scaled(at_most.of_defense(path), calls.at_most or 0.0)
    return _forecast(loaded, name, least, most)


def _scaled(once: Mapping[Keys, _Work], calls: float) -> dict[Keys, _Work]:
    """Return the work of a defense scaled to so many calls of all it is made of together."""
    share = calls / max(1.0, sum(work.calls for work in once.values()))
    scaled = {}
    for path, work in once.items():
        scaled[path] = _Work(
            calls=work.calls * share,
            read=work.read * share,
            written=work.written * share,
            units=work.units * share,
        )
    return scaled


def _forecast(
    loaded: LoadedConfig,
    name: str,
    least: Mapping[Keys, _Work],
    most: Mapping[Keys, _Work],
    *,
    median_ms: float | None = None,
) -> Forecast:
    """Add up what a part and those it is made of take at least and at most, behind services."""
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
        low, high = 0.0, 0.0
        for path, price in prices:
            low += least[path].cost(price)
            high += most[path].cost(price)
        cost = Span(at_least=low, at_most=None)
        if isfinite(high):
            cost = Span(at_least=low, at_most=high)
    at_least = sum(least[path].calls for path in remote)
    span = Span(at_least=at_least, at_most=calls)
    return Forecast(part=name, calls=span, seconds=seconds, cost=cost)


def chunk_rules(loaded: LoadedConfig) -> list[tuple[str, str, ChunkRule]]:
    """Return the arms whose guard is asked while the answer grows, with guard and rule."""
    rules = []
    for name, arm in loaded.config.pipeline_arms.items():
        if arm.chunks is not None:
            rules.append((name, arm.guards_at()[Place.OUTPUT][0], arm.chunks))
    return rules


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
        members = members_of(settings)
        if not members:
            return {path: self._deciding(path[-1])}
        total: dict[Keys, _Work] = {}
        rule = getattr(settings, "rule", "")
        stops_early = getattr(settings, "short_circuit", False) or rule == "first"
        for position, member in enumerate(members):
            is_spared = position > 0 and stops_early and not self.is_most
            for below, work in self.of_defense(("defenses", member)).items():
                total.setdefault(below, _Work())
                if not is_spared:
                    total[below] = total[below].and_more(work)
        return total

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
        is_certain, sees_each, sees_all = False, False, False
        for arm in config.pipeline_arms.values():
            places = arm.guards_at()
            guards = places.get(Place.CONTEXT, ())
            if name not in guards:
                continue
            if guards[0] == name and Place.INPUT not in places:
                is_certain = True
            if name in arm.shown_all:
                sees_all = True
            else:
                sees_each = True
        shown = 0
        if sees_each:
            shown += self.volume.documents
        if sees_all:
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
        is_certain = False
        for arm in config.pipeline_arms.values():
            places = arm.guards_at()
            is_first = places.get(Place.OUTPUT, ())[:1] == (name,)
            if is_first and Place.INPUT not in places:
                is_certain = True
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
        repeats = config.run.repeats
        if view is not View.RESPONSE and name in asked_once(self.loaded):
            repeats = 1
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
            for number in range(1, calls):
                shown.add((rule.every or 0) * number)
        return len(shown) + 1

    def _answers(self) -> float:
        """How many answers the target model gives: each sample has at most one a repeat."""
        config = self.loaded.config
        is_certain = False
        for name in config.pipeline_guards:
            if name == NO_GUARD or self.views.get(name) is View.RESPONSE:
                is_certain = True
        for arm in config.pipeline_arms.values():
            if Place.INPUT not in arm.guards_at():
                is_certain = True
        if is_certain or self.is_most:
            return float(self.volume.samples * config.run.repeats)
        return 0.0

    def _most_texts(self, part: str, place: Place | None = None) -> int:
        """Return of how many texts a part may be asked for a sample, by who may rewrite before it.

        A part is a guard at a place, the model, or the judges.
        """
        if not self.is_most:
            return 1
        seen: set[tuple[str, ...]] = {()}
        for arm in self.loaded.config.pipeline_arms.values():
            guards = []
            for at, names in arm.guards_at().items():
                for name in names:
                    guards.append((name, at))
            seen |= self._texts_before(guards, part, place)
        for name in self.loaded.config.pipeline_guards:
            if name == NO_GUARD:
                continue
            at = Place.INPUT
            if self.views.get(name) is View.RESPONSE:
                at = Place.OUTPUT
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
                written += [(*writers, stored_name(name, at)) for writers in written]
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
        if self.is_most:  # asked again, it reads what it has read and written before
            more = self._written(settings) + len(ASK_AGAIN) / CHARACTERS_A_TOKEN
            for again in range(1, getattr(settings, "retries", 0) + 1):
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


def _count_samples(data: LoadedData) -> tuple[dict[str, Counter[str]], TextVolume]:
    """Count the samples of each group, by what a figure is about; and how much text there is."""
    counts = {"attacks": Counter[str](), "benign": Counter[str]()}
    volume = TextVolume()
    for sample in data.every_sample():
        volume.add(sample.prompt)
        if not sample.is_labelled:
            continue
        if not sample.is_attack:
            counts["benign"][sample.lineage] += 1
            continue
        counts["attacks"][sample.lineage] += 1
        if sample.category:
            counts.setdefault(sample.category, Counter())[sample.lineage] += 1
    return counts, volume


def _size(subject: str, groups: Counter[str], stats: StatsSettings) -> SizeCheck:
    """Say how sharp the figure over some groups can be."""
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
    work = _probe_all(parts, services, helpers=helpers, samples=_alternating(data, probes))
    seen = run_on_loop(work, uvloop=bool(loaded.config.run.uvloop))
    stats = loaded.config.stats
    counts, volume = _count_samples(data)
    views = {built.manifest.name: built.part.capabilities.view for built in parts.defenses}
    medians = {probe.defense: probe.median_ms for probe in seen}
    return Checkup(
        data=data.manifests,
        warnings=(
            *data.warnings,
            *doubtful,
            *_advise_on_images(parts, volume),
            *_advise_on_chunks(loaded),
            *training_warnings(parts.manifests, data.manifests),
        ),
        margin=stats.margin,
        needed=trials_for_half_width(stats.margin, confidence=stats.confidence),
        sizes=tuple(_size(subject, groups, stats) for subject, groups in counts.items()),
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
        times = "times"
        if calls == 1:
            times = "time"
        yield (
            f"The arm {arm} asks {guard} at most {calls:,} {times} "
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
    closed = [*parts.every]
    if helpers is not None:
        closed += [built.part for built in helpers.parts]
    try:
        doubts = await _probe_judges(parts, only_rules=not samples)
        if not samples:
            return doubts
        probes = []
        if helpers is not None:
            for name, latency_ns in await probe_attacker(helpers):
                median_ms = latency_ns and latency_ns / _NS_PER_MS
                probes.append(Probe(defense=name, outcomes={"answer": 1}, median_ms=median_ms))
        for built in parts.defenses:
            if built.calls_service:
                probes.append(await _probe(built, samples))
        return [*probes, *doubts]
    finally:
        await close_parts(closed, services)


async def _probe_judges(parts: Parts, *, only_rules: bool) -> list[Probe]:
    """Show judges known answers, and return those with something to say; rules cost no call."""
    doubts = []
    for judge in parts.judges:
        if only_rules and judge.manifest.type != "rules":
            continue
        messages = await probe_judge(judge)
        if messages:
            doubts.append(Probe(defense=judge.manifest.name, messages=messages))
    return doubts


def _alternating(data: LoadedData, count: int) -> list[Sample]:
    """Return the first samples of the data, attacks and benign inputs in turn."""
    if not count:
        return []
    attacks = (sample for sample in data.samples() if sample.is_attack)
    benign = (sample for sample in data.samples() if not sample.is_attack)
    first: list[Sample] = []
    for pair in zip_longest(attacks, benign):
        for sample in pair:
            if sample is None:  # one kind has fewer than the other
                continue
            first.append(sample)
            if len(first) == count:
                return first
    return first


async def _probe(built: BuiltPart, samples: Sequence[Sample]) -> Probe:
    """Ask a defense about some samples, and gather what came of it."""
    decisions = await decide_each(built, [sample.prompt for sample in samples])
    outcomes, by_label = Counter[str](), []
    times, messages = [], set()
    answer = ""
    for sample, decision in zip(samples, decisions, strict=True):
        outcomes[decision.outcome.value] += 1
        by_label.append((sample.label.value, decision.outcome.value))
        if decision.latency_ns is not None:
            times.append(decision.latency_ns / _NS_PER_MS)
        if decision.evidence is not None and decision.evidence.message:
            messages.add(decision.evidence.message)
        answer = answer or quote_answer(decision.evidence)
    median_ms = None
    if times:
        median_ms = median(times)
    return Probe(
        defense=built.manifest.name,
        outcomes=dict(outcomes),
        by_label=tuple(by_label),
        median_ms=median_ms,
        messages=tuple(sorted(messages)),
        answer=answer,
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
    checks: dict[str, Sequence[Check]] = {}
    stated = {entry.name: entry.limits for entry in list_profiles()}
    try:
        for name in loaded.config.defenses:
            settings = loaded.parts["defenses", name]
            limits = limits_of(settings, stated.get(getattr(settings, "profile", ""), ""))
            try:
                (built,) = build_defenses(loaded, services, only=[name])
            except GuardmarkError as error:
                missing = Check("installed", str(error), is_fine=False, is_needed=True)
                checks[name] = in_order([missing, limits])
                continue
            version = built.manifest.version or "version not stated: set version"
            there = Check("installed", f"{built.manifest.type}, {version}", is_fine=True)
            checks[name] = in_order([there, *await examine_built(built), limits])
            await close_parts([built.part], None)
    finally:
        await close_parts([], services)
    return checks
