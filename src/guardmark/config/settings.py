"""The base of all settings: unknown keys are errors, values are frozen, secrets have names."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from guardmark.core.errors import ConfigError

Rate = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$")]


class Settings(BaseModel):
    """Base of every section: unknown keys are errors, values are frozen."""

    # defer_build: the validators of parts that a configuration does not name are never made.
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


class Secret(Settings):
    """A secret, named by the environment variable that holds it; never written down."""

    env: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")


class PriceSettings(Settings):
    """What a model costs, in the user's currency for a thousand tokens or a call."""

    input_per_1k: float = Field(0.0, ge=0)
    output_per_1k: float = Field(0.0, ge=0)
    per_call: float = Field(0.0, ge=0)


def read_secret(secret: Secret, where: str) -> str:
    """Return the value of the environment variable that a secret names."""
    value = os.environ.get(secret.env, "").strip()
    if not value:
        raise ConfigError(
            f"{where} needs the environment variable {secret.env}, which is not set.\n"
            f"Set it for this shell: export {secret.env}=..."
        )
    return value
