"""Settings of guard models, and how they are built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from guardmark.app.chat_settings import ChatSettings
from guardmark.app.settings import Rate
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.sample import View

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.app.registry import BuildContext


class GuardModelSettings(ChatSettings):
    """Asks a guard model behind a server of the common chat protocol."""

    profile: str
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

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        from dataclasses import replace

        from guardmark.defenses.guard_model import GuardModelDefense, GuardReader
        from guardmark.defenses.guard_profiles import guard_profile

        profile = guard_profile(self.profile)
        if self.max_tokens:
            profile = replace(profile, max_tokens=self.max_tokens)
        path = context.folder / self.policy_file if self.policy_file else None
        return GuardModelDefense(
            name,
            self.chat_endpoint(f"defenses.{name}", context),
            reader=GuardReader(
                profile=profile, ibm_sum=self.score == "ibm_sum", threshold=self.threshold
            ),
            view=self.view,
            policy=_policy(path) if path else self.policy,
            risk=self.risk,
            wants_scores=self.score != "none",
            files=(path,) if path else (),
        )


def _policy(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"The policy {path} cannot be read: {reason}.") from error
