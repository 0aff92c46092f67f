"""Profiles of services: settings of the http defense, and answers in the form they document."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from pydantic import Field, JsonValue

from guardmark.config.settings import Rate, Settings
from guardmark.core.outcome import ErrorKind
from guardmark.defenses.profile import Profile, load_profile

_NATIVE_DECISION = frozenset({"blocked", "blocked_when", "action", "actions"})


class RecordedExchange(Settings):
    """An answer in the service's shape, and what must be made of it."""

    about: str = Field(min_length=1)
    status: int = Field(200, ge=100, le=599)
    body: JsonValue
    outcome: Literal["allow", "block", "malformed", "error"]
    error_kind: ErrorKind | None = None
    score: Rate | None = None
    native_action: str = ""
    categories: list[str] = Field(default_factory=list)


class ServiceProfile(Profile):
    """How one service is asked and read."""

    settings: dict[str, Any]
    examples: list[RecordedExchange] = Field(min_length=3)

    def defaults(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the settings that it fills in; a threshold that is asked for decides alone."""
        if given.get("threshold") is None and not given.get("thresholds"):
            return self.settings
        return {k: v for k, v in self.settings.items() if k not in _NATIVE_DECISION}


@cache
def service_profile(name: str) -> ServiceProfile:
    """Return a profile by name."""
    return load_profile("service", name, ServiceProfile)
