"""The models of round 5 - attacker, judge, critic: read, built, told apart, tried once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from guardmark.app.parts.building import build_one
from guardmark.app.parts.loading import LoadedConfig, config_around, load_config, load_section
from guardmark.app.registry import helper_kind
from guardmark.app.settings import AdaptiveSettings
from guardmark.config.settings import PriceSettings, ServiceSettings, Settings
from guardmark.config.source import parse_yaml, read_text
from guardmark.core.errors import ConfigError
from guardmark.core.protocols import PairJudge
from guardmark.core.values import dataclass
from guardmark.engine.probing import probe_helper

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from guardmark.adaptive.model_asker import AttackerPlan
    from guardmark.engine.plan import BuiltPart
    from guardmark.net.client import Services

_SECTION: Final = "adaptive"
_NO_JUDGE: Final = (
    "no judge of sameness is configured (adaptive.equivalence): what the attacker model brings "
    "through is reported as unproved (V4) and counts for no rate"
)
_OWN_JUDGE: Final = (
    "the attacker model judges its own candidates: name another model under adaptive.equivalence"
)
_NOT_CALIBRATED: Final = "not calibrated"
_NO_CALIBRATION: Final = (
    "tau of adaptive.equivalence is not calibrated, so nobody knows how often it calls another "
    "request the same: guardmark attacks calibrate PAIRS.jsonl"
)
_DIGITS: Final = 16  # of a fingerprint, where a person reads it


class AttackerFile(Settings):
    """A file that names an attacker model only."""

    adaptive: AdaptiveSettings
    services: dict[str, ServiceSettings] = Field(default_factory=dict)
    prices: dict[str, PriceSettings] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackerConfig:
    """What a measurement says of its attacker model."""

    loaded: LoadedConfig
    source: LoadedConfig

    @property
    def located(self) -> LoadedConfig:
        """What is measured, with paths and places of the file that the section stands in."""
        return replace(self.loaded, folder=self.source.folder, source=self.source.source)

    @property
    def section(self) -> AdaptiveSettings:
        """The section; the defaults where the configuration has none."""
        return self.loaded.config.adaptive or AdaptiveSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacker:
    """An attacker model, its judge and its critic, ready to be asked, and what to call them."""

    plan: AttackerPlan
    named: tuple[tuple[str, BuiltPart], ...]
    warnings: tuple[str, ...]

    @property
    def parts(self) -> tuple[BuiltPart, ...]:
        """The models, for closing."""
        return tuple(built for _, built in self.named)

    @property
    def calls_services(self) -> bool:
        """Whether one of them is behind a wire."""
        return any(part.calls_service for part in self.parts)


def attacker_config(loaded: LoadedConfig, path: Path | None) -> AttackerConfig:
    """Find what is said of an attacker model."""
    if path is None or loaded.source.shown_as == str(path):
        return AttackerConfig(loaded=loaded, source=loaded)
    own = read_attacker_file(path)
    section = own.config.adaptive
    if section is None or (section.attacker is None and section.gradient is None):
        raise ConfigError(
            f"{path} names no attacker model.\n"
            "Next: name one, adaptive.attacker (or an attack by gradient, adaptive.gradient)."
        )
    services = dict(own.config.services)
    for base, each in services.items():
        if each.ca_file is not None:
            located = str(own.folder / each.ca_file)
            services[base] = each.model_copy(update={"ca_file": located})
    config = loaded.config.model_copy(
        update={
            "adaptive": section,
            "services": {**loaded.config.services, **services},
            "prices": {**loaded.config.prices, **own.config.prices},
        }
    )
    parts = {path: each for path, each in loaded.parts.items() if path[0] != _SECTION}
    parts |= {path: each for path, each in own.parts.items() if path[0] == _SECTION}
    return AttackerConfig(loaded=replace(loaded, config=config, parts=parts), source=own)


def is_configuration(path: Path) -> bool:
    """Tell a whole configuration from a file that names models of an attack only."""
    document, _ = parse_yaml(read_text(path, f"The configuration {path}"), str(path))
    return isinstance(document, dict) and "version" in document


def read_attacker_file(path: Path) -> LoadedConfig:
    """Read a configuration, or a file that names models of an attack only."""
    if is_configuration(path):
        return load_config(path)
    sections = load_section(path, AttackerFile, key="attacker_file")
    document = {
        "version": 1,
        "data": [{"builtin": "core"}],
        "defenses": {"none-asked": {"type": "allow-all"}},
        **sections.model_dump(mode="json", exclude_none=True),
    }
    return config_around(path, document, moved={})


def build_attacker(config: AttackerConfig, services: Services | None) -> Attacker | None:
    """Build the attacker model, its judge and its critic."""
    settings = config.section
    if settings.attacker is None:
        return None
    from guardmark.adaptive.model_asker import AttackerPlan  # only where somebody attacks

    loaded = config.located
    model = build_one(loaded, (_SECTION, "attacker"), "model", name="attacker", services=services)
    judge = _build_helper(loaded, "equivalence", settings.equivalence, services)
    critic = _build_helper(loaded, "critic", settings.critic, services)
    roles = (("the attacker model", model), ("the judge of sameness", judge))
    identity = {
        "model": _label(model),
        "model_fingerprint": model.manifest.fingerprint[:_DIGITS],
        "judge": "none",
        "judge_fingerprint": "",
        "same_model": "no",
    }
    if judge is not None:
        identity["judge"] = _label(judge)
        identity["judge_fingerprint"] = judge.manifest.fingerprint[:_DIGITS]
        if _which(model) == _which(judge):
            identity["same_model"] = "yes"
    if critic is not None:
        identity |= _critic_identity(critic, roles)
    identity |= _threshold_words(judge)
    plan = AttackerPlan(
        model=model.part,
        judge=None if judge is None else judge.part,
        critic=None if critic is None else critic.part,
        identity=identity,
        candidates=settings.candidates,
        streams=settings.streams,
        depth=settings.depth,
        history=settings.history,
        max_calls=settings.max_calls,
        twin=settings.twin,
    )
    every = (("attacker model", model), ("judge of sameness", judge), ("critic", critic))
    named = tuple((name, built) for name, built in every if built is not None)
    return Attacker(plan=plan, named=named, warnings=tuple(_warnings(plan)))


def _build_helper(
    loaded: LoadedConfig, name: str, stated: Any, services: Services | None
) -> BuiltPart | None:
    """Build a model that helps the attacker, where the configuration names one."""
    if stated is None:
        return None
    kind = helper_kind(name, stated)
    return build_one(loaded, (_SECTION, name), kind, name=name, services=services)


def _critic_identity(
    critic: BuiltPart, roles: Sequence[tuple[str, BuiltPart | None]]
) -> dict[str, str]:
    """Say which model the critic is, and which roles the same model has beside."""
    also = [name for name, each in roles if each is not None and _which(each) == _which(critic)]
    return {
        "critic": _label(critic),
        "critic_fingerprint": critic.manifest.fingerprint[:_DIGITS],
        "critic_is_also": " and ".join(also),
    }


async def probe_attacker(attacker: Attacker) -> list[tuple[str, int | None]]:
    """Ask each of the models something harmless, before anything is spent."""
    return [
        (name, await probe_helper(built, f"The {name}"))
        for name, built in attacker.named
        if built.calls_service
    ]


def _label(built: BuiltPart) -> str:
    """Name a model as people do: its type, and which one."""
    settings = built.manifest.settings
    return f"{built.manifest.type} {settings.get('model') or settings.get('path') or ''}".strip()


def _which(built: BuiltPart) -> tuple[object, ...]:
    """What makes two settings mean the same model, however it is asked."""
    settings = built.manifest.settings
    which = settings.get("model") or settings.get("path")
    if which is None:
        return (built.manifest.fingerprint,)
    return built.manifest.type, which, str(settings.get("base_url")), settings.get("preset")


def _warnings(plan: AttackerPlan) -> Iterator[str]:
    if plan.judge is None:
        yield _NO_JUDGE
    elif plan.identity["same_model"] == "yes":
        yield _OWN_JUDGE
    elif plan.identity.get("calibration") == _NOT_CALIBRATED:
        yield _NO_CALIBRATION
    also = plan.identity.get("critic_is_also")
    if also:
        yield (
            f"the critic is the same model as {also}: it sees no more than they do; name another "
            "one under adaptive.critic"
        )
    if plan.critic is not None and not plan.history:
        yield "the critic is not asked: with history: 0 no earlier candidate is shown"


def _threshold_words(judge: BuiltPart | None) -> dict[str, str]:
    """Say from which cosine on texts count as the same request, and where that comes from."""
    if judge is None or not isinstance(judge.part, PairJudge):
        return {}
    settings = judge.manifest.settings
    known = settings.get("calibration")
    words = {"tau": str(settings.get("tau")), "calibration": _NOT_CALIBRATED}
    if isinstance(known, Mapping):
        words["calibration"] = (
            f"{known['pairs']} {str(known['sha256'])[:12]}, {known['false_same']} of "
            f"{known['different']} different pairs and {known['true_same']} of {known['same']} "
            "equal ones called the same"
        )
    return words
