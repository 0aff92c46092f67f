"""Cards of one cohort, sorted into tiers: places where the data can tell them apart, no further."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass
from guardmark.stats.multiplicity import holm
from guardmark.stats.rates.proportion import BoundedRate, mover_p_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.cards.card import Card
    from guardmark.analysis.cards.figures import CardFigure

RANKED: Final = ("attack_success_rate", "false_positive_rate")
"""Figures by which cards fall into tiers; lower is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A card with its tiers within its cohort.

    Attributes:
        card: The card.
        tiers: Figure to tier, from 1 on; None where the figure has no interval. A tier ends where
            a card is told apart from the first one of the tier.
    """

    card: Card
    tiers: dict[str, int | None]


def rank_cohort(cards: Sequence[Card]) -> tuple[Ranked, ...]:
    """Sort the cards of one cohort into tiers by each figure, best first.

    Two cards are told apart where the limits of their difference (MOVER of the two intervals)
    exclude zero, Holm over all pairs and figures of the cohort. Cards carry no answers by sample,
    so the difference is taken as if they had been measured on samples of their own: on the same
    samples it is narrower, so nothing is told apart too often.

    Source: Newcombe (1998), Statistics in Medicine 17:873; Zou & Donner (2008), 27:1693.
    """
    apart = _told_apart(cards)
    tiers = {name: _tiers(cards, name, apart) for name in RANKED}
    ranked = []
    for at, card in enumerate(cards):
        own = {name: tiers[name][at] for name in RANKED}
        ranked.append(Ranked(card=card, tiers=own))
    return tuple(sorted(ranked, key=_merit))


def _told_apart(cards: Sequence[Card]) -> set[tuple[str, int, int]]:
    """Return the figures and pairs of cards whose difference excludes zero, Holm over all."""
    pairs = []
    p_values = []
    for name in RANKED:
        for one, other in combinations(range(len(cards)), 2):
            pairs.append((name, one, other))
            p_values.append(_p_of_difference(cards[one], cards[other], name))
    apart = set()
    for pair, p in zip(pairs, holm(p_values), strict=True):
        if p is not None and p <= _alpha(cards[pair[1]]):
            apart.add(pair)
    return apart


def _alpha(card: Card) -> float:
    return 1.0 - card.policy.confidence


def _p_of_difference(one: Card, other: Card, name: str) -> float | None:
    """Return the p of "no difference" in a figure; None where a card has no interval of it."""
    first, second = _bounded(one, name), _bounded(other, name)
    if first is None or second is None:
        return None
    return mover_p_value(first, second, confidence=one.policy.confidence)


def _bounded(card: Card, name: str) -> BoundedRate | None:
    """Return a figure of a card with its limits, where it has them."""
    figure = card.figure(name)
    if figure is None or figure.value is None or figure.low is None or figure.high is None:
        return None
    return BoundedRate(value=figure.value, low=figure.low, high=figure.high)


def _point(figure: CardFigure) -> float:
    if figure.value is None:
        return math.inf
    return figure.value


def _tiers(cards: Sequence[Card], name: str, apart: set[tuple[str, int, int]]) -> list[int | None]:
    """Return the tier of each card; one ends where a card is told apart from the first of it."""
    points = {}
    for at, card in enumerate(cards):
        figure = card.figure(name)
        if figure is not None and figure.high is not None:
            points[at] = _point(figure)
    known = sorted(points, key=points.__getitem__)
    tiers: list[int | None] = [None] * len(cards)
    tier, leader = 0, -1
    for at in known:
        pair = (name, min(at, leader), max(at, leader))
        if leader < 0 or pair in apart:
            tier, leader = tier + 1, at
        tiers[at] = tier
    return tiers


def _merit(ranked: Ranked) -> tuple[bool, float, str]:
    """Sort baselines last, then by the sum of tiers, then by name: points decide nothing."""
    total = 0.0
    for tier in ranked.tiers.values():
        if tier is None:
            total = math.inf
        else:
            total += tier
    return ranked.card.is_baseline, total, ranked.card.subject.name
