"""Greedy token substitution along the gradient: the idea of HotFlip, in code of our own.

A swap of one token is valued by the first-order change of the log-odds of being blocked: the
gradient by the token's embedding, times the difference of both embeddings. The best swap is made,
the gradient taken again, and so on (Ebrahimi, Rao, Lowd & Dou 2018, arXiv:1712.06751, there over
characters and with a beam; here over tokens of the vocabulary, greedily).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from guardmark.attacks.application import edit_within_one, is_bounded
from guardmark.config.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from guardmark.config.settings import BuildContext
    from guardmark.core.sample import Sample
    from guardmark.inference.gradients import EmbeddingGradients, Swap, TextGradient

HOTFLIP: Final = "hotflip@1"


class HotFlip:
    """Replaces one token after the other, the steepest first."""

    def __init__(self, *, bounded: bool = True) -> None:
        self.name = HOTFLIP
        if not bounded:
            self.name = f"{HOTFLIP}(bounded=no)"
        self._bounded = bounded

    def propose(self, sample: Sample, access: EmbeddingGradients, *, most: int) -> Iterator[str]:
        """Yield the text after one swap, after two, and so on."""
        original = text = sample.prompt.text
        done: list[tuple[int, int]] = []
        for _ in range(most):
            swap = self._best(access.at(text), text, original, closed=done + _kept(sample, text))
            if swap is None:
                return
            text = f"{text[: swap.start]}{swap.word}{text[swap.end :]}"
            done = [_moved(span, swap) for span in done]
            done.append((swap.start, swap.start + len(swap.word)))
            yield text

    def _best(
        self, gradient: TextGradient, text: str, original: str, *, closed: list[tuple[int, int]]
    ) -> Swap | None:
        swaps: list[Swap] = []
        for number, (start, end) in enumerate(gradient.tokens):
            is_closed = any(start < last and end > first for first, last in closed)
            if start < end and not is_closed:
                allowed = self._rule(text, original, start, end)
                swaps += gradient.swaps(number, allowed=allowed, most=1)
        return max(swaps, key=lambda swap: (swap.drop, -swap.start), default=None)

    def _rule(self, text: str, original: str, start: int, end: int) -> Callable[[str], bool]:
        here = text[start:end].casefold()

        def allowed(word: str) -> bool:
            if word.casefold() == here:
                return False
            if not self._bounded:
                return True
            changed = f"{text[:start]}{word}{text[end:]}"
            return edit_within_one(here, word.casefold()) and is_bounded(original, changed)

        return allowed


def _moved(span: tuple[int, int], swap: Swap) -> tuple[int, int]:
    """Return where a stretch stands once a swap was made."""
    shift = len(swap.word) - (swap.end - swap.start)
    start, end = span
    if start < swap.end:
        return span
    return start + shift, end + shift


def _kept(sample: Sample, text: str) -> list[tuple[int, int]]:
    """Return every place where a protected span stands."""
    spans = []
    for kept in filter(None, sample.must_keep):
        for match in re.finditer(f"(?={re.escape(kept)})", text):
            spans.append((match.start(), match.start() + len(kept)))
    return spans


class HotFlipSettings(Settings):
    """Swaps one token after the other where the gradient is steepest."""

    bounded: bool = True

    def build(self, name: str, context: BuildContext) -> object:  # noqa: ARG002 - all have one signature
        """Build the attack."""
        return HotFlip(bounded=self.bounded)
