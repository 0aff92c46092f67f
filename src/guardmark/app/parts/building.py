"""Building the parts that a configuration names, and the one client they call services with."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from dataclasses import replace
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from guardmark.app.parts.loading import locate_error
from guardmark.app.registry import build_part, package_of
from guardmark.attacks.contract import GradientAttack, GradientDefense
from guardmark.config.deadline import FOLDER_TIMEOUT_S, PATTERN_TIMEOUT_S, CallAlarm
from guardmark.config.settings import BuildContext, stated_price
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.limits import MIB
from guardmark.core.manifest import PartManifest
from guardmark.core.place import NO_GUARD, Place
from guardmark.core.protocols import Closable, Guard
from guardmark.core.record import FIRST_LAYER
from guardmark.core.sample import View
from guardmark.core.values import dataclass
from guardmark.core.version import VERSION
from guardmark.defenses.calls.pricing import HasPricedMembers, PricedChain, PricedPart
from guardmark.defenses.function import AsyncFunctionDefense, FunctionDefense
from guardmark.defenses.guard import as_guard, is_defense, source_of
from guardmark.defenses.identity import Identity, identity_of
from guardmark.defenses.profile import describe_profile
from guardmark.engine.execution.actors import ActorDefense
from guardmark.engine.execution.process import keep_working_directory, run_on_loop
from guardmark.engine.plan import (
    ADDRESS_SETTINGS,
    BuiltPart,
    Parts,
    layer_of,
    refuse_shared_sessions,
)
from guardmark.engine.probing import probe_built

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pydantic import BaseModel

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.settings import PipelineArmSettings
    from guardmark.config.settings import PriceSettings
    from guardmark.config.source import Keys
    from guardmark.core.budget import SpendingMeter
    from guardmark.defenses.guard import AnyDefense
    from guardmark.net.client import Services

CHARACTERS_A_TOKEN: Final = 4  # rule of thumb for English
_MOST_LINKS: Final = 100
_GRADIENT = ("adaptive", "gradient")
_SHORT_FORM: Final = ("pipeline", "guards")
INERT: Final[Mapping[str, Mapping[str, Sequence[str]]]] = tomllib.loads(
    Path(__file__).with_name("inert.toml").read_text(encoding="utf-8")
)
"""Kind and type of parts that reach nothing, to the settings that may name a file."""


def build_parts(
    loaded: LoadedConfig, services: Services | None, *, only: Sequence[str] = ()
) -> Parts:
    """Build every part of a configuration."""
    defenses = build_defenses(loaded, services, only=only)
    pipeline = loaded.config.pipeline
    if pipeline is None:
        return Parts(defenses=defenses)
    names = {built.manifest.name for built in defenses}
    model = build_one(loaded, ("pipeline", "model"), "model", name="model", services=services)
    _require_places(loaded, defenses)
    _require_chunks(loaded)
    _require_sessions(loaded, defenses)
    arms = tuple(arm for arm in pipeline.guards if arm == NO_GUARD or arm in names)
    places, chunks = {}, {}
    for arm, settings in pipeline.arms.items():
        if names.issuperset(_guards_of(settings)):
            places[arm] = settings.guards_at()
            if settings.chunks is not None:
                chunks[arm] = settings.chunks
    judges = tuple(build_judges(loaded, services))
    _require_judgings(loaded, judges)
    return Parts(
        defenses=defenses,
        model=model,
        judges=judges,
        arms=arms or tuple(places),
        places=places,
        shown_all={arm: pipeline.arms[arm].shown_all for arm in places},
        chunks=chunks,
    )


def _guards_of(arm: PipelineArmSettings) -> list[str]:
    """Return the guards of an arm, in the order of its places."""
    guards: list[str] = []
    for names in arm.guards_at().values():
        guards.extend(names)
    return guards


def _require_judgings(loaded: LoadedConfig, judges: Sequence[BuiltPart]) -> None:
    """Refuse two judges of one name, and figures that stand on a judging that is not there."""
    parts = [judge.part for judge in judges]
    layers = [layer_of(part, parts) for part in parts]
    twice = sorted(name for name, count in Counter(layers).items() if count > 1)
    if twice:
        mistake = f"Two judges are called {twice[0].rpartition('/')[2]!r}.\nNext: give each a name."
        raise locate_error(ConfigError(mistake), loaded, ("pipeline", "judges"))
    pipeline = loaded.config.pipeline
    known = dict.fromkeys([FIRST_LAYER, *layers])
    if pipeline is not None and pipeline.headline and pipeline.headline not in known:
        unknown = UnknownName("judging of this run", pipeline.headline, known)
        raise locate_error(unknown, loaded, ("pipeline", "headline"))


def _require_places(loaded: LoadedConfig, defenses: Sequence[BuiltPart]) -> None:
    """Refuse guards before the model that are to look at its answer, which is not there yet."""
    pipeline = loaded.config.pipeline
    if pipeline is None:
        return
    built = {defense.manifest.name: defense.part for defense in defenses}
    before: list[tuple[str, Keys]] = [(name, _SHORT_FORM) for name in pipeline.guards]
    for arm, settings in pipeline.arms.items():
        for place in (Place.INPUT, Place.CONTEXT):
            path: Keys = ("pipeline", "arms", arm, place.value)
            for name in settings.guards_at().get(place, ()):
                before.append((name, path))
    for name, path in before:
        if name not in built:
            continue
        reads_answers = built[name].capabilities.view is View.RESPONSE
        if reads_answers and path == _SHORT_FORM:
            continue  # in the short form its view says that it stands behind the model
        reader = _answer_reader(loaded, name)
        if reads_answers:
            reader = name
        if reader:
            mistake = ConfigError(
                f"{name} would stand before the model, and {reader} looks at its answer (view: "
                "response), which is not there yet.\n"
                f"Next: name {reader} at `output` of an arm, for example  pipeline: {{arms: "
                f"{{behind: {{output: {reader}}}}}}}"
            )
            raise locate_error(mistake, loaded, path)


def _require_sessions(loaded: LoadedConfig, defenses: Sequence[BuiltPart]) -> None:
    """Refuse guards that keep a session where their calls cannot all stand in one."""
    pipeline = loaded.config.pipeline
    if pipeline is None:
        return
    arms: dict[str, tuple[str, ...]] = {name: (name,) for name in pipeline.guards}
    for arm, settings in pipeline.arms.items():
        arms[arm] = tuple(_guards_of(settings))
    has_turns = any(getattr(data, "turns", "last") != "last" for data in loaded.config.data)
    try:
        guards = [as_guard(built.part) for built in defenses]
        refuse_shared_sessions(guards, arms, has_turns=has_turns)
    except ConfigError as error:
        raise locate_error(error, loaded, ("pipeline", "arms")) from error


def _require_chunks(loaded: LoadedConfig) -> None:
    """Refuse guards that would be asked too often, or that rewrite what has gone out in part."""
    for arm, settings in loaded.config.pipeline_arms.items():
        rule = settings.chunks
        if rule is None or rule.every is None:
            continue
        path: Keys = ("pipeline", "arms", arm, Place.OUTPUT.value)
        guard = settings.guards_at()[Place.OUTPUT][0]
        if getattr(loaded.parts["defenses", guard], "rewritten", None):
            mistake = (
                f"{guard} rewrites what it is shown (rewritten), and the arm {arm} asks it while "
                "the answer goes out: what went out cannot be written anew.\n"
                f"Next: leave out every, or rewritten of {guard}."
            )
            raise locate_error(ConfigError(mistake), loaded, path)
        longest = longest_answer(loaded)
        calls = 0
        if longest is not None:
            calls = rule.calls(longest)
        if calls > rule.most_calls:
            mistake = (
                f"The arm {arm} would ask {guard} {calls:,} times about an answer of {longest:,} "
                f"characters, as long as the model may write; at most {rule.most_calls:,} are "
                "allowed (most_calls).\nNext: a larger every, a smaller max_tokens of the model, "
                "or a larger most_calls."
            )
            raise locate_error(ConfigError(mistake), loaded, path)


def longest_answer(loaded: LoadedConfig) -> int | None:
    """Return about how many characters an answer of the model can have, where it has a limit."""
    settings = loaded.parts["pipeline", "model"]
    stated = getattr(settings, "most_characters", None)
    if stated is not None:
        return int(stated)
    tokens = getattr(settings, "most_written", None)
    if tokens is None:
        return None
    return int(tokens) * CHARACTERS_A_TOKEN


def members_of(settings: object) -> Sequence[str]:
    """Return the defenses that a defense is made of (the setting `of`: a name or several)."""
    of: str | Sequence[str] = getattr(settings, "of", ())
    if isinstance(of, str):
        return (of,)
    return of


def _answer_reader(loaded: LoadedConfig, name: str) -> str:
    """Return the first defense that a defense is made of and that looks at answers, or nothing."""
    for member in members_of(loaded.parts["defenses", name]):
        if getattr(loaded.parts["defenses", member], "view", None) == View.RESPONSE:
            return member
        below = _answer_reader(loaded, member)
        if below:
            return below
    return ""


def build_judges(loaded: LoadedConfig, services: Services | None) -> Iterator[BuiltPart]:
    """Build the judges of a pipeline, in its order."""
    judges = loaded.config.pipeline_judges
    for index in range(len(judges)):
        path, name = ("pipeline", "judges", str(index)), judge_name(judges, index)
        yield build_one(loaded, path, "judge", name=name, services=services)


def build_defenses(
    loaded: LoadedConfig, services: Services | None, *, only: Sequence[str] = ()
) -> tuple[BuiltPart, ...]:
    """Build the defenses of a configuration, in its order."""
    names = list(loaded.config.defenses)
    built: dict[str, BuiltPart] = {}
    for name in only:
        if name not in names:
            raise UnknownName("defense", name, names)
    for name in only or names:
        _build_defense(name, loaded, services, built, above=())
    return tuple(built[name] for name in (only or names))


def _build_defense(
    name: str,
    loaded: LoadedConfig,
    services: Services | None,
    built: dict[str, BuiltPart],
    *,
    above: tuple[str, ...],
) -> None:
    """Build one defense after those it is made of."""
    if name in built:
        return
    _require_no_circle(loaded, name, above)
    members = members_of(loaded.parts["defenses", name])
    for member in members:
        if member not in loaded.config.defenses:
            unknown = UnknownName("defense", member, loaded.config.defenses)
            raise locate_error(unknown, loaded, ("defenses", name, "of"))
        _build_defense(member, loaded, services, built, above=(*above, name))
    if loaded.cluster and not calls_service(loaded, name):
        build = Rebuild(loaded=replace(loaded, cluster=None), name=name)
        distant = ActorDefense(name, build, loaded.cluster)
        there = distant.built
        distant.factory = replace(build, manifest=there.manifest)
        built[name] = BuiltPart(part=distant, manifest=there.manifest, remarks=there.remarks)
        if not there.capabilities.needs_samples:  # which no worker knows
            return
    path = ("defenses", name)
    below, charges = {}, {}
    for member in members:
        below[member] = built[member].part
        if not calls_service(loaded, member):
            price = price_here(loaded, below[member])
            if price:
                charges[member] = price
    context = replace(_context(loaded, path, services), defenses=below, charges=charges)
    part = _as_part(_build_settings(loaded, path, name, context))
    hashes = [built[member].manifest.fingerprint for member in members]
    manifest = _manifest(loaded, path, part, name=name, kind="defense", below=hashes)
    built[name] = BuiltPart(part=part, manifest=manifest)


def _require_no_circle(loaded: LoadedConfig, name: str, above: tuple[str, ...]) -> None:
    """Refuse a defense that is made of itself, or of a chain without an end in sight."""
    if name in above:
        fault = "contains itself"
    elif len(above) > _MOST_LINKS:
        fault = f"has more than {_MOST_LINKS} links"
    else:
        return
    chain = " -> ".join([*above, name][-9:])
    circle = ConfigError(f"the chain {chain} {fault}.\nNext: take a link out.")
    raise locate_error(circle, loaded, ("defenses", above[-1], "of"))


def _as_part(made: object) -> object:
    """Return a defense in the form in which it is asked; what only stands around tools stays."""
    if is_defense(made):
        return as_guard(cast("AnyDefense", made))
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """Builds one defense from the settings it was built from before; can be sent elsewhere.

    Attributes:
        manifest: Of the one that it has to be; the first is probed.
    """

    loaded: LoadedConfig
    name: str
    manifest: PartManifest | None = None
    version: str = VERSION

    def __call__(self) -> BuiltPart:
        """Build it, and refuse another one."""
        (built,) = build_defenses(self.loaded, None, only=(self.name,))
        theirs = (VERSION, built.manifest.fingerprint)
        ours = (self.version, (self.manifest or built.manifest).fingerprint)
        if theirs != ours:
            raise ConfigError(
                f"{self.name} is another one here: hash {theirs[1][:12]}, not {ours[1][:12]}; "
                f"guardmark {theirs[0]}, not {ours[0]}.\n"
                "Next: the same files and guardmark on every machine."
            )
        remarks = None
        if self.manifest is None:
            remarks = run_on_loop(probe_built(built))
        return replace(built, remarks=remarks)


def price_at(loaded: LoadedConfig, path: Keys) -> PriceSettings | None:
    """Return the price of the part whose settings stand at a path."""
    return stated_price(loaded.config.prices, name_at(loaded, path), loaded.parts[path])


def price_here(loaded: LoadedConfig, part: Any) -> PricedPart | PricedChain | None:
    """Return the price of a part whose calls no client of services counts."""
    if isinstance(part, HasPricedMembers) and part.prices:  # it says what each member cost
        return PricedChain(members=tuple(part.prices.values()))
    path = ("defenses", part.name)
    if path not in loaded.parts:
        stated = loaded.config.prices.get(part.name)
        if stated is None:
            return None
        return PricedPart(price=stated)
    price = price_at(loaded, path)
    of = getattr(loaded.parts[path], "of", None)
    while price is None and isinstance(of, str):  # what only wraps another costs what that costs
        path = ("defenses", of)
        price = price_at(loaded, path)
        of = getattr(loaded.parts[path], "of", None)
    if price is None:
        return None
    if not isinstance(part, Guard):  # a proxy around tools is shown their texts
        return PricedPart(price=price)
    return PricedPart(price=price, view=part.capabilities.view)


def calls_service(loaded: LoadedConfig, name: str) -> bool:
    """Tell whether a defense calls a service, or one that it is made of."""
    settings = loaded.parts["defenses", name]
    if service_address(settings):
        return True
    return any(calls_service(loaded, member) for member in members_of(settings))


def _context(loaded: LoadedConfig, path: Keys, services: Services | None) -> BuildContext:
    """Return what a part is built with; patterns of a foreign folder get less time."""
    timeout_s = PATTERN_TIMEOUT_S
    if loaded.is_foreign:
        timeout_s = FOLDER_TIMEOUT_S
    return BuildContext(
        folder=loaded.folder,
        seed=loaded.config.run.seed,
        services=services,
        defenses={},
        prices=loaded.config.prices,
        where=".".join(path),
        alarm=partial(CallAlarm, timeout_s),
    )


def build_one(
    loaded: LoadedConfig, path: Keys, kind: str, *, name: str, services: Services | None
) -> BuiltPart:
    """Build the model or a judge of a pipeline, or a model that helps an attacker."""
    system_prompt = ""
    if path[0] == "pipeline":
        system_prompt = instructions(loaded)
    context = _context(loaded, path, services)
    if kind == "judge":
        context = replace(context, system_prompt=system_prompt)
    context = replace(context, members=_members(loaded, path, name, context))
    part = _build_settings(loaded, path, name, context)
    below = []
    if system_prompt:
        # It may stand in a file, and a judge is told it too: another one is another part.
        below.append(sha256(system_prompt.encode()).hexdigest())
    manifest = _manifest(loaded, path, part, name=name, kind=kind, below=below)
    return BuiltPart(part=part, manifest=manifest)


def build_agent(loaded: LoadedConfig, number: int, services: Services | None) -> BuiltPart:
    """Build one agent of a run: what makes an agent for each case."""
    agent = loaded.config.agent
    name = ""
    if agent is not None:
        name = agent.agent_names[number]
    path = ("agent", "agents", str(number))
    part = _build_settings(loaded, path, name, _context(loaded, path, services))
    manifest = _manifest(loaded, path, part, name=name, kind="agent", below=())
    return BuiltPart(part=part, manifest=manifest)


def build_gradient(loaded: LoadedConfig, attacked: Sequence[BuiltPart]) -> GradientAttack | None:
    """Build the attack that follows gradients."""
    settings = loaded.parts.get(_GRADIENT)
    if settings is None:
        return None
    sources = [source_of(built.part) for built in attacked]
    own = [source for source in sources if isinstance(source, GradientDefense)]
    if all(source.gradients() is None for source in own):
        names = ", ".join(built.manifest.name for built in attacked)
        raise ConfigError(
            f"{loaded.source.shown_as}: adaptive.gradient needs a defense in this process that has "
            f"a gradient, and none of these has: {names}.\n"
            "Next: add one, for example of type classifier (pip install 'guardmark[hf]'), or take "
            "adaptive.gradient out."
        )
    context = _context(loaded, _GRADIENT, None)
    return cast("GradientAttack", build_part(settings, "gradient", context))


def _members(
    loaded: LoadedConfig, path: Keys, name: str, context: BuildContext
) -> tuple[object, ...]:
    """Build the judges that a panel is made of."""
    members = []
    for index, settings in enumerate(getattr(loaded.parts[path], "judges", ())):
        below = (*path, "judges", str(index))
        called = str(settings.get("name") or f"{name}-{index + 1}")
        own = replace(context, where=".".join(below))
        own = replace(own, members=_members(loaded, below, called, own))
        members.append(_build_settings(loaded, below, called, own))
    return tuple(members)


def _build_settings(loaded: LoadedConfig, path: Keys, name: str, context: BuildContext) -> object:
    try:
        with keep_working_directory():
            return build_part(loaded.parts[path], name, context)
    except ConfigError as error:
        raise locate_error(error, loaded, path) from error
    except BaseException as error:
        # Nobody's sys.exit may pass for an exit code of ours, nor a native library's panic.
        if isinstance(error, Exception | KeyboardInterrupt):
            raise
        message = f"{name} raised {type(error).__name__} while it was built: {error}"
        raise locate_error(ConfigError(message), loaded, path) from error


def instructions(loaded: LoadedConfig, path: Keys = ("pipeline", "model")) -> str:
    """Return what a part is told before everything else; a judge must know it of the model."""
    before = getattr(loaded.parts.get(path), "before", None)
    if before is not None:
        return str(before(loaded.folder))
    return ""


def _written_settings(loaded: LoadedConfig, path: Keys) -> Mapping[str, Any]:
    """Return the settings at a path as they are written; a name alone is a type."""
    settings: Any = loaded.config
    for step in path:
        if isinstance(settings, list):
            settings = settings[int(step)]
        elif isinstance(settings, dict):
            settings = settings[step]
        else:
            settings = getattr(settings, step)
    if isinstance(settings, str):
        settings = {"type": settings}
    return cast("Mapping[str, Any]", settings)


def _manifest(
    loaded: LoadedConfig, path: Keys, part: object, *, name: str, kind: str, below: Sequence[str]
) -> PartManifest:
    """Describe a part as a run stores it.

    Its fingerprint covers its settings, type, stated version and files, and the fingerprints of
    what it is made of (`below`), in this order.
    """
    written, resolved = _written_settings(loaded, path), loaded.parts[path].model_dump(mode="json")
    part_type = str(written["type"])
    digest = sha256(json.dumps(resolved, sort_keys=True).encode())
    digest.update(part_type.encode())
    identity = Identity()
    source = source_of(part)
    if isinstance(source, FunctionDefense | AsyncFunctionDefense):
        identity = identity_of(source.function)
    if identity.config is not None:
        digest.update(json.dumps(identity.config, sort_keys=True).encode())
    stated = written.get("version") or resolved.get("version") or identity.version
    if stated:
        digest.update(f"version {stated}".encode())
    view, threshold, files = _view_of(part), None, _files_of(part)
    if isinstance(part, Guard):
        can = part.capabilities
        view, threshold, files = can.view.value, can.threshold, _files_of(can)
    for file in files:
        with file.open("rb") as content:
            named = partial(sha256, file.name.encode())
            digest.update(file_digest(content, named).digest())
    for fingerprint in below:
        digest.update(bytes.fromhex(fingerprint))
    return PartManifest(
        name=name,
        kind=kind,
        type=part_type,
        version=str(stated or _package_version(kind, part_type, resolved)),
        fingerprint=digest.hexdigest(),
        view=view,
        threshold=threshold,
        settings=resolved | identity.settings | _stated(loaded, path, kind=kind),
        role=str(written.get("role") or ""),
    )


def _package_version(kind: str, part_type: str, settings: Mapping[str, Any]) -> str:
    """Return the package that a part comes from, with its version; empty where none is known."""
    if any(part_type in types for types in INERT.values()):
        return f"guardmark {VERSION}"
    target = str(settings.get("target") or "")
    if settings.get("env") or settings.get("interpreter"):
        target = ""  # it is installed elsewhere: what is installed here says nothing of it
    return package_of(kind, part_type, target)


def _view_of(part: object) -> str:
    """Return what a part that is no guard says it looks at."""
    view = getattr(part, "view", "")
    return str(getattr(view, "value", view))


def _stated(loaded: LoadedConfig, path: Keys, *, kind: str) -> dict[str, object]:
    """Return what settings name and do not hold: the text, the address, what it learned from."""
    stated: dict[str, object] = {}
    text = instructions(loaded, path)
    if text:
        key = "instructions"
        if kind == "model":
            key = "system_prompt"
        stated[key] = text
        stated[f"{key}_sha256"] = sha256(text.encode()).hexdigest()
    address = service_address(loaded.parts[path])
    if address:
        stated["address"] = address.partition("?")[0]
    profile = None
    if kind == "defense":
        profile = getattr(loaded.parts[path], "profile", None)
    if profile:
        description = describe_profile(profile)
        if description.trained_on:
            data = list(description.trained_on)
            stated["trained_on"] = {"source": description.source, "data": data}
    return stated


def _files_of(part: object) -> Iterator[Path]:
    """The files a part says it was made from, in order; a folder stands for its files."""
    for name in getattr(part, "files", ()):
        path = Path(name)
        if path.is_dir():
            yield from sorted(below for below in path.rglob("*") if below.is_file())
        else:
            yield path


def service_address(settings: BaseModel) -> str:
    """Return the address a part calls, or the empty string for a part in this process."""
    for field in ADDRESS_SETTINGS:
        value = getattr(settings, field, None)
        if value:
            # What a preset stands for, where the settings know it.
            return str(getattr(settings, "address", value))
    return ""


def is_below(address: str, base: str) -> bool:
    """Tell whether an address belongs to a service: `/v1/check` does to `/v1`, `/v10` not."""
    stem = base.rstrip("/")
    return address == stem or address.startswith((f"{stem}/", f"{stem}?"))


def open_services(
    loaded: LoadedConfig,
    *,
    offline: bool = False,
    record: Path | None = None,
    replay: Path | None = None,
    meter: SpendingMeter | None = None,
) -> Services | None:
    """Make the client of a run, which counts what it sends."""
    # A recording that no part asks for is opened all the same: its name may be mistyped.
    if replay is None and not any(map(service_address, loaded.parts.values())):
        return None
    from guardmark.net.client import Services
    from guardmark.net.redaction import KNOWN
    from guardmark.net.service import ServiceLimits
    from guardmark.store.locks import try_lock

    usual = loaded.config.run.concurrency
    limits = {}
    for base, service in loaded.config.services.items():
        stated = dict(service)
        stated["max_response_bytes"] = stated.pop("max_answer_mib") * MIB
        stated["concurrency"] = service.concurrency or usual
        stated["ca_file"] = None
        if service.ca_file:
            stated["ca_file"] = str(loaded.folder / service.ca_file)
        stated["base_urls"] = tuple(service.base_urls)
        limits[base] = ServiceLimits(**stated)
    return Services(
        limits,
        default=ServiceLimits(concurrency=usual),
        offline=offline,
        record=record,
        record_lock=try_lock,
        replay=replay,
        redactor=KNOWN,
        meter=meter,
    )


async def close_parts(parts: Iterable[object], services: Services | None) -> None:
    """Give back what parts and the client hold."""
    for part in parts:
        if isinstance(part, Closable):
            await part.close()
    if services is not None:
        await services.close()


def concurrency_of(loaded: LoadedConfig) -> Mapping[str, int]:
    """Return how many calls each part may have in flight, where a service says it."""
    calls: dict[str, int] = {}
    for path, settings in loaded.parts.items():
        if path[0] == "adaptive":  # what helps an attacker is no part of a run
            continue
        address = service_address(settings)
        for base, service in loaded.config.services.items():
            if service.concurrency and is_below(address, base):
                calls[name_at(loaded, path)] = service.concurrency * (1 + len(service.base_urls))
    return calls


def asked_once(loaded: LoadedConfig) -> frozenset[str]:
    """Return the guards whose answer cannot differ, and stands for every repeat of the model."""
    pipeline, run = loaded.config.pipeline, loaded.config.run
    if pipeline is None or run.repeats == 1 or run.repeat_guards:
        return frozenset()
    fixed = set(pipeline.deterministic)
    for name in (*pipeline.guards, *pipeline.guards_at(Place.INPUT)):
        settings = loaded.parts.get(("defenses", name))
        if getattr(settings, "draws_nothing", False):
            fixed.add(name)
    return frozenset(fixed)


def name_at(loaded: LoadedConfig, path: tuple[str, ...]) -> str:
    """The name of the part whose settings stand at a path."""
    if path[0] == "pipeline" and path[1] == "judges" and loaded.config.pipeline is not None:
        return judge_name(loaded.config.pipeline.judges, int(path[2]))
    if path[0] == "agent" and loaded.config.agent is not None:
        return loaded.config.agent.agent_names[int(path[2])]
    return path[-1]


def judge_name(judges: Sequence[Mapping[str, object]], index: int) -> str:
    """Return the name of a judge: the one it is given, or its number."""
    return str(judges[index].get("name") or f"judge-{index + 1}")
