"""What the settings of a part promise, and what they may ask for while the part is built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from guardmark.config.settings import PriceSettings


class ServiceAccess(Protocol):
    """The client of a run, as `net.client.Services` is one; this room may not name its neighbour.

    What its methods return is what the rooms of the parts know from `net`.
    """

    def endpoint(
        self,
        url: str,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        secret_headers: Mapping[str, str] | None = None,
        final_statuses: frozenset[int] = frozenset(),
    ) -> Any:
        """Prepare an address for many requests."""
        ...

    def chat(
        self,
        address: str,
        *,
        model: str,
        options: Mapping[str, Any],
        price: PriceSettings | None,
        secret_headers: Mapping[str, str],
    ) -> Any:
        """Prepare a model behind a server of the common chat protocol."""
        ...

    def embeddings(
        self,
        address: str,
        *,
        model: str,
        options: Mapping[str, Any],
        price: PriceSettings | None,
        secret_headers: Mapping[str, str],
    ) -> Any:
        """Prepare a model behind a server of the common protocol of embeddings."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """What a part may ask for while it is built."""

    folder: Path
    seed: int
    services: ServiceAccess | None
    defenses: Mapping[str, object]
    members: tuple[object, ...] = ()
    prices: Mapping[str, PriceSettings] = field(default_factory=dict)
    system_prompt: str = ""
    where: str = ""


class PartSettings(Protocol):
    """Checked settings that know how to build their part."""

    def build(self, name: str, context: BuildContext) -> object:
        """Build the part; heavy imports happen here."""
        ...
