"""Questions before a run whose answers are known: attacks and benign inputs, all harmless."""

from __future__ import annotations

import asyncio
import json
import tomllib
from functools import cache
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from guardmark.config.installation import Check
from guardmark.core.errors import (
    ConfigError,
    GuardmarkError,
    ServiceError,
    ServiceRefused,
    ServiceTimeout,
    UntrustworthyRun,
)
from guardmark.core.outcome import ErrorKind, Outcome
from guardmark.core.protocols import Closable
from guardmark.core.sample import Message, Prompt, Role, View
from guardmark.core.values import dataclass
from guardmark.defenses.answers import NEXT_CONFIDENCE, ConfidenceRange

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
    from typing import TypeVar

    from guardmark.core.outcome import Decision, Evidence
    from guardmark.defenses.guard import AnyDefense

    Ask = Callable[[Prompt], Awaitable[Decision]]
    T = TypeVar("T")
    Texts = Sequence[tuple[Decision, Decision, Decision]]

_ANSWERED = (Outcome.ALLOW, Outcome.BLOCK)
_EXCERPT = 160
_MOST_PLACES, _MOST_PATHS = 300, 4
"""Places of an answer that are looked at, and paths of a kind that are named."""
_OF_ONE_TEXT = frozenset({None, ErrorKind.CRASH, ErrorKind.SKIPPED, ErrorKind.LENGTH})


HINT: Final = "; if you expected otherwise, check "
"""Stands before the setting of a defense by which it decides."""
_OF_THOUGHT: Final = "a model that thinks needs room for its thoughts too, or reasoning_effort: low"


@cache
def _table(key: str) -> Any:
    """Return one table of `probe.toml`, which is read when a defense is probed."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return tables[key]


PATIENCE_S: Final = 8.0
"""How long a probe waits, so that a silent service ends the whole command, start-up included,
within 10 s."""
_MOST_S: Final = 4.0
"""How long a defense that costs nothing is asked more: a slow one is asked less."""


@runtime_checkable
class Startable(Closable, Protocol):
    """A defense that begins anew: after `close` it starts again when it is asked."""

    async def start(self) -> None:
        """Start, to see that it can be; a ConfigError says why it cannot."""
        ...


@runtime_checkable
class AnswersRaw(Protocol):
    """A defense that asks a service and can keep what the service answered."""

    def with_raw_answers(self) -> AnyDefense:
        """Return the defense with what the service answered among its evidence."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What a probe saw."""

    defense: str
    attack: Decision
    benign: Decision
    warnings: tuple[str, ...] = ()


async def probe_defense(
    name: str,
    ask: Ask,
    *,
    timeout_s: float | None = PATIENCE_S,
    is_brief: bool = True,
    reads: str = "",
) -> ProbeReport:
    """Ask a defense questions whose answers are known, before a run spends anything.

    Brief is one of each; otherwise several, twice in another order, so that state and chance
    show. `reads` names the settings its answers are read by.
    """
    began = monotonic()
    # The benign input first: an alarm may lock a defense.
    both = asyncio.gather(ask(_shown(_table("benign")[0])), ask(_shown(_table("attacks")[0])))
    benign, attack = await answer_within(timeout_s, both, name)
    took_s = monotonic() - began
    _stop_if_hopeless(name, attack, benign, is_inside=not is_brief)
    warnings = _warnings(attack, benign)
    if not is_brief:
        each = min(len(_table("attacks")), int(_MOST_S / max(took_s, 1e-3)) // 2)
        warnings = await _ask_more(name, ask, (attack, benign), each=each, reads=reads)
    return ProbeReport(defense=name, attack=attack, benign=benign, warnings=tuple(warnings))


async def answer_within(timeout_s: float | None, call: Awaitable[T], name: str) -> T:
    """Wait for a part, or raise that it is silent."""
    try:
        async with asyncio.timeout(timeout_s):
            return await call
    except TimeoutError as error:
        raise ServiceTimeout(
            f"{name} did not answer within {timeout_s:g} s.\n"
            "Check that the service is running and its address is right; a model that is still "
            "loading needs a first call by hand."
        ) from error


def _shown(text: str) -> Prompt:
    """Show a text to every view: as what the user says and as the document at hand."""
    return Prompt(
        messages=(Message(role=Role.DOCUMENT, content=text), Message(role=Role.USER, content=text)),
        under_test=1,
    )


async def _ask_more(
    name: str, ask: Ask, known: tuple[Decision, Decision], *, each: int, reads: str
) -> list[str]:
    """Ask about the other texts, then about all of them again, backwards."""
    attack, benign = known
    texts = [_table("benign")[0], _table("attacks")[0]]
    first = [benign, attack]
    for text in (*_table("benign")[1:each], *_table("attacks")[1:each]):
        texts.append(text)
        first.append(await ask(_shown(text)))
    again: list[Decision] = []
    if each:
        for text in reversed(texts):
            again.append(await ask(_shown(text)))
        again.reverse()
    warnings = []
    if attack.outcome is not benign.outcome:
        warnings += _warnings(attack, benign)
    warnings += _always_the_same([*first, *again], count=len(texts) // 2, reads=reads)
    failed = _unanswered(first)
    if failed and not warnings:
        warnings.append(
            f"gives no decision on {len(failed)} of {len(texts)}: {_message(failed[0])}"
        )
    if again:
        warnings += _changed(first, again)
    scores = set()
    confidences = ConfidenceRange()
    for decision in first:
        scores.add(decision.score)
        confidences.add(decision)
    if confidences.is_contradicted:
        raise ConfigError(f"{name}: {confidences.sentence}.\n{NEXT_CONFIDENCE}")
    if len(scores) == 1 and None not in scores:
        warnings.append(f"gives every known attack and known benign input {scores.pop():g}")
    return warnings


def _unanswered(decisions: Sequence[Decision]) -> list[Decision]:
    """Return the decisions that neither allow nor block."""
    return [decision for decision in decisions if decision.outcome not in _ANSWERED]


def _verb(outcome: Outcome) -> str:
    if outcome is Outcome.BLOCK:
        return "blocks"
    return "allows"


def _always_the_same(decisions: Sequence[Decision], *, count: int, reads: str) -> list[str]:
    """Warn of a defense that decides alike on all known inputs, `count` of each kind."""
    outcomes = {decision.outcome for decision in decisions}
    if len(outcomes) > 1 or not outcomes <= set(_ANSWERED):
        return []
    these = "a known attack and a known benign input"
    if count > 1:
        these = f"all {count} known attacks and all {count} known benign inputs"
    warning = f"{_verb(outcomes.pop())} {these}"
    if reads:
        warning += f"{HINT}{reads}"
    return [warning]


def _changed(first: Sequence[Decision], again: Sequence[Decision]) -> list[str]:
    """Warn of inputs that got another answer when they were asked about again."""
    changed = []
    for before, after in zip(first, again, strict=True):
        if _seen(before) != _seen(after):
            changed.append((before, after))
    if not changed:
        return []
    before, after = changed[0]
    warning = (
        f"answers {len(changed)} of {len(first)} known inputs differently when asked again in "
        f"another order (first {_brief(before)}, then {_brief(after)}): it keeps state between "
        "calls, or draws its answers; restart_after: 1 of a process of its own gives each "
        "sample a fresh one"
    )
    return [warning]


def _brief(decision: Decision) -> str:
    if decision.score is None:
        return f"{decision.outcome}"
    return f"{decision.outcome} {decision.score:.3g}"


def unusable(
    name: str, kinds: Collection[ErrorKind | None], evidence: Evidence | None
) -> GuardmarkError:
    """Return the error that says why a part cannot be used, and what to do."""
    cause = ""
    if evidence is not None:
        cause = " ".join(evidence.message.split()).rstrip(".")
    reason = f"{name} cannot be used: {cause or next(iter(kinds)) or 'no answer came'}."
    if ErrorKind.REFUSED in kinds:
        # Without an attempt it was we who refused: offline, or not on the cassette.
        if evidence is not None and evidence.attempts:
            reason += "\nCheck that its key is the right one and still valid."
        return ServiceRefused(reason)
    if ErrorKind.TIMEOUT in kinds:
        return ServiceTimeout(
            f"{reason}\nCheck that it is running and answers at all; read_timeout_s of a service, "
            "timeout_s of anything else sets the wait."
        )
    if ErrorKind.LENGTH in kinds:
        return UntrustworthyRun(f"{reason}\nAllow it more tokens: max_tokens; {_OF_THOUGHT}.")
    if ErrorKind.CONTRACT in kinds:
        return UntrustworthyRun(
            f"{reason}\n{answer_line(evidence)}"
            "Check that the address is that of the service itself."
        )
    return ServiceError(f"{reason}\n{advise(evidence)}")


EQUAL_ANSWERS: Final = "answers two different known texts with the same bytes"
NEXT_BODY: Final = (
    "if it reads another field, such as input: --body '{input: {$input: text}}' with "
    "--url, or the same at body in a configuration; when all answers of the run are alike, there "
    "is no verdict"
)


def has_equal_answers(attack: Decision, benign: Decision) -> bool:
    """Tell whether two different texts brought the same bytes."""
    if attack.evidence is None or benign.evidence is None:
        return False
    return bool(attack.evidence.raw) and attack.evidence.raw == benign.evidence.raw


def filtered(name: str, evidence: Evidence) -> ServiceError:
    """Return the error that says that the provider of a part filters what it is to read."""
    return ServiceError(
        f"{name} cannot look: {evidence.message.rstrip('.')}.\n"
        "Its provider filters even a harmless known text, so it would judge nothing.\n"
        "Next: have the filter lifted, or name a service that does not filter."
    )


def _stop_if_hopeless(name: str, attack: Decision, benign: Decision, *, is_inside: bool) -> None:
    """Raise when neither question got an answer that can be read."""
    if attack.outcome in _ANSWERED or benign.outcome in _ANSWERED:
        return
    if benign.evidence is not None and benign.evidence.is_provider_block:
        raise filtered(name, benign.evidence)
    if Outcome.MALFORMED in {attack.outcome, benign.outcome}:
        unreadable = benign
        if attack.outcome is Outcome.MALFORMED:
            unreadable = attack
        raise UntrustworthyRun(
            f"{name} answers, but its answers cannot be read: {_message(unreadable)}.\n"
            f"{answer_line(unreadable.evidence)}"
            "Every sample would count as malformed, and a policy of blocking those would look "
            "like a perfect defense.\nCheck the profile or the paths, or what a function returns."
        )
    kinds = {attack.error_kind, benign.error_kind}
    if kinds - _OF_ONE_TEXT and not is_inside:  # which may fail on these: the run counts it
        raise unusable(name, kinds, attack.evidence)


def advise(evidence: Evidence | None) -> str:
    """Say what to do about a service that failed, by the last status it answered with."""
    status = None
    if evidence is not None and evidence.attempts:
        status = evidence.attempts[-1].status
    if status is not None:
        for (low, high), advice in _table("advice"):
            if low <= status <= high:
                return str(advice)
    return "Check that the service is running and its address is right."


def _warnings(attack: Decision, benign: Decision) -> list[str]:
    """Say what is odd, in one sentence each."""
    warnings = []
    for what, decision in (("a known attack", attack), ("a known benign input", benign)):
        if decision.outcome not in _ANSWERED:
            warnings.append(f"gives no decision on {what}: {_message(decision)}")
    if warnings:
        return warnings
    if attack.outcome is benign.outcome:
        verb = _verb(attack.outcome)
        warnings.append(f"{verb} both a known attack and a known benign input")
    if attack.score is not None and attack.score == benign.score:
        warnings.append(f"gives both a known attack and a known benign input {attack.score:g}")
    remarks = dict.fromkeys([_remark(attack), _remark(benign)])  # the same one is told once
    for remark in remarks:
        if remark:
            warnings.append(" ".join(remark.split())[:_EXCERPT])
    return warnings


def _remark(decision: Decision) -> str:
    """Return what the evidence of a decision says; empty where it says nothing."""
    if decision.evidence is None:
        return ""
    return decision.evidence.message


def _message(decision: Decision) -> str:
    """Say what went wrong, on one short line."""
    remark = _remark(decision)
    return _brief_line(remark or f"{decision.outcome.value} {decision.error_kind or ''}")


def _brief_line(message: str) -> str:
    return " ".join(message.split())[: 2 * _EXCERPT].rstrip(".")


def answer_line(evidence: Evidence | None) -> str:
    """Quote the native answer, if there is one, as a line of its own, and what it may mean."""
    raw = quote_answer(evidence)
    if not raw:
        return ""
    return f"It said: {raw}\n"


def quote_answer(evidence: Evidence | None) -> str:
    """Return the beginning of a native answer, and the paths in it that may decide."""
    if evidence is None:
        return ""
    raw = " ".join(evidence.raw.split())[:_EXCERPT]
    paths = propose_paths(evidence.raw)
    if not paths:
        return raw
    return f"{raw} ({paths})"


def propose_paths(raw: str) -> str:
    """Name the places of a JSON answer that hold true or false, or a number in [0, 1]."""
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        return ""
    outcomes, scores = list[str](), list[str]()
    waiting: list[tuple[str, object]] = [("$", document)]
    for path, value in waiting:  # which grows while it is walked
        for key, member in _members(value):
            if len(waiting) >= _MOST_PLACES:
                break
            waiting.append((f"{path}{_step(key)}", member))
        if isinstance(value, bool):
            outcomes.append(path)
        elif isinstance(value, int | float) and 0 <= value <= 1:
            scores.append(path)
    proposals = []
    if outcomes:
        proposals.append(f"true or false: {', '.join(outcomes[:_MOST_PATHS])}")
    if scores:
        proposals.append(f"a number in [0, 1]: {', '.join(scores[:_MOST_PATHS])}")
    return "; ".join(proposals)


def _members(value: object) -> Iterable[tuple[str | int, object]]:
    """Return the members of an object, or the first of a list, which stands for the others."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list):
        return enumerate(value[:1])
    return ()


def _step(key: str | int) -> str:
    """Return the step of a JSONPath to a member of an object or a list."""
    if isinstance(key, int):
        return f"[{key}]"
    if key.isidentifier() and key.isascii():
        return f".{key}"
    return f"[{json.dumps(key)}]"


async def examine_defense(
    name: str, ask: Ask, *, view: View, is_brief: bool, timeout_s: float | None
) -> list[Check]:
    """Ask about known attacks and benign texts, each twice, then once more backwards.

    Brief is one of each. What answers differently at once draws its answers; what answers
    differently only after others keeps state.
    """
    began = monotonic()
    try:
        report = await probe_defense(name, _viewed(ask, view), timeout_s=timeout_s)
    except (ServiceError, ConfigError) as error:
        return [Check("reachable", str(error), is_fine=False, is_needed=True)]
    except UntrustworthyRun as error:
        return [_reached(began), Check("answers fit", str(error), is_fine=False)]
    reached = _reached(began)
    each = 1  # texts of each kind
    if not is_brief:
        within = int(_MOST_S / max(monotonic() - began, 1e-3))
        each = max(1, min(len(_table("attacks")), within))
    shown = [_as_seen(text, view) for text in _table("benign")[:each]]
    shown += [_as_seen(text, view) for text in _table("attacks")[:each]]
    first: list[Decision] = []
    second: list[Decision] = []
    last: list[Decision] = []
    for prompt in shown:
        first.append(await ask(prompt))
        second.append(await ask(prompt))
    for prompt in reversed(shown):
        last.append(await ask(prompt))
    last.reverse()
    answers = list(zip(first, second, last, strict=True))
    decisions: list[Decision] = []
    for of_one_text in answers:
        decisions.extend(of_one_text)
    checks = [reached, _fitting(decisions)]
    if not _unanswered(first):
        half = len(first) // 2
        # Asked before any alarm: a guard that its first alarm locks is locked ever after.
        answers.append((report.benign, report.benign, first[0]))
        checks += [*_steady(answers), _telling(first[:half], first[half:]), _score(first)]
    return checks


def _viewed(ask: Ask, view: View) -> Ask:
    """Show the probe's questions as an answer to a defense that sees nothing else."""

    async def ask_viewed(prompt: Prompt) -> Decision:
        if view is View.RESPONSE:
            prompt = _as_seen(prompt.text, view)
        return await ask(prompt)

    return ask_viewed


def _as_seen(text: str, view: View) -> Prompt:
    if view is not View.RESPONSE:
        return _shown(text)
    question = Message(role=Role.USER, content="Please answer.")
    return Prompt(messages=(question, Message(role=Role.ASSISTANT, content=text)))


def _reached(began: float) -> Check:
    took_ms = 1000 * (monotonic() - began)
    return Check("reachable", f"two answers within {took_ms:,.0f} ms", is_fine=True)


def _fitting(decisions: Sequence[Decision]) -> Check:
    """Tell whether every answer is a decision, and quote what the answers remark."""
    failed = _unanswered(decisions)
    if failed:
        is_fine: bool | None = False
        if all(decision.error_kind is ErrorKind.SKIPPED for decision in failed):
            is_fine = None  # one that knows the samples of a run only is no fault
        detail = f"no decision on {len(failed)} of {len(decisions)}: {_message(failed[0])}"
        return Check("answers fit", detail, is_fine=is_fine)
    remarks = {_remark(decision) for decision in decisions} - {""}
    detail = "; ".join(sorted(remarks)) or f"{len(decisions)} answers, each a decision"
    return Check("answers fit", detail, is_fine=not remarks)


def _steady(answers: Texts) -> Iterator[Check]:
    """Tell what draws its answers from what keeps state, as far as they can be told apart."""
    count = len(answers) - 1  # the first text stands there twice
    at_once, later = 0, 0
    for first, second, last in answers:
        if _seen(first) != _seen(second):
            at_once += 1
        if _seen(second) != _seen(last):
            later += 1
    if at_once:
        drawn = f"{at_once} of {count} texts got another answer when asked again at once"
        yield Check("deterministic", drawn, is_fine=False)
        return
    yield Check("deterministic", f"{count} texts, each asked twice in a row", is_fine=True)
    if later:
        kept = (
            f"{min(count, later)} of {count} texts got another answer after other texts: "
            "restart_after: 1 of a process of its own gives each sample a fresh one"
        )
        yield Check("stateless", kept, is_fine=False)
        return
    yield Check("stateless", f"{count} texts, asked again backwards", is_fine=True)


def _seen(decision: Decision) -> tuple[Outcome, float | None]:
    return decision.outcome, decision.score


def _blocks(decisions: Sequence[Decision]) -> int:
    return [decision.outcome for decision in decisions].count(Outcome.BLOCK)


def _telling(benign: Sequence[Decision], attacks: Sequence[Decision]) -> Check:
    """Tell whether a defense blocks more known attacks than benign texts."""
    alarms, stops = _blocks(benign), _blocks(attacks)
    detail = (
        f"blocks {stops} of {len(attacks)} known attacks, {alarms} of {len(benign)} benign texts"
    )
    scores = {decision.score for decision in (*benign, *attacks)}
    is_constant = len(scores) == 1 and None not in scores
    if is_constant:
        detail += f"; the score is always {scores.pop():g}"
    return Check("tells apart", detail, is_fine=stops > alarms and not is_constant)


def _score(decisions: Sequence[Decision]) -> Check:
    """Say which scores a defense gives, and their range."""
    scores, kinds = list[float](), set[str]()
    for decision in decisions:
        if decision.score is not None:
            scores.append(decision.score)
            kinds.add(decision.score_kind.value)
    if not scores:
        return Check("score kind", "none: one operating point, no curve")
    detail = f"{', '.join(sorted(kinds))}, {min(scores):.3g} to {max(scores):.3g} here"
    return Check("score kind", detail, is_fine=True)


def limits_of(settings: object, stated: str = "") -> Check:
    """Return the limits that settings set, and those that a profile states."""
    limits = []
    for key in _table("limits"):
        value = getattr(settings, key, None)
        if value not in (None, False):
            limits.append(f"{key}: {value}")
    if stated:
        limits.append(stated)
    if not limits:
        return Check("limits", "none are declared")
    return Check("limits", "; ".join(limits), is_fine=True)


def in_order(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Return a check for every question, unknown where nothing was found out."""
    known = {check.subject: check for check in checks}
    for question in _table("questions"):
        known.setdefault(question, Check(question, "not known"))
    return tuple(known[question] for question in _table("questions"))
