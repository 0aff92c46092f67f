"""Settings of target models, each with how it is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from guardmark.app.parts.chat_settings import ChatSettings
from guardmark.config.settings import Settings
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.sample import Role

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.app.registry import BuildContext
    from guardmark.models.local import Randomness


class SystemPromptSettings(Settings):
    """What a target model is told before every conversation; judges are told it too."""

    system_prompt: str = ""
    system_prompt_file: str | None = None
    system_prompt_name: str | None = None

    def before(self, folder: Path) -> str:
        """Return what the model is told before every conversation."""
        return system_prompt(self, folder)


class ChatModelSettings(SystemPromptSettings, ChatSettings):
    """A target model behind any server of the common chat protocol."""

    roles: dict[Role, str] = Field(default_factory=dict)

    def build(self, name: str, context: BuildContext) -> object:
        """Build the model."""
        from guardmark.models.chat import ChatTarget

        return ChatTarget(
            name,
            self.chat_endpoint(name, context),
            system_prompt=system_prompt(self, context.folder),
            roles=self.roles,
        )


class LocalModelSettings(SystemPromptSettings):
    """A target model in this process; needs the [hf] extra.

    It takes the likeliest token each time unless a temperature says otherwise.
    """

    path: str
    temperature: float = Field(0.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int | None = Field(None, ge=0)  # the seed of the run if not given
    max_tokens: int = Field(256, ge=1)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    batch_tokens: int = Field(4096, ge=64)
    roles: dict[Role, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _drawn(self) -> LocalModelSettings:
        if not self.temperature and (self.top_p < 1 or self.seed is not None):
            raise ValueError("top_p and seed need a temperature above 0: nothing is drawn at 0")
        return self

    def build(self, name: str, context: BuildContext) -> object:
        """Build the model."""
        from guardmark.inference.generator import LocalGenerator
        from guardmark.models.local import LocalTarget

        path = context.folder / self.path
        generator = LocalGenerator(
            path, max_tokens=self.max_tokens, budget=self.batch_tokens, device=self.device
        )
        return LocalTarget(
            name,
            generator,
            randomness=self._randomness(context.seed),
            system_prompt=system_prompt(self, context.folder),
            roles=self.roles,
            files=(path,),
        )

    def _randomness(self, seed: int) -> Randomness | None:
        from guardmark.models.local import Randomness

        if not self.temperature:
            return None
        seed = seed if self.seed is None else self.seed
        return Randomness(temperature=self.temperature, top_p=self.top_p, seed=seed)


class RuleSettings(Settings):
    """What a scripted part says when a pattern is found."""

    when: str
    answer: str


class ScriptedModelSettings(SystemPromptSettings):
    """Answers by fixed rules, offline; the system prompt changes nothing but is told to judges."""

    rules: list[RuleSettings] = Field(default_factory=list)
    otherwise: str = "I can help you with that."
    by_sha256: dict[str, str] = Field(default_factory=dict)

    def build(self, name: str, context: BuildContext) -> object:  # noqa: ARG002 - all have one signature
        """Build the model."""
        from guardmark.models.scripted import ScriptedModel, ScriptedRule

        return ScriptedModel(
            name,
            [ScriptedRule(when=rule.when, answer=rule.answer) for rule in self.rules],
            otherwise=self.otherwise,
            by_digest=self.by_sha256,
        )


def system_prompt(settings: SystemPromptSettings, folder: Path) -> str:
    """Return the system prompt that settings name in one of three ways."""
    if settings.system_prompt_name is None and settings.system_prompt_file is None:
        return settings.system_prompt
    path = _prompt_file(settings, folder)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"The system prompt {path} cannot be read: {reason}.") from error
    if settings.system_prompt_name is None:
        return text
    import yaml

    try:
        named = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: a map of names to prompts.") from error
    if not isinstance(named, dict):
        raise ConfigError(f"{path} is no map of names to prompts.")
    if settings.system_prompt_name not in named:
        raise UnknownName("system prompt", settings.system_prompt_name, map(str, named))
    return str(named[settings.system_prompt_name])


def _prompt_file(settings: SystemPromptSettings, folder: Path) -> Path:
    from guardmark.datasets.builtin import builtin_set

    if settings.system_prompt_file is not None:
        return folder / settings.system_prompt_file
    return builtin_set("tutor").folder / "system_prompts.yaml"
