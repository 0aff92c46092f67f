"""One sample of an Inspect log: prompt, answer, and what its scores say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from guardmark.core.errors import ConfigError
from guardmark.core.outcome import (
    AnswerMode,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    Response,
    ScoreKind,
    Verdict,
    VerdictLabel,
)
from guardmark.core.sample import Label, Message, Prompt, Role, Sample, Severity
from guardmark.importers.imported import ImportedAnswer
from guardmark.importers.reading import Object, inner, prompt_of, word

_OURS: Final = "guardmark"
_OUR_JUDGE: Final = "judge"
_NO_ANSWER: Final = "N"
_ATTACHED: Final = "attachment://"
_LABELS: Final = {label.value: label for label in Label}
_SEVERITIES: Final = {severity.value: severity for severity in Severity}
_OUTCOMES: Final = {outcome.value: outcome for outcome in Outcome}
_VERDICTS: Final = {label.value: label for label in VerdictLabel}
_MODES: Final = {mode.value: mode for mode in AnswerMode}
_SCORE_KINDS: Final = {kind.value: kind for kind in ScoreKind}
_ERROR_KINDS: Final = {kind.value: kind for kind in ErrorKind}


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmRule:
    """Which score means that harm came out."""

    name: str
    value: str | None = None
    least: float | None = None


def read_rule(said: str) -> HarmRule:
    """Read `NAME=VALUE` or `NAME>=NUMBER`."""
    name, sign, limit = said.partition(">=")
    if sign and name.strip():
        try:
            return HarmRule(name=name.strip(), least=float(limit))
        except ValueError:
            pass  # said below, with the other form
    name, sign, value = said.partition("=")
    if not sign or not name.strip(" >") or name.endswith(">"):
        raise ConfigError(
            f"--unsafe {said!r} is neither NAME=VALUE nor NAME>=NUMBER.\n"
            "For example: --unsafe strong_reject>=0.5, or --unsafe refusal=I"
        )
    return HarmRule(name=name.strip(), value=value.strip())


def is_ours(spec: Object) -> bool:
    """Tell whether guardmark wrote a log."""
    return word(spec, "model").startswith(f"{_OURS}/") and _OURS in inner(spec, "packages")


def scorers_of(sample: Object) -> set[str]:
    """Return the names of the scores of a sample, as a rule may name them."""
    names = set()
    for name, score in inner(sample, "scores").items():
        value = score.get("value") if isinstance(score, dict) else None
        names |= {f"{name}.{key}" for key in value} if isinstance(value, dict) else {name}
    return names


def read_sample(said: Object, stated: Label | None) -> Sample | str:
    """Read prompt and label."""
    metadata = inner(said, "metadata")
    label = _LABELS.get(word(metadata, "label").lower()) or stated
    if label is None:
        return "without a label"
    prompt = _prompt(said, metadata)
    if prompt is None:
        return "without a prompt of text"
    return Sample(
        id=word(said, "id"),
        prompt=prompt,
        label=label,
        severity=_SEVERITIES.get(word(metadata, "severity")),
        variant=word(metadata, "variant") or "original",
        group=word(metadata, "group"),
        category=word(metadata, "category"),
        subcategory=word(metadata, "subcategory"),
        language=word(metadata, "language"),
        technique=word(metadata, "technique"),
        source=word(metadata, "source"),
    )


def read_answer(said: Object, ours: bool, rule: HarmRule | None) -> ImportedAnswer | None:  # noqa: FBT001 - read as one of three facts on a log
    """Read what came of one epoch."""
    epoch = said.get("epoch")
    repeat = epoch - 1 if isinstance(epoch, int) and epoch > 0 else 0
    if not ours:
        response = _response(said)
        verdict = None if rule is None or response.text is None else _verdict(said, rule)
        return ImportedAnswer(repeat=repeat, response=response, verdict=verdict)
    scores = inner(said, "scores")
    decision = _decision(inner(scores, _OURS)) if _OURS in scores else None
    has_response = inner(said, "metadata").get("has_response") is True
    if decision is None and not has_response:
        return None
    return ImportedAnswer(
        repeat=repeat,
        decision=decision,
        response=_response(said) if has_response else None,
        verdict=_our_verdict(inner(scores, _OUR_JUDGE)) if _OUR_JUDGE in scores else None,
    )


def _prompt(said: Object, metadata: Object) -> Prompt | None:
    shown = said.get("input")
    if isinstance(shown, str):
        return prompt_of([("user", _resolved(said, shown))])
    listed = [turn for turn in shown if isinstance(turn, dict)] if isinstance(shown, list) else []
    texts = [_resolved(said, _content(turn)) for turn in listed]
    # Our own logs keep the roles that Inspect has no word for, and what is under test.
    roles, place = metadata.get("roles"), metadata.get("under_test")
    if isinstance(roles, list) and isinstance(place, int) and len(roles) == len(texts) > place >= 0:
        known = {role.value: role for role in Role}
        if all(role in known for role in roles):
            pairs = zip(roles, texts, strict=True)
            messages = tuple(Message(role=known[role], content=text) for role, text in pairs)
            return Prompt(messages=messages, under_test=place)
    return prompt_of([(word(t, "role"), text) for t, text in zip(listed, texts, strict=True)])


def _content(turn: Object) -> str:
    """Return the text of a message; other parts, such as images, have none."""
    content = turn.get("content")
    if isinstance(content, list):
        parts = (word(part, "text") for part in content if isinstance(part, dict))
        return "\n".join(part for part in parts if part)
    return word(turn, "content")


def _resolved(said: Object, text: str) -> str:
    """Long texts lie among the attachments of their sample."""
    if not text.startswith(_ATTACHED):
        return text
    return word(inner(said, "attachments"), text.removeprefix(_ATTACHED)) or text


def _response(said: Object) -> Response:
    output = inner(said, "output")
    choices = output.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    first = first if isinstance(first, dict) else {}
    text = _resolved(said, _content(inner(first, "message")) or word(output, "completion"))
    fault = said.get("error") or output.get("error")
    if fault or not text:
        message = word(fault, "message") if isinstance(fault, dict) else str(fault or "no output")
        why = Evidence(message=message[:500])
        return Response(text=None, error_kind=ErrorKind.CRASH, evidence=why)
    return Response(text=text, evidence=Evidence(finish_reason=word(first, "stop_reason")))


def _decision(score: Object) -> Decision:
    metadata = inner(score, "metadata")
    outcome = _OUTCOMES.get(word(score, "answer"))
    reason = word(score, "explanation")
    if outcome is None:
        why = Evidence(message=f"the log says {word(score, 'answer')[:40]!r}")
        return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.CONTRACT, evidence=why)
    kind = _ERROR_KINDS.get(word(metadata, "error_kind"), ErrorKind.CRASH)
    return Decision(
        outcome=outcome,
        score=_number(metadata.get("score")),
        score_kind=_SCORE_KINDS.get(word(metadata, "score_kind"), ScoreKind.NONE),
        error_kind=kind if outcome is Outcome.ERROR else None,
        evidence=Evidence(reason=reason) if reason else None,
    )


def _our_verdict(score: Object) -> Verdict:
    label = _VERDICTS.get(word(score, "answer"), VerdictLabel.MALFORMED)
    metadata = inner(score, "metadata")
    return Verdict(
        label=label,
        answer_mode=_MODES.get(word(metadata, "answer_mode")),
        score=_number(metadata.get("score")),
        error_kind=ErrorKind.CRASH if label is VerdictLabel.ERROR else None,
        evidence=Evidence(reason=word(score, "explanation")),
    )


def _verdict(said: Object, rule: HarmRule) -> Verdict:
    value, score = _scored(said, rule.name)
    if value is None:
        missing = Evidence(message=f"the sample has no score {rule.name!r}")
        return Verdict(label=VerdictLabel.ERROR, error_kind=ErrorKind.SKIPPED, evidence=missing)
    why = Evidence(reason=word(score, "explanation"), raw=json.dumps(value)[:500])
    number = _as_number(value)
    if value == _NO_ANSWER or (rule.least is not None and number is None):
        return Verdict(label=VerdictLabel.MALFORMED, evidence=why)
    if rule.least is not None and number is not None:
        is_harm = number >= rule.least
    else:
        is_harm = _same(value, rule.value or "")
    return Verdict(label=VerdictLabel.UNSAFE if is_harm else VerdictLabel.SAFE, evidence=why)


def _scored(said: Object, name: str) -> tuple[Any, Object]:
    scores = inner(said, "scores")
    if name in scores:
        score = inner(scores, name)
        return score.get("value"), score
    scorer, _, key = name.rpartition(".")
    score = inner(scores, scorer)
    return inner(score, "value").get(key), score


def _same(value: object, wanted: str) -> bool:
    number, other = _as_number(value), _as_number(wanted)
    if number is not None and other is not None:
        return number == other
    return str(value).lower() == wanted.lower()


def _as_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _number(value: object) -> float | None:
    """A score in [0, 1], or None."""
    found = _as_number(value) if not isinstance(value, str) else None
    return found if found is not None and 0 <= found <= 1 else None
