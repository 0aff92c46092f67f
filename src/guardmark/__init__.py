"""Measure whether an AI defense works, and how sure you can be of it.

The names below are the public door; nothing else is promised. They are loaded on use, so
that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from guardmark.core.version import VERSION

if TYPE_CHECKING:
    from guardmark.analysis.compare.comparison import RunComparison as Comparison
    from guardmark.analysis.defense.scorecard import Scorecard
    from guardmark.app.loaded_run import load_run
    from guardmark.app.verbs import (
        adapt,
        check,
        compare,
        export,
        gate,
        import_run,
        judge,
        load_dataset,
        plan,
        report,
        run,
    )
    from guardmark.core.errors import GuardmarkError
    from guardmark.core.estimate import Estimate
    from guardmark.core.outcome import Decision, Outcome, Verdict
    from guardmark.core.protocols import Attack, ChatModel, Defense, Judge
    from guardmark.core.record import Record
    from guardmark.core.sample import Sample, View

__all__ = [
    "Attack",
    "ChatModel",
    "Comparison",
    "Decision",
    "Defense",
    "Estimate",
    "GuardmarkError",
    "Judge",
    "Outcome",
    "Record",
    "Sample",
    "Scorecard",
    "Verdict",
    "View",
    "adapt",
    "check",
    "compare",
    "export",
    "gate",
    "import_run",
    "judge",
    "load_dataset",
    "load_run",
    "plan",
    "report",
    "run",
]

__version__ = VERSION

_HOMES = {
    "Attack": "guardmark.core.protocols:Attack",
    "ChatModel": "guardmark.core.protocols:ChatModel",
    "Comparison": "guardmark.analysis.compare.comparison:RunComparison",
    "Decision": "guardmark.core.outcome:Decision",
    "Defense": "guardmark.core.protocols:Defense",
    "Estimate": "guardmark.core.estimate:Estimate",
    "GuardmarkError": "guardmark.core.errors:GuardmarkError",
    "Judge": "guardmark.core.protocols:Judge",
    "Outcome": "guardmark.core.outcome:Outcome",
    "Record": "guardmark.core.record:Record",
    "Sample": "guardmark.core.sample:Sample",
    "Scorecard": "guardmark.analysis.defense.scorecard:Scorecard",
    "Verdict": "guardmark.core.outcome:Verdict",
    "View": "guardmark.core.sample:View",
    "adapt": "guardmark.app.verbs:adapt",
    "check": "guardmark.app.verbs:check",
    "compare": "guardmark.app.verbs:compare",
    "export": "guardmark.app.verbs:export",
    "gate": "guardmark.app.verbs:gate",
    "import_run": "guardmark.app.verbs:import_run",
    "judge": "guardmark.app.verbs:judge",
    "load_dataset": "guardmark.app.verbs:load_dataset",
    "load_run": "guardmark.app.loaded_run:load_run",
    "plan": "guardmark.app.verbs:plan",
    "report": "guardmark.app.verbs:report",
    "run": "guardmark.app.verbs:run",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'guardmark' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """List the public names."""
    return [*__all__, "__version__"]
