"""Cases of agents as they are stored: the text of one record each, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from guardmark.core.case import CaseEnd, CaseResult, CaseStep, CaseUsage, StepKind
from guardmark.core.errors import StoreError
from guardmark.core.place import Place
from guardmark.core.usage import UsageTotals

if TYPE_CHECKING:
    from collections.abc import Mapping

_USUAL = CaseStep(kind=StepKind.USER)
_COUNTED = (
    "calls",
    "requests",
    "failed",
    "reported",
    "tokens_read",
    "tokens_written",
    "priced",
    "cost",
    "tokens",
)
_WORDS = ("text", "tool", "guard", "action", "reason", "policy", "digest")


def case_to_json(result: CaseResult) -> str:
    """Write what a case came to; what is usual in a step is left out."""
    steps = [_step_form(step) for step in result.steps]
    form: dict[str, object] = {
        "end": result.end.value,
        "task_done": result.task_done,
        "injection_done": result.injection_done,
        "answer": result.answer,
        "message": result.message,
        "steps": steps,
    }
    usage = {
        whose: _usage_form(totals)
        for whose, totals in (("agent", result.usage.agent), ("guards", result.usage.guards))
        if totals is not None
    }
    if usage:
        form["usage"] = usage
    text = json.dumps(form, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode()


def _usage_form(totals: UsageTotals) -> dict[str, object]:
    values = {name: getattr(totals, name) for name in _COUNTED}
    return {name: value for name, value in values.items() if value}


def _usage_of(form: Mapping[str, Any], whose: str) -> UsageTotals | None:
    stated = form.get("usage", {}).get(whose)
    if stated is None:
        return None
    counts = {name: _count(stated.get(name, 0)) for name in _COUNTED if name != "cost"}
    cost = stated.get("cost", 0.0 if counts["priced"] else None)
    if cost is not None and (isinstance(cost, bool) or not isinstance(cost, int | float)):
        raise TypeError("cost")
    return UsageTotals(cost=cost, **counts)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError("count")
    return value


def _step_form(step: CaseStep) -> dict[str, object]:
    form: dict[str, object] = {"kind": step.kind.value}
    if step.place is not None:
        form["place"] = step.place.value
    if step.latency_ns is not None:
        form["latency_ns"] = step.latency_ns
    for name in (*_WORDS, "has_order", "is_error", "removed_order"):
        value = getattr(step, name)
        if value != getattr(_USUAL, name):
            form[name] = value
    return form


def case_from_json(text: str, *, latency_ns: int | None = None) -> CaseResult:
    """Read a stored case back.

    Raises:
        StoreError: If the text is none that guardmark writes.
    """
    try:
        form: Mapping[str, Any] = json.loads(text)
        return CaseResult(
            end=CaseEnd(form["end"]),
            task_done=_truth(form["task_done"]),
            injection_done=_truth(form["injection_done"]),
            answer=_words(form["answer"]),
            message=_words(form["message"]),
            steps=tuple(_step_of(step) for step in form["steps"]),
            latency_ns=latency_ns,
            usage=CaseUsage(agent=_usage_of(form, "agent"), guards=_usage_of(form, "guards")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"A stored case is not what guardmark writes ({type(error).__name__}).\n"
            "Next: restore the run from a copy, or measure again with --fresh."
        ) from error


def _step_of(form: Mapping[str, Any]) -> CaseStep:
    latency = form.get("latency_ns")
    if latency is not None and not isinstance(latency, int):
        raise TypeError("latency")
    words = {name: _words(form.get(name, "")) for name in _WORDS}
    return CaseStep(
        kind=StepKind(form["kind"]),
        place=Place(form["place"]) if "place" in form else None,
        latency_ns=latency,
        has_order=_truth(form.get("has_order", False)) is True,
        is_error=_truth(form.get("is_error", False)) is True,
        removed_order=_truth(form.get("removed_order", False)) is True,
        **words,
    )


def _words(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("words")
    return value


def _truth(value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise TypeError("truth")
    return value
