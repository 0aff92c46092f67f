"""Samples made by one pattern: equal but for numbers, names and punctuation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.core.sample import Sample

_TOKEN: Final = re.compile(r"[^\W_]+(?:['\u2019][^\W\d_]+)?")
_NUMBER: Final = "#"
_NAME: Final = "@"
_LEAST_WORDS: Final = 4
"""Words that have to be left beside what is masked: fewer say nothing of a common idea."""
_LEAST_SAMPLES: Final = 3
_EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Samples of several groups whose texts are one pattern.

    Attributes:
        ids: The samples, in the order of the data.
        groups: How many groups they are in now.
        group: The group that all of them should have: that of the first sample.
        words: The pattern, with `#` for a number and `@` for a name.
    """

    ids: tuple[str, ...]
    groups: int
    group: str
    words: str


def mask(text: str) -> tuple[str, ...] | None:
    """Return the words of a text with numbers and names masked; None where too little is left.

    A name is a word with a capital letter behind the first word. Masks in a row are one: a name
    may have two words, and a number may be written with a separator.
    """
    masked: list[str] = []
    plain = 0
    for position, token in enumerate(_TOKEN.findall(text)):
        if not token.isalpha() and any(sign.isdigit() for sign in token):
            word = _NUMBER
        elif position and token[0].isupper() and not token.isupper():
            word = _NAME
        else:
            word = token.lower()
            plain += 1
        if word in {_NUMBER, _NAME} and masked and masked[-1] == word:
            continue
        masked.append(word)
    if plain < _LEAST_WORDS:
        return None
    return tuple(masked)


def find_patterns(samples: Sequence[Sample]) -> tuple[Pattern, ...]:
    """Find the patterns that samples of several groups share, the largest first.

    Texts that are equal without masks are copies, which the search for near-copies names.
    """
    members: dict[tuple[str, ...], list[Sample]] = {}
    for sample in samples:
        words = mask(sample.prompt.words)
        if words is not None:
            members.setdefault(words, []).append(sample)
    patterns = []
    for words, alike in members.items():
        groups = {sample.lineage for sample in alike}
        texts = {sample.prompt.words for sample in alike}
        if len(alike) >= _LEAST_SAMPLES and len(groups) > 1 and len(texts) > 1:
            patterns.append(
                Pattern(
                    ids=tuple(sample.id for sample in alike),
                    groups=len(groups),
                    group=alike[0].lineage,
                    words=" ".join(words),
                )
            )
    return tuple(sorted(patterns, key=lambda pattern: (-len(pattern.ids), pattern.ids)))


def pattern_line(pattern: Pattern) -> str:
    """Name the samples of a pattern, and the group that they should have."""
    ids = ", ".join(pattern.ids[:_EXAMPLES])
    if len(pattern.ids) > _EXAMPLES:
        ids += " ..."
    return (
        f"{len(pattern.ids):,} samples of one pattern in {pattern.groups:,} groups, which should "
        f"be the group {pattern.group!r}: {ids}"
    )


def note_patterns(samples: Sequence[Sample]) -> Iterator[str]:
    """Say which samples differ in numbers and names alone, and are counted as independent."""
    patterns = find_patterns(samples)
    if not patterns:
        return
    count = sum(len(pattern.ids) for pattern in patterns)
    groups = sum(pattern.groups for pattern in patterns)
    first = patterns[0]
    makers = "one pattern"
    if len(patterns) > 1:
        makers = f"{len(patterns):,} patterns"
    yield (
        f"{count:,} samples in {groups:,} groups are made by {makers}: they differ in "
        f"numbers and names alone, such as {' and '.join(first.ids[:2])}. Intervals take these "
        f"groups for independent and are too narrow. Give each pattern one group (`group: "
        f"{first.group}` for the first); guardmark data check lists them."
    )
