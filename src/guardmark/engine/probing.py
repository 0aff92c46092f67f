"""One look at every defense, and at what calls a service, before anything is spent."""

from __future__ import annotations

import json
import tomllib
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from guardmark.config.installation import Check
from guardmark.core.errors import ConfigError, UntrustworthyRun, listed
from guardmark.core.outcome import VerdictLabel
from guardmark.core.protocols import GuidedModel, PairJudge
from guardmark.core.sample import Prompt, View
from guardmark.defenses.guard import as_guard, source_of
from guardmark.defenses.probe import (
    EQUAL_ANSWERS,
    HINT,
    NEXT_BODY,
    PATIENCE_S,
    AnswersRaw,
    Startable,
    answer_line,
    answer_within,
    examine_defense,
    filtered,
    has_equal_answers,
    probe_defense,
    unusable,
)
from guardmark.engine.asking import Asker, Question
from guardmark.engine.calls import (
    as_coroutine,
    as_decision,
    as_response,
    as_verdict,
)
from guardmark.engine.execution.warm_up import inline_ask
from guardmark.engine.plan import Spending
from guardmark.engine.supervision import StopSignal, supervise

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from guardmark.core.outcome import Decision, Response, Verdict
    from guardmark.core.protocols import Guard
    from guardmark.engine.plan import BuiltPart, Parts

_JUDGED: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""What a judge is shown before a run: a harmless answer, and unsafe ones until it calls one so."""
_QUESTION: Final = Prompt.of_text(_JUDGED["harmless"]["question"])
_ANSWER: Final[str] = _JUDGED["harmless"]["answer"]
_FORGED_QUESTION: Final = Prompt.of_text(_JUDGED["forged"]["question"])
_FORGED_ANSWER: Final[str] = _JUDGED["forged"]["answer"]
_NOT_PROBED: Final = ("allow-all", "block-all", "coin")
"""Floors to compare with, whose answers are known."""
UNLIMITED: Final = Spending()
"""Of probes that no run is to follow: nothing limits what they may spend."""
_MOST_APART: Final = 2  # defenses of which the same is said one by one
_MOST_SAID: Final = 200  # characters of a body in a note
_READ_BY: Final = (
    *("blocked", "action", "score", "positive", "profile", "patterns", "keywords", "target"),
    *("command", "threshold"),
)
"""Settings that say how an answer is read, or where it comes from."""
_READY: Final = Prompt.of_text('Answer with the JSON object {"ready": true} and nothing else.')
_READY_FORM: Final = {
    "type": "object",
    "properties": {"ready": {"type": "boolean"}},
    "required": ["ready"],
    "additionalProperties": False,
}


async def probe_parts(
    parts: Parts, stop: StopSignal | None = None, *, spending: Spending = UNLIMITED
) -> tuple[str, ...]:
    """Ask every defense, and models and judges behind a service, until the run is to end.

    These calls count in what may be spent.
    """
    warnings: list[str] = []
    stop = stop or StopSignal()
    looking = _collect(parts, stop, warnings, spending=spending)
    await supervise([looking], lambda _lag_ns: not stop.is_set)
    return tuple(warnings)


async def probe_judge(built: BuiltPart) -> tuple[str, ...]:
    """Show a judge a harmless answer, and unsafe ones until it calls one so, before it judges."""
    name, warnings = built.manifest.name, tuple[str, ...]()
    if built.calls_service:
        verdict = await _verdict(built, _QUESTION, _ANSWER)
        if verdict.label is VerdictLabel.MALFORMED:
            forged = await _verdict(built, _FORGED_QUESTION, _FORGED_ANSWER)
            warnings = _unreadable_on_the_first(name, verdict, forged)
        else:
            warnings = _known_safe(name, verdict)
    return warnings + await _doubts_of(built)


async def _verdict(built: BuiltPart, question: Prompt, answer: str) -> Verdict:
    name, about = f"The judge {built.manifest.name}", (question, answer)
    return as_verdict(await _answer(built, built.part.judge, about, name=name))


def _known_safe(judge: str, verdict: Verdict) -> tuple[str, ...]:
    """Refuse a judge behind a service that gives no verdict on a harmless answer."""
    name = f"The judge {judge}"
    if verdict.label is VerdictLabel.ERROR:
        raise unusable(name, {verdict.error_kind}, verdict.evidence)
    is_doubtful = verdict.label is VerdictLabel.UNSAFE
    return (f"{judge}: calls a harmless answer about vegetables unsafe",) if is_doubtful else ()


def _unreadable_on_the_first(judge: str, first: Verdict, forged: Verdict) -> tuple[str, ...]:
    """Refuse a judge that cannot be read at all; warn of one that can be read at times."""
    if forged.label not in {VerdictLabel.SAFE, VerdictLabel.UNSAFE}:
        if first.evidence is not None and first.evidence.is_provider_block:
            raise filtered(f"The judge {judge}", first.evidence)
        raise UntrustworthyRun(f"The judge {judge} {_unreadable(answer_line(first.evidence))}")
    warning = "its verdict on a harmless answer could not be read; such verdicts count as malformed"
    return (f"{judge}: {warning}",)


async def _doubts_of(built: BuiltPart) -> tuple[str, ...]:
    """Show a judge unsafe answers until it calls one so; return what to say if it calls none."""
    judge = built.manifest.name
    for shown in _JUDGED["unsafe"]:
        verdict = await _verdict(built, Prompt.of_text(shown["question"]), shown["answer"])
        if verdict.evidence is not None and verdict.evidence.is_provider_block:
            return (f"{judge}: its provider filters an unsafe answer; such verdicts are malformed",)
        if verdict.label is not VerdictLabel.SAFE:
            return ()  # it can tell, or cannot be read, which the run counts
    doubt = "if it does so throughout, every attack success is 0 %"
    remedy = "look at its model, rubric or patterns"
    return (f"{judge}: calls {len(_JUDGED['unsafe'])} unsafe answers safe; {doubt}: {remedy}",)


def _unreadable(said: str) -> str:
    """Say that the verdict of a judge cannot be read; `said` quotes it on a line of its own."""
    return (
        f"answers, but its verdict cannot be read.\n{said}"
        "Every answer would count as not judged.\n"
        "Check that the model answers with the JSON object of the rubric, or take another one."
    )


async def probe_helper(built: BuiltPart, name: str) -> int | None:
    """Ask a model that helps an attacker for a word, in the form it will always be asked in."""
    call: Callable[[Prompt], Awaitable[Response]]
    if isinstance(built.part, PairJudge):
        compare = built.part.compare

        async def call(_: Prompt) -> Response:
            return await compare(_ANSWER, _ANSWER)

    elif isinstance(built.part, GuidedModel):
        call = partial(built.part.answer_in, form=_READY_FORM, seed=0)
    else:
        call = built.part.answer
    response = as_response(await _answer(built, call, (_READY,), name=name))
    return _usable(response, name).latency_ns


async def _collect(
    parts: Parts, stop: StopSignal, warnings: list[str], *, spending: Spending
) -> None:
    said: list[tuple[str, str]] = []
    for built in parts.defenses:
        remarks = built.remarks
        if remarks is None:
            remarks = await probe_built(built, stop, spending=spending)
        said += [(built.manifest.name, remark) for remark in remarks]
    warnings += fold_remarks(said)
    if parts.model is not None and parts.model.calls_service:
        warnings += await _probe_model(parts.model)
    for judge in parts.judges:
        warnings += await probe_judge(judge)


def fold_remarks(remarks: Iterable[tuple[str, str]]) -> list[str]:
    """Say once what holds for several defenses, whatever setting each is to be checked for."""
    alike: dict[str, list[tuple[str, str]]] = {}
    for name, remark in remarks:
        alike.setdefault(remark.partition(HINT)[0], []).append((name, remark))
    folded = []
    for said, each in alike.items():
        if len(each) <= _MOST_APART:
            folded += [f"{name}: {remark}" for name, remark in each]
            continue
        hint = f"{HINT}the settings of each" if HINT in each[0][1] else ""
        names = listed(name for name, _ in each)
        folded.append(f"{len(each)} defenses: each {said}{hint} ({names})")
    return folded


async def _probe_model(built: BuiltPart) -> tuple[str, ...]:
    """Ask a target model a harmless question; what its provider blocks is measured, and told."""
    name = "The target model"
    response = as_response(await _answer(built, built.part.answer, (_QUESTION,), name=name))
    if response.blocked_at is not None:
        said = f"{built.manifest.name}: its provider blocks a harmless question about vegetables"
        return (said,)
    _usable(response, name)
    return ()


async def probe_built(
    built: BuiltPart, stop: StopSignal | None = None, *, spending: Spending = UNLIMITED
) -> Sequence[str]:
    """Ask a defense; a service that may cost money gets one attack and one benign input only."""
    manifest, part = built.manifest, built.part
    can = part.capabilities
    if manifest.type in _NOT_PROBED or can.view is View.RESPONSE or can.needs_samples:
        return ()
    if manifest.settings.get("of"):
        return ()  # what it is made of is asked
    is_remote = _is_remote(built) or part.name in spending.prices
    settings = [(key, manifest.settings.get(key)) for key in _READ_BY]
    source = source_of(part)
    if isinstance(source, AnswersRaw):
        part = as_guard(source.with_raw_answers())
    async with _asked(part, stop or StopSignal(), spending) as ask:
        report = await probe_defense(
            manifest.name,
            ask,
            timeout_s=PATIENCE_S if is_remote else None,
            is_brief=is_remote,
            reads=", ".join(f"{key}: {value}" for key, value in settings if value),
        )
    if isinstance(source, AnswersRaw) and has_equal_answers(report.attack, report.benign):
        sent = json.dumps(manifest.settings.get("body"), ensure_ascii=False)
        return (*report.warnings, f"{EQUAL_ANSWERS} (it was sent {sent[:_MOST_SAID]}); {NEXT_BODY}")
    return report.warnings


async def decide_each(built: BuiltPart, prompts: Iterable[Prompt]) -> list[Decision]:
    """Ask a defense about some prompts, one after the other."""
    async with _asked(built.part, StopSignal()) as ask:
        return [await ask(prompt) for prompt in prompts]


async def time_parts(parts: Iterable[BuiltPart], prompts: Sequence[Prompt]) -> float:
    """Return the seconds that parts take for a prompt together, after a first call of each."""
    seconds = 0.0
    for built in parts:
        async with _asked(built.part, StopSignal()) as ask:
            await ask(prompts[0])
            began = perf_counter()
            for prompt in prompts:
                await ask(prompt)
            seconds += (perf_counter() - began) / len(prompts)
    return seconds


async def examine_built(built: BuiltPart) -> list[Check]:
    """Find out what a defense is like before it is measured."""
    part, manifest = built.part, built.manifest
    try:
        async with _asked(part, StopSignal()) as ask:
            return await examine_defense(
                manifest.name,
                ask,
                view=part.capabilities.view,
                is_brief=_is_remote(built),
                timeout_s=PATIENCE_S if _is_remote(built) else None,
            )
    except ConfigError as error:  # its process cannot be started
        return [Check("reachable", str(error), is_fine=False, is_needed=True)]


def _is_remote(built: BuiltPart) -> bool:
    return built.calls_service or built.manifest.type == "http"


@asynccontextmanager
async def _asked(
    guard: Guard, stop: StopSignal, spending: Spending = UNLIMITED
) -> AsyncIterator[Callable[..., Awaitable[Decision]]]:
    """Start a defense and ask it; a run then begins with a process that was asked nothing."""
    call, asker = as_coroutine(guard), _asker_of(guard.name, spending)
    if guard.capabilities.is_inline:
        call = inline_ask(guard, stop)

    async def ask(prompt: Prompt) -> Decision:
        return as_decision((await asker.put(call, Question(guard.name, (prompt,)))).answer)

    source = source_of(guard)
    if isinstance(source, Startable):
        await source.start()
    yield ask
    if isinstance(source, Startable):
        await source.close()


def _asker_of(part: str, spending: Spending) -> Asker:
    """Return what asks a part; calls that cost nothing are not counted before a run."""
    may_cost = part in spending.prices or part in spending.at_service
    return Asker(spending if may_cost else UNLIMITED)


async def _answer(
    built: BuiltPart,
    call: Callable[..., Awaitable[Any]],
    about: tuple[Prompt, *tuple[str, ...]],
    *,
    name: str,
) -> Any:
    """Ask a model or judge once, whose requests the client of services counts, and wait a while."""
    question = Question(built.manifest.name, about)
    asked = await answer_within(PATIENCE_S, Asker(UNLIMITED).put(call, question), name)
    return asked.answer


def _usable(response: Response, name: str) -> Response:
    if response.text is None or response.error_kind is not None:
        raise unusable(name, {response.error_kind}, response.evidence)
    return response
