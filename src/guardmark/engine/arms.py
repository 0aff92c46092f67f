"""Arms as programs: what of a sample's calls an arm has, and which it lacks next."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guardmark.core.chunks import after_prefix, split_prefix
from guardmark.core.place import AFTER, NO_GUARD, Place, stored_name
from guardmark.core.values import dataclass
from guardmark.engine.context import ContextAnswers, ContextGuard, documents_of, pass_guards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from guardmark.core.chunks import ChunkRule
    from guardmark.core.sample import Message, Prompt
    from guardmark.engine.plan import Pipeline

MODEL: Final = "the model"
JUDGES: Final = "the judge "
"""Blanks keep them apart from the names of guards."""


class Call(NamedTuple):
    """A call that an arm needs: whom it asks, and about which text.

    Attributes:
        part: A guard by the name under which it is stored, `MODEL`, `JUDGES`, or this and the layer
            of one judge.
        after: What guards made of the sample's own text: nothing, or ` after G` for each that wrote
            it anew, in order; then ` after N characters` where a prefix of an answer is shown. Of
            a guard of documents: which document, and what was made of it.
    """

    part: str
    after: str = ""

    @property
    def is_of_judge(self) -> bool:
        """Whether it asks a judge."""
        return self.part.startswith(JUDGES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmProgram:
    """What an arm does with a sample: guards before the model and behind it, in their order.

    Guards have the names under which their decisions are stored.

    Attributes:
        before: Guards of what the user writes.
        context: Guards of documents, who come after them.
        leaves_out: Outcomes of a guard of documents by which a document does not go on.
        behind: Guards of the answer; one where there is a rule of chunks.
        chunks: After how many characters that one is asked again while the answer grows.
    """

    before: tuple[str, ...] = ()
    context: tuple[ContextGuard, ...] = ()
    leaves_out: frozenset[int] = frozenset()
    behind: tuple[str, ...] = ()
    chunks: ChunkRule | None = None
    calls: dict[str, Call] = field(init=False)  # about texts as they are, made once

    def __post_init__(self) -> None:
        """Make the calls that every sample needs."""
        parts = (*self.before, MODEL, *self.behind, JUDGES)
        object.__setattr__(self, "calls", {part: Call(part) for part in parts})

    def call(self, part: str, after: str) -> Call:
        """Return a call."""
        return Call(part, after) if after else self.calls[part]

    @property
    def parts(self) -> tuple[str, ...]:
        """The guards, by the names under which their decisions are stored."""
        return (*self.before, *(guard.part for guard in self.context), *self.behind)

    def history(self, written: Mapping[str, str | None]) -> str:
        """Return what the guards before the model made of a sample, as `Call.after` says."""
        after = ""
        for guard in self.before:
            if guard + after in written:
                after += AFTER + guard
        return after


class Reply(NamedTuple):
    """What comes out: what the model answered to a request, or what guards made of it."""

    request: str  # as `Call.after` says
    text: str


@dataclass(slots=True, kw_only=True, eq=False)
class SampleState:
    """One sample in one repeat, and every call about it that was answered: all arms walk them.

    Attributes:
        codes: What guards decided, by name and what they were shown.
        written: What goes on where a guard rewrote, likewise; None where nobody can tell what part
            of the sample it stands for.
        model_codes: What the model did, by what it was shown.
        replies: What came out, by what was made of it.
        judged: Verdicts there are.
        allowed: Calls in a row that let a prefix of an answer pass, by guard, chunk, and what was
            made of the request.
        requests: What the model is shown, by what was made of it.
        asked: Calls that were sent, or are answered already.
        answers: What was answered in this invocation, so that equal texts share it.
        documents: What guards of documents are shown, by the name of the document.
        besides: Calls about other documents that are to be sent together with one.
        is_let_in: Whether any arm lets the sample in as it is.
        is_with_judges: Whether the answer to the sample as it is was sent to the judges.
    """

    position: int
    repeat: int
    is_attack: bool
    prompt: Prompt
    requests: dict[str, Prompt]
    codes: dict[str, int] = field(default_factory=dict)
    written: dict[str, str | None] = field(default_factory=dict)
    model_codes: dict[str, int] = field(default_factory=dict)
    replies: dict[str, Reply] = field(default_factory=dict)
    judged: set[Call] = field(default_factory=set)
    allowed: dict[tuple[str, int | None, str], int] = field(default_factory=dict)
    asked: set[Call] = field(default_factory=set)
    answers: dict[Call, Any] = field(default_factory=dict)
    documents: dict[str, Message] = field(default_factory=dict)
    besides: list[Call] = field(default_factory=list)
    is_let_in: bool = False
    is_with_judges: bool = False
    open: int = 0

    @property
    def is_rewritten(self) -> bool:
        """Whether a guard wrote its text or an answer anew."""
        return len(self.requests) > 1 or len(self.replies) > 1

    def reply(self, after: str) -> Reply | None:
        """Return what came out, or a prefix of it where the name says so."""
        whole, characters = split_prefix(after)
        reply = self.replies.get(whole)
        if reply is None or characters is None:
            return reply
        return Reply(reply.request, reply.text[:characters])

    def is_left_empty(self, call: Call, *, is_behind: bool) -> bool:
        """Tell whether guards left nothing of what a part would be shown."""
        if is_behind:
            reply = self.replies.get(call.after)  # none of a prefix
            return reply is not None and reply.request != call.after and not reply.text.strip()
        request = self.requests[call.after]
        tested = request.messages[request.under_test]
        return not (tested.content.strip() or tested.images)

    def is_answered(self, call: Call) -> bool:
        """Tell whether a call has its answer."""
        part, after = call
        if part == MODEL:
            return after in self.model_codes
        return part + after in self.codes or call in self.judged

    def shown(self, call: Call, *, is_behind: bool) -> tuple[Prompt | str, ...] | None:
        """Return what the part is shown that guards may have written, or None without it."""
        part, after = call
        if part == MODEL or not (is_behind or call.is_of_judge):
            request = self.requests.get(after)
            return None if request is None else (request,)
        reply = self.reply(after)
        if reply is None:
            return None
        if call.is_of_judge:  # which sees the request as it was
            return (reply.text,)
        request = self.requests.get(reply.request)
        return None if request is None else (request, reply.text)

    def twins(self, call: Call, *, is_behind: bool) -> Iterator[Call]:
        """Yield the calls that ask the same part about the same text, made by other guards."""
        if not self.is_rewritten:
            return
        mine = self.shown(call, is_behind=is_behind)
        whole, characters = split_prefix(call.after)
        for other in {**self.requests, **self.replies}:
            twin = Call(call.part, after_prefix(other, characters))
            is_alike = mine is not None and self.shown(twin, is_behind=is_behind) == mine
            if other != whole and is_alike:
                yield twin

    def document_twins(self, call: Call) -> Iterator[Call]:
        """Yield the calls that ask a guard about another document that says the same."""
        mine = self.documents[call.after]
        for name, message in self.documents.items():
            if name != call.after and message == mine:
                yield Call(call.part, name)


def next_call(
    program: ArmProgram, state: SampleState, passes: Callable[[int], bool]
) -> Call | None:
    """Walk an arm as far as the answers go; return the call it lacks, or None where it ends."""
    after = ""
    for guard in program.before:
        name = guard + after
        code = state.codes.get(name)
        if code is None:
            return program.call(guard, after)
        if not passes(code):
            return None
        if name in state.written:
            text = state.written[name]
            if text is None:
                return None
            request, after = state.requests[after], after + AFTER + guard
            if after not in state.requests:
                state.requests[after] = request.with_text(text)
    if program.context:
        return _next_with_documents(program, state, passes, after)
    if not after:
        state.is_let_in = True
    if after not in state.model_codes:
        return program.call(MODEL, after)
    return _next_behind(program, state, passes, after)


def _next_with_documents(
    program: ArmProgram, state: SampleState, passes: Callable[[int], bool], after: str
) -> Call | None:
    """Walk the guards of documents, and from there on."""
    answers = ContextAnswers(
        codes=state.codes,
        written=state.written,
        shown=state.documents,
        passes=passes,
        leaves_out=program.leaves_out,
    )
    documents = documents_of(state.prompt, state.requests[after], after)
    passed = pass_guards(program.context, documents, answers)
    if passed.lacking:
        first, *others = (Call(*call) for call in passed.lacking)
        state.besides += others
        return first
    if passed.is_over:
        return None
    after = documents.after
    if not after:
        state.is_let_in = True
    elif after not in state.requests:
        state.requests[after] = documents.as_request()
    if after not in state.model_codes:
        return program.call(MODEL, after)
    return _next_behind(program, state, passes, after)


def _next_chunk(
    program: ArmProgram,
    rule: ChunkRule,
    state: SampleState,
    *,
    passes: Callable[[int], bool],
    after: str,
) -> Call | None:
    """Walk the calls of a guard about more and more of an answer, from the last that passed on."""
    guard, reply = program.behind[0], state.replies.get(after)
    text = "" if reply is None else reply.text  # without an answer it is skipped, as anywhere
    calls = rule.calls(len(text))
    if calls > rule.most_calls:
        return None
    at = guard, rule.every, after
    number = state.allowed.get(at, 0)
    while number < calls:
        shown = after_prefix(after, rule.shown(number, len(text)))
        code = state.codes.get(guard + shown)
        if code is None:
            return program.call(guard, shown)
        if guard + shown in state.written:  # a part of the answer may have gone out as it was
            return None
        if not passes(code):
            if reply is None:
                return None
            # Where nothing had gone out, the whole is judged all the same: it is one of the unsafe
            # answers of which shares are told, if it is unsafe.
            return Call(JUDGES, after_prefix(after, rule.gone_out(number) or None))
        number += 1
        state.allowed[at] = number
    return program.call(JUDGES, after) if reply is not None else None


def _next_behind(
    program: ArmProgram, state: SampleState, passes: Callable[[int], bool], after: str
) -> Call | None:
    """Walk the guards behind the model, from its answer on."""
    if program.chunks is not None:
        return _next_chunk(program, program.chunks, state, passes=passes, after=after)
    for guard in program.behind:
        name = guard + after
        code = state.codes.get(name)
        if code is None:
            return program.call(guard, after)
        if not passes(code):
            return None
        if name in state.written:
            text = state.written[name]
            if text is None or after not in state.replies:
                return None
            request, after = state.replies[after].request, after + AFTER + guard
            state.replies[after] = Reply(request, text)
    return program.call(JUDGES, after) if after in state.replies else None


def programs_of(
    pipeline: Pipeline,
    reads_answers: Callable[[str], bool],
    *,
    leaves_out: frozenset[int] = frozenset(),
) -> list[ArmProgram]:
    """Return what each arm does; an arm named by its guard has it where its view says."""
    programs = []
    for arm, guards_at in pipeline.places.items():
        behind = guards_at.get(Place.OUTPUT, ())
        shown_all = pipeline.shown_all.get(arm, frozenset())
        program = ArmProgram(
            before=guards_at.get(Place.INPUT, ()),
            context=tuple(
                ContextGuard(stored_name(guard, Place.CONTEXT), guard not in shown_all)
                for guard in guards_at.get(Place.CONTEXT, ())
            ),
            leaves_out=leaves_out,
            behind=tuple(stored_name(guard, Place.OUTPUT) for guard in behind),
            chunks=pipeline.chunks.get(arm),
        )
        programs.append(program)
    for name in () if pipeline.places else pipeline.arms:
        if name == NO_GUARD:
            programs.append(ArmProgram())
        elif reads_answers(name):
            programs.append(ArmProgram(behind=(name,)))
        else:
            programs.append(ArmProgram(before=(name,)))
    return programs
