"""What a reasoning model thought, parted from what it answered."""

from __future__ import annotations

import re
from typing import Final

from guardmark.core.values import dataclass

_NAMES: Final = "think|thinking|thought|thoughts|reasoning"
_CLOSING_TAGS: Final = (*(f"</{name}>" for name in _NAMES.split("|")), "[/think]")
_OPENING: Final = re.compile(rf"<(?:{_NAMES})>|\[THINK\]", re.IGNORECASE)
_OPENED: Final = re.compile(rf"\s*(?:{_OPENING.pattern})", re.IGNORECASE)
_CLOSING_FORM: Final = rf"(?:</(?:{_NAMES})>|\[/THINK\])"
_QUOTES: Final = "'\"`\u2018\u201c\u00ab\u2039"
"""What stands before a tag that is quoted, not meant."""
# A search that begins with a sign is several times as fast as one that begins with a look behind.
_MEANT_FORM: Final = rf"(?:<(?<![{_QUOTES}]<)/(?:{_NAMES})>|\[(?<![{_QUOTES}]\[)/THINK\])"
_CHANNEL: Final = "<|channel|>"
_FINAL_FORM: Final = r"<\|channel\|>\s{0,20}final(?!\w)[^<]{0,60}<\|message\|>"
_ENDS: Final = ("<|return|>", "<|end|>")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """A mark that may stand in a text many times, of which only the first and the last count.

    An answer may be nothing but such marks, so they are not listed one by one.
    """

    first: re.Pattern[str]
    last: re.Pattern[str]

    @classmethod
    def of(cls, form: str) -> _Mark:
        """Compile what finds a mark from the left, and from the right."""
        return cls(
            first=re.compile(form, re.IGNORECASE),
            last=re.compile(f".*({form})", re.IGNORECASE | re.DOTALL),
        )


_CLOSING: Final = _Mark.of(_CLOSING_FORM)
_MEANT: Final = _Mark.of(_MEANT_FORM)
_FINAL: Final = _Mark.of(_FINAL_FORM)


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
    if "<" not in text and "[" not in text:  # the usual answer of a guard
        return SplitAnswer(answers=(text,))
    if _CHANNEL in text:
        return _split_channels(text)
    return _split_tags(text)


def _split_tags(text: str) -> SplitAnswer:
    """Take the text behind the tag that closes the thoughts."""
    is_opened = _OPENED.match(text) is not None
    closing = _first_closing(text)
    if closing is None:
        if is_opened:
            return SplitAnswer(answers=("",), thoughts=text, is_finished=False)
        return SplitAnswer(answers=(text,))
    if not is_opened and _OPENING.search(text, 0, closing.start()) is not None:
        return SplitAnswer(answers=(text,))
    meant = _MEANT.first.search(text, closing.start())
    if meant is None:  # each of them is quoted: the last one is the least unlikely
        end = _end_of_last(_CLOSING, text)
        return _split_at(text, end, end)
    return _split_at(text, meant.end(), _end_of_last(_MEANT, text))


def ends_thoughts(text: str) -> bool:
    """Tell whether a text holds what would end thoughts, if somebody repeated it."""
    return _CHANNEL in text or _first_closing(text) is not None


def _first_closing(text: str) -> re.Match[str] | None:
    """Find the first closing tag: texts without one are seen to have none at once."""
    folded = text.casefold()
    starts = []
    for tag in _CLOSING_TAGS:
        start = folded.find(tag)
        if start >= 0:
            starts.append(start)
    if not starts:
        return None
    if len(folded) != len(text):  # folding made it longer: its positions are others
        return _CLOSING.first.search(text)
    return _CLOSING.first.search(text, min(starts))


def _end_of_last(mark: _Mark, text: str) -> int:
    """Return where the last mark of a text ends; the text is known to hold one."""
    match = mark.last.match(text)
    if match is None:
        return len(text)
    return match.end()


def _split_at(text: str, first: int, last: int) -> SplitAnswer:
    answers = [text[first:]]
    if last != first:
        answers.append(text[last:])
    return SplitAnswer(answers=tuple(answers), thoughts=text[:first])


def _split_channels(text: str) -> SplitAnswer:
    """Take the text behind the mark of the final channel; without a mark the thoughts go on."""
    first = _FINAL.first.search(text)
    if first is None:
        return SplitAnswer(answers=("",), thoughts=text, is_finished=False)
    split = _split_at(text, first.end(), _end_of_last(_FINAL, text))
    answers = [_without_end(answer) for answer in split.answers]
    return SplitAnswer(answers=tuple(answers), thoughts=split.thoughts)


def _without_end(answer: str) -> str:
    stripped = answer.rstrip()
    for end in _ENDS:
        if stripped.endswith(end):
            return stripped.removesuffix(end)
    return answer
