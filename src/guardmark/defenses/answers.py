"""What a function or a process of the user answered, read as a decision; never a guess."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator

from guardmark.core.outcome import ALLOWED, BLOCKED, Decision, Evidence, Outcome, ScoreKind
from guardmark.net.redaction import KNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

_BLOCKS, _ALLOWS, _WORD, _SCORE, _REASON = range(5)
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_MEANINGS: Final = {
    name: meaning for meaning, names in enumerate(_TABLES["fields"].values()) for name in names
}
_OUTCOMES: Final = {
    word: Outcome(outcome) for outcome, words in _TABLES["outcomes"].items() for word in words
}
_MOST_REASON: Final = 2_000


class _NotUnderstood(Exception):
    """An answer came, and it does not say what was decided."""


def _a_range(value: tuple[float, float]) -> tuple[float, float]:
    if not float("-inf") < value[0] != value[1] < float("inf"):
        raise ValueError("needs two different numbers: no risk, greatest risk")
    return value


ScoreRange = Annotated[tuple[float, float], AfterValidator(_a_range)]
"""The score of no risk and that of the greatest risk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReader:
    """Reads answers: true and false, a score, an object with fields of the usual names.

    What decides is a field that says blocked or allowed, or else the score against the
    threshold. Fields that contradict each other are malformed.
    """

    threshold: float | None = None
    score_range: tuple[float, float] = (0.0, 1.0)
    subject: str = "the function returned"

    def read(self, answer: object) -> Decision:
        """Read one answer."""
        if isinstance(answer, Decision):
            return answer
        if not isinstance(answer, bool | int | float | dict) and hasattr(answer, "item"):
            answer = _unwrapped(answer)
        if isinstance(answer, bool):
            return BLOCKED if answer else ALLOWED
        try:
            if isinstance(answer, int | float):
                return self._decision(None, self._risk(answer))
            return self._of_fields(answer if isinstance(answer, dict) else _fields_of(answer))
        except _NotUnderstood as error:
            return self._malformed(str(error))
        finally:
            if inspect.iscoroutine(answer):
                answer.close()  # or Python would warn, far from here, that it was never awaited

    def _of_fields(self, fields: Mapping[str, Any]) -> Decision:
        stated: dict[str, Outcome] = {}
        scores: dict[str, float] = {}
        reason = ""
        for name, value in fields.items():
            meaning = _MEANINGS.get(name)
            if meaning is None or value is None:
                continue
            if meaning is _SCORE and _is_number(value):
                scores[name] = value
            elif meaning is _REASON:
                reason = reason or str(value)[:_MOST_REASON]
            elif (outcome := _outcome(name, meaning, value)) is not None:
                stated[name] = outcome
        if len(stated) > 1 and len(set(stated.values())) > 1:
            raise _NotUnderstood(f"fields that contradict each other: {' and '.join(stated)}")
        if len(scores) > 1 and len(set(scores.values())) > 1:
            raise _NotUnderstood(f"several scores: {' and '.join(scores)}")
        risk = self._risk(next(iter(scores.values()))) if scores else None
        decided = next(iter(stated.values())) if stated else None
        return self._decision(decided, risk, reason)

    def _risk(self, score: float) -> float:
        lowest, highest = self.score_range
        risk = (score - lowest) / (highest - lowest)
        if 0 <= risk <= 1:  # not true of not-a-number
            return risk
        if self.score_range == (0.0, 1.0):
            raise _NotUnderstood(
                f"{score!r}; a risk lies in [0, 1] (score_range: [0, 100] for another range)"
            )
        raise _NotUnderstood(f"{score!r}, which is not in score_range {lowest:g} to {highest:g}")

    def _decision(self, outcome: Outcome | None, risk: float | None, reason: str = "") -> Decision:
        if outcome is None:
            if risk is None:
                raise _NotUnderstood("")
            if self.threshold is None:
                raise _NotUnderstood(f"the risk {risk!r}, but no threshold is set")
            outcome = Outcome.BLOCK if risk >= self.threshold else Outcome.ALLOW
        if risk is None and not reason:
            return BLOCKED if outcome is Outcome.BLOCK else ALLOWED
        return Decision(
            outcome=outcome,
            score=risk,
            score_kind=ScoreKind.NONE if risk is None else ScoreKind.SELF_REPORTED,
            evidence=Evidence(reason=KNOWN.text(reason)) if reason else None,
        )

    def _malformed(self, message: str) -> Decision:
        if not message:
            message = (
                "nothing that can be read; expected True (block), False (allow), a risk in "
                "[0, 1], a Decision, or fields such as blocked, flagged, is_safe, score"
            )
        words = KNOWN.text(f"{self.subject} {message}")
        return Decision(outcome=Outcome.MALFORMED, evidence=Evidence(message=words))


def _fields_of(answer: object) -> Mapping[str, Any]:
    """Return the fields of an answer."""
    if isinstance(answer, Mapping):
        return answer
    if isinstance(answer, tuple | list) and not hasattr(answer, "_fields"):
        return _of_pair(answer)
    if isinstance(answer, type | str | bytes | list) or callable(answer):
        raise _NotUnderstood(f"{type(answer).__name__}; expected True (block) or False (allow)")
    fields = {name: getattr(answer, name) for name in _MEANINGS if hasattr(answer, name)}
    if not fields:
        raise _NotUnderstood(
            f"{type(answer).__name__}; expected True (block), False (allow), a risk in [0, 1], "
            "a Decision, or fields such as blocked, flagged, is_safe, score"
        )
    return fields


def _of_pair(answer: Sequence[object]) -> Mapping[str, Any]:
    """Read `(blocked, score)` and `(blocked, reason)`; longer ones differ from tool to tool."""
    if len(answer) == 2 and isinstance(answer[0], bool):
        if _is_number(answer[1]):
            return {"blocked": answer[0], "score": answer[1]}
        if isinstance(answer[1], str):
            return {"blocked": answer[0], "reason": answer[1]}
    raise _NotUnderstood(
        f"{type(answer).__name__} of {len(answer)}; of these only (blocked, score) and "
        "(blocked, reason) are read"
    )


def _outcome(name: str, meaning: int, value: object) -> Outcome | None:
    """Return what a field says was decided, or None where it says nothing of that."""
    if meaning is _WORD:
        outcome = _OUTCOMES.get(value.strip().casefold()) if isinstance(value, str) else None
        if outcome is None:
            raise _NotUnderstood(f"{name} {value!r:.60}; expected block or allow")
        return outcome
    if meaning is _SCORE or not isinstance(value, bool):
        return None
    return Outcome.BLOCK if value is (meaning is _BLOCKS) else Outcome.ALLOW


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unwrapped(answer: Any) -> object:
    try:
        return answer.item()  # a NumPy scalar, or an array of one
    except (TypeError, ValueError):
        return answer


USUAL_READER: Final = AnswerReader()  # reads answers where nothing is set
