"""Values as they are stored, and back: evidence and manifests as JSON, answers as rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from itertools import product
from math import isfinite
from operator import attrgetter
from types import NoneType
from typing import Any, Final, cast

from pydantic import TypeAdapter

from guardmark.core.manifest import RunManifest
from guardmark.core.outcome import (
    PROVIDER_ACTIONS,
    Attempt,
    BlockedAt,
    CategoryFinding,
    Decision,
    Evidence,
    Outcome,
    Response,
    StreamTrace,
    Verdict,
    VerdictLabel,
)
from guardmark.core.record import Record, RecordKey, Stage
from guardmark.core.usage import Usage
from guardmark.store import schema

Check = Callable[[Any], bool]

_adapter = cache(TypeAdapter)  # when it is needed: what it does takes as long as an import
_LISTED: Final = {
    "categories": (CategoryFinding, ("name", "flagged", "score")),
    "stream": (StreamTrace, ("characters", "chunks", "first_ns", "block_ns")),
    "attempts": (Attempt, ("service_ns", "status", "error", "wait_ns")),
}
_PLAIN: Final = {
    field.name: (field.default, float | int if field.name == "label_mass" else type(field.default))
    for field in fields(Evidence)
    if field.name not in {"usage", *_LISTED}
}
"""Fields of evidence that are stored as they are: what each is when nothing is said, its type."""
_TYPES: Final[Mapping[str, set[type]]] = {
    "text": {str},
    "bool": {bool},
    "object": {dict},
    "bit": {int, bool},
    "nothing": set(),
    "number": {int, float},
    **{word: {int} for word in ("whole", "count", "few")},
}
_MOST: Final = {"count": (1 << 31) - 1, "few": 100}


def stored_object(text: str | None, column: str, layer: str | None = None) -> dict[str, Any]:
    """Read a JSON object back, of the form that `forms.toml` tells of its column and layer."""
    value = json.loads(text) if text else {}
    if not _check_of(column, layer)(value):
        raise TypeError(f"not what guardmark writes: {text!r:.80}")
    return cast("dict[str, Any]", value)


@lru_cache
def _check_of(column: str, layer: str | None) -> Check:
    form = schema.table_of("forms.toml")[column]
    if layer is None:
        return _check(form)
    for pattern, of_layer in form.items():
        if fnmatchcase(layer, pattern):
            return _check(of_layer)
    return _check({})


def _check(form: Any) -> Check:
    """Return what tells whether a JSON value has a form of `forms.toml`.

    A form is a word for a kind of value, a list of one form for all members, a list of words for
    a row of so many members, or an object. An object must have the keys that end with `!`; the
    form under `*` is that of all other keys.
    """
    if isinstance(form, dict):
        return _object_check(form)
    if form == "share":
        return _is_share
    if isinstance(form, list) and len(form) > 1:
        rows = set(product(*map(_types, form)))
        return lambda value: isinstance(value, list) and tuple(map(type, value)) in rows
    if isinstance(form, list):
        check = _check(form[0])
        return lambda value: isinstance(value, list) and all(map(check, value))
    types = _types(form)
    most = _MOST.get(form)
    if most is None:
        return lambda value: type(value) in types
    return lambda value: type(value) in types and 0 <= value <= most


def _object_check(form: Mapping[str, Any]) -> Check:
    """Return what tells whether a JSON value is an object of some form."""
    checks: dict[str, Check] = {}
    needed: set[str] = set()
    for key, of_key in form.items():
        name = key.removesuffix("!")
        checks[name] = _check(of_key)
        if name != key:
            needed.add(name)
    of_others = checks.get("*")

    def has_form(value: Any) -> bool:
        if not isinstance(value, dict) or not needed <= value.keys():
            return False
        for key, inner in value.items():
            check = checks.get(key, of_others)
            if check is not None and not check(inner):
                return False
        return True

    return has_form


def _is_share(value: Any) -> bool:
    """Tell whether a value is a count, or a part and its whole."""
    if isinstance(value, list):
        are_whole = [type(number) for number in value] == [int, int]
        return are_whole and 0 <= value[0] <= value[1] < 1 << 31
    return type(value) is int and 0 <= value < 1 << 31


def _types(word: str) -> set[type]:
    types = _TYPES[word.removesuffix("?")]
    if word.endswith("?"):
        return types | {NoneType}
    return types


@lru_cache(maxsize=256)  # a rule says the same of every sample it blocks
def evidence_to_json(evidence: Evidence) -> str:
    """Write evidence as compact JSON, leaving out what is not said."""
    values: dict[str, object] = {}
    for name, (default, kind) in _PLAIN.items():
        value = getattr(evidence, name)
        if value == default:
            continue
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r:.80}")
        values[name] = value
    for name, (_, keys) in _LISTED.items():
        members = getattr(evidence, name)
        if members:
            values[name] = [list(attrgetter(*keys)(member)) for member in members]
    for trace in evidence.stream:
        values |= _stream(trace)
    if evidence.usage is not None:
        values["usage"] = _usage(evidence.usage)
        if evidence.usage.requests is not None:
            values["requests"] = evidence.usage.requests
    return json.dumps(values, separators=(",", ":"), allow_nan=False)


def _stream(trace: StreamTrace) -> dict[str, int]:
    """Return what stands of a stream beside its list, which older runs have without it."""
    beside = {"stream_tokens": trace.tokens, "stream_last_ns": trace.last_ns}
    return {name: value for name, value in beside.items() if value is not None}


def _usage(usage: Usage) -> list[int | float | None]:
    """Return usage as a list of numbers that can be added up."""
    for count in (usage.prompt_tokens, usage.completion_tokens, usage.requests):
        if count is not None and type(count) is not int:
            raise TypeError(f"usage is {usage!r:.200}")
    cost = usage.cost
    if cost is not None and not (type(cost) in {int, float} and isfinite(cost)):
        raise TypeError(f"usage is {usage!r:.200}")
    return [usage.prompt_tokens, usage.completion_tokens, cost]


@lru_cache(maxsize=256)  # for the same reason; nobody can change what is returned
def evidence_from_json(text: str) -> Evidence:
    """Read evidence back."""
    values = stored_object(text, "evidence")
    for name, (kind, keys) in _LISTED.items():
        if name in values:
            rows = values[name]
            values[name] = tuple(kind(**dict(zip(keys, row, strict=True))) for row in rows)
    tokens, last_ns = values.pop("stream_tokens", None), values.pop("stream_last_ns", None)
    if (tokens is not None or last_ns is not None) and "stream" in values:
        traces = values["stream"]
        values["stream"] = tuple(replace(each, tokens=tokens, last_ns=last_ns) for each in traces)
    if "usage" in values:
        read, written, cost = values["usage"]
        requests = values.pop("requests", None)
        values["usage"] = Usage(
            prompt_tokens=read, completion_tokens=written, cost=cost, requests=requests
        )
        _usage(values["usage"])
    return Evidence(**values)


def manifest_to_json(manifest: RunManifest) -> str:
    """Write a manifest as JSON with sorted keys, so that equal manifests give equal bytes."""
    return json.dumps(_plain(manifest), ensure_ascii=False, sort_keys=True, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"{value!r} is not a JSON value")


def manifest_from_json(text: str) -> RunManifest:
    """Read a manifest back; every field of it has the type that it states."""
    stored_object(text, "manifest")
    manifest: RunManifest = _adapter(RunManifest).validate_json(text, strict=True)
    if not 0 < manifest.confidence < 1:
        raise ValueError("a manifest of another confidence than a configuration can hold")
    return manifest


Answer = Decision | Response | Verdict
Observed = tuple[int, float | None, int, int | None, int | None, int | None, int]
"""Outcome, score, score kind, error kind, answer mode, latency in ns, flags; words as codes."""
Row = tuple[Any, ...]
ILL_TYPED: Final = (TypeError, ValueError, KeyError, AttributeError, OverflowError)
"""What a field of a wrong type raises where it is encoded."""
_ANSWERED: Final = schema.OUTCOME_CODE["answered"]
_ALLOW: Final = schema.OUTCOME_CODE["allow"]
_BLOCK: Final = schema.OUTCOME_CODE["block"]
_ERROR: Final = schema.OUTCOME_CODE["error"]
_CONTRACT: Final = schema.ERROR_KIND_CODE["contract"]
_NO_SCORE_KIND: Final = schema.SCORE_KIND_CODE["none"]
_CLASS_PROBABILITY: Final = schema.SCORE_KIND_CODE["class_prob"]
_MOST_NS: Final = 1 << 63


def encode(answer: Answer, latency_ns: int | None, flags: int) -> Observed:
    """Encode an answer; a field of a wrong type raises one of `ILL_TYPED`."""
    own, evidence = answer.latency_ns, answer.evidence
    error = mode = None
    if answer.error_kind is not None:
        error = schema.ERROR_KIND_CODE[answer.error_kind]
    if isinstance(answer, Decision):
        outcome = schema.OUTCOME_CODE[answer.outcome]
        score_kind = schema.SCORE_KIND_CODE[answer.score_kind]
        # Looked at here: most have none, and this runs for every answer.
        score = None if answer.score is None else _risk(answer.score)
        if answer.amortised:
            flags |= schema.FLAG_AMORTISED
        if answer.text is not None:
            flags |= _rewriting(answer.text, outcome)
    elif isinstance(answer, Verdict):
        outcome = schema.OUTCOME_CODE[answer.label]
        score = None if answer.score is None else _risk(answer.score)
        score_kind = _NO_SCORE_KIND if score is None else _CLASS_PROBABILITY
        if answer.answer_mode is not None:
            mode = schema.ANSWER_MODE_CODE[answer.answer_mode]
    else:
        score = None
        score_kind = _NO_SCORE_KIND
        outcome, error = _response_codes(answer, error)
    if own is not None and not flags & schema.FLAG_PLANNED:
        latency_ns = _whole_ns(own)
    if evidence is not None and evidence.from_cache:
        flags |= schema.FLAG_CACHED
    if evidence is not None and evidence.truncated:
        flags |= schema.FLAG_TRUNCATED
    return outcome, score, score_kind, error, mode, latency_ns, flags


def _rewriting(text: object, outcome: int) -> int:
    """Return the flag of a text that goes on in place of what was shown; a block sends none on."""
    if not isinstance(text, str):
        raise TypeError(f"text is {text!r:.80}")
    if outcome != _ALLOW:
        return 0
    return schema.FLAG_REWRITTEN


def _response_codes(response: Response, error: int | None) -> tuple[int, int | None]:
    """Return the outcome of a response and its error: one without a text is an error."""
    if response.blocked_at is not None:
        return _BLOCK, None
    if error is not None:
        return _ERROR, error
    if response.text is None:
        return _ERROR, _CONTRACT
    return _ANSWERED, None


def _risk(score: float) -> float:
    if not 0.0 <= score <= 1.0:
        raise ValueError(f"the score {score!r} is not in [0, 1]")
    return float(score)


def _whole_ns(latency: int) -> int:
    if type(latency) is not int or not 0 <= latency < _MOST_NS:
        raise TypeError(f"latency_ns is {latency!r}")
    return latency


def encode_mistake(
    answer: Answer, mistake: Exception, latency_ns: int | None, flags: int
) -> tuple[Observed, str]:
    """Encode the error, and its evidence, that stand for an answer that cannot be stored."""
    message = str(mistake)
    if type(mistake) is not ValueError:
        name = type(answer).__name__.lower()
        message = f"the {name} cannot be stored, a field has the wrong type: {mistake!r}"
    evidence = evidence_to_json(Evidence(message=message))
    return (_ERROR, None, _NO_SCORE_KIND, _CONTRACT, None, latency_ns, flags), evidence


def evidence_text(evidence: Evidence | None) -> str | None:
    """Write evidence as JSON, or nothing where it says nothing."""
    if evidence is None:
        return None
    text = evidence_to_json(evidence)
    if text == "{}":
        return None
    return text


def decode(row: Row) -> dict[str, Any]:
    """Decode what records and tries have in common: what `encode` gives, but evidence for flags."""
    outcome, score, score_kind, error_kind, answer_mode, latency_ns, evidence = row
    return {
        "outcome": schema.OUTCOME_NAMES[outcome],
        "score": score,
        "score_kind": schema.SCORE_KINDS[score_kind],
        "error_kind": None if error_kind is None else schema.ERROR_KINDS[error_kind],
        "answer_mode": None if answer_mode is None else schema.ANSWER_MODES[answer_mode],
        "latency_ns": latency_ns,
        "evidence": None if evidence is None else evidence_from_json(evidence),
    }


def record_of(row: Row) -> Record:
    """Decode one row of the query `records`."""
    defense, stage, layer, repeat, sample, flags, text = row[:7]
    key = RecordKey(
        defense=defense, sample=sample, repeat=repeat, stage=schema.STAGES[stage], layer=layer
    )
    return Record(
        key=key, amortised=bool(flags & schema.FLAG_AMORTISED), text=text, **decode(row[7:])
    )


def answer_of(record: Record) -> Answer:
    """Return the answer that a record was made from."""
    stage, error, evidence = record.key.stage, record.error_kind, record.evidence
    if stage is Stage.MODEL:
        at = None
        if record.outcome == Outcome.BLOCK:
            action = "" if evidence is None else evidence.native_action
            at = _BLOCKED_AT.get(action, BlockedAt.OUTPUT)
        return Response(text=record.text, error_kind=error, blocked_at=at, evidence=evidence)
    if stage is Stage.JUDGE:
        return Verdict(
            label=VerdictLabel(record.outcome),
            answer_mode=record.answer_mode,
            score=record.score,
            error_kind=error,
            evidence=evidence,
        )
    return Decision(
        outcome=Outcome(record.outcome),
        score=record.score,
        score_kind=record.score_kind,
        error_kind=error,
        amortised=record.amortised,
        evidence=evidence,
        text=record.text,
    )


_BLOCKED_AT: Final = {action: at for at, action in PROVIDER_ACTIONS.items()}
