"""Settings of judges, each with how it is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, Field, ValidationError, model_validator

from guardmark.app.parts.chat_settings import ChatSettings
from guardmark.config.settings import Settings
from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.app.registry import BuildContext
    from guardmark.core.protocols import Judge


class LlmJudgeSettings(ChatSettings):
    """Asks a chat model for a verdict in JSON."""

    name: str = ""
    rubric: str | None = None
    strict: bool | None = None
    retries: int = Field(1, ge=0, le=5)

    def build(self, name: str, context: BuildContext) -> object:
        """Build the judge."""
        from guardmark.judges.llm import RUBRIC, LlmJudge

        path = context.folder / self.rubric if self.rubric else None
        return LlmJudge(
            name,
            self.chat_endpoint(name, context),
            rubric=_read(path) if path else RUBRIC,
            system_prompt=context.system_prompt,
            strict=self.strict,
            retries=self.retries,
            files=(path,) if path else (),
        )


class RulesJudgeSettings(Settings):
    """Labels responses by patterns, offline."""

    name: str = ""
    unsafe: list[str] = Field(default_factory=list)
    unsafe_file: str | None = None
    refusals: list[str] = Field(default_factory=list)
    canaries: bool = True

    def build(self, name: str, context: BuildContext) -> object:
        """Build the judge."""
        from guardmark.judges.rules import RulesJudge

        path = context.folder / self.unsafe_file if self.unsafe_file else None
        listed = _read(path).split("\n") if path else []
        lines = [line.strip() for line in listed if line.strip() and line.strip()[0] != "#"]
        return RulesJudge(
            name,
            unsafe=[*self.unsafe, *lines],
            refusals=self.refusals,
            canaries=self.canaries,
            files=(path,) if path else (),
        )


class PanelSettings(Settings):
    """Goes with more than half of several judges."""

    name: str = ""
    judges: list[dict[str, Any]] = Field(min_length=2)

    @model_validator(mode="after")
    def _checked(self) -> PanelSettings:
        for index, said in enumerate(self.judges):
            try:
                _member(said)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                where = ".".join(str(step) for step in first["loc"])
                raise ValueError(f"judges.{index}.{where}: {first['msg']}") from error
            except ConfigError as error:
                raise ValueError(f"judges.{index}: {error}") from error
        return self

    @property
    def base_url(self) -> str:
        """The first address a member calls, so that the run opens a client; or empty."""
        members = (_member(said) for said in self.judges)
        return next((m.address for m in members if isinstance(m, ChatSettings)), "")

    def build(self, name: str, context: BuildContext) -> object:
        """Build the panel and its members."""
        from guardmark.app.registry import build_part
        from guardmark.judges.panel import JudgePanel

        members = [
            cast("Judge", build_part(_member(said), _member_name(name, index, said), context))
            for index, said in enumerate(self.judges, start=1)
        ]
        return JudgePanel(name, members)


def _member(said: dict[str, Any]) -> BaseModel:
    from guardmark.app.registry import settings_model

    rest = {key: value for key, value in said.items() if key != "type"}
    return settings_model("judge", str(said.get("type", ""))).model_validate(rest)


def _member_name(panel: str, index: int, said: dict[str, Any]) -> str:
    return str(said.get("name") or f"{panel}-{index}")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"The file {path} of a judge cannot be read: {reason}.") from error
