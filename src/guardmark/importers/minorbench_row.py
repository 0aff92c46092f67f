"""One row of minor_bench's results: what guard, model and judge said, generation by generation."""

from __future__ import annotations

from typing import Any, Final

from guardmark.core.outcome import (
    AnswerMode,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    Response,
    Usage,
    Verdict,
    VerdictLabel,
)
from guardmark.importers.imported import ImportedAnswer
from guardmark.importers.reading import Object
from guardmark.importers.reading import word as text_of

_STATUS: Final = {
    "allow": Outcome.ALLOW,
    "block": Outcome.BLOCK,
    "malformed": Outcome.MALFORMED,
    "runtime_error": Outcome.ERROR,
}
_GUARD_FAILED: Final = frozenset({"guardrail_init_error", "guardrail_inference_error"})
_NOT_ASKED: Final = frozenset({"guardrail_blocked", "guardrail_malformed_error", *_GUARD_FAILED})
_LABELS: Final = {"safe": VerdictLabel.SAFE, "unsafe": VerdictLabel.UNSAFE}
_LABEL_FIELDS: Final = (
    "response_safety_labels",
    "judge_labels",
    "judge_classifications",
    "all_classifications",
)
_MODE_FIELDS: Final = ("answer_modes", "judge_answer_modes", "answer_mode")
_MODES: Final = {mode.value: mode for mode in AnswerMode}


def read_answers(row: Object) -> tuple[ImportedAnswer, ...]:
    """Read every generation of a row."""
    generations = [each for each in _list(row, "generations") if isinstance(each, dict)]
    return tuple(_answer(row, generation, repeat) for repeat, generation in enumerate(generations))


def _answer(row: Object, generation: Object, repeat: int) -> ImportedAnswer:
    raw = _dict(generation, "raw")
    finish = text_of(raw, "finish_reason")
    decision = _decision(row, raw, repeat) if text_of(row, "guardrail_model") else None
    outcome = None if decision is None else decision.outcome
    is_unread = outcome in {Outcome.MALFORMED, Outcome.ERROR}
    if outcome is Outcome.BLOCK or finish in _NOT_ASKED or (is_unread and not finish):
        return ImportedAnswer(repeat=repeat, decision=decision)
    response = _response(generation, raw, finish)
    verdict = None if response.text is None else _verdict(row, repeat)
    return ImportedAnswer(repeat=repeat, decision=decision, response=response, verdict=verdict)


def _decision(row: Object, raw: Object, repeat: int) -> Decision:
    listed = _list(row, "guardrail_decisions")
    mine = next(
        (each for each in listed if isinstance(each, dict) and each.get("index") == repeat), {}
    )
    status = text_of(raw, "guardrail_decision_status") or text_of(mine, "status")
    finish = text_of(raw, "finish_reason")
    evidence = Evidence(
        reason=text_of(raw, "guardrail_reason"), raw=text_of(raw, "guardrail_decision_raw")
    )
    outcome = Outcome.ERROR if finish in _GUARD_FAILED else _STATUS.get(status)
    if outcome is None:
        missing = Evidence(message=f"the file says {status[:40]!r}")
        return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.CONTRACT, evidence=missing)
    kind = ErrorKind.CRASH if outcome is Outcome.ERROR else None
    has_words = evidence.reason or evidence.raw
    return Decision(outcome=outcome, error_kind=kind, evidence=evidence if has_words else None)


def _response(generation: Object, raw: Object, finish: str) -> Response:
    evidence = Evidence(finish_reason=finish, usage=_usage(raw), message=text_of(raw, "error"))
    if finish == "error" or raw.get("error") or not isinstance(generation.get("text"), str):
        # That tool judges the printed error, or an empty text: here it is no answer at all.
        return Response(text=None, error_kind=ErrorKind.CRASH, evidence=evidence)
    return Response(text=text_of(generation, "text"), evidence=evidence)


def _usage(raw: Object) -> Usage | None:
    usage = _dict(raw, "usage")
    read, written, cost = (
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        raw.get("cost_usd"),
    )
    if read is None and written is None and cost is None:
        return None
    return Usage(
        prompt_tokens=read if isinstance(read, int) else None,
        completion_tokens=written if isinstance(written, int) else None,
        cost=float(cost) if isinstance(cost, int | float) else None,
    )


def _verdict(row: Object, repeat: int) -> Verdict | None:
    word = next((said for field in _LABEL_FIELDS if (said := _said(row, field, repeat))), "")
    if not word:
        return None
    mode = next((said for field in _MODE_FIELDS if (said := _said(row, field, repeat))), "")
    reasons = _at(row, "judge_failure_reasons", repeat) or _at(row, "failure_reasons", repeat)
    raw = _at(row, "judge_raw_outputs", repeat)
    method = _at(row, "judge_parse_method", repeat)
    return Verdict(
        label=_LABELS.get(word, VerdictLabel.MALFORMED),
        answer_mode=_MODES.get(mode),
        evidence=Evidence(
            reason="; ".join(map(str, reasons))
            if isinstance(reasons, list)
            else str(reasons or ""),
            raw=str(raw or ""),
            parse_method=str(method or ""),
        ),
    )


def _said(row: Object, field: str, repeat: int) -> str:
    """A word of a list by generation; older rows hold objects with a label."""
    found = _at(row, field, repeat)
    if isinstance(found, dict):
        found = found.get("label")
    return found.strip().lower() if isinstance(found, str) else ""


def _at(row: Object, field: str, repeat: int) -> Any:
    found = row.get(field)
    if not isinstance(found, list):
        return found if repeat == 0 else None
    return found[repeat] if repeat < len(found) else None


def _list(row: Object, field: str) -> list[Any]:
    found = row.get(field)
    return found if isinstance(found, list) else []


def _dict(row: Object, field: str) -> Object:
    found = row.get(field)
    return found if isinstance(found, dict) else {}
