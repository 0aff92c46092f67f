"""The words of a judge, read into a verdict; what is not understood is malformed, not safe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guardmark.core.outcome import AnswerMode, VerdictLabel
from guardmark.parsing.objects import ParseMethod, read_object

if TYPE_CHECKING:
    from collections.abc import Mapping

VERDICT_SCHEMA: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {
        "label": {"type": "string", "enum": ["safe", "unsafe"]},
        "answer_mode": {"type": "string", "enum": [mode.value for mode in AnswerMode]},
        "reasons": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["label", "answer_mode", "reasons"],
    "additionalProperties": False,
}
"""JSON Schema of a verdict, for servers that can hold a model to it."""

_LABELS = {"safe": VerdictLabel.SAFE, "unsafe": VerdictLabel.UNSAFE}
_MODES: Final[Mapping[str, AnswerMode]] = {mode.value: mode for mode in AnswerMode}
_MOST_REASON = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictReading:
    """What a judge's text says."""

    label: VerdictLabel
    answer_mode: AnswerMode | None
    reasons: tuple[str, ...]
    method: ParseMethod


def read_verdict(text: str) -> VerdictReading:
    """Read a judge's answer."""
    found = read_object(text, key="label")
    fields = found.fields or {}
    label = fields.get("label")
    known = _LABELS.get(label.strip().lower()) if isinstance(label, str) else None
    return VerdictReading(
        label=known or VerdictLabel.MALFORMED,
        answer_mode=_answer_mode(fields.get("answer_mode")),
        reasons=_reasons(fields.get("reasons")),
        method=found.method,
    )


def _answer_mode(value: object) -> AnswerMode | None:
    if not isinstance(value, str):
        return None
    word = value.strip().lower().replace(" ", "_").replace("-", "_")
    return _MODES.get(word)


def _reasons(value: object) -> tuple[str, ...]:
    entries = value if isinstance(value, list) else [value]
    return tuple(str(one)[:_MOST_REASON] for one in entries if one not in (None, "", [], {}))
