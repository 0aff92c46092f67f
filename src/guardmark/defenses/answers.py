"""What a function or a process of the user answered, read as a decision; never a guess."""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator

from guardmark.core.outcome import ALLOWED, BLOCKED, Decision, Evidence, Outcome, ScoreKind
from guardmark.core.values import dataclass
from guardmark.net.redaction import KNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

_BLOCKS, _ALLOWS, _WORD, _SCORE, _REASON, _CONFIDENCE, _REWRITTEN = range(7)
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _read_meanings() -> dict[str, int]:
    """Return what a field of each known name says, as a number of the line above."""
    meanings = {}
    for meaning, names in enumerate(_TABLES["fields"].values()):
        meanings.update(dict.fromkeys(names, meaning))
    return meanings


def _read_outcomes() -> dict[str, Outcome]:
    """Return the outcome that each known word stands for."""
    outcomes = {}
    for outcome, words in _TABLES["outcomes"].items():
        outcomes.update(dict.fromkeys(words, Outcome(outcome)))
    return outcomes


_MEANINGS: Final = _read_meanings()
_OUTCOMES: Final = _read_outcomes()
_MOST_REASON: Final = 2_000
_MOST_LABELS: Final = 100  # characters
_MOST_OTHER: Final = 2_000
"""Characters of the fields that are kept without being read."""
_PLAIN: Final = (str, int, float, bool, type(None), Mapping, list, tuple)
"""Kinds of values of an object that are kept as what it said beside its decision."""


class _NotUnderstood(Exception):
    """An answer came, and it does not say what was decided."""


def _a_range(value: tuple[float, float]) -> tuple[float, float]:
    """Refuse two bounds that are equal, infinite or no numbers."""
    if not float("-inf") < value[0] != value[1] < float("inf"):
        raise ValueError("needs two different numbers: no risk, greatest risk")
    return value


def _decided(*, is_blocked: bool) -> Decision:
    """Return a bare decision."""
    if is_blocked:
        return BLOCKED
    return ALLOWED


ScoreRange = Annotated[tuple[float, float], AfterValidator(_a_range)]
"""The score of no risk and that of the greatest risk."""
ConfidenceMeaning = Literal["risk", "certainty"]
"""What the field `confidence` of an answer says: how risky the input is, or how sure it is."""


NEXT_CONFIDENCE: Final = (
    "Next: say what it is: confidence: risk (how dangerous the input is) or confidence: certainty "
    "(how sure the decision is)."
)


READ_AS_RISK: Final = (
    "its confidence is read as a risk, the higher the more dangerous (confidence: risk says so; "
    "confidence: certainty is for how sure a decision is)"
)


@dataclass(slots=True)
class ConfidenceRange:
    """The confidences of one defense, as far as a threshold between them could exist.

    Read as a risk, every confidence of a block is at least as high as that of any allow.
    """

    lowest_block: float = 2.0
    highest_allow: float = -1.0

    def add(self, decision: Decision) -> None:
        """Take one decision in, if its score is a confidence that nobody explained."""
        if decision.score_kind is not ScoreKind.CONFIDENCE or decision.score is None:
            return
        if decision.outcome is Outcome.BLOCK:
            self.lowest_block = min(self.lowest_block, decision.score)
        else:
            self.highest_allow = max(self.highest_allow, decision.score)

    @property
    def is_contradicted(self) -> bool:
        """Whether something allowed has a higher confidence than something blocked."""
        return self.highest_allow > self.lowest_block

    @property
    def sentence(self) -> str:
        """What contradicts what."""
        return (
            f"its confidence contradicts its decisions if it is a risk: it allowed at "
            f"{self.highest_allow:.3g} and blocked at {self.lowest_block:.3g}"
        )


@dataclass(slots=True, kw_only=True)
class AssumedThreshold:
    """A threshold that nobody stated, and whether an answer was decided by it."""

    value: float = 0.5
    is_used: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReader:
    """Reads answers: true and false, a score, an object with fields of the usual names.

    What decides is a field that says blocked or allowed, or else the score against the
    threshold. Fields that contradict each other are malformed. A field `confidence` is the
    score: as it is where it is a risk, turned for an allow where it is the certainty of the
    decision. Where nobody said which, it is read as a risk, and the kind of the score says so.
    Fields that mean nothing here are kept as evidence.

    Attributes:
        threshold: From which score on an answer blocks.
        score_range: The lowest and the highest score.
        subject: How a message about an answer begins.
        block_labels: Labels of a classifier that mean: block.
        assumed: What stands in where no threshold is set.
        confidence: What a field `confidence` means.
    """

    threshold: float | None = None
    score_range: tuple[float, float] = (0.0, 1.0)
    subject: str = "the function returned"
    block_labels: tuple[str, ...] = ()
    assumed: AssumedThreshold | None = None
    confidence: ConfidenceMeaning | None = None

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
            labels = labels_of(answer)
            if labels is not None:
                return self._of_labels(labels)
            if not isinstance(answer, dict):
                answer = _fields_of(answer)
            return self._of_fields(answer)
        except _NotUnderstood as error:
            return self._malformed(str(error))
        finally:
            if inspect.iscoroutine(answer):
                answer.close()  # or Python would warn, far from here, that it was never awaited

    def _of_labels(self, labels: Mapping[str, float | None]) -> Decision:
        """Read what a classifier says: a label, or each label with its probability."""
        if not self.block_labels:
            raise _NotUnderstood(
                f"a classifier's answer ({', '.join(labels)[:_MOST_LABELS]}), and which label "
                "blocks is not stated; name the labels of attacks with block_labels"
            )
        blocking = {label.casefold() for label in self.block_labels}
        known: dict[str, float] = {}
        blocked: set[str] = set()
        risk = 0.0
        for label, score in labels.items():
            if label.casefold() in blocking:
                blocked.add(label)
            if score is not None:
                known[label] = score
                if label in blocked:
                    risk += score
        if len(known) < len(labels):
            return _decided(is_blocked=bool(blocked))
        top = max(known, key=lambda label: known[label])
        if len(known) == 1 and not blocked:
            risk = 1.0 - known[top]
        outcome = None  # the threshold decides
        if self.threshold is None:
            outcome = _decided(is_blocked=top in blocked).outcome
        return self._decision(outcome, self._risk(risk))

    def _of_fields(self, fields: Mapping[str, Any]) -> Decision:
        """Read the fields of an object by their names."""
        answer = _sorted_out(fields)
        stated, scores, others = answer.stated, answer.scores, answer.others
        if len(stated) > 1 and len(set(stated.values())) > 1:
            raise _NotUnderstood(f"fields that contradict each other: {' and '.join(stated)}")
        decided = next(iter(stated.values()), None)
        if self.confidence is not None:
            for name in others:
                if _MEANINGS.get(name) is _CONFIDENCE:
                    raise _NotUnderstood(f"{name} {others[name]!r:.60}, which is no number")
        kind, confidence = ScoreKind.SELF_REPORTED, answer.confidence
        if confidence is not None and self.confidence is None and scores:
            others["confidence"] = confidence  # there is a score, and nobody said it is one too
        elif confidence is not None:
            scores["confidence"] = self._of_confidence(confidence, decided)
            kind = ScoreKind.SELF_REPORTED if self.confidence else ScoreKind.CONFIDENCE
        if len(scores) > 1 and len(set(scores.values())) > 1:
            raise _NotUnderstood(f"several scores: {' and '.join(scores)}")
        risk = self._risk(next(iter(scores.values()))) if scores else None
        if decided is None and risk is None and answer.rewritten is not None:
            decided = Outcome.ALLOW  # a guard that only masks says no more than the new text
        decision = self._decision(decided, risk, reason=answer.reason, kind=kind, others=others)
        if answer.rewritten is None or decision.outcome is not Outcome.ALLOW:
            return decision
        return replace(decision, text=answer.rewritten)

    def _of_confidence(self, confidence: float, decided: Outcome | None) -> float:
        """Return the score that a confidence stands for, in the range of scores."""
        if self.confidence is None and decided is None:
            raise _NotUnderstood(
                f"confidence {confidence!r} and no decision; say confidence: risk and a threshold"
            )
        if self.confidence != "certainty":
            return confidence
        if decided is None:
            raise _NotUnderstood(
                f"confidence {confidence!r} and no decision that it could be the certainty of"
            )
        if decided is Outcome.BLOCK:
            return confidence
        lowest, highest = self.score_range
        return lowest + highest - confidence

    def _risk(self, score: float) -> float:
        """Return a score as a risk in [0, 1]; one outside the range is not understood."""
        lowest, highest = self.score_range
        risk = (score - lowest) / (highest - lowest)
        if 0 <= risk <= 1:  # not true of not-a-number
            return risk
        if self.score_range == (0.0, 1.0):
            raise _NotUnderstood(
                f"{score!r}; a risk lies in [0, 1] (score_range: [0, 100] for another range)"
            )
        raise _NotUnderstood(f"{score!r}, which is not in score_range {lowest:g} to {highest:g}")

    def _decision(
        self,
        outcome: Outcome | None,
        risk: float | None,
        *,
        reason: str = "",
        kind: ScoreKind = ScoreKind.SELF_REPORTED,
        others: Mapping[str, object] | None = None,
    ) -> Decision:
        """Return a decision by an outcome, or by a risk against the threshold."""
        if outcome is None:
            if risk is None:
                raise _NotUnderstood("")
            outcome = Outcome.ALLOW
            if risk >= self._cut(risk):
                outcome = Outcome.BLOCK
        if risk is None:
            kind = ScoreKind.NONE
            if not reason and not others:
                return _decided(is_blocked=outcome is Outcome.BLOCK)
        evidence = None
        if reason or others:
            raw = ""
            if others:
                raw = KNOWN.text(_as_json(others)[:_MOST_OTHER])
            evidence = Evidence(reason=KNOWN.text(reason), raw=raw)
        return Decision(outcome=outcome, score=risk, score_kind=kind, evidence=evidence)

    def _cut(self, risk: float) -> float:
        """Return the threshold, or the one that stands in for it."""
        if self.threshold is not None:
            return self.threshold
        if self.assumed is None:
            raise _NotUnderstood(
                f"the risk {risk!r}, but no threshold is set: for example threshold: 0.5"
            )
        self.assumed.is_used = True
        return self.assumed.value

    def _malformed(self, message: str) -> Decision:
        if not message:
            message = (
                "nothing that can be read; expected True (block), False (allow), a risk in "
                "[0, 1], a Decision, or fields such as blocked, flagged, is_safe, score"
            )
        words = KNOWN.text(f"{self.subject} {message}")
        return Decision(outcome=Outcome.MALFORMED, evidence=Evidence(message=words))


@dataclass(slots=True, kw_only=True)
class _Fields:
    """The fields of an answer by what they mean."""

    stated: dict[str, Outcome] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    others: dict[str, object] = field(default_factory=dict)
    reason: str = ""
    confidence: float | None = None
    rewritten: str | None = None


def _sorted_out(fields: Mapping[str, Any]) -> _Fields:
    """Sort the fields of an answer by what they mean."""
    answer = _Fields()
    for name, given in fields.items():
        meaning = _MEANINGS.get(name)
        value: Any = given
        if meaning is not None and hasattr(given, "item"):
            value = _unwrapped(given)
        if value is None:
            continue
        if meaning is _CONFIDENCE and _is_number(value):
            answer.confidence = value
        elif meaning is _SCORE and _is_number(value):
            answer.scores[name] = value
        elif meaning is _REWRITTEN and isinstance(value, str):
            answer.rewritten = value
        elif meaning is _REASON:
            answer.reason = answer.reason or str(value)[:_MOST_REASON]
        else:
            outcome = None
            if meaning is not None:
                outcome = _outcome(name, meaning, value)
            if outcome is None:
                answer.others[str(name)] = value
            else:
                answer.stated[name] = outcome
    return answer


def labels_of(answer: object) -> dict[str, float | None] | None:
    """Return the labels of a classifier's answer with their probabilities, or None.

    Read are `[{"label": ..., "score": ...}]` as pipelines of transformers give it, one such dict,
    lists of lists of them, and a label by itself.
    """
    while isinstance(answer, list) and len(answer) == 1 and isinstance(answer[0], list):
        answer = answer[0]
    if isinstance(answer, str) and answer and not any(map(str.isspace, answer)):
        return {answer: None}
    rows = answer
    if not isinstance(rows, list):
        rows = [rows]
    labels: dict[str, float | None] = {}
    for row in rows:
        if not isinstance(row, Mapping):
            return None
        label, score = row.get("label"), row.get("score")
        if not isinstance(label, str) or not _is_number(score):
            return None
        labels[label] = float(score or 0.0)
    return labels or None


def _fields_of(answer: object) -> Mapping[str, Any]:
    """Return the fields of an answer: of a mapping, of a pair, or the attributes of an object."""
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
    return {**_plain_attributes(answer), **fields}


def _plain_attributes(answer: object) -> dict[str, object]:
    """Return what else an object says of itself, by the names of its fields."""
    names = getattr(type(answer), "__dataclass_fields__", None) or getattr(answer, "_fields", None)
    if names is None:
        names = getattr(answer, "__dict__", {})
    plain: dict[str, object] = {}
    for name in map(str, names):
        value = getattr(answer, name, None)
        if not name.startswith("_") and isinstance(value, _PLAIN):
            plain[name] = value
    return plain


def _as_json(fields: Mapping[str, object]) -> str:
    """Write fields that are not read, in their order; what is no JSON stands as its type."""
    parts = []
    for name, value in fields.items():
        try:
            text = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            text = json.dumps(type(value).__name__)
        parts.append(f"{json.dumps(name, ensure_ascii=False)}: {text}")
    return f"{{{', '.join(parts)}}}"


def _of_pair(answer: Sequence[object]) -> Mapping[str, Any]:
    """Read `(blocked, score)`, `(blocked, reason)` and LLM Guard's `(text, is_valid, risk)`."""
    if len(answer) == 3 and isinstance(answer[0], str) and isinstance(answer[1], bool):
        fields: dict[str, object] = {"is_valid": answer[1], "rewritten": answer[0]}
        if _is_number(answer[2]) and 0 <= answer[2] <= 1:  # type: ignore[operator]
            fields["score"] = answer[2]
        return fields
    if len(answer) == 2 and isinstance(answer[0], bool):
        if _is_number(answer[1]):
            return {"blocked": answer[0], "score": answer[1]}
        if isinstance(answer[1], str):
            return {"blocked": answer[0], "reason": answer[1]}
    raise _NotUnderstood(
        f"{type(answer).__name__} of {len(answer)}; of these only (blocked, score), "
        "(blocked, reason) and (text, is_valid, risk) are read"
    )


def _outcome(name: str, meaning: int, value: object) -> Outcome | None:
    """Return what a field says was decided, or None where it says nothing of that."""
    if meaning is _WORD:
        outcome = None
        if isinstance(value, str):
            outcome = _OUTCOMES.get(value.strip().casefold())
        if outcome is None:
            raise _NotUnderstood(f"{name} {value!r:.60}; expected block or allow")
        return outcome
    if meaning in {_SCORE, _CONFIDENCE, _REWRITTEN} or not isinstance(value, bool):
        return None
    if value is (meaning is _BLOCKS):
        return Outcome.BLOCK
    return Outcome.ALLOW


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unwrapped(answer: Any) -> object:
    try:
        return answer.item()  # a NumPy scalar, or an array of one
    except (TypeError, ValueError):
        return answer


USUAL_READER: Final = AnswerReader()  # reads answers where nothing is set


def unless_same(decision: Decision, shown: object) -> Decision:
    """Take a text off a decision that is the one which was shown: nothing was rewritten."""
    if decision.text is None or decision.text != shown:
        return decision
    return replace(decision, text=None)
