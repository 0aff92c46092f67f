"""Which kind a defense is named as, for kinds that are known because we made them."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from types import ModuleType

import numpy as np
import pytest
from tests.adaptive.planted import AtOnce, anchored, attack, cards, folding, keyword, samples

from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.analysis.adaptive.card import AdaptiveCard
from guardmark.core.outcome import ALLOWED, BLOCKED, Decision, Outcome, ScoreKind
from guardmark.core.sample import DEFAULT_TAXONOMY, Prompt, Sample, View
from guardmark.datasets.builtin import builtin_specs
from guardmark.datasets.loading import load
from guardmark.defenses.ngram import NgramModel

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "scripts" / "fit_ngram.py"
SHAPES = ((15, 2, 5), (14, 3, 5), (15, 1, 3), (16, 3, 6), (13, 2, 4))
"""Bits, shortest and longest n-gram; the number of each is the seed of its half of the data."""
FALSE_ALARMS = 0.05


@cache
def fitting() -> ModuleType:
    """Return the script that fits the built-in model."""
    spec = importlib.util.spec_from_file_location("fit_ngram", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def texts_of(name: str) -> tuple[Sample, ...]:
    """Return a built-in set."""
    return tuple(load(builtin_specs(name), DEFAULT_TAXONOMY).samples())


@cache
def model_of(seed: int) -> NgramModel:
    """Fit a model on half of the training groups; its threshold is chosen on the other half."""
    fit = fitting()
    fit.BITS, fit.SHORTEST, fit.LONGEST = SHAPES[seed]
    known = texts_of("core-train")
    groups = sorted({each.group or each.id for each in known})
    Random(seed).shuffle(groups)
    first = set(groups[: len(groups) // 2])
    halves: tuple[list[Sample], list[Sample]] = ([], [])
    for each in known:
        halves[(each.group or each.id) not in first].append(each)
    features = fit._features(each.prompt.text for each in halves[0])
    is_attack = np.array([each.is_attack for each in halves[0]], dtype=float)
    coefficients, bias = fit.fit((features @ features.T).toarray(), is_attack, 1e-4)
    model = NgramModel(
        weights=(features.T @ coefficients).astype(np.float32),
        bits=SHAPES[seed][0],
        shortest=SHAPES[seed][1],
        longest=SHAPES[seed][2],
        bias=bias,
        threshold=1.0,
        version="test",
        fitted_on="half of core-train",
    )
    benign = [model.score(each.prompt.text) for each in halves[1] if not each.is_attack]
    threshold = float(np.quantile(benign, 1 - FALSE_ALARMS))
    object.__setattr__(model, "threshold", threshold)
    return model


class Ngrams:
    """An n-gram model as a defense, with its scores or without."""

    name = "ngrams"
    view = View.TEXT

    def __init__(self, model: NgramModel, *, tells_score: bool) -> None:
        self.model = model
        self.tells_score = tells_score

    def decide(self, prompt: Prompt) -> Decision:
        """Block from the threshold on."""
        score = self.model.score(prompt.text)
        if not self.tells_score:
            return BLOCKED if score >= self.model.threshold else ALLOWED
        outcome = Outcome.BLOCK if score >= self.model.threshold else Outcome.ALLOW
        return Decision(outcome=outcome, score=score, score_kind=ScoreKind.CLASS_PROB)


def card_of(folder: Path, defense: object, data: list[Sample], seed: int) -> AdaptiveCard:
    """Attack a defense with the least budget there is, and read the figures."""
    folder.mkdir(parents=True)
    plan = AdaptivePlan(defenses=(defense,), seed=seed, budget=4)  # type: ignore[arg-type]
    asyncio.run(attack(folder, data, plan))
    (card,) = cards(folder)
    return card


@pytest.mark.slow
@pytest.mark.parametrize("tells_score", [True, False], ids=["scores", "decisions only"])
def test_ngram_models_are_named_lexical_statistical(tmp_path: Path, *, tells_score: bool) -> None:
    """Five models of several shapes, each on attacks it was not fitted on: most findings agree."""
    found: Counter[str] = Counter()
    for seed in range(len(SHAPES)):
        data = list(texts_of("core")[seed + 6 :: 12])
        defense = Ngrams(model_of(seed), tells_score=tells_score)
        card = card_of(tmp_path / str(seed), defense, data, seed)
        assert card.findings["diagnosis"] == "lexical-statistical", seed
        assert card.findings["examined"] >= 5
        found.update(card.findings["labels"])
    assert found["lexical-statistical"] >= 0.8 * found.total(), found


@pytest.mark.parametrize(
    ("rule", "label"), [(keyword, "keyword"), (anchored, "pattern"), (folding, "keyword")]
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rules_are_told_from_models(tmp_path: Path, rule: object, label: str, seed: int) -> None:
    """What a rule looks for is found in any company; most findings say so at every seed."""
    card = card_of(tmp_path / "run", AtOnce("d", rule), samples(40, 20), seed)  # type: ignore[arg-type]
    assert card.findings["diagnosis"] == label
    assert card.findings["labels"][label] >= 0.8 * card.findings["examined"]
