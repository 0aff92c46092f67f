"""What a reasoning model thought, parted from what it answered."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES: Final = "think|thinking|thought|thoughts|reasoning"
_OPENING: Final = re.compile(rf"<(?:{_NAMES})>|\[THINK\]", re.IGNORECASE)
_CLOSING: Final = re.compile(rf"</(?:{_NAMES})>|\[/THINK\]", re.IGNORECASE)
_CHANNEL: Final = "<|channel|>"
_CHANNEL_NAME: Final = re.compile(r"\s{0,20}(\w{1,20})[^<]{0,60}<\|message\|>")
_FINAL_CHANNEL: Final = "final"
_ENDS: Final = ("<|return|>", "<|end|>")
_QUOTES: Final = frozenset("'\"`\u2018\u201c\u00ab\u2039")
"""What stands before a tag that is quoted, not meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitAnswer:
    """An answer without its thoughts.

    Attributes:
        answers: The answer. Two where it cannot be told which of several closing tags ends the
            thoughts: whoever reads a decision takes it only if both say the same. One empty text
            where the thoughts never ended.
        thoughts: What stood before the answer; empty where there were no thoughts.
        is_finished: Whether the thoughts came to an end.
    """

    answers: tuple[str, ...]
    thoughts: str = ""
    is_finished: bool = True

    @property
    def text(self) -> str:
        """The answer; the longer one where it cannot be told where it begins."""
        return self.answers[0]


def split_thoughts(text: str) -> SplitAnswer:
    """Part thoughts from the answer: in tags, before a lone closing tag, or in channels.

    Tags in the middle of an answer are part of it: somebody may have had them quoted.
    """
    if _CHANNEL in text:
        return _split_channels(text)
    opening = _OPENING.search(text)
    is_opened = opening is not None and not text[: opening.start()].strip()
    closings = list(_CLOSING.finditer(text))
    if not closings:
        if is_opened:
            return SplitAnswer(answers=("",), thoughts=text, is_finished=False)
        return SplitAnswer(answers=(text,))
    if opening is not None and not is_opened and opening.start() < closings[0].start():
        return SplitAnswer(answers=(text,))
    meant = [match.end() for match in closings if not _is_quoted(text, match.start())]
    ends = meant or [closings[-1].end()]
    return _split_at(text, ends[0], ends[-1])


def ends_thoughts(text: str) -> bool:
    """Tell whether a text holds what would end thoughts, if somebody repeated it."""
    return _CHANNEL in text or _CLOSING.search(text) is not None


def _is_quoted(text: str, start: int) -> bool:
    return start > 0 and text[start - 1] in _QUOTES


def _split_at(text: str, first: int, last: int) -> SplitAnswer:
    answers = (text[first:],) if first == last else (text[first:], text[last:])
    return SplitAnswer(answers=answers, thoughts=text[:first])


def _split_channels(text: str) -> SplitAnswer:
    """Take the text behind the mark of the final channel; without a mark the thoughts go on."""
    starts = [start for name, start in _channels(text) if name == _FINAL_CHANNEL]
    if not starts:
        return SplitAnswer(answers=("",), thoughts=text, is_finished=False)
    split = _split_at(text, starts[0], starts[-1])
    return SplitAnswer(answers=tuple(map(_without_end, split.answers)), thoughts=split.thoughts)


def _channels(text: str) -> Iterator[tuple[str, int]]:
    """Yield the name of each channel and where its text begins."""
    at = text.find(_CHANNEL)
    while at >= 0:
        at += len(_CHANNEL)
        match = _CHANNEL_NAME.match(text, at)
        if match is not None:
            yield match[1].lower(), match.end()
        at = text.find(_CHANNEL, at)


def _without_end(answer: str) -> str:
    stripped = answer.rstrip()
    for end in _ENDS:
        if stripped.endswith(end):
            return stripped.removesuffix(end)
    return answer
