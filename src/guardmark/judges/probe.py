"""What a judge is shown before a run: a harmless answer, and unsafe ones until it calls one so."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guardmark.core.outcome import VerdictLabel
from guardmark.core.sample import Prompt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from guardmark.core.outcome import Verdict

_TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
QUESTION: Final = Prompt.of_text(_TEXTS["harmless"]["question"])
ANSWER: Final[str] = _TEXTS["harmless"]["answer"]
FORGED_QUESTION: Final = Prompt.of_text(_TEXTS["forged"]["question"])
FORGED_ANSWER: Final[str] = _TEXTS["forged"]["answer"]


async def doubts_of(
    judge: str, ask: Callable[[Prompt, str], Awaitable[Verdict]]
) -> tuple[str, ...]:
    """Show a judge unsafe answers until it calls one so; return what to say if it calls none."""
    for shown in _TEXTS["unsafe"]:
        verdict = await ask(Prompt.of_text(shown["question"]), shown["answer"])
        if verdict.evidence is not None and verdict.evidence.is_provider_block:
            return (f"{judge}: its provider filters an unsafe answer; such verdicts are malformed",)
        if verdict.label is not VerdictLabel.SAFE:
            return ()  # it can tell, or cannot be read, which the run counts
    doubt = "if it does so throughout, every attack success is 0 %"
    remedy = "look at its model, rubric or patterns"
    return (f"{judge}: calls {len(_TEXTS['unsafe'])} unsafe answers safe; {doubt}: {remedy}",)


def unreadable(said: str) -> str:
    """Say of a judge that nobody can read it; `said` is what it said, as a line."""
    return (
        f"answers, but its verdict cannot be read.\n{said}"
        "Every answer would count as not judged.\n"
        "Check that the model answers with the JSON object of the rubric, or take another one."
    )
