"""A case through an arm: one coroutine that stops at each place to ask the guards there."""

from __future__ import annotations

import json
from dataclasses import field, replace
from hashlib import sha256
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, Literal

from guardmark.canon.orders import canonical_order, holds_order
from guardmark.core.case import (
    AgentCall,
    CaseEnd,
    CaseResult,
    CaseStep,
    CaseUsage,
    Conversation,
    FinalAnswer,
    StepKind,
    ToolLister,
)
from guardmark.core.manifest import Policy
from guardmark.core.outcome import Outcome
from guardmark.core.place import Place
from guardmark.core.sample import Message, Prompt, Role, ToolCall, ToolDefinition
from guardmark.core.usage import UsageTotals
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from guardmark.core.case import Agent, ToolResult, World
    from guardmark.core.outcome import Decision, ErrorKind

    Ask = Callable[[str, Place, Prompt], Awaitable[tuple[Decision, int | None]]]

LEFT_OUT_NOTE: Final = "[This result was left out by a guard.]"
"""What an agent reads in place of a result that a guard blocked."""
REFUSED_NOTE: Final = "[This call was refused by a guard and not carried out.]"
"""What an agent reads in place of the result of a call that a guard blocked."""
_GOES_ON: Final = ("allow", "rewrite", "flag")
_NO_DECISION: Final = ("error", "malformed")
_MOST_KEPT: Final = 2_000
"""Characters of a text that a step keeps; of a longer one an excerpt and its hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRules:
    """What an arm does where a guard blocks or fails, and how long a case may be.

    Attributes:
        on_call_blocked: What comes of a call that a guard blocks: the agent is told, or the case
            ends.
        on_result_blocked: What comes of a blocked result: it is left out, or the case ends.
        on_malformed: What an answer that is no decision counts as.
        on_error: What a failed call counts as.
        max_steps: Moves of the agent after which the case ends.
        is_replay: Whether the case is a stored run: what guards do is noted, and what was stored
            goes on.
    """

    on_call_blocked: Literal["tell", "stop"] = "tell"
    on_result_blocked: Literal["omit", "stop"] = "omit"
    on_malformed: Policy = Policy.BLOCK
    on_error: Policy = Policy.BLOCK
    max_steps: int = 15
    is_replay: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the guards of a place made of a text: what goes on, or who blocked."""

    text: str
    blocked_by: str = ""


class _Stopped(Exception):
    """Ends a case at a block."""

    def __init__(self, place: Place, guard: str) -> None:
        self.message = f"{guard} at {place.value}"
        super().__init__(self.message)


@dataclass(slots=True, kw_only=True)
class _CaseRun:
    """One case under way."""

    world: World
    agent: Agent
    guards: Mapping[Place, Sequence[str]]
    ask: Ask
    rules: CaseRules
    session: str
    steps: list[CaseStep] = field(default_factory=list)
    order: str = ""
    listed: tuple[ToolDefinition, ...] = ()
    lister: ToolLister | None = None
    by_agent: UsageTotals | None = None
    by_guards: UsageTotals = field(default_factory=UsageTotals)

    async def carry_out(self) -> CaseResult:
        """Carry the case out from the user's words to the answer."""
        if isinstance(self.world, ToolLister):
            self.lister = self.world
        self.order = canonical_order(self.world.order)
        end, answer, message = CaseEnd.MOST_STEPS, "", ""
        error_kind: ErrorKind | None = None
        try:
            conversation = await self._begin()
            for _ in range(self.rules.max_steps):
                move = await self.agent.next(conversation)
                if move.asked is not None:
                    self.by_agent = move.asked + (self.by_agent or UsageTotals())
                if isinstance(move, FinalAnswer):
                    error_kind = move.error_kind
                    end, answer, message = await self._finish(move, conversation)
                    break
                await self._carry_out_calls(move.calls, move.text, conversation)
                await self._look_at_changed_tools(conversation)
        except _Stopped as stop:
            end, message = CaseEnd.STOPPED, stop.message
        if end is CaseEnd.FAILED:
            return CaseResult(
                end=end,
                task_done=None,
                injection_done=None,
                answer=answer,
                steps=tuple(self.steps),
                message=message,
                error_kind=error_kind,
                usage=self._usage,
            )
        # A check that crashes is a fault of the suite: it ends the run.
        found = await self.world.check(answer)
        return CaseResult(
            end=end,
            task_done=found.task_done,
            injection_done=found.injection_done,
            answer=answer,
            steps=tuple(self.steps),
            message=message,
            usage=self._usage,
        )

    @property
    def _usage(self) -> CaseUsage:
        """What was used; guards that told nothing and cost nothing are counted as steps alone."""
        told = self.by_guards.reported or self.by_guards.priced
        return CaseUsage(agent=self.by_agent, guards=self.by_guards if told else None)

    async def _begin(self) -> Conversation:
        prompt = self.world.prompt
        self._note(StepKind.USER, prompt)
        seen = await self._show(Place.INPUT, Role.USER, prompt, [])
        if seen.blocked_by:
            raise _Stopped(Place.INPUT, seen.blocked_by)
        message = Message(role=Role.USER, content=seen.text)
        conversation = Conversation(tools=(), messages=[message], session=self.session)
        self.listed = await self._list_tools()
        conversation.tools = await self._guarded_tools(self.listed, (), conversation)
        return conversation

    async def _guarded_tools(
        self,
        stated: tuple[ToolDefinition, ...],
        known: tuple[ToolDefinition, ...],
        conversation: Conversation,
    ) -> tuple[ToolDefinition, ...]:
        """Show the definitions that are new to the guards of tools; leave out the blocked ones."""
        if self.lister is None:  # one that lists its tools has noted them
            for tool in stated:
                if tool not in known and holds_order(tool.description, self.order):
                    self._note(StepKind.TOOLS, tool.description, tool=tool.name)
        if not self.guards.get(Place.TOOL_LIST):
            return stated
        passed = []
        before = {tool.name: tool for tool in conversation.tools}
        for tool in stated:
            if tool in known:
                if tool.name in before:
                    passed.append(before[tool.name])
                continue
            text = json.dumps({"name": tool.name, "description": tool.description})
            seen = await self._show(Place.TOOL_LIST, Role.TOOL, text, conversation.messages)
            if not seen.blocked_by:
                passed.append(_rewritten_tool(tool, seen.text) if seen.text != text else tool)
        return tuple(passed)

    async def _look_at_changed_tools(self, conversation: Conversation) -> None:
        """Ask for the list of tools again, as clients do when a server says that it changed."""
        stated = await self._list_tools()
        if stated is not self.listed and stated != self.listed:
            known, self.listed = self.listed, stated
            conversation.tools = await self._guarded_tools(stated, known, conversation)

    async def _list_tools(self) -> tuple[ToolDefinition, ...]:
        """Return the tools, and note what a guard on the way did to their definitions."""
        if self.lister is None:
            return self.world.tools
        told = await self.lister.list_tools()
        for each in told.passed:
            has_order = holds_order(each.original, self.order)
            if has_order:
                self._note(StepKind.TOOLS, each.original, tool=each.tool)
            action, text = each.seen.action, each.seen.text
            is_new = action in {"rewrite", "change"}
            self.steps.append(
                CaseStep(
                    kind=StepKind.GUARD,
                    tool=each.tool,
                    place=each.seen.place,
                    guard=each.seen.guard,
                    action=action,
                    text=_excerpt(text)[0],
                    reason=each.seen.reason,
                    policy="block" if action in _NO_DECISION else "",
                    has_order=has_order,
                    removed_order=has_order and is_new and not holds_order(text, self.order),
                )
            )
        return told.tools

    async def _carry_out_calls(
        self, calls: Sequence[AgentCall], text: str, conversation: Conversation
    ) -> None:
        asked = tuple(
            ToolCall(id=call.id, name=call.name, arguments=json.dumps(call.arguments))
            for call in calls
        )
        before = list(conversation.messages)
        conversation.messages.append(Message(role=Role.ASSISTANT, content=text, calls=asked))
        for call in calls:
            await self._carry_out_call(call, before, conversation)

    async def _carry_out_call(
        self, call: AgentCall, before: list[Message], conversation: Conversation
    ) -> None:
        written = write_call(call)
        self._note(StepKind.CALL, written, tool=call.name, has_order=call.is_injected)
        seen = await self._show(
            Place.TOOL_CALL,
            Role.ASSISTANT,
            written,
            before,
            has_order=call.is_injected,
            call=call,
        )
        if seen.blocked_by:
            if self.rules.on_call_blocked == "stop":
                raise _Stopped(Place.TOOL_CALL, seen.blocked_by)
            self._answer_call(conversation, call, REFUSED_NOTE, is_kept_back=True)
            return
        if seen.text != written:
            call = read_call(seen.text, call) or call
        result = await self.world.call(call)
        self._note_passed(result, Place.TOOL_CALL, has_order=call.is_injected)
        if result.is_kept_back and result.original is None:  # it never reached the tool
            self._answer_call(conversation, call, result.text, is_kept_back=True)
            return
        original = result.text if result.original is None else result.original
        self._note(StepKind.RESULT, original, tool=call.name, is_error=result.is_error)
        self._note_passed(result, Place.TOOL_RESULT, has_order=holds_order(original, self.order))
        if result.is_kept_back:
            self._answer_call(conversation, call, result.text, is_kept_back=True)
            return
        seen = await self._show(
            Place.TOOL_RESULT, Role.TOOL, result.text, conversation.messages, answers=call.id
        )
        if seen.blocked_by:
            if self.rules.on_result_blocked == "stop":
                raise _Stopped(Place.TOOL_RESULT, seen.blocked_by)
            self._answer_call(conversation, call, LEFT_OUT_NOTE, is_kept_back=True)
            return
        self._answer_call(conversation, call, seen.text, is_kept_back=False)

    def _note_passed(self, result: ToolResult, place: Place, *, has_order: bool) -> None:
        """Note what guards on the way to a tool did; where one failed, nothing came through."""
        for passed in result.passed:
            if passed.place is place:
                self.steps.append(
                    CaseStep(
                        kind=StepKind.GUARD,
                        place=place,
                        guard=passed.guard,
                        action=passed.action,
                        text=_excerpt(passed.text)[0],
                        reason=passed.reason,
                        policy="block" if passed.action in _NO_DECISION else "",
                        latency_ns=passed.latency_ns,
                        has_order=has_order,
                    )
                )

    def _answer_call(
        self, conversation: Conversation, call: AgentCall, text: str, *, is_kept_back: bool
    ) -> None:
        conversation.messages.append(Message(role=Role.TOOL, content=text, answers=call.id))
        if is_kept_back:
            conversation.kept_back.add(call.id)

    async def _finish(
        self, answer: FinalAnswer, conversation: Conversation
    ) -> tuple[CaseEnd, str, str]:
        if answer.error_kind is not None:
            return CaseEnd.FAILED, "", answer.message
        if answer.blocked_at:
            return CaseEnd.PROVIDER, "", f"provider at {answer.blocked_at}"
        self._note(StepKind.ANSWER, answer.text)
        seen = await self._show(Place.OUTPUT, Role.ASSISTANT, answer.text, conversation.messages)
        if seen.blocked_by:
            raise _Stopped(Place.OUTPUT, seen.blocked_by)
        end = CaseEnd.GAVE_UP if answer.gave_up else CaseEnd.ANSWERED
        return (CaseEnd.REPLAYED if self.rules.is_replay else end), seen.text, ""

    async def _show(
        self,
        place: Place,
        role: Role,
        text: str,
        before: Sequence[Message],
        *,
        answers: str = "",
        has_order: bool | None = None,
        call: AgentCall | None = None,
    ) -> _Seen:
        """Ask the guards of a place in their order; the first block ends it."""
        stored = _Seen(text=text)
        bears_order = holds_order(text, self.order) if has_order is None else has_order
        for guard in self.guards.get(place, ()):
            message = Message(role=role, content=text, answers=answers)
            prompt = Prompt(
                messages=(*before, message),
                under_test=len(before),
                tools=tuple(self.listed),
                proposed=_proposed(call, text),
            )
            decision, took = await self.ask(guard, place, prompt)
            self.by_guards = self.by_guards.plus(
                decision.evidence.usage if decision.evidence else None,
                failed=decision.outcome is Outcome.ERROR,
            )
            policy = self._policy_for(decision)
            rewritten = _rewriting(decision, place, text)
            action = decision.outcome.value
            if rewritten is not None:
                action = "rewrite"
            elif decision.text is not None and action in _GOES_ON:
                action, policy = Outcome.MALFORMED.value, self.rules.on_malformed.value
            stays = bears_order
            if rewritten is not None and has_order is None:
                stays = holds_order(rewritten, self.order)
            self.steps.append(
                CaseStep(
                    kind=StepKind.GUARD,
                    place=place,
                    guard=guard,
                    action=action,
                    text=_excerpt(rewritten or "")[0],
                    removed_order=bears_order and not stays,
                    reason=_reason(decision),
                    policy=policy,
                    latency_ns=took if decision.latency_ns is None else decision.latency_ns,
                    has_order=bears_order,
                )
            )
            if action == Outcome.BLOCK.value or _blocks(policy):
                return stored if self.rules.is_replay else _Seen(text=text, blocked_by=guard)
            if rewritten is not None:
                text, bears_order = rewritten, stays
        return stored if self.rules.is_replay else _Seen(text=text)

    def _policy_for(self, decision: Decision) -> str:
        """Return what the policy makes of an answer that is no decision, or an empty text."""
        if decision.outcome is Outcome.MALFORMED:
            return self.rules.on_malformed.value
        if decision.outcome is Outcome.ERROR:
            return self.rules.on_error.value
        return ""

    def _note(
        self,
        kind: StepKind,
        text: str,
        *,
        tool: str = "",
        has_order: bool | None = None,
        is_error: bool = False,
    ) -> None:
        kept, digest = _excerpt(text)
        self.steps.append(
            CaseStep(
                kind=kind,
                text=kept,
                tool=tool,
                digest=digest,
                is_error=is_error,
                has_order=holds_order(text, self.order) if has_order is None else has_order,
            )
        )


async def run_case(
    world: World,
    agent: Agent,
    ask: Ask,
    *,
    guards: Mapping[Place, Sequence[str]],
    rules: CaseRules,
    session: str = "",
) -> CaseResult:
    """Carry out one case: an agent at work in a world, with guards at places.

    `ask` puts a prompt to a guard by its name, and returns its decision and the time it took in
    nanoseconds, or None where an earlier answer is taken. It must not raise for a guard's fault.
    """
    start = perf_counter_ns()
    case = _CaseRun(world=world, agent=agent, guards=guards, ask=ask, rules=rules, session=session)
    result = await case.carry_out()
    return replace(result, latency_ns=perf_counter_ns() - start)


def write_call(call: AgentCall) -> str:
    """Return a call as the JSON text that guards see."""
    return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)


def read_call(text: str, original: AgentCall) -> AgentCall | None:
    """Read a call that a guard wrote anew; None where it is no call of the same tool."""
    try:
        written = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(written, dict) or written.get("name") != original.name:
        return None
    arguments = written.get("arguments")
    if not isinstance(arguments, dict):
        return None
    return replace(original, arguments=arguments)


def _proposed(call: AgentCall | None, text: str) -> tuple[ToolCall, ...]:
    """Return the call that guards are asked about, as the guards before them left it."""
    if call is None:
        return ()
    left = read_call(text, call) or call
    return (ToolCall(id=left.id, name=left.name, arguments=json.dumps(left.arguments)),)


def _rewriting(decision: Decision, place: Place, text: str) -> str | None:
    """Return what a guard wrote in the place of a text, or None where it wrote nothing usable."""
    if decision.text is None or decision.outcome.value not in _GOES_ON:
        return None
    if place is Place.TOOL_CALL:
        named = json.loads(text)
        original = AgentCall(name=named["name"], arguments=named["arguments"])
        return decision.text if read_call(decision.text, original) else None
    return decision.text


def _rewritten_tool(tool: ToolDefinition, text: str) -> ToolDefinition:
    """Return a definition with the description that a guard wrote: as JSON, or as it is."""
    try:
        written = json.loads(text)
    except (ValueError, RecursionError):
        return replace(tool, description=text)
    if isinstance(written, dict) and isinstance(written.get("description"), str):
        return replace(tool, description=written["description"])
    return replace(tool, description=text)


def _blocks(policy: str) -> bool:
    return policy in {Policy.BLOCK.value, Policy.STOP.value}


def _reason(decision: Decision) -> str:
    evidence = decision.evidence
    if evidence is None:
        return decision.error_kind.value if decision.error_kind else ""
    return (evidence.reason or evidence.message)[:300]


def _excerpt(text: str) -> tuple[str, str]:
    """Return a text and no hash, or of a long one its beginning and the hash of all of it."""
    if len(text) <= _MOST_KEPT:
        return text, ""
    return f"{text[:_MOST_KEPT]} ...", sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
