"""The parts of an answer that streams: server-sent events, or JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK: Final = "\ufeff"
"""Of byte order, which may stand first."""
USUAL_END: Final = "[DONE]"
"""The data that end a stream of chat answers, and of most that are made like these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPart:
    """One event or one line.

    Attributes:
        data: What it holds.
        name: Name of the event, or empty.
        line: Number of the line that it ends with, from 0.
        is_whole: Whether the line came to its end.
    """

    data: str
    name: str
    line: int
    is_whole: bool


def split_lines(body: bytes) -> Iterator[StreamPart]:
    """Yield the lines of JSON lines that are not empty."""
    lines = body.decode("utf-8").removeprefix(MARK).split("\n")
    for number, line in enumerate(lines):
        data = line.strip()
        if data:
            yield StreamPart(data=data, name="", line=number, is_whole=number < len(lines) - 1)


def split_events(body: bytes) -> Iterator[StreamPart]:
    """Yield server-sent events; one whose lines all came is whole without the empty line."""
    lines = body.decode("utf-8").removeprefix(MARK).split("\n")
    data: list[str] = []
    name = ""
    last = 0
    for number, line in enumerate(lines):
        text = line.removesuffix("\r")
        if text:
            field, _, value = text.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                data.append(value)
                last = number
            elif field == "event":
                name = value
        if (not text or number == len(lines) - 1) and (data or name):
            is_whole = not text and number < len(lines) - 1
            yield StreamPart(data="\n".join(data), name=name, line=last, is_whole=is_whole)
            data, name = [], ""
