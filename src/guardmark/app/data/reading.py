"""From a configuration to validated samples, and to the hash of what is measured."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from guardmark.app.parts.loading import locate_error
from guardmark.core.errors import ConfigError
from guardmark.core.taxonomy import DEFAULT_TAXONOMY, Taxonomy
from guardmark.datasets.loading import DataReading, LoadedData, load
from guardmark.datasets.settings import dataset_specs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.settings import Config
    from guardmark.core.manifest import PartManifest
    from guardmark.datasets.formats.fields import DatasetSpec


def load_data(loaded: LoadedConfig, *, limit: int | None = None) -> LoadedData:
    """Read and validate every data set of a configuration."""
    seed = loaded.config.run.seed
    return load(_specs(loaded), taxonomy_of(loaded.config), limit=limit, seed=seed)


def read_data(loaded: LoadedConfig, *, limit: int | None = None) -> DataReading | LoadedData:
    """Open every data set of a configuration, to be read once and handed on."""
    if limit is not None:
        return load_data(loaded, limit=limit)
    return DataReading(_specs(loaded), taxonomy_of(loaded.config))


def _specs(loaded: LoadedConfig) -> list[DatasetSpec]:
    specs: list[DatasetSpec] = []
    for index, entry in enumerate(loaded.config.data):
        try:
            specs.extend(dataset_specs(entry, loaded.folder))
        except ConfigError as error:
            raise locate_error(error, loaded, ("data", str(index))) from error
    return specs


def taxonomy_of(config: Config) -> Taxonomy:
    """Return the built-in taxonomy with the configuration's own categories."""
    return DEFAULT_TAXONOMY.extended(config.taxonomy.extend)


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
