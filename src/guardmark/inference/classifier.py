"""Classifiers in this process, by torch or ONNX: texts in, probabilities of labels out."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import ConfigError, did_you_mean, listed
from guardmark.core.values import dataclass
from guardmark.inference.gradients import EmbeddingGradients, plain_words
from guardmark.inference.runtime import as_memory_allows, device_of, library, load, token_batches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class LongText(StrEnum):
    """What happens to a text that is longer than the model reads."""

    TRUNCATE = "truncate"
    CHUNK = "chunk"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassScore:
    """What the classifier says of one text.

    Attributes:
        probability: Of being positive, in [0, 1]; None where the text is too long to be read.
        tokens: How many tokens the text has, without those put around it.
        truncated: Whether only the beginning was read.
        is_halved: Whether its batch did not fit into memory as a whole.
    """

    probability: float | None
    tokens: int
    truncated: bool = False
    is_halved: bool = False


class SequenceClassifier:
    """A classifier with its tokenizer."""

    def __init__(
        self,
        path: Path,
        *,
        positive: Sequence[str],
        max_length: int = 512,
        long_text: LongText = LongText.TRUNCATE,
        budget: int = 1024,
        device: str = "auto",
        onnx: Path | None = None,
    ) -> None:
        self._model: _TorchModel | OnnxModel
        if onnx:
            self._model = OnnxModel(path, onnx, device=device)
        else:
            self._model = _TorchModel(path, device=device)
        self._tokenizer = load("AutoTokenizer", path)
        self._positive = _positions(self._model.labels, positive, path)
        self._long_text = long_text
        self._budget = budget
        self._before, self._after = _specials(self._tokenizer)
        self._room = max_length - len(self._before) - len(self._after)
        if self._room < 1:
            raise ConfigError(
                f"max_length {max_length} leaves no room for any text.\nNext: raise it."
            )

    def scores(self, texts: Sequence[str]) -> list[ClassScore]:
        """Score texts."""
        encoded = self._tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        pieces: list[list[int]] = []
        owner: list[int] = []
        for index, ids in enumerate(encoded):
            for piece in self._pieces(ids):
                pieces.append([*self._before, *piece, *self._after])
                owner.append(index)
        highest: dict[int, float] = {}
        probabilities, is_halved = self._probabilities(pieces)
        for probability, index in zip(probabilities, owner, strict=True):
            highest[index] = max(probability, highest.get(index, 0.0))
        scores = []
        for index, ids in enumerate(encoded):
            is_long = len(ids) > self._room
            scores.append(
                ClassScore(
                    probability=highest.get(index),
                    tokens=len(ids),
                    truncated=is_long and self._long_text is LongText.TRUNCATE,
                    is_halved=is_halved,
                )
            )
        return scores

    def gradients(self) -> EmbeddingGradients | None:
        """Return access to the gradients of the log-odds of being positive; ONNX has none."""
        if isinstance(self._model, OnnxModel):
            return None
        return EmbeddingGradients(
            torch=library("torch"),
            model=self._model.model,
            tokenizer=self._tokenizer,
            positive=self._positive,
            before=self._before,
            after=self._after,
            room=self._room,
            words_by_mark=plain_words(self._tokenizer),
        )

    def _pieces(self, ids: list[int]) -> list[list[int]]:
        if len(ids) <= self._room:
            return [ids]
        if self._long_text is LongText.ERROR:
            return []
        if self._long_text is LongText.TRUNCATE:
            return [ids[: self._room]]
        # Chunks overlap by a quarter, so that no phrase is cut in two everywhere.
        step = max(1, self._room - self._room // 4)
        starts = range(0, max(1, len(ids) - self._room + step), step)
        return [ids[start : start + self._room] for start in starts]

    def _probabilities(self, pieces: Sequence[list[int]]) -> tuple[list[float], bool]:
        values = [0.0] * len(pieces)
        is_halved = False

        def odds(batch: list[int]) -> list[list[float]]:
            rows = {"input_ids": [pieces[index] for index in batch]}
            padded = self._tokenizer.pad(rows, return_tensors=self._model.tensors)
            return self._model.probabilities(padded)

        batches = token_batches([len(piece) for piece in pieces], budget=self._budget)
        for batch, rows, was_halved in as_memory_allows(batches, odds):
            is_halved = was_halved
            for index, row in zip(batch, rows, strict=True):
                values[index] = min(1.0, sum(row[label] for label in self._positive))
        return values, is_halved


class _TorchModel:
    """Rows of tokens in, rows of probabilities out."""

    tensors: Final = "pt"

    def __init__(self, path: Path, *, device: str) -> None:
        self._torch = library("torch")
        self._device = device_of(device)
        self.model = load("AutoModelForSequenceClassification", path).to(self._device).eval()
        self.labels: Mapping[Any, Any] = self.model.config.id2label

    def probabilities(self, padded: Any) -> list[list[float]]:
        """Return the probability of every label, for each row."""
        with self._torch.inference_mode():
            logits = self.model(**padded.to(self._device)).logits.float()
            rows: list[list[float]] = self._torch.softmax(logits, dim=-1).tolist()
        return rows


def _specials(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return what the tokenizer puts before and after a text; chunks need the same."""
    bare = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    whole = list(tokenizer("a")["input_ids"])
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return whole[:start], whole[start + len(bare) :]
    raise ConfigError(
        "The tokenizer changes a text beyond what it puts before and after it.\n"
        "Next: name another model; texts cannot be cut for this one."
    )


def _positions(id2label: Mapping[Any, Any], positive: Sequence[str], path: Path) -> list[int]:
    """Return the indices of the positive labels, checked against the model's own names."""
    names = {str(label): int(index) for index, label in id2label.items()}
    for label in positive:
        if label not in names:
            raise ConfigError(
                f"The model {path.name} has no label {label!r}.{did_you_mean(label, names)} "
                f"Its labels: {listed(names)}."
            )
    if len(set(positive)) >= len(names):
        raise ConfigError(
            f"All labels of {path.name} are positive: it could only block.\n"
            "Next: leave out those that mean that a text may pass."
        )
    return [names[label] for label in positive]


_INPUTS: Final = frozenset({"input_ids", "attention_mask", "token_type_ids"})


class OnnxModel:
    """Rows of tokens in, rows of probabilities out, by ONNX Runtime."""

    tensors: Final = "np"

    def __init__(self, path: Path, file: Path, *, device: str) -> None:
        runtime = library("onnxruntime")
        runtime.disable_telemetry_events()  # nobody is told of a measurement
        self.labels: Mapping[Any, Any] = load("AutoConfig", path).id2label
        # What it raises has no common ancestor below Exception.
        errors = []
        for member in vars(runtime.capi.onnxruntime_pybind11_state).values():
            if isinstance(member, type) and issubclass(member, Exception):
                errors.append(member)
        self._errors = tuple(errors)
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        # Threads that wait busily would take CPU time from whatever else is measured.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = _providers(device, runtime.get_available_providers())
        try:
            self._session = runtime.InferenceSession(str(file), options, providers=providers)
        except self._errors as error:
            raise ConfigError(
                f"The model {file} cannot be loaded: {str(error)[:300]}\n"
                "Next: download it again, or export it anew, for classification of sequences."
            ) from error
        self._inputs = [stated.name for stated in self._session.get_inputs()]
        unknown = sorted(set(self._inputs) - _INPUTS)
        if unknown:
            raise ConfigError(
                f"{file} wants {', '.join(unknown)}, which a tokenizer does not give.\n"
                f"Next: export it anew, with no inputs but {', '.join(sorted(_INPUTS))}."
            )

    def probabilities(self, padded: Mapping[str, Any]) -> list[list[float]]:
        """Return the probability of every label, for each row."""
        numpy = library("numpy")
        zeros = numpy.zeros_like(padded["input_ids"])  # BERT's types of tokens: all is one text
        given = {name: padded.get(name, zeros) for name in self._inputs}
        try:
            logits = self._session.run(None, given)[0].astype("float64")
        except self._errors as error:
            raise RuntimeError(str(error)) from error
        odds = numpy.exp(logits - logits.max(axis=-1, keepdims=True))
        rows: list[list[float]] = (odds / odds.sum(axis=-1, keepdims=True)).tolist()
        return rows


def _providers(device: str, available: list[str]) -> list[str]:
    has_cuda = "CUDAExecutionProvider" in available
    if device == "cuda" and not has_cuda:
        raise ConfigError(
            "device: cuda is asked for, but this ONNX Runtime has the CPU alone.\n"
            "Next: install onnxruntime-gpu in place of onnxruntime, or set device: cpu."
        )
    if has_cuda and device != "cpu":
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]
    return ["CPUExecutionProvider"]
