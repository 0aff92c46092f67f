"""Settings of guard models, and how they are built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import Field, field_validator, model_validator

from guardmark.app.parts.chat_settings import ChatSettings
from guardmark.config.settings import Rate
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.sample import View

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.app.registry import BuildContext
    from guardmark.defenses.guard_model import GuardReader


class GuardModelSettings(ChatSettings):
    """Asks a guard model, behind a server of the common chat protocol or in this process."""

    profile: str
    model: str = ""
    path: str | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    risk: str = "harm"
    policy: str = ""
    policy_file: str | None = None
    view: View = View.TEXT
    threshold: Rate | None = None
    score: Literal["two_token_softmax", "ibm_sum", "none"] = "two_token_softmax"
    max_tokens: int = Field(0, ge=0)  # 0: what the profile needs

    @field_validator("profile")
    @classmethod
    def _known_profile(cls, value: str) -> str:
        from guardmark.defenses.guard_profiles import guard_profile

        try:
            return guard_profile(value).name
        except UnknownName as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _somewhere(self) -> GuardModelSettings:
        behind_a_server = self.base_url is not None or self.preset is not None
        if behind_a_server == (self.path is not None):
            raise ValueError("needs either a base_url (or preset) or the path of a local model")
        if behind_a_server and not self.model:
            raise ValueError("needs the name of the model, as its server knows it")
        return self

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        from guardmark.defenses.guard_model import GuardModelDefense

        path = context.folder / self.policy_file if self.policy_file else None
        policy = _policy(path) if path else self.policy
        files = (path,) if path else ()
        if self.path is not None:
            return self._local(name, context.folder / self.path, policy, files)
        return GuardModelDefense(
            name,
            self.chat_endpoint(name, context),
            reader=self._reader(),
            view=self.view,
            policy=policy,
            risk=self.risk,
            wants_scores=self.score != "none",
            files=files,
        )

    def _reader(self) -> GuardReader:
        from dataclasses import replace

        from guardmark.defenses.guard_model import GuardReader
        from guardmark.defenses.guard_profiles import guard_profile

        profile = guard_profile(self.profile)
        if self.max_tokens:
            profile = replace(profile, max_tokens=self.max_tokens)
        return GuardReader(
            profile=profile, ibm_sum=self.score == "ibm_sum", threshold=self.threshold
        )

    def _local(self, name: str, path: Path, policy: str, files: tuple[Path, ...]) -> object:
        from guardmark.defenses.local_guard import LocalGuardDefense
        from guardmark.inference.generator import LocalGenerator

        reader = self._reader()
        options = reader.profile.request_options(self.risk)
        generator = LocalGenerator(
            path,
            max_tokens=reader.profile.max_tokens,
            template_options=cast("dict[str, Any]", options.get("chat_template_kwargs", {})),
            wants_scores=self.score != "none",
            device=self.device,
        )
        return LocalGuardDefense(
            name,
            generator,
            reader=reader,
            view=self.view,
            policy=policy,
            files=(path, *files),
        )


def _policy(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"The policy {path} cannot be read: {reason}.") from error
