"""The one client of a run, made only when a part needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.core.protocols import Closable
from guardmark.engine.plan import ADDRESS_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pydantic import BaseModel

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.net.client import Services


def service_address(settings: BaseModel) -> str:
    """Return the address a part calls, or the empty string for a part in this process."""
    for field in ADDRESS_SETTINGS:
        value = getattr(settings, field, None)
        if value:
            # What a preset stands for, where the settings know it.
            return str(getattr(settings, "address", value))
    return ""


def is_below(address: str, base: str) -> bool:
    """Tell whether an address belongs to a service: `/v1/check` does to `/v1`, `/v10` not."""
    stem = base.rstrip("/")
    return address == stem or address.startswith((f"{stem}/", f"{stem}?"))


def open_services(
    loaded: LoadedConfig,
    *,
    offline: bool = False,
    record: Path | None = None,
    replay: Path | None = None,
) -> Services | None:
    """Make the client of a run."""
    if not any(service_address(settings) for settings in loaded.parts.values()):
        if replay is not None:
            # No part will ask for it: a mistyped name is a mistake all the same.
            from guardmark.net.cassette import CassettePlayer
            from guardmark.net.redaction import Redactor

            CassettePlayer(replay, Redactor())
        return None
    from guardmark.net.client import Services
    from guardmark.net.redaction import KNOWN
    from guardmark.net.service import ServiceLimits
    from guardmark.store.run_dir import try_lock

    usual = loaded.config.run.concurrency
    limits = {
        base: ServiceLimits(
            **dict(service)
            | {
                "concurrency": service.concurrency or usual,
                "ca_file": str(loaded.folder / service.ca_file) if service.ca_file else None,
            }
        )
        for base, service in loaded.config.services.items()
    }
    return Services(
        limits,
        default=ServiceLimits(concurrency=usual),
        offline=offline,
        record=record,
        record_lock=try_lock,
        replay=replay,
        redactor=KNOWN,
    )


async def close_parts(parts: Iterable[object], services: Services | None) -> None:
    """Give back what parts and the client hold."""
    for part in parts:
        if isinstance(part, Closable):
            await part.close()
    if services is not None:
        await services.close()


def concurrency_of(loaded: LoadedConfig) -> Mapping[str, int]:
    """Return how many calls each part may have in flight, where its settings or a service say."""
    # What helps an attacker is no part of a run.
    parts = [(path, settings) for path, settings in loaded.parts.items() if path[0] != "adaptive"]
    own = {
        _name_at(loaded, path): processes
        for path, settings in parts
        if (processes := getattr(settings, "processes", None))
    }
    return own | {
        _name_at(loaded, path): service.concurrency
        for path, settings in parts
        for base, service in loaded.config.services.items()
        if service.concurrency and is_below(service_address(settings), base)
    }


def _name_at(loaded: LoadedConfig, path: tuple[str, ...]) -> str:
    """The name of the part whose settings stand at a path."""
    if path[0] == "pipeline" and path[1] == "judges" and loaded.config.pipeline is not None:
        return judge_name(loaded.config.pipeline.judges, int(path[2]))
    return path[-1]


def judge_name(judges: Sequence[Mapping[str, object]], index: int) -> str:
    """Return the name of a judge: the one it is given, or its number."""
    return str(judges[index].get("name") or f"judge-{index + 1}")
