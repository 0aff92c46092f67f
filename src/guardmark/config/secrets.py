"""Reading secrets from the environment, by name, at the moment they are needed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from guardmark.config.settings import Secret


def read_secret(secret: Secret, where: str) -> str:
    """Return the value of the environment variable that a secret names."""
    value = os.environ.get(secret.env, "").strip()
    if not value:
        raise ConfigError(
            f"{where} needs the environment variable {secret.env}, which is not set.\n"
            f"Set it for this shell: export {secret.env}=..."
        )
    return value
