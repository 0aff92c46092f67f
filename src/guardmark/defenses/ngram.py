"""A linear classifier over hashed character n-grams: small, fast, and honest about scores."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from io import BytesIO
from math import exp, sqrt
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING
from zipfile import BadZipFile
from zlib import error as ZlibError  # noqa: N812 - it is a class

import numpy as np

from guardmark.config.settings import Rate, Settings
from guardmark.core.errors import ConfigError
from guardmark.core.limits import MOST_WEIGHT_BYTES
from guardmark.core.outcome import Decision, Outcome, ScoreKind
from guardmark.core.protocols import Capabilities
from guardmark.core.sample import View
from guardmark.defenses.baseline import NOTHING_SHOWN
from guardmark.parsing.foreign_text import limited_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.config.settings import BuildContext
    from guardmark.core.sample import Prompt

_UNPACKING = (OSError, EOFError, BadZipFile, ZlibError)
_LOCKED = (RuntimeError, NotImplementedError)  # a password is needed, or the packing is not known
_READING_A_HEAD = (SyntaxError, TokenError)  # numpy reads it as Python
_BROKEN = (ValueError, KeyError, TypeError, *_UNPACKING, *_LOCKED, *_READING_A_HEAD)
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio: Fibonacci hashing


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramModel:
    """Fitted weights."""

    weights: NDArray[np.float32]
    bits: int
    shortest: int
    longest: int
    bias: float
    threshold: float
    version: str
    fitted_on: str

    def score(self, text: str) -> float:
        """Return the risk of a text."""
        buckets = hashed_ngrams(text, bits=self.bits, shortest=self.shortest, longest=self.longest)
        if not buckets.size:
            return _logistic(self.bias)
        total = float(self.weights.take(buckets).sum(dtype=np.float64))
        return _logistic(self.bias + total / sqrt(buckets.size))


def _logistic(x: float) -> float:
    if x < 0:  # the mirrored form cannot overflow
        raised = exp(max(x, -700.0))
        return raised / (1 + raised)
    return 1 / (1 + exp(-x))


def hashed_ngrams(text: str, *, bits: int, shortest: int, longest: int) -> NDArray[np.intp]:
    """Hash every character n-gram of a text into a bucket."""
    words = f" {' '.join(text.lower().split())} "
    codes = np.frombuffer(words.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    letters = codes.astype(np.uint64)
    letters += np.uint64(1)
    lengths = range(shortest, min(longest, letters.size) + 1)
    hashes = np.empty(sum(letters.size - length + 1 for length in lengths), dtype=np.uint64)
    # A polynomial hash grows by one letter from one length to the next; multiplication wraps
    # at 2**64 on purpose. Long texts make memory traffic the cost: each step works in place.
    rolling, start = letters, 0
    for length in range(1, lengths.stop):
        if length > 1:
            rolling = rolling[:-1] * MULTIPLIER
            rolling += letters[length - 1 :]
        if length >= shortest:
            end = start + rolling.size
            np.multiply(rolling, MULTIPLIER, out=hashes[start:end])
            start = end
    hashes >>= np.uint64(64 - bits)
    return hashes.view(np.int64).astype(np.intp, copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class NgramDefense:
    """Blocks from a score of the n-gram model on."""

    name: str
    model: NgramModel
    _: KW_ONLY
    threshold: float
    view: View = View.TEXT
    files: tuple[Path, ...] = ()

    @property
    def capabilities(self) -> Capabilities:
        """What is stated of it."""
        return Capabilities(view=self.view, threshold=self.threshold, files=self.files)

    def decide(self, prompt: Prompt) -> Decision:
        """Score one prompt."""
        text = prompt.shown(self.view)
        if text is None:
            return NOTHING_SHOWN[self.view]
        score, outcome = self.model.score(text), Outcome.ALLOW
        if score >= self.threshold:
            outcome = Outcome.BLOCK
        return Decision(outcome=outcome, score=score, score_kind=ScoreKind.CLASS_PROB)


BUILTIN_WEIGHTS = Path(__file__).parent / "weights" / "ngram-1.npz"
"""The weights that ship with guardmark, fitted on the built-in set `core-train`."""


def read_model(path: Path) -> NgramModel:
    """Read fitted weights."""
    try:
        with np.load(
            BytesIO(limited_bytes(path, most=MOST_WEIGHT_BYTES)), allow_pickle=False
        ) as held:
            model = NgramModel(
                weights=held["weights"].astype(np.float32),
                bits=int(held["bits"]),
                shortest=int(held["shortest"]),
                longest=int(held["longest"]),
                bias=float(held["bias"]),
                threshold=float(held["threshold"]),
                version=str(held["version"]),
                fitted_on=str(held["fitted_on"]),
            )
    except _BROKEN as error:
        # numpy's own words for a foreign file advise to unpickle it, which nobody should.
        reason = getattr(error, "strerror", None) or "it is not a file of weights"
        raise ConfigError(
            f"The weights {path} cannot be read: {reason}.\n"
            "They are written by scripts/fit_ngram.py."
        ) from error
    if model.weights.shape != (2**model.bits,) or not 1 <= model.shortest <= model.longest:
        raise ConfigError(
            f"The weights {path} do not fit their own description.\n"
            "They are written by scripts/fit_ngram.py."
        )
    return model


class NgramSettings(Settings):
    """Scores texts with a small classifier over character n-grams."""

    weights: str | None = None
    threshold: Rate | None = None
    view: View = View.TEXT

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        path = context.folder / self.weights if self.weights else BUILTIN_WEIGHTS
        model = read_model(path)
        threshold = model.threshold if self.threshold is None else self.threshold
        return NgramDefense(name, model, threshold=threshold, view=self.view, files=(path,))
