"""One look at every defense, and at what calls a service, before anything is spent."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from guardmark.config.installation import Check
from guardmark.core.errors import ConfigError, StoreError, UntrustworthyRun, listed
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
    answer_within,
    examine_defense,
    filtered,
    has_equal_answers,
    probe_defense,
    said_line,
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
from guardmark.judges.probe import (
    ANSWER,
    FORGED_ANSWER,
    FORGED_QUESTION,
    QUESTION,
    doubts_of,
    unreadable,
)
from guardmark.net.service import ENDPOINTS, traffic_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from guardmark.core.outcome import Decision, Response, Verdict
    from guardmark.core.protocols import Guard
    from guardmark.engine.plan import BuiltPart, Parts
    from guardmark.store.reader import RecordReader
    from guardmark.store.records import RecordWriter
    from guardmark.store.run_dir import RunDir

_MOST_READ: Final = 1 << 20  # of a file that anybody may have made
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
        verdict = await _verdict(built, QUESTION, ANSWER)
        if verdict.label is VerdictLabel.MALFORMED:
            forged = await _verdict(built, FORGED_QUESTION, FORGED_ANSWER)
            warnings = _unreadable_on_the_first(name, verdict, forged)
        else:
            warnings = _known_safe(name, verdict)
    return warnings + await doubts_of(name, partial(_verdict, built))


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
        raise UntrustworthyRun(f"The judge {judge} {unreadable(said_line(first.evidence))}")
    warning = "its verdict on a harmless answer could not be read; such verdicts count as malformed"
    return (f"{judge}: {warning}",)


async def probe_helper(built: BuiltPart, name: str) -> int | None:
    """Ask a model that helps an attacker for a word, in the form it will always be asked in."""
    call: Callable[[Prompt], Awaitable[Response]]
    if isinstance(built.part, PairJudge):
        compare = built.part.compare

        async def call(_: Prompt) -> Response:
            return await compare(ANSWER, ANSWER)

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
    response = as_response(await _answer(built, built.part.answer, (QUESTION,), name=name))
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


_REFUSED_FIELDS: Final = "refused-fields/"
"""How the names of layers begin that say which field of its requests a server refused."""
_NO_SCORE: Final = "; no score: the server gives no token probabilities"


def note_refused_fields(writer: RecordWriter, refused: Mapping[str, Any]) -> list[str]:
    """Store which fields each service refused by name, and say it, a sentence for each."""
    sentences = [
        f"{address} refuses {name}: "
        f"{f'{instead} was sent instead' if instead else 'it was left out'}"
        f"{_NO_SCORE if name == 'top_logprobs' else ''}"
        for address, fields in refused.items()
        for name, instead in fields.items()
    ]
    for sentence in sentences:
        writer.add_layer(f"{_REFUSED_FIELDS}{sentence}", {})
    return sentences


def refused_fields(reader: RecordReader) -> tuple[str, ...]:
    """Return these sentences of a run."""
    layers = (layer for layer in reader.layers() if layer.startswith(_REFUSED_FIELDS))
    return tuple(layer.removeprefix(_REFUSED_FIELDS) for layer in layers)


def read_endpoints(folder: RunDir) -> tuple[str, ...]:
    """Read how each of several addresses of a service answered, a line for each command."""
    path = folder.file(ENDPOINTS)
    if not path.is_file():
        return ()
    try:
        with path.open("rb") as file:
            lines = file.read(_MOST_READ).splitlines()
        return tuple(traffic_text(json.loads(line)) for line in lines)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} is not as guardmark wrote it.\nNext: remove it.") from error
