"""The messages of a stored run, as the moves of its agent: each result with its call."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from guardmark.core.values import dataclass
from guardmark.suites.stored import StoredCall, StoredMove

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Unusable(Exception):
    """Says why a stored run cannot be put before guards, in words that follow its noun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedMessage:
    """One message of a stored run.

    Attributes:
        role: `system`, `user`, `assistant` or `tool`.
        text: Its words.
        calls: Of an assistant: id, name and arguments of each call.
        answers: Of a tool: the id of the call that it answers; may be empty.
        is_error: Of a tool: whether it failed.
    """

    role: str
    text: str
    calls: tuple[tuple[str, str, object], ...] = ()
    answers: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedDialog:
    """A whole stored run, without what it means.

    Attributes:
        prompt: What the user said first.
        moves: What the agent did.
        answer: The agent's last words, behind every result.
        later_words: How often the user spoke again.
    """

    prompt: str
    moves: tuple[StoredMove, ...]
    answer: str
    later_words: int


def read_dialog(turns: Iterable[LoggedMessage]) -> LoggedDialog:
    """Put calls and results of a run together.

    Raises:
        Unusable: If nothing tells which call a result is of, or a call has no arguments in JSON.
    """
    prompt, answer, spoken = "", "", 0
    moves: list[StoredMove] = []
    waiting: list[tuple[str, int]] = []
    for turn in turns:
        if turn.role == "user":
            prompt = prompt or turn.text
            spoken += 1
        elif turn.role == "assistant":
            answer = turn.text
            if turn.calls:
                calls = tuple(
                    StoredCall(name=sound_text(name), arguments=_arguments(stated))
                    for _, name, stated in turn.calls
                )
                moves.append(StoredMove(calls=calls, text=turn.text))
                waiting = [(own, index) for index, (own, _, _) in enumerate(turn.calls)]
        elif turn.role == "tool":
            answer = ""
            moves[-1:] = [_answered(moves, waiting, turn)]
    if not prompt.strip():
        raise Unusable("without words of a user")
    if not moves:
        raise Unusable("without a call of a tool")
    return LoggedDialog(
        prompt=prompt, moves=tuple(moves), answer=answer, later_words=max(0, spoken - 1)
    )


def _answered(
    moves: list[StoredMove], waiting: list[tuple[str, int]], turn: LoggedMessage
) -> StoredMove:
    """Give a result to the call that it answers: by its id, else to the next that waits."""
    at = next((each for each in waiting if not turn.answers or each[0] in {turn.answers, ""}), None)
    if at is None:
        raise Unusable("in which a result answers no call")
    waiting.remove(at)
    calls = list(moves[-1].calls)
    calls[at[1]] = replace(calls[at[1]], result=turn.text, is_error=turn.is_error)
    return replace(moves[-1], calls=tuple(calls))


def sound_text(text: str) -> str:
    """Return a text in which half a character, which JSON can escape, is shown as `?`."""
    return text.encode("utf-8", "replace").decode()


def _arguments(stated: object) -> Mapping[str, object]:
    """Return arguments as JSON values, from an object or its text."""
    read: Any = stated
    if isinstance(stated, str):
        try:
            read = json.loads(stated or "{}")
        except (ValueError, RecursionError):
            read = None
    if not isinstance(read, dict):
        raise Unusable("with a call whose arguments are no JSON object")
    sound: dict[str, object] = json.loads(sound_text(json.dumps(read, ensure_ascii=False)))
    return sound
