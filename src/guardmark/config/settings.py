"""The base of all settings: unknown keys are errors, values are frozen, secrets have names."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Rate = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$")]


class Settings(BaseModel):
    """Base of every section: unknown keys are errors, values are frozen."""

    # defer_build: the validators of parts that a configuration does not name are never made.
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


class Secret(Settings):
    """A secret, named by the environment variable that holds it; never written down."""

    env: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
