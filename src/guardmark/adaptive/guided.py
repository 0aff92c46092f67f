"""Follow the score: edit the words that bring it down, under the carrier that helps most."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import log, sqrt
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.state import Account, Query
from guardmark.attacks.application import MOST_WORDS_EDITED, apply, seed_for
from guardmark.attacks.catalogue import parse_chain
from guardmark.attacks.contract import Tier, weakest
from guardmark.attacks.word_edits import EditKind, edited, edited_tier, edits_of, recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from guardmark.adaptive.state import SearchState, Target, TryAnswer
    from guardmark.attacks.word_edits import WordEdit

_EDGE: Final = 1e-6  # nearest to 0 and 1 that a score is taken for
_LEAST: Final = 0.01  # of the logit: a smaller drop is none
_EXPECTED: Final = 0.15  # drop expected of an edit before any was tried
_SIZE: Final = ("size",)  # no word: by how much an edit moves a score as a rule
_PATIENCE: Final = 16  # tries in a row without a drop
_PACE: Final = 0.2  # drop of a try to expect before any was made
_PRIOR_TRIES: Final = 20  # tries that what is expected beforehand is worth
_PRIOR_WINS: Final = 2  # wins that distance and pace are believed for
_SHARED_TRIES: Final = 4  # tries that the pace of the others is worth
_NEAR: Final = 0.5  # a score is never taken for nearer than this to what is let through


@dataclass(slots=True)
class _Mean:
    """A weighted mean that begins at a wider one, as if that had been seen once."""

    total: float = 0.0
    count: float = 1.0

    def from_(self, wider: float) -> float:
        return (self.total + wider) / self.count

    def add(self, value: float, weight: float) -> None:
        self.total += value * weight
        self.count += weight


@dataclass(slots=True)
class ScoreMemory:
    """By how much edits, words and kinds of edits brought scores down, over all attacks."""

    drops: defaultdict[object, _Mean] = field(default_factory=lambda: defaultdict(_Mean))
    barred: defaultdict[EditKind, _Mean] = field(default_factory=lambda: defaultdict(_Mean))

    def kinds(self) -> list[tuple[float, float]]:
        """Return the drop to expect of each kind of edit, and how likely it is not held back."""
        usual, barred = self.drops[_SIZE].from_(_EXPECTED), self.barred
        return [(self.drops[each].from_(usual), 1 - barred[each].from_(0.0)) for each in EditKind]

    def drop_of(self, word: str, kinds: list[tuple[float, float]]) -> Callable[[WordEdit], float]:
        """Return a function from an edit of a word to the drop to expect of it; called often."""
        of_word, get = self.drops.get(word), self.drops.get
        drops = [drop for drop, _ in kinds]
        if of_word is not None:
            drops = [of_word.from_(drop) for drop in drops]

        def expected(edit: WordEdit) -> float:
            drop = drops[edit.kind]
            of_edit = get((word, edit.form))
            if of_edit is not None:
                drop = of_edit.from_(drop)
            return drop * kinds[edit.kind][1]

        return expected

    def _drop(self, edit: WordEdit) -> float:
        drop = self.drops[_SIZE].from_(_EXPECTED)
        for known in (edit.kind, edit.word, (edit.word, edit.form)):
            drop = self.drops[known].from_(drop)
        return drop

    def learn(self, edits: Sequence[WordEdit], drop: float) -> None:
        """Share out a drop: each edit gets what was expected of it and its part of the surprise."""
        expected = [self._drop(edit) for edit in edits]
        surprise, weight = (drop - sum(expected)) / len(edits), 1 / sqrt(len(edits))
        for edit, estimate in zip(edits, expected, strict=True):
            for known in (edit.kind, edit.word, (edit.word, edit.form)):
                self.drops[known].add(estimate + surprise, weight)
            self.drops[_SIZE].add(abs(estimate + surprise), weight)


@dataclass(slots=True, kw_only=True)
class _Descent:
    """One attack, the edits kept so far, and what is tried next."""

    state: SearchState
    target: Target
    memory: ScoreMemory
    draw: Random
    score: float
    carrier: str = ""
    kept: tuple[WordEdit, ...] = ()
    tried: tuple[WordEdit, ...] = ()
    refused: set[int] = field(default_factory=set)  # edits, by `id`: they are held by `options`
    options: tuple[tuple[WordEdit, ...], ...] = ()  # by word
    step: int = 0  # Words changed at once.
    idle: int = 0
    tries: int = 0
    dropped: float = 0.0

    def __post_init__(self) -> None:
        """Look at every word once."""
        sample = self.target.sample
        self.options = edits_of(sample.prompt.text, sample.must_keep)

    def propose(self) -> Query | None:
        """Make the next try: the most promising edits, in place of those kept or beside them."""
        ranked = sorted(self._gains(), key=lambda gain: gain[0], reverse=True)
        self.step = self.step or max(1, len(ranked) // 4)
        while ranked:
            self.tried = tuple(edit for _, edit in ranked[: self.step])
            query = self._query()
            is_attack = self.state.may_send(self.target.sample, query.text)
            if query.is_proved and is_attack and query.text not in self.target.seen:
                self.target.seen.add(query.text)
                return query
            if self.step == 1:
                self.refused.update(map(id, self.tried))
            ranked = ranked[self.step :]
        return None

    def _gains(self) -> Iterator[tuple[float, WordEdit]]:
        """Yield the best edit of each word, and by how much more than now it may bring."""
        usual, kinds = self.memory.drops[_SIZE].from_(_EXPECTED), self.memory.kinds()
        kept, typos = {}, 0
        for edit in self.kept:
            kept[edit.start] = edit
            if edit.kind is EditKind.TYPO:
                typos += 1
        closed = None
        if typos + 1 > MOST_WORDS_EDITED * len(self.target.sample.prompt.text.split()):
            closed = EditKind.TYPO
        refused, chance = self.refused, self.draw.random
        for options in self.options:
            now = kept.get(options[0].start)
            expected = self.memory.drop_of(options[0].word, kinds)
            best, chosen, worth = 0.0, None, 0.0
            for edit in options:
                if edit is now:
                    worth = max(0.0, expected(edit)) + usual / 2
                elif id(edit) not in refused and edit.kind != closed:
                    drawn = expected(edit) + usual * chance()
                    if chosen is None or drawn >= best:
                        best, chosen = drawn, edit
            if chosen is not None and (now is None or best > worth):
                yield best - worth, chosen

    def _edits(self) -> tuple[WordEdit, ...]:
        by_word = {edit.start: edit for edit in (*self.kept, *self.tried)}
        return tuple(by_word[start] for start in sorted(by_word))

    def _query(self) -> Query:
        """Make the text of the edits kept and tried, and prove it."""
        edits, sample, key = self._edits(), self.target.sample, self.carrier
        text = edited(sample.prompt.text, edits)
        tier = edited_tier(sample.prompt.text, edits, sample.must_keep)
        if key:
            seed = seed_for(self.state.seed, key, sample.id, 0)
            made = apply(parse_chain(key), text, seed=seed, must_keep=sample.must_keep)
            text, tier = made.text, weakest((tier, made.tier or Tier.V4))
        name, layer = recipe(edits, key), self.state.layer()
        index = self.target.position
        return Query(index, text, Account.SEARCH, "R4", name, tier.value, layer)

    def learn(self, answer: TryAnswer) -> None:
        """Keep what brought the score down; else take a smaller step."""
        if answer.score is None:
            return
        is_barred = bool(answer.is_blocked) and answer.score <= self.state.allowed_score
        for edit in self.tried:
            self.memory.barred[edit.kind].add(float(is_barred), 1 / len(self.tried))
        score = _logit(answer.score)
        if not is_barred:
            self.memory.learn(self.tried, self.score - score)
        if self.score - score > _LEAST and not is_barred:
            self.kept, self.score, self.idle = self._edits(), score, 0
            return
        self.idle += 1
        if len(self.tried) == 1:
            self.refused.update(map(id, self.tried))
        self.step = max(1, self.step // 2)


def _logit(score: float) -> float:
    """Return a score on a scale where steps near 0 and 1 count as much as in the middle."""
    inside = min(1 - _EDGE, max(_EDGE, score))
    return log(inside / (1 - inside))


@dataclass(slots=True, kw_only=True)
class Descents:
    """The search along scores: each attack that has one, and how fast scores fall."""

    state: SearchState
    memory: ScoreMemory = field(default_factory=ScoreMemory)
    under_way: dict[int, _Descent] = field(default_factory=dict)
    dropped: float = 0.0
    tries: int = 0
    wins: int = 0
    expected_wins: float = 0.0  # wins, by distance and pace

    def chance(self, target: Target) -> float:
        """Return how likely the next try of an attack gets through, from distance and pace."""
        each = self._descent(target)
        if each is None or each.idle >= _PATIENCE:
            return 0.0
        return (self.wins + _PRIOR_WINS) / (self.expected_wins + _PRIOR_WINS) * self._chance(each)

    def _chance(self, each: _Descent) -> float:
        usual = (self.dropped + _PRIOR_TRIES * _PACE) / (self.tries + _PRIOR_TRIES)
        pace = (each.dropped + _SHARED_TRIES * usual) / (each.tries + _SHARED_TRIES)
        distance = each.score - _logit(self.state.allowed_score)
        return min(1.0, pace / max(_NEAR, distance))

    def _descent(self, target: Target) -> _Descent | None:
        """Return where an attack stands; a carrier that helps more is taken on."""
        position = target.position
        if position not in self.under_way and position in self.state.scores:
            self.under_way[position] = _Descent(
                state=self.state,
                target=target,
                memory=self.memory,
                draw=self.state.draw("scores", target.sample.id),
                score=_logit(self.state.scores[position]),
            )
        each = self.under_way.get(position)
        score, carrier = target.carried
        if each is not None and carrier != each.carrier and _logit(score) < each.score:
            each.score, each.carrier, each.kept, each.idle = _logit(score), carrier, (), 0
        return each

    def propose(self, target: Target) -> Query | None:
        """Make the next try of an attack, if there is one."""
        descent = self._descent(target)
        if descent is None or descent.idle >= _PATIENCE:
            return None
        query = descent.propose()
        if query is None:
            descent.idle = _PATIENCE
        return query

    def learn(self, target: Target, answer: TryAnswer) -> None:
        """Take note of what a try came to; without a decision there is nothing to note."""
        if answer.is_blocked is None:
            return
        descent = self.under_way[target.position]
        self.expected_wins += self._chance(descent)
        if target.win is not None:
            self.wins += 1
        self.tries += 1
        before = descent.score
        descent.learn(answer)
        self.dropped += before - descent.score
        descent.dropped += before - descent.score
        descent.tries += 1
