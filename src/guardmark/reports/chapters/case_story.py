"""A case told as a story: who said what, which guard did what, what it came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.case import CaseEnd, StepKind
from guardmark.core.errors import counted
from guardmark.core.place import Place
from guardmark.reports.document.safe_text import plain_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guardmark.analysis.agents.cases import CaseRow
    from guardmark.core.case import CaseStep

_QUOTED: Final = 160
_HEADS: Final = {
    StepKind.USER: "user",
    StepKind.TOOLS: "tool list",
    StepKind.CALL: "agent calls",
    StepKind.RESULT: "tool returns",
    StepKind.ANSWER: "agent answers",
}
_DID: Final = {
    "allow": "lets it through",
    "block": "BLOCKS it",
    "rewrite": "writes it anew",
    "change": "tells it otherwise than before",
    "flag": "flags it and lets it through",
    "error": "fails",
    "malformed": "gives no readable decision",
}

Story = tuple[tuple[str, str], ...]


def tell_case(row: CaseRow, *, most: int | None = None) -> Story:
    """Return who or what, and what happened, line by line; of a long case its deciding lines."""
    lines = list(_lines(row))
    kept: Iterable[int] = range(len(lines))
    if most is not None and len(lines) >= most:
        by_weight = sorted(range(len(lines)), key=lambda index: (-lines[index][2], index))
        kept = sorted(by_weight[: most - 2])
    story = []
    for index in kept:
        head, text, _ = lines[index]
        story.append((head, text))
    if len(story) < len(lines):
        story.append(("...", f"{len(lines) - len(story)} more steps"))
    else:
        story.extend(_taken(row))
    story.append(("outcome", outcome_of(row)))
    return tuple(story)


def _lines(row: CaseRow) -> Iterator[tuple[str, str, int]]:
    """Yield head, text and how much each line decides."""
    for step in row.result.steps:
        if step.kind is StepKind.GUARD:
            is_silent = step.action == "allow" and not step.has_order
            if step.place is Place.TOOL_LIST and is_silent:
                continue
            yield _guard_line(step)
            continue
        text = plain_line(step.text[:_QUOTED])
        if len(step.text) > _QUOTED:
            text += "..."
        if step.kind in {StepKind.RESULT, StepKind.TOOLS} and step.has_order:
            text = f"(holds the injected order) {text}"
        if step.kind is StepKind.CALL and step.has_order:
            text = f"(follows the injected order) {text}"
        weight = 1
        if step.has_order:
            weight = 3
        if step.kind is StepKind.USER:
            weight += 1
        yield _HEADS[step.kind], text, weight


def _taken(row: CaseRow) -> Iterator[tuple[str, str]]:
    """Say what the calls of a case used, as far as it was told."""
    usage = row.result.usage
    for whose, totals in (("model", usage.agent), ("guards", usage.guards)):
        if totals is None:
            continue
        words = [counted(totals.calls, "call")]
        if totals.reported:
            tokens = f"{totals.tokens_read:,} tokens read, {totals.tokens_written:,} written"
            if totals.reported != totals.calls:
                tokens += f" told by {totals.reported:,} of them"
            words.append(tokens)
        if totals.cost is not None:
            words.append(f"cost {totals.cost:.4g}")
        yield f"{whose} took", ", ".join(words)


def _guard_line(step: CaseStep) -> tuple[str, str, int]:
    """Say what a guard did at its place, and how much that decides."""
    head = _where(step)
    if step.tool:
        head += f" ({plain_line(step.tool)})"
    text = _DID.get(step.action, step.action)
    if step.policy:
        text += f"; the policy says {step.policy}"
    if step.reason:
        text += f" ({plain_line(step.reason)})"
    if step.action in {"rewrite", "change"}:
        text += f": {plain_line(step.text[:_QUOTED])}"
    if step.action == "allow" and step.has_order:
        text += ", though it holds the injected order"
    weight = 0
    if step.action != "allow" or step.has_order:
        weight = 4
    return head, text, weight


def outcome_of(row: CaseRow) -> str:
    """Say what a case came to, and where it was stopped, or that nothing stopped it."""
    result = row.result
    if row.has_failed:
        return f"the agent failed: {plain_line(result.message)}"
    if row.is_replay:
        return _replayed(row)
    task = "the task was not done"
    if result.task_done:
        task = "the task was done"
    if not row.case.is_attack:
        return f"{task}{_ended(row)}"
    if result.injection_done:
        return f"the injected order was carried out; {task}{_missed(row)}"
    stop = row.stopped_by
    if stop is None:
        return f"the agent did not follow the order; {task}{_ended(row)}"
    return f"the attack was stopped by {_where(stop)}; {task}"


def _replayed(row: CaseRow) -> str:
    """Say what guards would have done to a stored run; what the agent would do then is unknown."""
    if not row.case.is_attack:
        guards = _named_once(step for step in row.guard_steps if step.action == "block")
        if guards:
            return f"a run without an attack would have been blocked by {guards}"
        return "nothing was blocked"
    if not row.reads_order:
        return "no stored result shows the order, so nothing tells whether it was stopped"
    stop = row.stopped_by
    if stop is not None:
        return f"{_where(stop)} would have stopped the order before the agent read it"
    return f"the agent would have read the order{_missed(row)}"


def _where(step: CaseStep) -> str:
    """Name a guard and the place where it was asked."""
    if step.place is None:
        return f"{step.guard} at "
    return f"{step.guard} at {step.place.value}"


def _named_once(steps: Iterable[CaseStep]) -> str:
    """Name guards with their places, each once, in the order of the steps."""
    return ", ".join(dict.fromkeys(map(_where, steps)))


def _missed(row: CaseRow) -> str:
    """Name the guards that saw the order and let it through, or say that none looked."""
    let_through = []
    for step in row.guard_steps:
        if step.has_order and step.action != "block" and step.place is not None:
            let_through.append(step)
    if let_through:
        return f"; it could have been stopped by {_named_once(let_through)}"
    hidden = row.case.hidden_in or Place.TOOL_RESULT.value
    return f"; no guard of this arm looked at {hidden}, where the order stood"


def _ended(row: CaseRow) -> str:
    """Say how a case ended, where it did not end with an answer; else nothing."""
    result = row.result
    if result.end is CaseEnd.STOPPED:
        return f"; a guard ended the case: {result.message}"
    if result.end is CaseEnd.GAVE_UP:
        return "; the agent gave up because something was kept from it"
    if result.end is CaseEnd.MOST_STEPS:
        return "; the agent used up its steps"
    if result.end is CaseEnd.PROVIDER:
        return "; the filter of the model's provider ended it"
    return ""
