"""Which guards keep a session, since what they see is not what others see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.manifest import PartManifest


def session_text(analysis: RunAnalysis) -> str | None:
    """Say of defenses that were asked about conversations which of them keep a session."""
    names = _names([each.part for each in analysis.defenses])
    if not names:
        return None
    return (
        f"{names} a session: the turns of a conversation were asked about in order, one after the "
        "other, under one id, and each repeat and the message of all turns under its own."
    )


def arm_session_text(analysis: RunAnalysis) -> str | None:
    """Say of guards around a model which of them keep a session."""
    names = _names(part for part in analysis.manifest.parts if part.kind == "defense")
    if not names:
        return None
    return (
        f"{names} a session: what an arm shows of a sample came in order under one id, each sample "
        "and repeat under its own. No other arm shares these calls."
    )


def _names(parts: Iterable[PartManifest]) -> str:
    """Name those that keep a session, with the verb; nothing without any."""
    names = [part.name for part in parts if _inserts_session(part.settings)]
    if not names:
        return ""
    if len(names) == 1:
        return f"{names[0]} keeps"
    return f"{', '.join(names)} keep"


def _inserts_session(value: object) -> bool:
    """Tell whether a body, or the settings around it, inserts the id of a session."""
    if isinstance(value, Mapping):
        return value.get("$input") == "session" or any(map(_inserts_session, value.values()))
    return isinstance(value, list | tuple) and any(map(_inserts_session, value))
