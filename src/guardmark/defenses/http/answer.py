"""A service's answer, read as a decision; what cannot be read is malformed, never a guess."""

from __future__ import annotations

import json
from dataclasses import field, replace
from typing import TYPE_CHECKING

from guardmark.core.errors import listed
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome, ScoreKind
from guardmark.core.values import dataclass
from guardmark.defenses.http.stream import EVENTS, JSON_LINES, read_stream
from guardmark.defenses.http.values import ScoreScale, findings, is_true
from guardmark.parsing.labels import says_changed
from guardmark.parsing.objects import AmbiguousJson, read_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.core.outcome import CategoryFinding
    from guardmark.defenses.answers import ConfidenceMeaning
    from guardmark.defenses.http.stream import StreamRules
    from guardmark.defenses.http.values import BlockedRule, JsonPath
    from guardmark.net.service import Exchange

_RAW = 2_000  # characters of a native answer that are kept
_MOST_CATEGORIES = 200
_SHOWN_CATEGORIES = 20  # that a message names
_UNIT = ScoreScale()


@dataclass(frozen=True, slots=True, kw_only=True)
class WordRule:
    """Words of a service that count whatever else its answer says.

    Without codes whatever is at the path counts, or that fewer values are there than belong.
    """

    path: JsonPath
    codes: frozenset[str] = frozenset()
    fewest: int = 0

    def word(self, document: object) -> str:
        """Return the word that an answer says, or the empty string."""
        values = [value for value in self.path.find(document) if value is not None]
        if len(values) < self.fewest:
            return f"{len(values)} of {self.fewest} values"
        if self.fewest:
            return ""
        for value in values:
            if not self.codes:
                return _short(value)
            if isinstance(value, str) and value in self.codes:
                return value
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceRule:
    """Where a service says how confident it is, and what that means.

    Attributes:
        path: Where the number stands.
        means: Whether it is a risk or the certainty of the decision; None where nobody said.
        is_stated: Whether the configuration names the place; else it is beside the decision.
    """

    path: JsonPath
    means: ConfidenceMeaning | None
    is_stated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRules:
    """Where a service's answer says what.

    What decides is the first of these that is given: a status named in `statuses`, the
    action, the blocked value, the categories' scores against their `thresholds`, the score against
    the threshold.

    Attributes:
        blocked: Where the answer says that it blocks.
        blocked_rule: Which values there mean that.
        action: Where it names an action.
        actions: What each word of the action means.
        rewriting: Words of the action that mean that another text goes on.
        flagging: Words of the action by which the text goes on and is recorded as flagged.
        score: Where the score stands.
        scale: How it becomes a risk in [0, 1].
        score_kind: What the score is.
        threshold: From which risk on it blocks.
        confidence: Where a score is taken from if nothing else is one.
        categories: Where scores by category stand.
        thresholds: From which score on a category of the service blocks, by name.
        reason: Where the reason stands.
        rewritten: Where the text stands that goes on in place of the one that was sent.
        statuses: HTTP statuses that are decisions.
        rejection: Words by which an answer says that the text was not taken.
        incomplete: Words by which it says that a part of the checks was left out.
        failed: Words by which a block says that something of the service failed.
        keep_raw: Whether the whole answer is kept as evidence.
        stream: How an answer that streams is read; then that alone decides.
    """

    blocked: JsonPath | None = None
    blocked_rule: BlockedRule = is_true
    action: JsonPath | None = None
    actions: Mapping[str, Outcome] = field(default_factory=dict)
    rewriting: frozenset[str] = frozenset()
    flagging: frozenset[str] = frozenset()
    score: JsonPath | None = None
    scale: ScoreScale = _UNIT
    score_kind: ScoreKind = ScoreKind.SELF_REPORTED
    threshold: float | None = None
    confidence: ConfidenceRule | None = None
    categories: JsonPath | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    reason: JsonPath | None = None
    rewritten: JsonPath | None = None
    statuses: Mapping[int, Outcome] = field(default_factory=dict)
    rejection: WordRule | None = None
    incomplete: WordRule | None = None
    failed: WordRule | None = None
    keep_raw: bool = False
    stream: StreamRules | None = None


class _NotUnderstood(Exception):
    """An answer came, and the rules do not fit it."""


def read_answer(rules: AnswerRules, exchange: Exchange, *, truncated: bool = False) -> Decision:
    """Read one exchange as a decision."""
    if exchange.status is not None:
        meaning = rules.statuses.get(exchange.status)
        if meaning is not None:
            return _by_status(rules, exchange, meaning, truncated=truncated)
    if exchange.error_kind is not None:
        return _failed(rules, exchange, truncated=truncated)
    if rules.stream is not None:
        return _streamed(rules, rules.stream, exchange, truncated=truncated)
    return _whole(rules, exchange, truncated=truncated)


def _whole(rules: AnswerRules, exchange: Exchange, *, truncated: bool) -> Decision:
    """Read an answer that is one JSON value."""
    try:
        document = read_json(exchange.body)
    except AmbiguousJson as error:
        return _malformed(exchange, error, truncated=truncated)
    except (ValueError, RecursionError):
        return _no_json(exchange, truncated=truncated)
    try:
        return _read(rules, document, exchange, truncated=truncated)
    except (_NotUnderstood, ValueError, RecursionError) as error:
        return _malformed(exchange, error, truncated=truncated)


def _streamed(
    rules: AnswerRules, stream: StreamRules, exchange: Exchange, *, truncated: bool
) -> Decision:
    """Read an answer that came in pieces."""
    decision = read_stream(stream, exchange)
    raw = ""
    if rules.keep_raw or decision.outcome not in {Outcome.ALLOW, Outcome.BLOCK}:
        raw = _raw(exchange)
    evidence = replace(
        decision.evidence or Evidence(),
        raw=raw,
        attempts=exchange.attempts,
        truncated=truncated,
    )
    return replace(decision, evidence=evidence)


def _malformed(exchange: Exchange, error: Exception, *, truncated: bool) -> Decision:
    return Decision(
        outcome=Outcome.MALFORMED,
        latency_ns=exchange.service_ns,
        evidence=_evidence(exchange, truncated=truncated, message=str(error), raw=True),
    )


def _read(rules: AnswerRules, document: object, exchange: Exchange, *, truncated: bool) -> Decision:
    """Read the JSON value of an answer; what the rules do not fit is not understood."""
    score = _score(rules, document)
    categories = _categories(rules, document)
    native, outcome = _decide(rules, document, score=score, categories=categories)
    undecided = _why_undecided(rules, document, outcome)
    if undecided is not None:
        kind, message = undecided
        return _error(exchange, kind, message, truncated=truncated)
    remark, raw = "", ""
    score_kind = rules.score_kind
    if rules.confidence is not None:
        score, remark = _of_confidence(rules.confidence, rules.scale, document, outcome)
        if rules.confidence.means is None:
            score_kind = ScoreKind.CONFIDENCE
    if score is None:
        score_kind = ScoreKind.NONE
    if len(categories) > _MOST_CATEGORIES:
        remark = f"of {len(categories):,} categories the first {_MOST_CATEGORIES} are kept"
        categories = categories[:_MOST_CATEGORIES]
    if rules.keep_raw:
        raw = _raw(exchange)
    reasons: list[str] = []
    if rules.reason is not None:
        reasons = _reasons(rules.reason, document)
    text = None
    if outcome is Outcome.ALLOW:
        text = _rewritten(rules, document, native)
    evidence = None
    has_more = native or rules.categories or reasons or rules.keep_raw or remark
    if has_more or exchange.attempts or truncated:
        evidence = Evidence(
            native_action=native,
            reason="; ".join(filter(None, reasons))[:_RAW],
            categories=categories,
            message=remark,
            raw=raw,
            attempts=exchange.attempts,
            truncated=truncated,
        )
    return Decision(
        outcome=outcome,
        score=score,
        score_kind=score_kind,
        latency_ns=exchange.service_ns,
        evidence=evidence,
        text=text,
    )


def _decide(
    rules: AnswerRules,
    document: object,
    *,
    score: float | None,
    categories: tuple[CategoryFinding, ...],
) -> tuple[str, Outcome]:
    """Return the action in the service's word, where it names one, and what it means."""
    if rules.action is not None:
        return _by_action(rules, rules.action, document)
    if rules.blocked is not None:
        return "", _by_value(rules, rules.blocked, document)
    if rules.thresholds:
        return "", _by_category(rules, categories)
    if score is None or rules.threshold is None:
        where = "the body"
        if rules.score is not None:
            where = rules.score.text
        raise _NotUnderstood(f"there is no score at {where}")
    if score >= rules.threshold:
        return "", Outcome.BLOCK
    return "", Outcome.ALLOW


def _reasons(path: JsonPath, document: object) -> list[str]:
    """Return what an answer gives as reasons; what says nothing stands there as an empty text."""
    reasons = []
    for reason in path.find(document):
        reasons.append(str(reason or ""))
    return reasons


def _rewritten(rules: AnswerRules, document: object, native: str) -> str | None:
    """Return the text that goes on; a word that means rewrite needs one."""
    if rules.rewritten is None or (rules.rewriting and native not in rules.rewriting):
        return None
    for value in rules.rewritten.find(document):
        if isinstance(value, str):
            return value
        if value is not None:
            raise _NotUnderstood(
                f"the text at {rules.rewritten.text} is {_short(value)}, and not a text"
            )
    if native in rules.rewriting:
        raise _NotUnderstood(
            f"the action {native} means rewrite, and there is no text at {rules.rewritten.text}"
        )
    return None


def _of_confidence(
    rule: ConfidenceRule, scale: ScoreScale, document: object, outcome: Outcome
) -> tuple[float | None, str]:
    """Return the score that a confidence stands for, or why it is none."""
    values = [value for value in rule.path.find(document) if value is not None]
    if not values:
        return None, ""
    value = values[0]
    score = scale.risk(value)
    if score is None:
        why = (
            f"the confidence at {rule.path.text} is {_short(value)}, which is not on the scale "
            f"{scale.lowest:g} to {scale.highest:g}"
        )
        if rule.is_stated:
            raise _NotUnderstood(why)
        return None, why
    if rule.means == "certainty" and outcome is Outcome.ALLOW:
        return 1.0 - score, ""
    return score, ""


def _why_undecided(
    rules: AnswerRules, document: object, outcome: Outcome
) -> tuple[ErrorKind, str] | None:
    """Say why an allow, or a block, is no decision of the service."""
    if outcome is Outcome.ALLOW and rules.incomplete is not None:
        word = rules.incomplete.word(document)
        if word:
            message = f"the service says {word}: what it lets pass was not examined in full"
            return ErrorKind.SKIPPED, message
    if outcome is Outcome.BLOCK and rules.failed is not None:
        word = rules.failed.word(document)
        if word:
            message = f"the service says {word!r}: it blocks because something of it failed"
            return ErrorKind.CRASH, message
    return None


def _error(exchange: Exchange, kind: ErrorKind, message: str, *, truncated: bool) -> Decision:
    return Decision(
        outcome=Outcome.ERROR,
        error_kind=kind,
        latency_ns=exchange.service_ns,
        evidence=_evidence(exchange, truncated=truncated, message=message, raw=True),
    )


def _score(rules: AnswerRules, document: object) -> float | None:
    """Return the highest risk, or None when the service gives none."""
    if rules.score is None:
        return None
    values = [value for value in rules.score.find(document) if value is not None]
    risks = []
    for value in values:
        risk = rules.scale.risk(value)
        if risk is None:
            scale = f"{rules.scale.lowest:g} to {rules.scale.highest:g}"
            raise _NotUnderstood(
                f"the score at {rules.score.text} is {_short(value)}, which is not on the scale "
                f"{scale}"
            )
        risks.append(risk)
    return max(risks, default=None)


def _categories(rules: AnswerRules, document: object) -> tuple[CategoryFinding, ...]:
    """Return the native categories; those that a threshold decides on are flagged by it."""
    if rules.categories is None:
        return ()
    common = None
    is_highest_of_several = rules.score is not None and not rules.score.is_singular
    if is_highest_of_several and not rules.thresholds:
        common = rules.threshold  # the highest of their scores decides, so each is held to it
    categories = []
    for category in findings(rules.categories.find(document), rules.scale):
        threshold = rules.thresholds.get(category.name, common)
        if threshold is None or category.score is None:
            categories.append(category)
        else:
            categories.append(replace(category, flagged=category.score >= threshold))
    return tuple(categories)


def _by_category(rules: AnswerRules, categories: tuple[CategoryFinding, ...]) -> Outcome:
    """Block when the score of any category reaches its threshold.

    An answer that lacks one of the scores is not read at all, not even as a block by another
    category: it would be missing among what passes only, and so bend the rates.
    """
    by_name = {category.name: category for category in categories}
    outcome = Outcome.ALLOW
    for name, threshold in rules.thresholds.items():
        if name not in by_name:
            known = "none"
            if by_name:
                known = listed(sorted(by_name)[:_SHOWN_CATEGORIES])
            raise _NotUnderstood(f"it scores no category {name!r} (thresholds); it has: {known}")
        score = by_name[name].score
        if score is None:
            scale = f"{rules.scale.lowest:g} to {rules.scale.highest:g}"
            raise _NotUnderstood(f"the category {name!r} has no score on the scale {scale}")
        if score >= threshold:
            outcome = Outcome.BLOCK
    return outcome


def _by_action(rules: AnswerRules, path: JsonPath, document: object) -> tuple[str, Outcome]:
    """Return the word of the action that counts, and what it means."""
    values = path.find(document)
    words = [value for value in values if isinstance(value, str) and value in rules.actions]
    if not words or len(words) != len(values):
        known, shown = ", ".join(sorted(rules.actions)), "nothing"
        if values:
            shown = _short(values[0])
        raise _NotUnderstood(f"the action at {path.text} is {shown}; known: {known}")
    for word in words:
        if rules.actions[word] is Outcome.BLOCK:
            return word, Outcome.BLOCK
    # Of several words the one that says how the text was changed, or flagged, is worth keeping.
    telling = [word for word in words if says_changed(word)]
    telling += [word for word in words if word in rules.rewriting]
    telling += [word for word in words if word in rules.flagging]
    return (telling or words)[0], Outcome.ALLOW


def _by_value(rules: AnswerRules, path: JsonPath, document: object) -> Outcome:
    """Return what the value means that says whether the service blocks."""
    values = path.find(document)
    is_blocked = rules.blocked_rule(values)
    if is_blocked is None and values:
        raise _NotUnderstood(f"the value at {path.text} is {_short(values[0])}")
    if is_blocked is None:
        raise _NotUnderstood(f"there is nothing at {path.text}")
    if is_blocked:
        return Outcome.BLOCK
    return Outcome.ALLOW


def _by_status(
    rules: AnswerRules, exchange: Exchange, outcome: Outcome, *, truncated: bool
) -> Decision:
    """Return the decision that the HTTP status is by itself."""
    message, error_kind, evidence = "", None, None
    if outcome is Outcome.ERROR:
        message, error_kind = f"status {exchange.status} means error", ErrorKind.HTTP
    if message or exchange.attempts or rules.keep_raw or truncated:
        evidence = _evidence(exchange, truncated=truncated, message=message, raw=True)
    return Decision(
        outcome=outcome,
        error_kind=error_kind,
        latency_ns=exchange.service_ns,
        evidence=evidence,
    )


def _failed(rules: AnswerRules, exchange: Exchange, *, truncated: bool) -> Decision:
    """Return an error, or a block where a gateway refused the content with an error status."""
    code = _rejection_code(rules, exchange)
    if code:
        return Decision(
            outcome=Outcome.BLOCK,
            latency_ns=exchange.service_ns,
            evidence=Evidence(
                native_action=code,
                reason=f"the gateway refused the content ({exchange.status})",
                attempts=exchange.attempts,
                truncated=truncated,
            ),
        )
    return Decision(
        outcome=Outcome.ERROR,
        error_kind=exchange.error_kind,
        latency_ns=exchange.service_ns,
        evidence=_evidence(exchange, truncated=truncated, message=exchange.message),
    )


def _rejection_code(rules: AnswerRules, exchange: Exchange) -> str:
    """Return the code by which a gateway refused the content, or the empty string."""
    if rules.rejection is None or exchange.status is None or not 400 <= exchange.status < 500:
        return ""
    try:
        return rules.rejection.word(json.loads(exchange.body))
    except (ValueError, RecursionError):
        return ""


def _no_json(exchange: Exchange, *, truncated: bool) -> Decision:
    """Tell a damaged answer of the service from an answer of something else altogether."""
    outcome: Outcome = Outcome.ERROR
    error_kind: ErrorKind | None = ErrorKind.CONTRACT
    message = f"the answer is {exchange.content_type or 'of no stated type'}, not JSON"
    if exchange.content_type.endswith("json"):
        outcome, error_kind, message = Outcome.MALFORMED, None, "the answer is damaged JSON"
    if exchange.content_type == EVENTS or exchange.content_type in JSON_LINES:
        message += (
            "; a service that streams needs the setting stream, such as stream: "
            '{each: "$.chunk", blocked: "$.blocked", end: "[DONE]"}'
        )
    return Decision(
        outcome=outcome,
        error_kind=error_kind,
        latency_ns=exchange.service_ns,
        evidence=_evidence(exchange, truncated=truncated, message=message, raw=True),
    )


def _evidence(
    exchange: Exchange, *, truncated: bool, message: str = "", raw: bool = False
) -> Evidence:
    """Return what is kept of an exchange beside its decision, with the answer where `raw`."""
    answer = ""
    if raw:
        answer = _raw(exchange)
    return Evidence(message=message, raw=answer, attempts=exchange.attempts, truncated=truncated)


def _raw(exchange: Exchange) -> str:
    return exchange.body[: 4 * _RAW].decode("utf-8", "replace")[:_RAW]


def _short(value: object) -> str:
    return json.dumps(value)[:60]
