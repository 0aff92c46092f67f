"""The verbs of `guardmark data`: check, describe, split, deduplicate, convert, hash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from guardmark.app.data.fingerprints import data_sha256
from guardmark.core.errors import ConfigError
from guardmark.core.taxonomy import DEFAULT_TAXONOMY
from guardmark.datasets.builtin import BUILTIN_SETS, builtin_specs
from guardmark.datasets.census import take_census
from guardmark.datasets.checks import check_samples
from guardmark.datasets.duplicates import deduplicate
from guardmark.datasets.sources import load
from guardmark.datasets.splitting import assign_parts
from guardmark.datasets.writing import write_samples, written_format

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from guardmark.app.data.targets import OpenedData
    from guardmark.core.manifest import DataManifest
    from guardmark.datasets.census import Census
    from guardmark.datasets.checks import DataCheck
    from guardmark.datasets.duplicates import Dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class DataHash:
    """The hashes of a data set."""

    name: str
    sha256: str
    manifests: tuple[DataManifest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinEntry:
    """A data set that ships with guardmark, as listed."""

    name: str
    version: str
    purpose: str
    attacks: int
    benign: int
    sha256: str
    card: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file that was written."""

    path: str
    attacks: int
    benign: int
    groups: int
    inert_cells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicated:
    """What deduplication wrote and what it left out."""

    written: Written
    dropped: tuple[Dropped, ...]


def list_builtin() -> tuple[BuiltinEntry, ...]:
    """Return the data sets that ship with guardmark."""
    entries = []
    for builtin in BUILTIN_SETS:
        manifests = load(builtin_specs(builtin.name), DEFAULT_TAXONOMY).manifests
        entries.append(
            BuiltinEntry(
                name=builtin.name,
                version=builtin.version,
                purpose=builtin.purpose,
                attacks=sum(manifest.attacks for manifest in manifests),
                benign=sum(manifest.benign for manifest in manifests),
                sha256=data_sha256(manifests),
                card=str(builtin.card),
            )
        )
    return tuple(entries)


def check_data(opened: OpenedData) -> DataCheck:
    """Ask of a data set what a careful reader would ask."""
    loaded = opened.loaded
    return check_samples(
        list(loaded.samples()),
        opened.criteria,
        manifests=loaded.manifests,
        warnings=loaded.warnings,
    )


def describe_data(opened: OpenedData) -> Census:
    """Count what a data set consists of."""
    return take_census(opened.loaded.samples())


def hash_data(opened: OpenedData) -> DataHash:
    """Return the hashes by which a run's manifest names the data."""
    loaded = opened.loaded
    return DataHash(
        name=loaded.name, sha256=data_sha256(loaded.manifests), manifests=loaded.manifests
    )


def convert_data(opened: OpenedData, out: Path, *, force: bool = False) -> Written:
    """Write data in another format."""
    return _write(opened, frozenset(range(opened.loaded.count)), out, force=force)


def deduplicate_data(
    opened: OpenedData, out: Path, *, within_groups: bool = False, force: bool = False
) -> Deduplicated:
    """Write data without samples that say what an earlier one says."""
    _check_free(out, force=force)
    samples = list(opened.loaded.samples())
    dropped = deduplicate(samples, threshold=opened.criteria.threshold, within_groups=within_groups)
    gone = {each.id for each in dropped}
    kept = frozenset(n for n, sample in enumerate(samples) if sample.id not in gone)
    return Deduplicated(written=_write(opened, kept, out, force=force), dropped=dropped)


def split_data(
    opened: OpenedData,
    shares: Mapping[str, float],
    folder: Path,
    *,
    kind: str = "jsonl",
    seed: int = 0,
    groups_only: bool = False,
    force: bool = False,
) -> tuple[Written, ...]:
    """Part data by group and write one file a part."""
    outs = {name: folder / f"{name}.{kind}" for name in shares}
    for out in outs.values():
        _check_free(out, force=force)
    threshold = None if groups_only else opened.criteria.threshold
    samples = list(opened.loaded.samples())
    parts = assign_parts(samples, shares, seed=seed, threshold=threshold)
    return tuple(
        _write(
            opened,
            frozenset(n for n, part in enumerate(parts) if part == name),
            out,
            force=force,
        )
        for name, out in outs.items()
    )


def _write(opened: OpenedData, positions: frozenset[int], out: Path, *, force: bool) -> Written:
    _check_free(out, force=force)
    samples = [s for n, s in enumerate(opened.loaded.samples()) if n in positions]
    inert = write_samples(samples, out)
    attacks = sum(sample.is_attack for sample in samples)
    return Written(
        path=str(out),
        attacks=attacks,
        benign=len(samples) - attacks,
        groups=len({sample.lineage for sample in samples}),
        inert_cells=inert,
    )


def _check_free(out: Path, *, force: bool) -> None:
    written_format(out)
    if out.exists() and not force:
        raise ConfigError(f"{out} exists already.\nReplace it with --force, or name another file.")
