"""The body of a request: a JSON structure into which a prompt is inserted, never templated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, NamedTuple

from guardmark.core.errors import ConfigError, did_you_mean, listed
from guardmark.core.sample import MATERIAL, Role

if TYPE_CHECKING:
    from guardmark.core.sample import Message, Prompt

INSERTION = "$input"  # key of a mapping that is replaced: `{$input: text}`

_Slot = Callable[["Prompt", str, "Prompt"], str]
_Part = Callable[["Prompt"], "Message | None"]
_NO_ROLES: Mapping[Role, str] = {}


class RequestBody:
    """Encodes prompts into one JSON structure.

    It is encoded once, and texts are inserted as JSON strings, so that no character of an attack
    can change the structure and the service reads back exactly the characters of the sample.
    """

    __slots__ = ("_pieces", "inserts", "needed")

    def __init__(
        self, structure: object, *, roles: Mapping[Role, str] = _NO_ROLES, where: str = "body"
    ) -> None:
        slots = _slots(roles)
        used: set[str] = set()
        merged: list[str | _Slot] = []
        for piece in _pieces(structure, where):
            if isinstance(piece, str) and merged and isinstance(merged[-1], str):
                merged[-1] += piece
            elif isinstance(piece, str):
                merged.append(piece)
            else:
                used.add(piece.name)
                merged.append(slots[piece.name])
        self._pieces = tuple(merged)
        self.inserts = frozenset(used)
        self.needed = tuple((name, part) for name, part in _PARTS.items() if name in used)
        if not self.inserts - {"id", "session"}:
            raise ConfigError(
                f"{where} inserts nothing of the prompt: every request would be the same.\n"
                "Write for example  body: {text: {$input: text}}"
            )

    def missing(self, prompt: Prompt) -> str:
        """Return the name of an insertion that a prompt has nothing for; empty when there is none.

        Most bodies insert no part of a sample that it may lack, and look for none.
        """
        for name, part in self.needed:
            if part(prompt) is None:
                return name
        return ""

    def encode(self, prompt: Prompt, shown: str, *, original: Prompt | None = None) -> bytes:
        """Encode one request; id and session are those of the original where a prompt was cut."""
        known = original or prompt
        body = ""
        for piece in self._pieces:
            if isinstance(piece, str):
                body += piece
            else:
                body += piece(prompt, shown, known)
        return body.encode()

    def length(self, prompt: Prompt, shown: str) -> int:
        """Return the characters of the longest insertion; messages count together."""
        lengths = []
        for conversation in self._messages(prompt):
            lengths.append(sum(len(message.words) for message in conversation))
        if not self.inserts.isdisjoint({"text", "content"}):
            lengths.append(len(shown))
        return max(lengths)

    def cut(self, prompt: Prompt, shown: str, limit: int) -> tuple[Prompt, str] | None:
        """Shorten what is sent until no insertion is longer than a limit.

        Among messages and documents the text under test is cut; what stands around it is sent
        whole. None where that is not enough.
        """
        under_test = prompt.messages[prompt.under_test]
        keep = len(under_test.content)
        for conversation in self._messages(prompt):
            excess = sum(len(message.words) for message in conversation) - limit
            if excess <= 0:
                continue
            if not any(message is under_test for message in conversation):
                return None
            keep = min(keep, len(under_test.content) - excess)
        if keep <= 0 < len(under_test.content):
            return None
        return prompt.with_text(under_test.content[:keep]), shown[:limit]

    def _messages(self, prompt: Prompt) -> Iterator[list[Message]]:
        """The messages of each insertion that sends some."""
        if "messages" in self.inserts:
            yield list(prompt.messages)
        if "documents" in self.inserts:
            yield _documents(prompt)
        for name in ("question", "answer", "call"):
            if name not in self.inserts:
                continue
            message = _PARTS[name](prompt)
            if message is not None:
                yield [message]


class _Insertion(NamedTuple):
    """The place of a slot in the structure."""

    name: str


def _slots(roles: Mapping[Role, str]) -> dict[str, _Slot]:
    """Return by name what writes an insertion: from the prompt, what is shown, and the original."""
    heads = {role: '{"role":' + json.dumps(roles.get(role, role.value)) for role in Role}

    def messages(prompt: Prompt, _shown: str, _known: Prompt) -> str:
        parts = []
        for message in prompt.messages:
            words = encode_basestring(message.words)
            parts.append(f'{heads[message.role]},"content":{words}}}')
        return "[" + ",".join(parts) + "]"

    asked_alone: Counter[bytes] = Counter()

    def session(_prompt: Prompt, _shown: str, known: Prompt) -> str:
        if known.session:
            return json.dumps(known.session)
        digest = known.digest()  # it belongs to no conversation: it is one by itself each time
        asked_alone[digest] += 1
        return f'"single-{digest.hex()[:16]}-{asked_alone[digest]}"'

    return {
        "tools": _write_tools,
        "question": _write_question,
        "answer": _write_answer,
        "call": _write_call,
        "content": _write_content,
        "text": _write_text,
        "messages": messages,
        "documents": _write_documents,
        "id": _write_id,
        "session": session,
    }


def _write_content(prompt: Prompt, shown: str, _known: Prompt) -> str:
    message = replace(prompt.messages[prompt.under_test], content=shown)
    return json.dumps(message.parts(), ensure_ascii=False)


def _write_text(_prompt: Prompt, shown: str, _known: Prompt) -> str:
    return encode_basestring(shown)


def _write_id(_prompt: Prompt, _shown: str, known: Prompt) -> str:
    return f'"{known.digest().hex()}"'


def _write_documents(prompt: Prompt, _shown: str, _known: Prompt) -> str:
    parts = [encode_basestring(document.content) for document in _documents(prompt)]
    return "[" + ",".join(parts) + "]"


def _write_question(prompt: Prompt, _shown: str, _known: Prompt) -> str:
    return _words(_question(prompt))


def _write_answer(prompt: Prompt, _shown: str, _known: Prompt) -> str:
    return _words(_answer(prompt))


def _write_call(prompt: Prompt, _shown: str, _known: Prompt) -> str:
    calls = prompt.messages[prompt.under_test].calls or prompt.proposed
    parts = [{"name": call.name, "arguments": call.arguments} for call in calls]
    return json.dumps(parts, ensure_ascii=False)


def _write_tools(prompt: Prompt, _shown: str, _known: Prompt) -> str:
    return json.dumps([tool.chat for tool in prompt.tools], ensure_ascii=False)


def _words(message: Message | None) -> str:
    if message is None:
        return '""'
    return encode_basestring(message.words)


def _documents(prompt: Prompt) -> list[Message]:
    return [message for message in prompt.messages if message.role in MATERIAL]


def _question(prompt: Prompt) -> Message | None:
    """Find the words under test if they are the user's, else the user's last before them."""
    under_test = prompt.under_test % len(prompt.messages)
    for message in reversed(prompt.messages[: under_test + 1]):
        if message.role is Role.USER:
            return message
    return None


def _answer(prompt: Prompt) -> Message | None:
    """Find the answer: what is under test, or what was said after it."""
    under_test = prompt.under_test % len(prompt.messages)
    for message in reversed(prompt.messages[under_test:]):
        if message.role is Role.ASSISTANT:
            return message
    return None


def _call(prompt: Prompt) -> Message | None:
    """Find the message under test, if it calls tools or spells a call."""
    message = prompt.messages[prompt.under_test]
    if message.calls or prompt.proposed:
        return message
    return None


def _first_document(prompt: Prompt) -> Message | None:
    return next(iter(_documents(prompt)), None)


def _of_tools(prompt: Prompt) -> Message | None:
    """Find what is under test, if anything is said of the tools that may be called."""
    if not prompt.tools:
        return None
    return prompt.messages[prompt.under_test]


_PARTS: dict[str, _Part] = {
    "question": _question,
    "answer": _answer,
    "call": _call,
    "documents": _first_document,
    "tools": _of_tools,
}
"""Insertions that a sample may have nothing for."""
_KNOWN = (
    "text",
    "content",
    "question",
    "answer",
    "documents",
    "messages",
    "tools",
    "call",
    "id",
    "session",
)
"""Every insertion, in the order in which messages list them."""


def _pieces(value: object, where: str) -> Iterator[str | _Insertion]:
    """Encode a structure into stretches of JSON and the insertions between them."""
    if isinstance(value, dict) and INSERTION in value:
        yield _insertion(value, where)
    elif isinstance(value, dict):
        yield "{"
        separator = ""
        for key, member in value.items():
            yield f"{separator}{json.dumps(str(key), ensure_ascii=False)}:"
            yield from _pieces(member, f"{where}.{key}")
            separator = ","
        yield "}"
    elif isinstance(value, list | tuple):
        yield "["
        separator = ""
        for number, member in enumerate(value):
            yield separator
            yield from _pieces(member, f"{where}.{number}")
            separator = ","
        yield "]"
    else:
        yield _scalar(value, where)


def _insertion(value: dict[object, object], where: str) -> _Insertion:
    name = value[INSERTION]
    if len(value) > 1:
        raise ConfigError(f"{where}: {{{INSERTION}: ...}} must be the only key.")
    if not isinstance(name, str) or name not in _KNOWN:
        hint = did_you_mean(str(name), _KNOWN)
        raise ConfigError(f"{where}: nothing is called {name!r}.{hint} Known: {listed(_KNOWN)}.")
    return _Insertion(name)


def _scalar(value: object, where: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {value!r} is not a JSON value.") from error
