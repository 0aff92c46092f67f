"""One look at every part that calls a service, before anything is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.app.network import has_address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from guardmark.app.parts import Parts


async def probe_parts(parts: Parts) -> tuple[str, ...]:
    """Ask each defense behind a service about one known attack and one benign input.

    Args:
        parts: The parts of the run.

    Returns:
        What deserves a word: equal answers, a constant score. Weak defenses are legitimate
        subjects, so this is no error.

    Raises:
        ServiceError: If a service cannot be reached or refuses us, within 10 s.
        UntrustworthyRun: If a service answers both so that nobody can read it.
    """
    return tuple([warning async for warning in _warnings(parts)])


async def _warnings(parts: Parts) -> AsyncIterator[str]:
    for built in parts.defenses:
        if has_address(built.manifest):
            from guardmark.defenses.probe import probe_defense

            report = await probe_defense(built.part)
            for warning in report.warnings:
                yield f"{built.manifest.name}: {warning}"
