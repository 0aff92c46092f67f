"""What a run does, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.budget import Budget, SpendingMeter
from guardmark.core.chunks import ChunkRule
from guardmark.core.errors import ConfigError
from guardmark.core.manifest import LatencyMode, Policy
from guardmark.core.place import AFTER, NO_GUARD, Place
from guardmark.core.record import FIRST_LAYER
from guardmark.core.values import dataclass
from guardmark.core.version import VERSION
from guardmark.defenses.guard import AnyDefense, as_guard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guardmark.core.manifest import PartManifest
    from guardmark.core.protocols import ChatModel, Guard, Judge
    from guardmark.core.sample import View
    from guardmark.defenses.calls.pricing import PricedChain, PricedPart
    from guardmark.store.cache import AnswerCache

ArmChunks = Mapping[str, ChunkRule]
ArmPlaces = Mapping[str, Mapping[Place, tuple[str, ...]]]
UNHASHED: Final = frozenset({"report", "gate", "services", "prices", "adaptive"})
"""Sections that change how a run is done or told, never what it observes: no hash covers them."""
_NAMED_WHOLE: Final = frozenset({"chat", "guard-model", "http"})
"""Types whose settings name all that an answer depends on, as those of a function do not."""
ADDRESS_SETTINGS: Final = ("url", "base_url", "preset")
"""Settings of a part that say which service it calls."""


class Workers(StrEnum):
    """Where defenses that answer at once are called."""

    INLINE = "inline"
    THREADS = "threads"
    PROCESSES = "processes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How calls are spaced, so that a latency means something."""

    mode: LatencyMode = LatencyMode.LOADED
    warmup: int = 0
    rate_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Who counts the calls of an invocation, and what they cost.

    Attributes:
        meter: The counter, which the client of services asks, too.
        at_service: Parts whose requests that client counts.
        prices: Prices of parts that it does not count.
    """

    meter: SpendingMeter = field(default_factory=SpendingMeter)
    at_service: frozenset[str] = frozenset()
    prices: Mapping[str, PricedPart | PricedChain] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedParts:
    """The answer cache, and which parts may use it, each under what identifies it."""

    cache: AnswerCache
    identities: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Guards, target model and judges, in several arms over the same answers.

    Attributes:
        arms: Names of the arms; without `places` each is a guard, or `none`.
        places: Guards of each arm by place, asked in their order, where they were so stated.
        shown_all: Guards at `context` of each arm that are shown all documents as one text.
        chunks: Of arms whose guard behind the model is asked while the answer grows, how often.
    """

    arms: tuple[str, ...]
    model: ChatModel
    judges: tuple[Judge, ...] = ()
    places: ArmPlaces = field(default_factory=dict)
    shown_all: Mapping[str, frozenset[str]] = field(default_factory=dict)
    chunks: ArmChunks = field(default_factory=dict)

    @property
    def guards_of_arms(self) -> Mapping[str, tuple[str, ...]]:
        """The guards of each arm, wherever they stand in it."""
        if not self.places:
            return {arm: (arm,) for arm in self.arms}
        return {arm: tuple(chain(*at.values())) for arm, at in self.places.items()}

    def guards_at(self, place: Place) -> tuple[str, ...]:
        """Return the guards that stand at a place in any arm."""
        names = (name for guards in self.places.values() for name in guards.get(place, ()))
        return tuple(dict.fromkeys(names))

    @property
    def only_elsewhere(self) -> frozenset[str]:
        """The guards that stand before documents or behind the model, and nowhere at `input`."""
        elsewhere = (*self.guards_at(Place.CONTEXT), *self.guards_at(Place.OUTPUT))
        return frozenset(elsewhere).difference(self.guards_at(Place.INPUT))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPart:
    """A part, ready to be called, and what the manifest says of it.

    Attributes:
        part: What is called.
        manifest: What the manifest says of it.
        remarks: What a probe said that was made where the part was built; None where none was made.
    """

    part: Any
    manifest: PartManifest
    remarks: Sequence[str] | None = None

    @property
    def calls_service(self) -> bool:
        """Whether it calls a service, from what its manifest says."""
        return any(self.manifest.settings.get(name) for name in ADDRESS_SETTINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Every part of a run.

    Attributes:
        defenses: What is measured.
        model: The target model, if there is one.
        judges: Who labels its answers.
        arms: Names of the arms of a pipeline.
        places: Guards of each arm by place, where they were so stated.
        shown_all: Guards at `context` of each arm that are shown all documents as one text.
        chunks: Of arms whose guard is asked while the answer grows, how often.
    """

    defenses: tuple[BuiltPart, ...]
    model: BuiltPart | None = None
    judges: tuple[BuiltPart, ...] = ()
    arms: tuple[str, ...] = ()
    places: ArmPlaces = field(default_factory=dict)
    shown_all: Mapping[str, frozenset[str]] = field(default_factory=dict)
    chunks: ArmChunks = field(default_factory=dict)

    @property
    def manifests(self) -> tuple[PartManifest, ...]:
        """What the manifest says of each part."""
        return tuple(built.manifest for built in self._built())

    @property
    def identities(self) -> dict[str, str]:
        """What identifies each part whose answers may be kept."""
        names, ours = [each.name for each in self.manifests], f"guardmark {VERSION}"
        return {
            each.name: f"{each.kind} {each.type} {each.fingerprint} {each.version} {ours}"
            for each in self.manifests
            if each.type in _NAMED_WHOLE and names.count(each.name) == 1
        }

    @property
    def every(self) -> tuple[Any, ...]:
        """The parts themselves."""
        return tuple(built.part for built in self._built())

    @property
    def pipeline(self) -> Pipeline | None:
        """Model, judges and arms as the engine takes them, or None without a model."""
        if self.model is None:
            return None
        judges = tuple(judge.part for judge in self.judges)
        return Pipeline(
            arms=self.arms,
            model=self.model.part,
            judges=judges,
            places=self.places,
            shown_all=self.shown_all,
            chunks=self.chunks,
        )

    def _built(self) -> tuple[BuiltPart, ...]:
        return (*self.defenses, *((self.model,) if self.model else ()), *self.judges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything a run does.

    Attributes:
        defenses: What is measured, in any form.
        repeats: How often every question is asked.
        concurrency: Calls in flight to a part, where nothing else is said.
        concurrency_of: The same for single parts, by name.
        on_malformed: What is done about an answer that cannot be read.
        on_error: What is done about a call that failed.
        timing: How calls are spaced.
        budget: What this invocation may spend.
        spending: Who counts the calls of the invocation; without one each run counts its own.
        max_errors: Failed calls after which the run ends; None for no limit.
        workers: Where guards that answer at once are called.
        worker_count: How many threads or processes; 0 for one a core.
        factories: What builds a guard anew in another process, by name.
        pipeline: Model, judges and arms, if there is a model.
        asked_once: Guards whose answer to a text stands for every repeat, and for every case of an
            agent.
        cached: The answer cache, and which parts may use it.
        guards: The defenses in the form in which they are asked.
    """

    defenses: Sequence[AnyDefense]
    repeats: int = 1
    concurrency: int = 16
    concurrency_of: Mapping[str, int] = field(default_factory=dict)
    on_malformed: Policy = Policy.RECORD
    on_error: Policy = Policy.RECORD
    timing: Timing = field(default_factory=Timing)
    budget: Budget = field(default_factory=Budget)
    spending: Spending | None = None
    max_errors: int | None = None
    workers: Workers = Workers.INLINE
    worker_count: int = 0
    factories: Mapping[str, Callable[[], BuiltPart]] = field(default_factory=dict)
    pipeline: Pipeline | None = None
    asked_once: frozenset[str] = frozenset()
    cached: CachedParts | None = None
    guards: tuple[Guard, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Adapt what is no guard yet."""
        object.__setattr__(self, "guards", tuple(map(as_guard, self.defenses)))

    @property
    def by_text(self) -> Mapping[str, View]:
        """Guards that are asked about a text once, and what each is shown."""
        every = {guard.name: guard.capabilities.view for guard in self.guards}
        return {name: view for name, view in every.items() if name in self.asked_once}

    def in_flight(self, part: str) -> int:
        """Return how many calls a part may have in flight."""
        if self.timing.mode is LatencyMode.ISOLATED:
            return 1
        return max(1, self._stated_in_flight(part) or self.concurrency)

    def batches_in_flight(self, guard: str) -> int:
        """Return how many batches a guard may have in flight: one where nothing says more."""
        return self._stated_in_flight(guard) or 1

    def _stated_in_flight(self, part: str) -> int | None:
        if part in self.concurrency_of:
            return self.concurrency_of[part]
        for guard in self.guards:
            if guard.name == part:
                return guard.capabilities.most_at_once
        return None


def layer_of(judge: Judge, judges: Sequence[Judge]) -> str:
    """Return the layer a judge's verdicts are stored in."""
    return FIRST_LAYER if len(judges) == 1 else f"{FIRST_LAYER}/{judge.name}"


def check(plan: Plan) -> None:
    """Refuse a plan that cannot be carried out."""
    names = [guard.name for guard in plan.guards]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise ConfigError(f"Two defenses have the same name: {', '.join(sorted(doubled))}.")
    if plan.repeats < 1:
        raise ConfigError(f"repeats must be at least 1, got {plan.repeats}.")
    is_open, rate = plan.timing.mode is LatencyMode.OPEN, plan.timing.rate_per_s
    if is_open and (rate is None or rate <= 0):
        raise ConfigError("Latency mode open needs a rate above 0. Next: set latency.rate.")
    if plan.timing.warmup < 0:
        raise ConfigError(f"warmup must be at least 0, got {plan.timing.warmup}.")
    if plan.pipeline is not None:
        _check_pipeline(plan, plan.pipeline, names)


def refuse_sessions(guards: Sequence[Guard], where: str) -> None:
    """Refuse guards that keep a session where turns are not asked about in order."""
    for guard in guards:
        if guard.capabilities.keeps_session:
            raise ConfigError(
                f"{guard.name} inserts session, but {where} turns of a conversation are not asked "
                "about in order.\nNext: measure it alone (defenses, turns: each), or leave session "
                "out of its body."
            )


def refuse_shared_sessions(
    guards: Sequence[Guard], arms: Mapping[str, Sequence[str]], *, has_turns: bool
) -> None:
    """Refuse guards that keep a session in several arms, or beside turns of conversations.

    Arms share the calls that they have in common, and a call can stand in one session only.
    """
    for guard in guards:
        own = [arm for arm, names in arms.items() if guard.name in names]
        if not own or not guard.capabilities.keeps_session:
            continue
        if has_turns:
            refuse_sessions([guard], "around a model")
        if len(own) > 1:
            raise ConfigError(
                f"{guard.name} inserts session and stands in the arms {' and '.join(own[:2])}: "
                "arms share equal calls, and a call belongs to one session.\n"
                f"Next: give each arm a defense of its own with the same settings, for example "
                f"{guard.name}-{own[0]} and {guard.name}-{own[1]}."
            )


def _check_pipeline(plan: Plan, pipeline: Pipeline, names: Sequence[str]) -> None:
    """Refuse a pipeline that cannot be carried out."""
    refuse_shared_sessions(plan.guards, pipeline.guards_of_arms, has_turns=False)
    if plan.timing.mode is LatencyMode.OPEN:
        raise ConfigError(
            "Latency mode open measures defenses alone; a pipeline has no single send time.\n"
            "Next: set latency.mode to isolated or loaded, or leave out the pipeline."
        )
    stated: tuple[str, ...] = pipeline.arms
    if pipeline.places:
        places = (Place.INPUT, Place.CONTEXT, Place.OUTPUT)
        stated = tuple(guard for place in places for guard in pipeline.guards_at(place))
    unknown = [name for name in stated if name != NO_GUARD and name not in names]
    if unknown or not pipeline.arms:
        what = "guard" if pipeline.places else "arm"
        mistake = f"unknown {what} {unknown[0]!r}" if unknown else "no arm"
        raise ConfigError(f"The pipeline has {mistake}. Known: {', '.join([NO_GUARD, *names])}.")
    reserved = [name for name in names if AFTER in name]
    if reserved:
        raise ConfigError(
            f"{reserved[0]!r} is no name for a guard of a pipeline: calls about rewritten texts "
            f"are stored under names with {AFTER.strip()!r} in them.\nNext: give it another name."
        )
    judges = [judge.name for judge in pipeline.judges]
    if len(set(judges)) < len(judges):
        raise ConfigError(f"Two judges have the same name: {', '.join(sorted(judges))}.")
