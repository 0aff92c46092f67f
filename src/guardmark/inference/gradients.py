"""Gradients of a sequence classifier with respect to the tokens it reads."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Swap:
    """One token of a text replaced by another.

    Attributes:
        start: Where the token begins, in characters of the text.
        end: Where it ends.
        word: What stands there instead.
        drop: How much that lowers the log-odds of being blocked, to first order.
    """

    start: int
    end: int
    word: str
    drop: float


_MARKS: Final = ("##", "\u0120", "\u2581")
"""How tokenizers mark that a token goes on (`##`) or begins (`\u0120`, `\u2581`) a word."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmbeddingGradients:
    """Gradients of the log-odds of being positive, by the embedding of each token.

    What the classifier puts before and after a text is put there too; `room` is left for it.

    Attributes:
        torch: The library, loaded.
        model: The classifier.
        tokenizer: Its tokenizer.
        positive: Indices of the labels that mean that a text is blocked.
        before: Tokens that the classifier puts before a text.
        after: Tokens that it puts behind.
        room: Most tokens of a text.
        words_by_mark: Ids and words that may stand for a token, by how the token is marked.
    """

    torch: Any
    model: Any
    tokenizer: Any
    positive: Sequence[int]
    before: Sequence[int]
    after: Sequence[int]
    room: int
    words_by_mark: Mapping[str, tuple[list[int], list[str]]]

    def at(self, text: str) -> TextGradient:
        """Compute the gradient at a text."""
        torch = self.torch
        encoded = self.tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, truncation=False
        )
        ids = list(encoded["input_ids"])[: self.room]
        tokens = []
        for start, end in encoded["offset_mapping"][: self.room]:
            tokens.append(_without_space(text, start, end))
        table = self.model.get_input_embeddings().weight
        whole = torch.tensor([[*self.before, *ids, *self.after]], device=table.device)
        embedded = table.detach()[whole].clone().requires_grad_()
        with torch.enable_grad():
            logits = self.model(
                inputs_embeds=embedded, attention_mask=torch.ones_like(whole)
            ).logits.float()[0]
            others = [label for label in range(len(logits)) if label not in self.positive]
            odds = torch.logsumexp(logits[self.positive], 0) - torch.logsumexp(logits[others], 0)
            (gradient,) = torch.autograd.grad(odds, embedded)
        first = len(self.before)
        return TextGradient(
            text=text,
            tokens=tuple(tokens),
            ids=ids,
            gradient=gradient[0, first : first + len(ids)].detach(),
            words=self,
        )

    def steepest(self, token: int, gradient: Any) -> list[tuple[str, float]]:
        """Return every word that may stand for a token, by what it promises."""
        torch = self.torch
        raw = self.tokenizer.convert_ids_to_tokens(token)
        ids, words = self.words_by_mark.get(_mark_of(raw), ([], []))
        if not ids:
            return []
        table = self.model.get_input_embeddings().weight.detach()
        drops = (table[token] - table[torch.tensor(ids, device=table.device)]) @ gradient
        order = torch.argsort(drops, descending=True, stable=True)
        ranked = zip(order.tolist(), drops[order].tolist(), strict=True)
        return [(words[i], drop) for i, drop in ranked if drop > 0]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextGradient:
    """The gradient at one text.

    Attributes:
        text: The text.
        tokens: Where each token that is read begins and ends, in characters.
        ids: The token's number in the vocabulary.
        gradient: By token and dimension of the embedding.
        words: Where other words come from.
    """

    text: str
    tokens: tuple[tuple[int, int], ...]
    ids: Sequence[int]
    gradient: Any
    words: EmbeddingGradients

    def swaps(self, token: int, *, allowed: Callable[[str], bool], most: int) -> list[Swap]:
        """Return what lowers the log-odds of being blocked, the steepest first."""
        start, end = self.tokens[token]
        here = self.text[start:end]
        swaps: list[Swap] = []
        for word, drop in self.words.steepest(self.ids[token], self.gradient[token]):
            if len(swaps) == most:
                break
            if word != here and allowed(word):
                swaps.append(Swap(start, end, word, drop))
        return swaps


def plain_words(tokenizer: Any) -> dict[str, tuple[list[int], list[str]]]:
    """Return ids and words of ASCII letters and digits, by how the token is marked."""
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(
            "Gradients need a fast tokenizer (tokenizer.json), which says where tokens stand.\n"
            "Next: name a model that has one."
        )
    marked: defaultdict[str, tuple[list[int], list[str]]] = defaultdict(lambda: ([], []))
    special = set(tokenizer.all_special_ids)
    for token, number in sorted(tokenizer.get_vocab().items(), key=itemgetter(1)):
        mark = _mark_of(token)
        word = token.removeprefix(mark)
        if number not in special and word.isascii() and word.isalnum():
            marked[mark][0].append(number)
            marked[mark][1].append(word)
    return dict(marked)


def _mark_of(token: str) -> str:
    for mark in _MARKS:
        if token.startswith(mark):
            return mark
    return ""


def _without_space(text: str, start: int, end: int) -> tuple[int, int]:
    """Leave out the space that some tokenizers count as part of a word."""
    while start < end and text[start].isspace():
        start += 1
    return start, end
