"""One run as a list of runs shows it: state, data, rates of its defenses."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guardmark.core.errors import GuardmarkError
from guardmark.core.estimate import Estimate
from guardmark.store.records import RecordReader
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.core.manifest import RunManifest

_BASELINES = frozenset({"allow-all", "block-all", "coin"})
_MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRates:
    """What a run found out about one defense."""

    name: str
    type: str = ""
    version: str = ""
    fingerprint: str = ""
    is_baseline: bool = False
    attack_success_rate: Estimate | None = None
    false_positive_rate: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """One run of the list."""

    key: str
    folder: Path
    place: str
    state: str
    name: str = ""
    created_utc: str = ""
    planned: int = 0
    stored: int = 0
    attacks: int = 0
    benign: int = 0
    data: tuple[str, ...] = ()
    data_sha256: str = ""
    defenses: tuple[ListedRates, ...] = ()
    fault: str = ""

    @property
    def candidates(self) -> tuple[ListedRates, ...]:
        """The defenses under test; the baselines when there are no others."""
        return tuple(each for each in self.defenses if not each.is_baseline) or self.defenses


def read_entry(key: str, folder: Path, place: str) -> RunEntry:
    """Read what a list shows of one run."""
    run = RunDir(path=folder)
    try:
        with RecordReader(run.records) as reader:
            status, manifest = reader.status(), reader.manifest()
            arms = reader.defenses()
    except GuardmarkError as error:
        return RunEntry(key=key, folder=folder, place=place, state="damaged", fault=str(error))
    return RunEntry(
        key=key,
        folder=folder,
        place=place,
        state=status.state.value,
        name=manifest.name,
        created_utc=manifest.created_utc,
        planned=status.planned,
        stored=status.stored,
        attacks=sum(data.attacks for data in manifest.data),
        benign=sum(data.benign for data in manifest.data),
        data=tuple(data.name for data in manifest.data),
        data_sha256=manifest.data_sha256,
        defenses=_told(run.summary_json, manifest, status.stored) or _named(manifest, arms),
    )


def _named(manifest: RunManifest, arms: tuple[str, ...]) -> tuple[ListedRates, ...]:
    """Return the defenses without rates, as the manifest and the records name them."""
    parts = {part.name: part for part in manifest.parts if part.kind == "defense"}
    found = []
    for name in dict.fromkeys((*parts, *arms)):
        part = parts.get(name)
        found.append(
            ListedRates(name=name)
            if part is None
            else ListedRates(
                name=name,
                type=part.type,
                version=part.version,
                fingerprint=part.fingerprint,
                is_baseline=part.type in _BASELINES,
            )
        )
    return tuple(found)


def _told(path: Path, manifest: RunManifest, stored: int) -> tuple[ListedRates, ...]:
    """Read rates from the summary, if it is of this run as it stands now."""
    try:
        if path.is_symlink() or path.stat().st_size > _MOST_BYTES:
            return ()
        summary = json.loads(path.read_bytes())
        run = summary["run"]
        if run["config_sha256"] != manifest.config_sha256 or run["stored"] != stored:
            return ()
        return tuple(_rates(each) for each in summary["defenses"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ()


def _rates(said: Any) -> ListedRates:
    return ListedRates(
        name=str(said["name"]),
        type=str(said["type"]),
        version=str(said["version"]),
        fingerprint=str(said["fingerprint"]),
        is_baseline=said["is_baseline"] is True,
        attack_success_rate=_estimate(said["rates"]["attack_success_rate"]),
        false_positive_rate=_estimate(said["rates"]["false_positive_rate"]),
    )


def _estimate(said: Any) -> Estimate:
    return Estimate(
        successes=int(said["successes"]),
        trials=int(said["trials"]),
        low=_share(said["low"]),
        high=_share(said["high"]),
        confidence=float(said["confidence"]),
        method=str(said["method"]),
        group_mean=_share(said["group_mean"]),
        few_groups=said["few_groups"] is True,
        reason=str(said["reason"]),
    )


def _share(said: Any) -> float | None:
    if said is None:
        return None
    value = float(said)
    if not math.isfinite(value) or not 0 <= value <= 1:
        raise ValueError(f"{value} is no share")
    return value
