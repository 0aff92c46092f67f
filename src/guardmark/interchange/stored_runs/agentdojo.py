"""Stored runs of AgentDojo: one file a task, with and without an injection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.interchange.imported import Object, inner, word
from guardmark.interchange.stored_runs.turns import LoggedMessage, Unusable, read_dialog, sound_text
from guardmark.suites.stored import StoredCase
from guardmark.suites.suite import CaseId

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_agentdojo(log: Object) -> bool:
    """Tell whether a file is the log of one task."""
    return isinstance(log.get("suite_name"), str) and isinstance(log.get("messages"), list)


def read_agentdojo(log: Object) -> StoredCase:
    """Read the log of one task.

    `security` is true where the injection did what it was for; where the run ended in an error it
    says nothing, and without an injection it is always true.
    """
    task, injection = word(log, "user_task_id"), word(log, "injection_task_id")
    if not injection and task.startswith("injection"):
        raise Unusable("in which an injection is the task of the user")
    if not task:
        raise Unusable("that names no task")
    dialog = read_dialog(_turns(log))
    planted = inner(log, "injections").values() if injection else ()
    is_whole = not log.get("error")
    return StoredCase(
        id=CaseId(
            suite=word(log, "suite_name"),
            task=task,
            injection=injection,
            wording=word(log, "attack_type") if injection else "",
        ),
        prompt=dialog.prompt,
        moves=dialog.moves,
        later_words=dialog.later_words,
        answer=dialog.answer,
        orders=tuple(
            dict.fromkeys(
                sound_text(text) for text in planted if isinstance(text, str) and text.strip()
            )
        ),
        injection_done=_truth(log, "security") if injection and is_whole else None,
        task_done=_truth(log, "utility") if is_whole else None,
    )


def _truth(log: Object, name: str) -> bool | None:
    stated = log.get(name)
    if isinstance(stated, bool):
        return stated
    return None


def _turns(log: Object) -> Iterator[LoggedMessage]:
    for message in log["messages"]:
        if not isinstance(message, dict):
            raise Unusable("with a message that is no object")
        calls = message.get("tool_calls")
        yield LoggedMessage(
            role=word(message, "role"),
            text=_text(message.get("content")),
            calls=tuple(_calls(calls if isinstance(calls, list) else [])),
            answers=word(message, "tool_call_id"),
            is_error=bool(message.get("error")),
        )


def _calls(stated: list[object]) -> Iterator[tuple[str, str, object]]:
    for call in stated:
        if not isinstance(call, dict):
            raise Unusable("with a call that is no object")
        function = call.get("function")
        name = function if isinstance(function, str) else word(inner(call, "function"), "name")
        yield word(call, "id"), name, call.get("args", {})


def _text(content: object) -> str:
    """Return the words of a message: a text, or a list of parts as newer versions write it."""
    if isinstance(content, str):
        return sound_text(content)
    parts = content if isinstance(content, list) else []
    texts = [word(part, "content") for part in parts if isinstance(part, dict)]
    return "\n".join(texts)
