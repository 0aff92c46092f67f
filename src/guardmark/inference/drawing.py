"""Tokens drawn at random, every conversation from a seed of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from guardmark.inference.libraries import library

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """How the answers to several conversations are drawn."""

    temperature: float
    top_p: float = 1.0
    seeds: tuple[int, ...] = ()

    def among(self, chosen: Sequence[int]) -> Draws:
        """Return the draws of some of the conversations."""
        return replace(self, seeds=tuple(self.seeds[index] for index in chosen))


class SeededChoice:
    """Draws the next token of every row of a batch and makes it certain.

    A step takes one number from the row's own generator and none from torch's, so that an answer
    depends neither on its neighbours in the batch nor on what was answered before. Greedy
    decoding then takes the token that is certain.
    """

    def __init__(self, draws: Draws) -> None:
        self._torch = library("torch")
        self._draws = draws
        self._rows = [Random(seed) for seed in draws.seeds]

    def __call__(self, input_ids: Any, scores: Any) -> Any:  # noqa: ARG002 - the signature is the library's
        """Return scores that leave one token of each row."""
        torch = self._torch
        odds = torch.softmax(scores.double() / self._draws.temperature, dim=-1)
        if self._draws.top_p < 1:
            odds = self._nucleus(odds)
        # In the order of the vocabulary, not of the odds: where two tokens are nearly as likely,
        # the last digit, which differs between batches, must not decide.
        summed = odds.cumsum(dim=-1)
        drawn = torch.tensor([[row.random()] for row in self._rows], dtype=summed.dtype)
        points = drawn.to(summed.device) * summed[:, -1:]
        chosen = torch.searchsorted(summed, points, right=True).clamp(max=summed.shape[-1] - 1)
        return torch.full_like(scores, float("-inf")).scatter(-1, chosen, 0.0)

    def _nucleus(self, odds: Any) -> Any:
        """Leave the fewest tokens that together reach top-p."""
        likeliest, order = odds.sort(dim=-1, descending=True, stable=True)
        before = likeliest.cumsum(dim=-1) - likeliest
        kept = likeliest.masked_fill(before >= self._draws.top_p, 0.0)
        return self._torch.zeros_like(odds).scatter(-1, order, kept)
