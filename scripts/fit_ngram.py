"""Fit the weights of the built-in n-gram classifier on the built-in set `core-train`.

    python scripts/fit_ngram.py [--check]

Deterministic: equal data give equal bytes on one platform. What it does:

1. Hash every character n-gram of every text under test (`defenses.ngram.hashed_ngrams`) and
   divide the counts by the square root of their number.
2. Fit a logistic regression with a quadratic penalty (both classes weighted alike), out of fold:
   ten folds by SHA-256 of the sample's group, so that variants of one idea never
   stand on both sides. The penalty with the lowest out-of-fold log loss wins.
3. Calibrate on the out-of-fold scores (Platt: a slope and an offset), then fit on everything
   and fold slope and offset into the weights.
4. Threshold: the lowest calibrated out-of-fold score at which at most 5 % of the benign texts
   are blocked.

`--check` refits and says whether the shipped file would change, exit 1 if so.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from hashlib import sha256
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from guardmark.defenses.ngram import NgramModel, hashed_ngrams, read_model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

SOURCE = Path(__file__).resolve().parents[1] / "src" / "guardmark"
DATA = SOURCE / "datasets" / "builtin" / "core-train-1"
WEIGHTS = SOURCE / "defenses" / "weights" / "ngram-1.npz"
BITS, SHORTEST, LONGEST = 15, 2, 5
FOLDS = 10
PENALTIES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
MOST_FALSE_ALARMS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet:
    """Texts as features.

    Attributes:
        features: One row a text, one column a bucket.
        is_attack: 1.0 for attacks, 0.0 for benign texts.
        fold: Fold of each text, by its group.
        digest: SHA-256 (hex) over the files, in the order of their names.
    """

    features: csr_matrix
    is_attack: NDArray[np.float64]
    fold: NDArray[np.int64]
    digest: str


def read_training_set() -> TrainingSet:
    """Read the built-in training set."""
    digest = sha256()
    rows: list[dict[str, object]] = []
    for path in sorted(DATA.glob("*.jsonl")):
        content = path.read_bytes()
        digest.update(content)
        rows.extend(json.loads(line) for line in content.decode().split("\n") if line.strip())
    return TrainingSet(
        features=_features(_text_under_test(row) for row in rows),
        is_attack=np.array([row["label"] == "attack" for row in rows], dtype=np.float64),
        fold=np.array([_fold(str(row.get("group") or row["id"])) for row in rows]),
        digest=digest.hexdigest(),
    )


def _text_under_test(row: dict[str, object]) -> str:
    messages = row.get("messages")
    if not isinstance(messages, list):
        return str(row["text"])
    return str(next(m["content"] for m in messages if m.get("under_test")))


def _fold(group: str) -> int:
    return int.from_bytes(sha256(group.encode()).digest()[:8], "big") % FOLDS


def _features(texts: Iterable[str]) -> csr_matrix:
    columns, values, starts = [], [], [0]
    for text in texts:
        buckets = hashed_ngrams(text, bits=BITS, shortest=SHORTEST, longest=LONGEST)
        found, counts = np.unique(buckets, return_counts=True)
        columns.append(found)
        values.append(counts / sqrt(buckets.size))
        starts.append(starts[-1] + found.size)
    shape = (len(starts) - 1, 2**BITS)
    return csr_matrix((np.concatenate(values), np.concatenate(columns), starts), shape=shape)


def fit(
    kernel: NDArray[np.float64], is_attack: NDArray[np.float64], penalty: float
) -> tuple[NDArray[np.float64], float]:
    """Fit by Newton's method in the span of the texts, which holds the optimum.

    Args:
        kernel: Inner products of the texts' features, shape (texts, texts).
        is_attack: 1.0 for attacks, 0.0 for benign texts; both classes get the same weight.
        penalty: Of the squared weights.

    Returns:
        A coefficient a text, whose combination of features are the weights, and the bias.
    """
    texts, attacks = is_attack.size, is_attack.mean()
    share = np.where(is_attack == 1, 0.5 / attacks, 0.5 / (1 - attacks)) / texts
    coefficients, bias = np.zeros(texts), 0.0
    system = np.ones((texts + 1, texts + 1))
    system[-1, -1] = 0.0
    for _ in range(50):
        margins = kernel @ coefficients + bias
        odds = 1 / (1 + np.exp(-margins))
        curvature = np.maximum(share * odds * (1 - odds), 1e-12)
        system[:-1, :-1] = kernel + np.diag(penalty / curvature)
        target = margins - (odds - is_attack) * share / curvature
        solution = np.linalg.solve(system, np.append(target, 0.0))
        moved = np.abs(solution[:-1] - coefficients).max()
        coefficients, bias = solution[:-1], float(solution[-1])
        if moved <= 1e-9 * np.abs(coefficients).max():
            break
    return coefficients, bias


def out_of_fold(data: TrainingSet, penalty: float) -> NDArray[np.float64]:
    """Return each text's margin from a fit that has not seen its group."""
    kernel = (data.features @ data.features.T).toarray()
    margins = np.empty(data.is_attack.size)
    for fold in range(FOLDS):
        held = data.fold == fold
        seen = ~held
        coefficients, bias = fit(kernel[np.ix_(seen, seen)], data.is_attack[seen], penalty)
        margins[held] = kernel[np.ix_(held, seen)] @ coefficients + bias
    return margins


def calibrate(margins: NDArray[np.float64], is_attack: NDArray[np.float64]) -> tuple[float, float]:
    """Return slope and offset that make margins log-odds (Platt scaling)."""
    sign = np.where(is_attack == 1, 1.0, -1.0)

    def loss(point: NDArray[np.float64]) -> float:
        return float(np.logaddexp(0, -sign * (point[0] * margins + point[1])).mean())

    slope, offset = minimize(loss, np.array([1.0, 0.0]), method="Nelder-Mead").x
    return float(slope), float(offset)


def log_loss(logits: NDArray[np.float64], is_attack: NDArray[np.float64]) -> float:
    """Return the mean log loss of log-odds."""
    return float(np.logaddexp(0, np.where(is_attack == 1, -logits, logits)).mean())


def choose_threshold(scores: NDArray[np.float64], is_attack: NDArray[np.float64]) -> float:
    """Return the lowest threshold that keeps false alarms within the limit."""
    benign = np.sort(scores[is_attack == 0])[::-1]
    allowed = int(MOST_FALSE_ALARMS * benign.size)
    # Half way between the last benign text that must pass and the one allowed to be blocked.
    return round(float((benign[allowed] + benign[max(allowed - 1, 0)]) / 2), 4)


def fitted_model() -> NgramModel:
    """Fit, calibrate and choose the threshold; print what was found."""
    data = read_training_set()
    attacks = int(data.is_attack.sum())
    print(f"{attacks} attacks, {data.is_attack.size - attacks} benign, data {data.digest[:16]}")
    found: list[tuple[float, float, float, float, NDArray[np.float64]]] = []
    for penalty in PENALTIES:
        margins = out_of_fold(data, penalty)
        slope, offset = calibrate(margins, data.is_attack)
        logits = slope * margins + offset
        found.append((log_loss(logits, data.is_attack), penalty, slope, offset, logits))
        print(f"penalty {penalty:g}: out-of-fold log loss {found[-1][0]:.4f}")
    _, penalty, slope, offset, logits = min(found, key=lambda entry: entry[0])
    scores = 1 / (1 + np.exp(-logits))
    threshold = choose_threshold(scores, data.is_attack)
    caught = (scores[data.is_attack == 1] >= threshold).mean()
    alarms = (scores[data.is_attack == 0] >= threshold).mean()
    print(f"penalty {penalty:g}, threshold {threshold}: out of fold blocks {caught:.1%} of attacks")
    print(f"and {alarms:.1%} of benign texts")
    kernel = (data.features @ data.features.T).toarray()
    coefficients, bias = fit(kernel, data.is_attack, penalty)
    weights = data.features.T @ coefficients
    return NgramModel(
        weights=(slope * weights).astype(np.float32),
        bits=BITS,
        shortest=SHORTEST,
        longest=LONGEST,
        bias=slope * bias + offset,
        threshold=threshold,
        version="1",
        fitted_on=data.digest,
    )


def unchanged(model: NgramModel) -> bool:
    """Whether the shipped weights say the same, to the precision they are stored in."""
    with TemporaryDirectory() as folder:
        again = Path(folder) / WEIGHTS.name
        write_model(model, again)
        fresh, shipped = read_model(again), read_model(WEIGHTS)
    close = np.allclose(fresh.weights, shipped.weights, atol=2e-3) and np.isclose(
        fresh.bias, shipped.bias, atol=1e-3
    )
    same = replace(fresh, weights=shipped.weights, bias=shipped.bias) == shipped
    return bool(close and same)


def write_model(model: NgramModel, path: Path) -> None:
    """Write fitted weights; equal models give equal bytes."""
    np.savez_compressed(
        path,
        weights=model.weights.astype(np.float16),
        bits=np.int64(model.bits),
        shortest=np.int64(model.shortest),
        longest=np.int64(model.longest),
        bias=np.float64(model.bias),
        threshold=np.float64(model.threshold),
        version=np.str_(model.version),
        fitted_on=np.str_(model.fitted_on),
    )


def main() -> int:
    """Fit and write, or check."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="only say whether anything changed")
    model = fitted_model()
    if parser.parse_args().check:
        same = unchanged(model)
        print("The shipped weights are current." if same else f"{WEIGHTS.name} would change.")
        return 0 if same else 1
    WEIGHTS.parent.mkdir(exist_ok=True)
    write_model(model, WEIGHTS)
    print(f"{WEIGHTS.name}: {WEIGHTS.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
