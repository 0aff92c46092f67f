"""What a score is worth against classifiers that the search was not tuned on."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, ComplementNB
from sklearn.pipeline import make_pipeline
from tests.adaptive.fortified import reads_as_english
from tests.planted.defenses import Answer, Rule, built_in_samples
from tests.planted.references import greedy
from tests.planted.table import attacked, share

from guardmark.analysis.defense.counts import grouped_difference
from guardmark.canon.steps import canonicalize
from guardmark.core.sample import DEFAULT_TAXONOMY
from guardmark.datasets.builtin import builtin_specs
from guardmark.datasets.loading import load
from guardmark.store.layers import ADAPTIVE

pytestmark = pytest.mark.soak

BUDGET, THRESHOLD, SEEDS = 64, 0.7, (1, 2)
LEARNERS: dict[str, Callable[[], tuple[BaseEstimator, BaseEstimator]]] = {
    "logistic regression on words": lambda: (
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        LogisticRegression(C=10),
    ),
    "logistic regression on letters": lambda: (
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True),
        LogisticRegression(C=10),
    ),
    "naive Bayes on words": lambda: (CountVectorizer(binary=True), BernoulliNB(alpha=0.3)),
    "naive Bayes on letters": lambda: (
        CountVectorizer(analyzer="char", ngram_range=(3, 5)),
        ComplementNB(alpha=0.3),
    ),
}


def learnt(name: str) -> Callable[[str], float]:
    """Fit a classifier on canonical forms of the built-in training data; return its score."""
    samples = [*load(builtin_specs("core-train"), DEFAULT_TAXONOMY).samples()]
    pipe = make_pipeline(*LEARNERS[name]())
    pipe.fit([canonicalize(s.prompt.text) for s in samples], [s.is_attack for s in samples])

    @lru_cache(maxsize=100_000)
    def score(text: str) -> float:
        return float(pipe.predict_proba([canonicalize(text)])[0, 1])

    return score


def behind_a_gate(score: Callable[[str], float], *, is_shown: bool) -> Rule:
    """Block what scores high or does not read as English."""

    def rule(text: str) -> Answer:
        value = score(text)
        is_blocked = value >= THRESHOLD or not reads_as_english(text)
        return is_blocked, value if is_shown else None

    return rule


def test_more_falls_with_the_score_than_without_and_than_to_a_greedy_search() -> None:
    """Over four classifiers and two seeds, the seeds of an attack a group; greedy on each alone."""
    data, names = built_in_samples(), list[str]()
    marks: dict[bool, list[bool]] = {True: [], False: []}
    for name in LEARNERS:
        score = learnt(name)
        for is_shown, fell in marks.items():
            rule, begin = behind_a_gate(score, is_shown=is_shown), len(fell)
            for seed in SEEDS:
                state, asked, _, _ = attacked(data, rule, budget=BUDGET, seed=seed)
                fell += [n <= BUDGET for n in asked.firsts(ADAPTIVE, state.blocked)]
                names += [f"{name} {place}" for place in state.blocked if is_shown]
            if is_shown:
                followed = [greedy(rule, data[place], budget=BUDGET)[0] for place in state.blocked]
                assert share(fell[begin:]) >= share([first <= BUDGET for first in followed]) - 0.03
    _, groups = np.unique(names, return_inverse=True)
    more = grouped_difference(
        np.array(marks[True]), np.array(marks[False]), groups=groups, confidence=0.95
    )
    assert more.low is not None
    assert more.low > 0, more
