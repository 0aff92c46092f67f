"""Configurations: read and checked, with their data, hash and JSON Schema.

Every mistake is told at once, with its place.
"""

from __future__ import annotations

import json
import tomllib
from collections import deque
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pydantic import BaseModel, ValidationError

from guardmark.app.registry import GROUPS, helper_kind, known_types, settings_model
from guardmark.app.settings import (
    FACET_NAMES,
    NO_AGENT_TO_GATE,
    NO_SYSTEM_TO_GATE,
    NOTHING_TO_GATE,
    Config,
)
from guardmark.config.cluster import CLUSTER_SETTINGS
from guardmark.config.mistakes import (
    checked_settings,
    describe_mistakes,
    first_lines,
    require_no_literal_secret,
)
from guardmark.config.settings import describe_keys
from guardmark.config.source import STANDARD_INPUT, Source, parse_yaml, read_text
from guardmark.core.errors import BadSettings, ConfigError, UnknownName, did_you_mean, listed
from guardmark.core.limits import MOST_DEFENSES
from guardmark.core.manifest import BASELINE_ROLE, IN_PROCESS
from guardmark.core.place import Place, part_of, stored_name
from guardmark.core.sample import DEFAULT_TAXONOMY, Taxonomy, extended
from guardmark.core.values import dataclass
from guardmark.datasets.builtin import DEFAULT_SET
from guardmark.datasets.loading import DataReading, LoadedData, load
from guardmark.datasets.specs import dataset_specs
from guardmark.defenses.profile import TYPES, kind_of_profile
from guardmark.engine.plan import UNHASHED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.config.source import Keys
    from guardmark.core.manifest import PartManifest
    from guardmark.datasets.formats.fields import DatasetSpec
    from guardmark.engine.execution.cluster import Cluster

_Section = TypeVar("_Section", bound=BaseModel)
_APP: Final = Path(__file__).parents[1]
HELPERS: Final = {
    "gradient": ("gradient",),
    "attacker": ("model",),
    "equivalence": ("model", "embedding"),
    "critic": ("model",),
}
"""Keys of the section `adaptive` that name a part, to the kinds it may be of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A configuration and where it came from.

    Attributes:
        is_foreign: Nobody but a run folder names what stands in it.
        cluster: Where defenses are built that call no service.
    """

    config: Config
    parts: Mapping[Keys, BaseModel] = field(default_factory=dict)
    folder: Path
    source: Source
    is_foreign: bool = False
    cluster: Cluster | None = None


def load_config(path: Path) -> LoadedConfig:
    """Read and check a configuration file."""
    if path.is_dir():
        raise ConfigError(
            f"{path} is a folder, not a configuration.\n"
            f"To go on with a run: guardmark run CONFIG -o {path}"
        )
    hint = "\nTo start one: guardmark init > bench.yaml"
    text = read_text(path, f"The configuration {path}", next_step=hint)
    shown_as = str(path)
    if shown_as == STANDARD_INPUT:
        shown_as = "standard input"
    return parse_config(text, folder=path.resolve().parent, shown_as=shown_as)


def parse_config(text: str, *, folder: Path, shown_as: str) -> LoadedConfig:
    """Check the text of a configuration."""
    document, source = parse_yaml(text, shown_as)
    if not isinstance(document, dict):
        kind = f"a {type(document).__name__}"
        if document is None:
            kind = "nothing"
        raise ConfigError(
            f"{shown_as}: expected settings (version, data, defenses ...), found {kind}.\n"
            "To start one: guardmark init > bench.yaml"
        )
    return _checked(document, source, folder)


def config_around(
    path: Path, document: dict[str, Any], *, moved: Mapping[Keys, Keys]
) -> LoadedConfig:
    """Check a configuration made from sections of a file, telling places of that file."""
    _, own = parse_yaml(read_text(path, f"The file {path}"), str(path))
    places = dict(own.places)
    for origin, section in moved.items():
        for place, line in own.places.items():
            if place[: len(origin)] == origin:
                places[section + place[len(origin) :]] = line
    return _checked(document, Source(shown_as=str(path), places=places), path.resolve().parent)


def _checked(document: dict[str, Any], source: Source, folder: Path) -> LoadedConfig:
    """Return a configuration in which nothing is wrong; else name every mistake in one error."""
    require_no_literal_secret(document, source)
    mistakes: list[str] = []
    config = None
    try:
        config = Config.model_validate(document)
    except ValidationError as error:
        mistakes.extend(describe_mistakes(error, Config, (), source))
        named = document.get("defenses")
        if isinstance(named, dict) and len(named) > MOST_DEFENSES:
            raise ConfigError(first_lines(mistakes)) from error
    parts = _check_parts(document, source, mistakes)
    if config is not None:
        mistakes.extend(_loose_ends(config, source))
        mistakes.extend(_loose_guards(config, source))
        mistakes.extend(_taken_names(config, source))
    if mistakes or config is None:
        raise ConfigError(first_lines(mistakes))
    return LoadedConfig(config=config, parts=parts, folder=folder, source=source)


def load_section(path: Path, model: type[_Section], *, key: str) -> _Section:
    """Read one section of settings, from a file of its own or from a whole configuration."""
    text = read_text(path, f"The file {path}")
    document, source = parse_yaml(text, str(path))
    require_no_literal_secret(document, source)
    above: Keys = ()
    if isinstance(document, dict) and key in document:
        document, above = document[key], (key,)
    if not isinstance(document, dict):
        raise ConfigError(f"{source.where(above)}: expected settings of {key!r}, found none.")
    return checked_settings(model, document, source, above)


_ROLE_OF: Final = {"defense": ("role",)}  # parts that may be baselines


def _check_parts(
    document: dict[str, Any], source: Source, mistakes: list[str]
) -> dict[Keys, BaseModel]:
    """Check the settings of every defense, model and judge against its own type."""
    checked: dict[Keys, BaseModel] = {}
    waiting = deque(part_settings(document))
    while waiting:
        kind, path, settings = waiting.popleft()
        here = source.where(path)
        dotted = ".".join(path)
        part_type = settings.get("type")
        if not isinstance(part_type, str):
            mistakes.append(f"{here}: {dotted} needs a type, for example type: pattern.")
            continue
        if part_type == IN_PROCESS:
            mistakes.append(f"{here}: {dotted}: {_not_rebuilt(settings)}")
            continue
        try:
            model = settings_model(kind, part_type)
            # Every part may state its type and its version, and a defense its role; no type has
            # to know them.
            common = {"type", "version", *_ROLE_OF.get(kind, ())} - set(model.model_fields)
            own = {key: value for key, value in settings.items() if key not in common}
            checked[path] = model.model_validate(own)
            version, below = settings.get("version", ""), (*path, "version")
            if not isinstance(version, str):  # YAML reads 3.10 without quotes as the number 3.1
                mistakes.append(
                    f"{source.where(below)}: {'.'.join(below)}: is not text, found {version!r}. "
                    'Put it in quotes, for example version: "3.10".'
                )
            if "role" in common and settings.get("role", BASELINE_ROLE) != BASELINE_ROLE:
                mistakes.append(
                    f"{source.where((*path, 'role'))}: {dotted}.role can be {BASELINE_ROLE} only: "
                    "a defense to compare with, which no gate limits. Leave it out for a candidate."
                )
            if kind == "judge":  # a panel's members are checked next, in their order
                members = list(enumerate(getattr(checked[path], "judges", ())))
                for number, member in reversed(members):
                    waiting.appendleft((kind, (*path, "judges", str(number)), member))
        except ConfigError as error:
            mistakes.append(f"{source.where((*path, 'type'))}: {dotted}: {error}")
        except ValidationError as error:
            mistakes.extend(
                describe_mistakes(error, model, path, source, common=("version", "role"))
            )
    return checked


def _not_rebuilt(settings: Mapping[str, Any]) -> str:
    """Say that an object of a script is not in the configuration file, and what to do."""
    target = str(settings.get("object", ""))
    return (
        f"was measured from Python ({target or 'an object'}), and no file rebuilds an object. Call "
        "guardmark.run() again, or name a function that a file holds: {type: python, target: "
        '"FILE.py:NAME"}.'
    )


def part_settings(document: dict[str, Any]) -> Iterator[tuple[str, Keys, dict[str, Any]]]:
    """Yield kind, place and settings of each part that a document names; nothing is imported."""
    for kind, path, settings in _places_of_parts(document):
        if not isinstance(settings, dict):
            continue
        if path[0] == "adaptive" and kind != "gradient":
            yield helper_kind(kind, settings), path, settings
        else:
            yield kind, path, settings


def _places_of_parts(document: dict[str, Any]) -> Iterator[tuple[str, Keys, object]]:
    """Yield where parts can stand: the kind by the name of its section, the place, its content."""
    for name, settings in _section(document, "defenses").items():
        yield "defense", ("defenses", str(name)), settings
    adaptive = _section(document, "adaptive")
    for name in HELPERS:
        yield name, ("adaptive", name), adaptive.get(name)
    pipeline = _section(document, "pipeline")
    yield "model", ("pipeline", "model"), pipeline.get("model")
    for index, settings in enumerate(_list_of(pipeline, "judges")):
        yield "judge", ("pipeline", "judges", str(index)), settings
    if isinstance(document.get("agent"), dict):
        agents = {"agents": ["obedient"], **document["agent"]}
        for index, settings in enumerate(_list_of(agents, "agents")):
            yield "agent", ("agent", "agents", str(index)), _agent_section(settings)


def _list_of(section: Mapping[str, Any], key: str) -> list[Any]:
    """Return a list of a section; nothing where it is no list, which is refused elsewhere."""
    stated = section.get(key)
    if isinstance(stated, list):
        return stated
    return []


def _agent_section(settings: object) -> object:
    """Return the settings of an agent; a name alone is the type of one that needs none."""
    if isinstance(settings, str):
        return {"type": settings}
    return settings


def _section(document: dict[str, Any], name: str) -> dict[str, Any]:
    section = document.get(name)
    if isinstance(section, dict):
        return section
    return {}


def _loose_ends(config: Config, source: Source) -> Iterator[str]:
    """Yield a mistake for each name of the pipeline's short form that points nowhere."""
    known = [*config.defenses, "none"]
    if config.pipeline is not None:
        for key in ("guards", "deterministic"):
            for index, name in enumerate(getattr(config.pipeline, key)):
                if name not in known:
                    here = source.where(("pipeline", key, str(index)))
                    hint = f"{did_you_mean(name, known)} Known: {listed(known)}."
                    yield f"{here}: no defense is called {name!r}.{hint}"


def _loose_guards(config: Config, source: Source) -> Iterator[str]:
    """Yield a mistake for each name of a guard in an arm that points nowhere."""
    stated: list[tuple[str, str, Mapping[Place, Sequence[str]]]] = []
    if config.agent is not None:
        for arm, agent_arm in config.agent.arms.items():
            stated.append(("agent", arm, agent_arm.guards_at()))
    for arm, pipeline_arm in config.pipeline_arms.items():
        stated.append(("pipeline", arm, pipeline_arm.guards_at()))
    for section, arm, places in stated:
        for place, names in places.items():
            for name in names:
                if name not in config.defenses:
                    here = source.where((section, "arms", arm, place.value))
                    hint = did_you_mean(name, config.defenses)
                    known = listed(config.defenses)
                    yield f"{here}: no defense is called {name!r}.{hint} Known: {known}."


def _taken_names(config: Config, source: Source) -> Iterator[str]:
    """Defenses that are called as the decisions of another about other texts are stored."""
    if config.pipeline is None:
        return
    for place, what in ((Place.OUTPUT, "answers"), (Place.CONTEXT, "documents")):
        for guard in config.pipeline.guards_at(place):
            stored = stored_name(guard, place)
            for name in config.defenses:
                if part_of(name) == stored:
                    here = source.where(("defenses", name))
                    yield (
                        f"{here}: the name {name!r} is taken: what {guard} says of {what} is "
                        "stored under it. Give the defense another name."
                    )


OPTIONS: Final = "the options"
"""How a configuration is called that options of the command line make."""


def builtin_config(
    defenses: Sequence[str] = (), *, service: Mapping[str, Any] | None = None
) -> LoadedConfig:
    """Return the built-in defenses, named profiles or one HTTP service, on the built-in data."""
    text = (_APP / "templates" / "builtin.yaml").read_text(encoding="utf-8")
    if not defenses and service is None:
        return parse_config(text, folder=Path.cwd(), shown_as="built-in")
    document, source = parse_yaml(text, "built-in")
    document = cast("dict[str, Any]", document)
    known, chosen = document["defenses"], {}
    for name in defenses:
        chosen[name] = known.get(name)
        if chosen[name] is None:
            chosen[name] = {"type": TYPES[kind_of_profile(name)], "profile": name}
    document["data"] = [{"builtin": DEFAULT_SET}]
    document["defenses"] = chosen
    if service is not None:
        document["defenses"]["service"] = _service(**service)
        # What is wrong with it was typed as an option: no file holds it.
        source = Source(shown_as=OPTIONS, places={})
    return _checked(document, source, Path.cwd())


def _service(headers: Sequence[str], body: str, **paths: str | None) -> dict[str, Any]:
    """Return the settings of an HTTP defense that is described by options alone."""
    variables: dict[str, dict[str, str]] = {}
    for header in headers:
        name, _, variable = header.partition("=")
        if not variable:
            raise ConfigError("--header must be NAME=VARIABLE, such as X-Api-Key=GUARD_KEY.")
        variables[name] = {"env": variable}
    settings: dict[str, Any] = {
        "type": "http",
        "body": parse_yaml(body, "--body")[0],
        "headers": variables,
    }
    for name, path in paths.items():
        if path:
            settings[name] = path
    return settings


def locate_error(error: ConfigError, loaded: LoadedConfig, path: tuple[str, ...]) -> ConfigError:
    """Say where in the configuration the mistake stands that kept a part from being built."""
    if isinstance(error, BadSettings):
        lines = [_located(loaded, (*path, *below), text) for below, text in error.mistakes]
        return ConfigError("\n".join([*lines, *error.more]))
    message = str(error)
    # Many messages begin with the dotted setting they are about; the deepest is the place.
    deepest: Keys = ()
    for known in loaded.source.places:
        is_below = known[: len(path)] == path
        if is_below and message.startswith(".".join(known)) and len(known) > len(deepest):
            deepest = known
    return ConfigError(_located(loaded, deepest or path, message))


def _located(loaded: LoadedConfig, path: tuple[str, ...], message: str) -> str:
    dotted = ".".join(path)
    subject = ""
    if not message.startswith(dotted):
        subject = f"{dotted}: "
    return f"{loaded.source.where(path)}: {subject}{message}"


def load_data(loaded: LoadedConfig, *, limit: int | None = None) -> LoadedData:
    """Read and validate every data set of a configuration."""
    run = loaded.config.run
    if limit is None:
        limit = run.limit
    return load(_specs(loaded), taxonomy_of(loaded.config), limit=limit, seed=run.seed)


def read_data(loaded: LoadedConfig, *, limit: int | None = None) -> DataReading | LoadedData:
    """Open every data set of a configuration, to be read once and handed on."""
    if limit is not None or loaded.config.run.limit is not None:
        return load_data(loaded, limit=limit)
    return DataReading(_specs(loaded), taxonomy_of(loaded.config))


def _specs(loaded: LoadedConfig) -> list[DatasetSpec]:
    """Return the data sets of a configuration; an error names the entry that is wrong."""
    specs: list[DatasetSpec] = []
    for index, entry in enumerate(loaded.config.data):
        try:
            specs.extend(dataset_specs(entry, loaded.folder))
        except ConfigError as error:
            raise locate_error(error, loaded, ("data", str(index))) from error
    return specs


_OF_AGENTS: Final = ("utility_lower", "attack_success_upper", "utility_loss_upper")
"""Limits of a gate that are about agents."""


def _require_agent_gate(config: Config) -> None:
    """Refuse limits on agents in a run without agents, and names of arms that are not there."""
    gate, agent = config.gate, config.agent
    if gate is None:
        return
    is_about_agents = any(getattr(gate, name) is not None for name in _OF_AGENTS)
    if agent is None:
        if is_about_agents:
            raise ConfigError(NO_AGENT_TO_GATE)
        return
    for name in gate.defenses:
        if name not in agent.arms:
            raise UnknownName("arm of this run", name, agent.arms)


def require_gate(config: Config, defenses: Sequence[str]) -> None:
    """Refuse limits that nothing of a run could be held against, before anything is called."""
    gate, pipeline = config.gate, config.pipeline
    if gate is None:
        return
    _require_agent_gate(config)
    limits = gate.model_dump(exclude={"defenses", "regression_margin"}, exclude_defaults=True)
    for name in _OF_AGENTS:
        limits.pop(name, None)
    if config.agent is not None:
        return
    system, judge = limits.pop("system", None), limits.pop("judge", None)
    if (system or judge) and (pipeline is None or not pipeline.judges):
        raise ConfigError(NO_SYSTEM_TO_GATE)
    if limits and not (defenses or system or judge):
        raise ConfigError(NOTHING_TO_GATE)
    _require_facets(config)
    known = defenses
    if pipeline is not None and (system or judge) and not limits:
        known = [arm for arm in pipeline.guards if arm in (*defenses, "none")]
        known += pipeline.arms
    for name in gate.defenses:
        if name not in known:
            raise UnknownName("defense of this run", name, known)


def _require_facets(config: Config) -> None:
    """Refuse limits on a facet that the run would not be sliced by."""
    known = (*FACET_NAMES, *config.stats.slices)
    if config.gate is None:
        return
    for limits in (config.gate, config.gate.system):
        facets = [*limits.per_metadata]
        facets += [limit.facet for limit in limits.every]
        for name in facets:
            if name not in known:
                kind = "facet to limit (stats.slices names fields of metadata)"
                raise UnknownName(kind, name, known)


def require_judge(config: Config) -> None:
    """Refuse a target model without a judge of its answers, before it is paid for."""
    if config.pipeline is None or config.pipeline.judges:
        return
    raise ConfigError(
        "The pipeline has a target model and no judge: its answers would be paid for, and every "
        "outcome be unknown.\n"
        "Next: add a judge under pipeline.judges, for example  - {type: rules, unsafe: [WORD]}  or "
        "a chat model."
    )


def taxonomy_of(config: Config) -> Taxonomy:
    """Return the built-in taxonomy with the configuration's own categories."""
    return extended(DEFAULT_TAXONOMY, config.taxonomy.extend)


def resolved(config: Config) -> dict[str, Any]:
    """Return a configuration as JSON values, every default filled in."""
    return config.model_dump(mode="json", exclude_none=False)


def config_sha256(
    config: Config, parts: Sequence[PartManifest], *, only: Sequence[str], limit: int | None
) -> str:
    """Hash what is measured and how."""
    document = resolved(config)
    for section in UNHASHED:
        document.pop(section, None)
    if document["agent"] is None:  # it says nothing of a run that measures none
        document.pop("agent")
    pipeline, run = document["pipeline"] or {}, document["run"]
    pipeline.pop("headline", None)
    limits = ("max_errors", "max_calls", "max_tokens", "max_cost", "max_time_s")
    for setting in (*limits, "limit", "shard", "uvloop"):
        run.pop(setting)
    if not run["repeat_guards"]:  # as in runs of before, which know neither
        run.pop("repeat_guards")
    for setting in ("deterministic", "arms"):  # as in runs of before, which know neither
        if not pipeline.get(setting):
            pipeline.pop(setting, None)
    if config.run.cluster:  # another place for the same calls
        run["workers"] = "inline"
        for setting in CLUSTER_SETTINGS:
            run.pop(setting, None)
    document["parts"] = {part.name: part.fingerprint for part in parts}
    document["only"] = sorted(only)
    if limit is None:
        limit = config.run.limit
    document["limit"] = limit
    text = json.dumps(document, sort_keys=True, ensure_ascii=False)
    return sha256(text.encode()).hexdigest()


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a configuration."""
    schema = Config.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    definitions: dict[str, Any] = schema.setdefault("$defs", {})
    for kind in GROUPS:
        choices = []
        for part_type in sorted(known_types(kind)):
            name = f"{kind}.{part_type}"
            definitions[name] = _part_schema(kind, part_type, definitions)
            choices.append({"$ref": f"#/$defs/{name}"})
        definitions[kind] = {"oneOf": choices}
    schema["properties"]["defenses"]["additionalProperties"] = {"$ref": "#/$defs/defense"}
    pipeline = definitions["PipelineSettings"]["properties"]
    pipeline["model"] = {"$ref": "#/$defs/model"}
    pipeline["judges"]["items"] = {"$ref": "#/$defs/judge"}
    adaptive = definitions["AdaptiveSettings"]["properties"]
    for helper, kinds in HELPERS.items():
        choices = [{"$ref": f"#/$defs/{kind}"} for kind in kinds]
        adaptive[helper] = {"anyOf": [*choices, {"type": "null"}]}
    describe_keys(schema, tomllib.loads((_APP / "keys.toml").read_text("utf-8")))
    return {**schema, "title": "guardmark configuration"}


def _part_schema(kind: str, part_type: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of one type of part; what it refers to joins the other definitions."""
    part = settings_model(kind, part_type).model_json_schema()
    definitions.update(part.pop("$defs", {}))
    version = {"type": "string", "default": "", "description": "Its version, as reports show it."}
    own = part.get("properties", {})
    common: dict[str, Any] = {"type": {"const": part_type}, "version": version}
    if kind in _ROLE_OF:
        about = "A baseline is compared with, sorted last and not gated."
        common["role"] = {"enum": [BASELINE_ROLE], "description": about}
    part["properties"] = common | own
    part["required"] = ["type", *part.get("required", [])]
    part["title"] = f"{kind} of type {part_type}"
    return part
