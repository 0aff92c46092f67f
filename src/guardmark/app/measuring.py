"""What a configuration names, measured: defenses and systems, or agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.app.run.running import run

if TYPE_CHECKING:
    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.run.running import RunOptions, RunResult, Session


def measure(loaded: LoadedConfig, options: RunOptions, session: Session) -> RunResult:
    """Carry out what a configuration names, or continue it."""
    if loaded.config.agent is None:
        return run(loaded, options, session)
    # Most runs are of no agent, and what carries them out is loaded only where one is.
    from guardmark.app.agents.running import run_agent_cases

    return run_agent_cases(loaded, options, session)
