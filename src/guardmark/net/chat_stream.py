"""A chat answer that came in parts, put together as the answer that it would have been at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from guardmark.net.events import USUAL_END, split_events
from guardmark.net.wire import JoinedStream, StreamCut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.net.events import StreamPart

_ADDED: Final = frozenset({"refusal", "reasoning_content", "reasoning", "thinking"})
"""Texts of a message, beside its content, that come piece by piece."""
_NOT_OF_THE_PROTOCOL: Final = (KeyError, TypeError, AttributeError, ValueError, RecursionError)


def is_last(line: bytes) -> bool:
    """Tell whether a line ends a stream: nothing after it is to be read."""
    text = line.strip()
    return text.startswith(b"data:") and text.removeprefix(b"data:").strip() == USUAL_END.encode()


def join_chat(body: bytes) -> JoinedStream | None:
    """Put the parts of a streamed answer together; None for an answer that came at once.

    An answer is whole when its end was said, or why it finished; an error in the stream ends it.

    Raises:
        StreamCut: It broke off before its end.
        ValueError: Its parts are not of the chat protocol.
    """
    if body.lstrip()[:1] in {b"{", b"["}:
        return None
    answer = _ChatParts()
    is_ended = False
    for part in split_events(body):
        if part.data == USUAL_END:
            is_ended = True
            break
        if not part.data:
            continue
        document = _document(part)
        if document is None:
            break
        try:
            answer.add(document, line=part.line)
        except _NOT_OF_THE_PROTOCOL as error:
            what = f"an event of the stream is not of the chat protocol ({type(error).__name__})"
            raise ValueError(what) from error
        if answer.has_failed:
            is_ended = True
            break
    if not is_ended and not answer.is_finished:
        raise StreamCut(f"neither a finish reason nor {USUAL_END} came")
    return JoinedStream(body=_written(answer.document()), texts=tuple(answer.texts))


def _document(part: StreamPart) -> dict[str, Any] | None:
    """Return what a part says; None for the last one where it was cut."""
    try:
        document = json.loads(part.data)
    except (ValueError, RecursionError) as error:
        if not part.is_whole:
            return None
        if part.name == "error":
            return {"error": {"message": part.data}}
        raise ValueError(f"line {part.line + 1} of the stream is not JSON") from error
    if not isinstance(document, dict):
        raise ValueError(f"line {part.line + 1} of the stream is no JSON object")  # noqa: TRY004
    if part.name == "error" and "error" not in document:
        return {"error": document}
    return document


class _Call:
    """A call of a tool, as far as it has come."""

    def __init__(self, index: object) -> None:
        self.index = index
        self._fields: dict[str, Any] = {"type": "function"}
        self._name: object = None
        self._arguments: list[str] = []
        self._stated: object = None  # arguments that came as a value, not as pieces of text

    def add(self, piece: Mapping[str, Any]) -> None:
        """Take in one piece."""
        for name, value in piece.items():
            if name not in {"index", "function"} and value:
                self._fields[name] = value
        function = piece.get("function") or {}
        self._name = self._name or function.get("name")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            self._arguments.append(arguments)
        elif arguments is not None:
            self._stated = arguments

    def document(self) -> dict[str, Any]:
        """Return the call as it stands in an answer."""
        arguments = "".join(self._arguments) if self._stated is None else self._stated
        return {**self._fields, "function": {"name": self._name, "arguments": arguments}}


class _Choice:
    """One choice of an answer, as far as it has come."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._content: list[Any] = []  # texts, and parts that have a type
        self._calls: list[_Call] = []
        self._log_probabilities: list[Any] = []

    def add(self, stated: Mapping[str, Any]) -> int:
        """Take in what a part says; return how many characters of text came with it."""
        for name, value in stated.items():
            if name not in {"index", "delta", "logprobs"} and value is not None:
                self.fields[name] = value
        self._log_probabilities += (stated.get("logprobs") or {}).get("content") or ()
        written = 0
        for name, value in (stated.get("delta") or {}).items():
            if value is None:
                continue
            if name == "tool_calls":
                self._add_calls(value)
            elif name == "content":
                written += self._add_content(value)
            elif name in _ADDED and isinstance(value, str):
                self._texts.setdefault(name, []).append(value)
                if name == "refusal":
                    written += len(value)
            else:
                self._message[name] = value
        return written

    def _add_content(self, value: str | list[Any]) -> int:
        """Add to the content, which comes as texts, or as lists of parts."""
        if isinstance(value, str):
            self._content.append(value)
            return len(value)
        if not isinstance(value, list):
            raise TypeError(value)
        self._content += value
        written = 0
        for part in value:
            if isinstance(part, str):
                written += len(part)
            elif part.get("type", "text") == "text":
                written += len(part["text"])
        return written

    def _add_calls(self, pieces: list[Mapping[str, Any]]) -> None:
        """Add pieces of calls, each to that of its index, or of its id where none is stated."""
        for piece in pieces:
            index: object = piece.get("index")
            if index is None:
                index = piece.get("id")
            call = self._calls[-1] if self._calls else None
            if index is not None:
                call = next((each for each in self._calls if each.index == index), None)
            if call is None:
                call = _Call(index)
                self._calls.append(call)
            call.add(piece)

    def document(self, index: int) -> dict[str, Any]:
        """Return the choice as it stands in an answer."""
        content: object = None
        if self._content:
            content = self._content
            if all(isinstance(piece, str) for piece in self._content):
                content = "".join(self._content)
        message = {"role": "assistant", "content": content, **self._message}
        for name, texts in self._texts.items():
            message[name] = "".join(texts)
        if self._calls:
            message["tool_calls"] = [call.document() for call in self._calls]
        fields = {"index": index, "finish_reason": None, **self.fields, "message": message}
        if self._log_probabilities:
            fields["logprobs"] = {"content": self._log_probabilities}
        return fields


class _ChatParts:
    """The parts of an answer that have come so far."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}
        self._characters = 0
        self.texts: list[tuple[int, int]] = []  # line of a part with text, and characters so far

    @property
    def is_finished(self) -> bool:
        """Whether it was said why the first choice ended."""
        first = self._choices.get(0)
        return first is not None and bool(first.fields.get("finish_reason"))

    @property
    def has_failed(self) -> bool:
        """Whether an error came in place of the rest."""
        first = self._choices.get(0)
        is_of_choice = first is not None and bool(first.fields.get("error"))
        return bool(self._fields.get("error")) or is_of_choice

    def add(self, document: Mapping[str, Any], *, line: int) -> None:
        """Take in one part."""
        for name, value in document.items():
            if name != "choices" and value is not None:
                self._fields[name] = value
        for stated in document.get("choices") or ():
            index = stated.get("index") or 0
            written = self._choices.setdefault(index, _Choice()).add(stated)
            if written and index == 0:
                self._characters += written
                self.texts.append((line, self._characters))

    def document(self) -> dict[str, Any]:
        """Return the answer as a server sends it at once."""
        choices = [self._choices[index].document(index) for index in sorted(self._choices)]
        return {**self._fields, "choices": choices}


def _written(document: Mapping[str, Any]) -> bytes:
    """Write the answer; a character whose halves came in two parts is one again."""
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":")).encode()
