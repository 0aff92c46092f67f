"""A sequence classifier in an ONNX file, run without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import ConfigError
from guardmark.inference.runtime import library, load

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_INPUTS: Final = frozenset({"input_ids", "attention_mask", "token_type_ids"})


class OnnxModel:
    """Rows of tokens in, rows of probabilities out, by ONNX Runtime."""

    tensors: Final = "np"

    def __init__(self, path: Path, file: Path, *, device: str) -> None:
        runtime = library("onnxruntime")
        runtime.disable_telemetry_events()  # nobody is told of a measurement
        self.labels: Mapping[Any, Any] = load("AutoConfig", path).id2label
        # What it raises has no common ancestor below Exception.
        raised = vars(runtime.capi.onnxruntime_pybind11_state).values()
        self._errors = tuple(
            each for each in raised if isinstance(each, type) and issubclass(each, Exception)
        )
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
        self._inputs = [each.name for each in self._session.get_inputs()]
        if unknown := sorted({*self._inputs} - _INPUTS):
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
        found: list[list[float]] = (odds / odds.sum(axis=-1, keepdims=True)).tolist()
        return found


def _providers(device: str, available: list[str]) -> list[str]:
    has_cuda = "CUDAExecutionProvider" in available
    if device == "cuda" and not has_cuda:
        raise ConfigError(
            "device: cuda is asked for, but this ONNX Runtime has the CPU alone.\n"
            "Next: install onnxruntime-gpu in place of onnxruntime, or set device: cpu."
        )
    fast = ["CUDAExecutionProvider"] if has_cuda and device != "cpu" else []
    return [*fast, "CPUExecutionProvider"]
