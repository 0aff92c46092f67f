"""What makes two runs the same run: hashes of configuration and data."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.app.settings import Config
    from guardmark.core.manifest import DataManifest, PartManifest

_NO_FIGURE_DEPENDS_ON = {"report", "gate", "services", "prices", "adaptive"}
"""Sections that change how a run is done or told, never what it observes."""


def resolved(config: Config) -> dict[str, Any]:
    """Return a configuration as JSON values, every default filled in."""
    return config.model_dump(mode="json", exclude_none=False)


def config_sha256(
    config: Config, parts: Sequence[PartManifest], *, only: Sequence[str], limit: int | None
) -> str:
    """Hash what is measured and how."""
    document = resolved(config)
    for section in _NO_FIGURE_DEPENDS_ON:
        document.pop(section, None)
    for budget in ("max_errors", "max_calls", "max_tokens", "max_cost", "max_time_s"):
        document["run"].pop(budget)
    document["parts"] = {part.name: part.fingerprint for part in parts}
    document["only"] = sorted(only)
    document["limit"] = limit
    text = json.dumps(document, sort_keys=True, ensure_ascii=False)
    return sha256(text.encode()).hexdigest()


def data_sha256(manifests: Sequence[DataManifest]) -> str:
    """Hash all data sets of a run, in order."""
    joined = "\n".join(f"{m.name} {m.version} {m.sha256}" for m in manifests)
    return sha256(joined.encode()).hexdigest()
