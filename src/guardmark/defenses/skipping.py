"""The answer for a prompt that has nothing to show to a defense's view."""

from __future__ import annotations

from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome
from guardmark.core.sample import View

NOTHING_SHOWN = {
    view: Decision(
        outcome=Outcome.ERROR,
        error_kind=ErrorKind.SKIPPED,
        evidence=Evidence(message=f"the sample has nothing for the view {view.value!r}"),
    )
    for view in View
}
"""View to the shared decision for prompts it cannot show: an error, never an allow."""
