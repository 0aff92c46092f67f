"""The configuration, typed: what may stand in a guardmark YAML file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field, field_validator, model_validator

from guardmark.config.cluster import ClusterSettings, WorkerChoice
from guardmark.config.deadline import GrownSettings
from guardmark.config.settings import (
    LatencySettings,
    Name,
    PriceSettings,
    Rate,
    ServiceSettings,
    Settings,
)
from guardmark.core.budget import Budget
from guardmark.core.chunks import MOST_CALLS, WHOLE, ChunkRule
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.limits import LEAST_MARGIN, MOST_DEFENSES, MOST_PREVALENCES, MOST_REPEATS
from guardmark.core.manifest import UNNAMED, Policy
from guardmark.core.place import BARE_ARMS, PROXIED, Place
from guardmark.datasets.settings import DataSettings
from guardmark.engine.shards import ShardSet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_Battery = Literal["guardmark-attack-3", "guardmark-attack-2", "battery-v1"]


def _valid(read: Any, value: object) -> Any:
    """Read a value whose mistake is one of the setting it stands in."""
    try:
        return read(value)
    except ConfigError as error:
        raise ValueError(str(error)) from error


class RunSettings(ClusterSettings):
    """How the run goes about its work."""

    concurrency: int = Field(16, ge=1, le=2_000)
    limit: int | None = Field(None, ge=1)  # samples; None: all
    repeats: int = Field(1, ge=1, le=MOST_REPEATS)
    repeat_guards: bool = False
    seed: int = Field(7, ge=0)
    on_malformed: Policy | None = None
    on_error: Policy | None = None
    evaluator: str = ""
    workers: WorkerChoice = "inline"
    max_errors: int | None = Field(None, ge=0)
    error_limit: Rate = 0.5
    malformed_limit: Rate = 0.5
    max_calls: int | None = Field(None, ge=1)
    max_tokens: int | None = Field(None, ge=1)
    max_cost: float | None = Field(None, gt=0)
    max_time_s: float | None = Field(None, gt=0)
    stop_when: list[str] = []
    shard: str | None = None
    cache: bool = False
    uvloop: bool | None = None  # None: where it is installed, for runs that call a service

    @property
    def budget(self) -> Budget:
        """What one invocation may spend."""
        calls, tokens, cost = self.max_calls, self.max_tokens, self.max_cost
        return Budget(calls=calls, tokens=tokens, cost=cost, seconds=self.max_time_s)

    @field_validator("stop_when")
    @classmethod
    def _known_rules(cls, value: list[str]) -> list[str]:
        from guardmark.config.stop_rules import parse_stop_rule

        return [_valid(parse_stop_rule, rule).said for rule in value]

    @field_validator("shard")
    @classmethod
    def _some_shards(cls, value: str | None) -> str | None:
        if value is None:
            return None
        return str(ShardSet.parse(value))


class TaxonomySettings(Settings):
    """Own categories, beside the built-in ones."""

    extend: dict[str, list[str]] = {}


FACET_NAMES = (
    "category",
    "subcategory",
    "severity",
    "language",
    "length",
    "variant",
    "technique",
    "source",
)
"""What samples are sliced by without a word."""


class StatsSettings(GrownSettings):
    """How sure you want to be, and of what."""

    later: ClassVar[tuple[str, ...]] = ("category_map",)
    confidence: float = Field(0.95, gt=0.5, le=0.999_999)
    min_per_category: int = Field(100, ge=1)
    margin: float = Field(0.05, ge=LEAST_MARGIN, lt=0.5)
    non_inferiority_margin: float | None = Field(None, ge=LEAST_MARGIN, lt=1)
    replicates: int = Field(2_000, ge=2_000, le=1_000_000)
    prevalence: list[Rate] = Field([0.0001, 0.001, 0.01, 0.1], max_length=MOST_PREVALENCES)
    cost_missed_attack: float | None = Field(None, gt=0)
    cost_false_alarm: float | None = Field(None, gt=0)
    deployment_mix: dict[str, dict[str, Rate]] = {}
    slices: list[str] = []
    category_map: dict[str, dict[str, str | list[str]]] = {}

    @property
    def categories_meant(self) -> tuple[tuple[str, dict[str, tuple[str, ...]]], ...]:
        """Each defense with its native categories, and the samples' categories these stand for."""
        meant = []
        for defense, stated in self.category_map.items():
            categories = {}
            for native, own in stated.items():
                categories[native] = (own,) if isinstance(own, str) else tuple(own)
            meant.append((defense, categories))
        return tuple(meant)

    @field_validator("category_map")
    @classmethod
    def _stands_for_something(
        cls, value: dict[str, dict[str, str | list[str]]]
    ) -> dict[str, dict[str, str | list[str]]]:
        for defense, categories in value.items():
            for native, own in categories.items():
                if not own or (isinstance(own, list) and "" in own):
                    raise ValueError(f"{defense}.{native} names no category of the samples")
        return value

    @field_validator("slices")
    @classmethod
    def _of_metadata(cls, value: list[str]) -> list[str]:
        for name in value:
            if name in {*FACET_NAMES, "group", "label", "id"}:
                raise ValueError(f"samples are sliced by {name} anyway; name fields of metadata")
        return list(dict.fromkeys(value))

    @field_validator("deployment_mix")
    @classmethod
    def _readable_mix(cls, value: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        # Here and not when the report is written: a run would be paid for before it is told.
        if value:
            from guardmark.datasets.checks.mix import read_mix

            _valid(read_mix, value)
        return value


_GuardNames = str | list[str]


def _as_names(stated: _GuardNames) -> tuple[str, ...]:
    if isinstance(stated, str):
        return (stated,)
    return tuple(stated)


class ContextGuardSettings(Settings):
    """A guard, or several in order, of the documents that come with a sample."""

    guard: _GuardNames
    each: bool = True


_ContextGuards = str | ContextGuardSettings | list[str | ContextGuardSettings]


def _context_mistake(stated: object) -> str:
    """Say what is wrong with a guard stated at `context`, or nothing."""
    if isinstance(stated, str):
        return ""
    if not isinstance(stated, dict):
        return "is the name of a guard, {guard: NAME, each: false}, or a list of these"
    unknown = [name for name in stated if name not in ContextGuardSettings.model_fields]
    if unknown:
        return f"knows guard and each, and no {unknown[0]!r}"
    if "guard" not in stated:
        return "needs a guard: {guard: NAME, each: false}"
    each = stated.get("each", True)
    if not isinstance(each, bool):
        return f"each is true (every document on its own) or false (all as one text), not {each!r}"
    return ""


class ChunkSettings(Settings):
    """A guard behind the model that is asked again each so many characters of the answer."""

    guard: str = Field(min_length=1)
    every: int | Literal["all"]
    most_calls: int = Field(MOST_CALLS, ge=1)

    @property
    def rule(self) -> ChunkRule:
        """After how many characters it is asked again."""
        every = None if isinstance(self.every, str) else self.every
        return ChunkRule(every=every, most_calls=self.most_calls)

    @field_validator("every", mode="before")
    @classmethod
    def _of_characters(cls, value: object) -> object:
        if not _is_chunk(value):
            raise ValueError(_EVERY_MEANS)
        return value


_EVERY_MEANS: Final = (
    "must be a whole number of characters from 1, after which the guard is asked again, `all` for "
    "once about the whole answer, or a list of these"
)
_NOT_STREAMED: Final = (
    "has every, which is for the guard at output: what stands here is read whole, only an answer "
    "comes piece by piece. Name the guard alone"
)
_ONE_GUARD: Final = (
    "has every in a list: a guard that reads all of an answer holds it back, so nothing would "
    "stream. Next: name one guard, or a chain of several"
)


def _is_chunk(value: object) -> bool:
    return value == WHOLE or (type(value) is int and value >= 1)


class PipelineArmSettings(Settings):
    """Guards of one arm of a pipeline, by place: a name, or several that are asked in order."""

    input: _GuardNames = []
    context: _ContextGuards = []
    output: _GuardNames | ChunkSettings = []

    def guards_at(self) -> dict[Place, tuple[str, ...]]:
        """Return the guards of each place that has any."""
        output = self.output.guard if isinstance(self.output, ChunkSettings) else self.output
        places = {
            Place.INPUT: _as_names(self.input),
            Place.CONTEXT: tuple(name for name, _ in self._of_documents()),
            Place.OUTPUT: _as_names(output),
        }
        return {place: names for place, names in places.items() if names}

    @property
    def shown_all(self) -> frozenset[str]:
        """The guards at `context` that are shown all documents as one text."""
        return frozenset(name for name, each in self._of_documents() if not each)

    def _of_documents(self) -> list[tuple[str, bool]]:
        """Return the guards at `context`, and whether each is shown documents one by one."""
        stated = self.context if isinstance(self.context, list) else [self.context]
        guards: list[tuple[str, bool]] = []
        for each in stated:
            if isinstance(each, str):
                guards.append((each, True))
            else:
                guards += [(name, each.each) for name in _as_names(each.guard)]
        return guards

    @field_validator("context", mode="before")
    @classmethod
    def _readable(cls, value: Any) -> Any:
        # Here and not by the types: of a union every reading that does not fit would be told.
        for stated in value if isinstance(value, list) else [value]:
            mistake = _context_mistake(stated)
            if mistake:
                raise ValueError(mistake)
        return value

    @field_validator("context")
    @classmethod
    def _each_document_once(cls, value: _ContextGuards) -> _ContextGuards:
        stated = value if isinstance(value, list) else [value]
        names: list[str] = []
        for each in stated:
            names += [each] if isinstance(each, str) else _as_names(each.guard)
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"names {name!r} twice")
        return value

    @property
    def chunks(self) -> ChunkRule | None:
        """After how many characters the guard behind the model is asked again, where it is."""
        if isinstance(self.output, ChunkSettings):
            return self.output.rule
        return None

    @field_validator("input", mode="before")
    @classmethod
    def _is_whole(cls, value: object) -> object:
        each = [*value, value] if isinstance(value, list) else [value]
        if any(isinstance(stated, dict) for stated in each):
            raise ValueError(_NOT_STREAMED)
        return value

    @field_validator("output", mode="before")
    @classmethod
    def _is_alone(cls, value: object) -> object:
        if isinstance(value, list) and any(isinstance(each, dict) for each in value):
            raise ValueError(_ONE_GUARD)
        return value

    @field_validator("input", "output")
    @classmethod
    def _each_once(cls, value: _GuardNames | ChunkSettings) -> _GuardNames | ChunkSettings:
        names = () if isinstance(value, ChunkSettings) else _as_names(value)
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"names {name!r} twice")
        return value


class PipelineSettings(Settings):
    """Guards, target model and judges of a pipeline run."""

    guards: list[str] = ["none"]
    arms: dict[Name, PipelineArmSettings] = {}
    model: dict[str, Any]
    judges: list[dict[str, Any]] = []
    headline: str = ""
    deterministic: list[str] = []
    legacy_cards: list[Literal["response_unsafe_v1", "assistant_policy_v2"]] = []

    @property
    def arm_names(self) -> tuple[str, ...]:
        """What each arm is called."""
        return tuple(self.arms or self.guards)

    def guards_at(self, place: Place) -> tuple[str, ...]:
        """Return the guards that any stated arm has at a place."""
        every = (arm.guards_at().get(place, ()) for arm in self.arms.values())
        return tuple(dict.fromkeys(name for names in every for name in names))

    @model_validator(mode="before")
    @classmethod
    def _without_guards(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("arms") and "guards" not in value:
            return {**value, "guards": []}
        return value

    @field_validator("arms", mode="before")
    @classmethod
    def _one_arm_each(cls, value: object) -> object:
        """Make one arm of each number in a list under `every`."""
        if not isinstance(value, dict):
            return value
        arms: dict[Any, Any] = {}
        for name, arm in value.items():
            output = None
            if isinstance(arm, dict):
                output = arm.get("output")
            stated = None
            if isinstance(output, dict):
                stated = output.get("every")
            if not isinstance(stated, list) or not isinstance(output, dict):
                arms[name] = arm
                continue
            wrong = [each for each in stated if not _is_chunk(each)]
            if wrong or not stated:
                found = ", found an empty list"
                if wrong:
                    found = f", found {wrong[0]!r}"
                raise ValueError(f"{name}.output.every {_EVERY_MEANS}{found}")
            for every in dict.fromkeys(stated):
                made = f"{name}-every-{every}"
                if made in value:
                    raise ValueError(f"{made} is an arm, and {name} makes one of that name")
                arms[made] = {**arm, "output": {**output, "every": every}}
        return arms

    @model_validator(mode="after")
    def _arms_or_guards(self) -> PipelineSettings:
        if self.arms and self.guards:
            raise ValueError(
                "has guards and arms, which say the same: leave out guards, the short form for "
                "one guard before the model"
            )
        for name in BARE_ARMS:
            if name in self.arms and self.arms[name].guards_at():
                raise ValueError(
                    f"arms.{name} has guards: only the arm without a guard is called so; give it "
                    "another name"
                )
        return self


class OnBlockSettings(Settings):
    """What an agent's case does where a guard blocks a call or a result."""

    tool_call: Literal["tell", "stop"] = "tell"
    tool_result: Literal["omit", "stop"] = "omit"


class AgentArmSettings(Settings):
    """Guards of one arm, by place: a name, or several that are asked in order."""

    input: _GuardNames = []
    tool_list: _GuardNames = []
    tool_call: _GuardNames = []
    tool_result: _GuardNames = []
    output: _GuardNames = []
    proxy: str = ""

    def guards_at(self) -> dict[Place, tuple[str, ...]]:
        """Return the guards of each place that has any."""
        places = {}
        for place in Place:
            stated = getattr(self, place.value, [])
            names = _as_names(stated)
            if self.proxy and place in PROXIED:
                names = (*names, self.proxy)
            if names:
                places[place] = names
        return places


STORED_AGENT = "stored"
"""What the agent of stored runs is called."""


class AgentSettings(Settings):
    """Agents over suites of tasks and injections, with guards at places; or stored runs of them."""

    suite: str | list[str] = ""
    replay: str = ""
    agents: list[str | dict[str, Any]] = Field(["obedient"], min_length=1)
    injections: list[str] = []
    on_block: OnBlockSettings = OnBlockSettings.model_construct()
    max_steps: int = Field(15, ge=1, le=1_000)
    arms: dict[Name, AgentArmSettings] = Field(min_length=1)
    deterministic: list[str] = []
    interpreter: str = ""

    @property
    def suites(self) -> tuple[str, ...]:
        """The suites, in order."""
        if isinstance(self.suite, str):
            return (self.suite,)
        return tuple(self.suite)

    @property
    def agent_names(self) -> tuple[str, ...]:
        """What each agent is called."""
        names = []
        for number, agent in enumerate(self.agents, start=1):
            if isinstance(agent, str):
                names.append(agent)
            else:
                names.append(str(agent.get("name") or f"agent-{number}"))
        return tuple(names)

    @model_validator(mode="before")
    @classmethod
    def _stored_agent(cls, stated: Any) -> Any:
        """Let stored runs have the agent that they have."""
        if isinstance(stated, dict) and stated.get("replay") and "agents" not in stated:
            return {**stated, "agents": [STORED_AGENT]}
        return stated

    @model_validator(mode="after")
    def _suite_or_replay(self) -> AgentSettings:
        if not self.replay:
            if not self.suite:
                raise ValueError("names no suite: for example  suite: errands")
            return self
        for name in ("suite", "injections", "interpreter"):
            if getattr(self, name):
                raise ValueError(f"puts guards before stored runs: leave out `{name}`")
        for name in ("on_block", "max_steps"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"puts guards before stored runs, which go on as they were: leave out `{name}`"
                )
        if self.agents != [STORED_AGENT]:
            raise ValueError("puts guards before stored runs, which no agent makes: no `agents`")
        self._refuse_places()
        return self

    def _refuse_places(self) -> None:
        """Refuse guards at places of which stored runs hold nothing."""
        for name, arm in self.arms.items():
            for place in (Place.TOOL_LIST, Place.OUTPUT):
                if getattr(arm, place.value):
                    raise ValueError(
                        f"arms.{name} has a guard at {place.value}, which says nothing of stored "
                        "runs: put guards at tool_result, tool_call or input"
                    )
            if arm.proxy:
                raise ValueError(f"arms.{name} has a proxy, and stored runs call no tool")

    @model_validator(mode="after")
    def _names_once(self) -> AgentSettings:
        for names in (self.suites, self.agent_names, tuple(self.injections)):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{twice[0]!r} is named twice")
        return self


class AdaptiveSettings(Settings):
    """How `guardmark adapt` attacks: memory, seeds, models (round 5), gradients (access A3)."""

    battery: _Battery = "guardmark-attack-3"
    shared_memory: bool = True
    seeds: int = Field(1, ge=1, le=100)
    gradient: dict[str, Any] | None = None
    attacker: dict[str, Any] | None = None
    equivalence: dict[str, Any] | None = None
    critic: dict[str, Any] | None = None
    candidates: int = Field(4, ge=1, le=16)
    streams: int = Field(3, ge=1, le=16)
    depth: int = Field(5, ge=1, le=64)
    history: int = Field(6, ge=0, le=64)
    max_calls: int = Field(1_000, ge=1)
    twin: int = Field(20, ge=0, le=1_000)
    operators: list[str] = []

    @model_validator(mode="after")
    def _a_critic_of_somebody(self) -> AdaptiveSettings:
        if self.critic is not None and self.attacker is None:
            raise ValueError("a critic guesses for an attacker model: name one, adaptive.attacker")
        return self


NO_SYSTEM_TO_GATE = (
    "The gate limits what comes out of the system, but this run asked no target model with a "
    "judge.\nNext: measure with a section `pipeline:`, or limit defenses (asr_upper, fpr_upper)."
)
NO_AGENT_TO_GATE = (
    "The gate limits what agents do, but this run measured none.\n"
    "Next: measure with a section `agent:`, or limit defenses (asr_upper, fpr_upper)."
)
NOTHING_TO_GATE = (
    "The gate checked nothing: no defense or arm of this run is what its limits are about.\n"
    "Next: for a pipeline without a guard, limit the system (system.asr_upper)."
)


class JudgeGateSettings(Settings):
    """What must hold for the judges of a pipeline."""

    min_agreement: Rate | None = None


class FacetLimitSettings(Settings):
    """What a slice of the samples must hold."""

    asr_upper: Rate | None = None
    fpr_upper: Rate | None = None


class EveryLimitSettings(FacetLimitSettings):
    """What every slice of a facet must hold that has enough answered samples."""

    facet: str = Field(min_length=1)
    min: int = Field(50, ge=1)


class SliceGateSettings(Settings):
    """Limits on slices of the samples."""

    per_category: dict[str, Rate | FacetLimitSettings] = {}
    per_subcategory: dict[str, FacetLimitSettings] = {}
    per_severity: dict[str, FacetLimitSettings] = {}
    per_language: dict[str, FacetLimitSettings] = {}
    per_length: dict[str, FacetLimitSettings] = {}
    per_variant: dict[str, FacetLimitSettings] = {}
    per_technique: dict[str, FacetLimitSettings] = {}
    per_source: dict[str, FacetLimitSettings] = {}
    per_metadata: dict[str, dict[str, FacetLimitSettings]] = {}
    every: list[EveryLimitSettings] = []

    @field_validator("every", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        if isinstance(value, dict):
            return [value]
        return value


class SystemGateSettings(SliceGateSettings):
    """What must hold for what comes out of a pipeline."""

    asr_upper: Rate | None = None
    over_refusal_upper: Rate | None = None


class GateSettings(SliceGateSettings):
    """What a release must hold; read by `guardmark gate`."""

    asr_upper: Rate | None = None
    fpr_upper: Rate | None = None
    max_malformed: Rate | None = None
    max_errors: Rate | None = None
    latency_p95_upper_ms: float | None = Field(None, gt=0)
    regression_margin: Rate | None = None
    utility_lower: Rate | None = None
    attack_success_upper: Rate | None = None
    utility_loss_upper: Rate | None = None
    system: SystemGateSettings = SystemGateSettings.model_construct()
    judge: JudgeGateSettings = JudgeGateSettings.model_construct()
    defenses: list[str] = []

    @model_validator(mode="before")
    @classmethod
    def _nest(cls, stated: object) -> object:
        """Read `system.asr_upper: 0.1` as `system: {asr_upper: 0.1}`."""
        if not isinstance(stated, dict):
            return stated
        nested: dict[object, object] = {}
        for key, value in stated.items():
            outer, dot, inner = str(key).partition(".")
            if dot and outer in {"system", "judge"} and isinstance(nested.get(outer, {}), dict):
                nested[outer] = {**nested.get(outer, {}), inner: value}  # type: ignore[dict-item]
            else:
                nested[key] = value
        return nested


ReportFormat = Literal["html", "md", "json", "csv", "junit", "sarif"]
REPORTS: dict[str, ReportFormat] = {
    "summary.json": "json",
    "comparison.json": "json",
    "gate.json": "json",
    "summary.md": "md",
    "report.md": "md",
    "report.html": "html",
    "categories.csv": "csv",
    "variant_metrics.csv": "csv",
    "junit.xml": "junit",
    "results.sarif": "sarif",
}
"""Files of a run folder that `report` writes, each with the format by which it is asked for."""


class Config(Settings):
    """A whole configuration file."""

    version: Literal[1]
    name: Name = UNNAMED
    data: list[DataSettings] = []
    defenses: dict[Name, dict[str, Any]] = Field({}, max_length=MOST_DEFENSES)
    pipeline: PipelineSettings | None = None
    agent: AgentSettings | None = None
    adaptive: AdaptiveSettings | None = None
    services: dict[str, ServiceSettings] = {}
    prices: dict[str, PriceSettings] = {}
    # model_construct: the usual values of a section need no validator of their own.
    run: RunSettings = RunSettings.model_construct()
    taxonomy: TaxonomySettings = TaxonomySettings.model_construct()
    latency: LatencySettings = LatencySettings.model_construct()
    stats: StatsSettings = StatsSettings.model_construct()
    gate: GateSettings | None = None
    report: list[ReportFormat] = ["html", "md", "json", "csv"]

    @model_validator(mode="after")
    def _something_to_measure(self) -> Config:
        if self.agent is not None:
            return self._an_agent_alone()
        for name, defense in self.defenses.items():
            if defense.get("type") == "mcp-proxy":
                raise ValueError(
                    f"names the MCP proxy {name}, which stands before the tools of an agent: add a "
                    "section `agent`"
                )
        if not self.data:
            raise ValueError("names no data: add some, for example  data: [{builtin: core@2}]")
        for name in self.stats.category_map:
            if name not in self.defenses:
                mistake = UnknownName("defense (stats.category_map)", name, self.defenses)
                raise ValueError(str(mistake))
        if not self.defenses and self.pipeline is None:
            raise ValueError("names nothing to measure: add defenses or a pipeline")
        return self

    def _an_agent_alone(self) -> Config:
        """Refuse what a run of agents does not do."""
        others = {"data": self.data, "pipeline": self.pipeline}
        for name, section in others.items():
            if section:
                raise ValueError(
                    f"measures an agent: its suite takes the place of `{name}`; leave that out, or "
                    "measure it in a configuration of its own"
                )
        return self

    @property
    def policies(self) -> tuple[Policy, Policy]:
        """What to do on malformed answers and on errors: a defense alone enforces nothing."""
        usual = Policy.RECORD
        if self.pipeline is not None or self.agent is not None:
            usual = Policy.BLOCK
        return self.run.on_malformed or usual, self.run.on_error or usual

    @property
    def pipeline_guards(self) -> Sequence[str]:
        """The short form of the arms: one guard before the model each; none without a pipeline."""
        if self.pipeline is None:
            return ()
        return self.pipeline.guards

    @property
    def pipeline_arms(self) -> Mapping[str, PipelineArmSettings]:
        """The arms that the pipeline states, by name; none without a pipeline."""
        if self.pipeline is None:
            return {}
        return self.pipeline.arms

    @property
    def pipeline_judges(self) -> Sequence[Mapping[str, Any]]:
        """The settings of the pipeline's judges, in its order; none without a pipeline."""
        if self.pipeline is None:
            return ()
        return self.pipeline.judges
