"""What a person names on the command line of `guardmark data`, read and validated."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from guardmark.app.data.reading import dataset_specs, load_data, taxonomy_of
from guardmark.core.errors import ConfigError, did_you_mean, listed
from guardmark.core.taxonomy import DEFAULT_TAXONOMY, Taxonomy
from guardmark.datasets.builtin import builtin_specs
from guardmark.datasets.checks import Criteria
from guardmark.datasets.fields import SAMPLE_FIELDS
from guardmark.datasets.mix import read_mix
from guardmark.datasets.near_duplicates import THRESHOLD
from guardmark.datasets.sources import LoadedData, load
from guardmark.stats.planning import wilson_half_width

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.core.sample import Label
    from guardmark.datasets.spec import DatasetSpec

_BUILTIN = "builtin:"
_CONFIG_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """How files named on the command line are read; a configuration says so itself."""

    format: str = ""
    label: Label | None = None
    label_field: str = ""
    version: str = ""
    map: Mapping[str, str] = field(default_factory=dict)
    filter: Mapping[str, Sequence[object]] = field(default_factory=dict)
    open_categories: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedData:
    """Validated data and what it is held against."""

    shown_as: str
    loaded: LoadedData
    criteria: Criteria


def open_data(
    targets: Sequence[str], options: FileOptions, *, threshold: float = THRESHOLD
) -> OpenedData:
    """Read and validate what a person named."""
    configs = [target for target in targets if target.lower().endswith(_CONFIG_SUFFIXES)]
    if configs and len(targets) > 1:
        raise ConfigError("Name either one configuration or data files, not both.")
    shown_as = ", ".join(targets)
    _check_options(targets, options)
    if configs:
        return _from_config(Path(configs[0]), threshold)
    specs = [spec for target in targets for spec in _specs(target, options)]
    loaded = load(specs, DEFAULT_TAXONOMY)
    criteria = _criteria(loaded.taxonomy, threshold=threshold)
    return OpenedData(shown_as=shown_as, loaded=loaded, criteria=criteria)


def _check_options(targets: Sequence[str], options: FileOptions) -> None:
    """Refuse options that would be passed over in silence."""
    fixed = [t for t in targets if t.startswith(_BUILTIN) or t.lower().endswith(_CONFIG_SUFFIXES)]
    if fixed and options != FileOptions():
        raise ConfigError(
            f"{fixed[0]} says itself how its rows are read; the options for files do not apply.\n"
            "Leave out --format, --label, --label-field, --map, --filter, --set-version and "
            "--open-categories."
        )


def _specs(target: str, options: FileOptions) -> tuple[DatasetSpec, ...]:
    if target.startswith(_BUILTIN):
        return builtin_specs(target.removeprefix(_BUILTIN))
    for name in options.map:
        if name not in SAMPLE_FIELDS:
            hint = did_you_mean(name, SAMPLE_FIELDS)
            raise ConfigError(
                f"--map: a sample has no field {name!r}.{hint} Known: {listed(SAMPLE_FIELDS)}."
            )
    from guardmark.app.settings import DataSettings

    entry = DataSettings.model_validate(
        {
            "path": target,
            "format": options.format or None,
            "label": options.label,
            "label_field": options.label_field or None,
            "version": options.version,
            "map": dict(options.map),
            "filter": {path: list(values) for path, values in options.filter.items()},
            "open_categories": options.open_categories,
        }
    )
    return dataset_specs(entry, Path())


def _from_config(path: Path, threshold: float) -> OpenedData:
    from guardmark.app.parts.loading import load_config

    config = load_config(path)
    stats = config.config.stats
    criteria = _criteria(
        taxonomy_of(config.config),
        threshold=threshold,
        confidence=stats.confidence,
        min_per_category=stats.min_per_category,
        deployment=stats.deployment_mix,
    )
    loaded = load_data(config)
    criteria = replace(criteria, taxonomy=loaded.taxonomy)
    return OpenedData(shown_as=str(path), loaded=loaded, criteria=criteria)


def _criteria(
    taxonomy: Taxonomy,
    *,
    threshold: float,
    confidence: float = 0.95,
    min_per_category: int = 100,
    deployment: Mapping[str, Mapping[str, float]] | None = None,
) -> Criteria:
    if not 0 < threshold <= 1:
        raise ConfigError(f"The threshold must be above 0 and at most 1, got {threshold:g}.")
    return Criteria(
        taxonomy=taxonomy,
        half_width=partial(wilson_half_width, 0.5, confidence=confidence),
        confidence=confidence,
        min_per_category=min_per_category,
        threshold=threshold,
        mix=read_mix(deployment or {}),
    )
