"""The deep-learning libraries, imported when a local model is, and only then."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def library(name: str) -> Any:
    """Import a library of the [hf] extra."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"A local model needs {name}, which cannot be imported: {error}.\n"
            "Install it: pip install 'guardmark[hf]'."
        ) from error


def device_of(wanted: str) -> Any:
    """Return the device a model runs on."""
    torch = library("torch")
    has_cuda = torch.cuda.is_available()
    if wanted == "cuda" and not has_cuda:
        raise ConfigError("device: cuda is asked for, but torch finds no CUDA device here.")
    return torch.device("cuda" if has_cuda and wanted != "cpu" else "cpu")


def load(kind: str, path: Path) -> Any:
    """Load a model or tokenizer from a folder, without network and without foreign code."""
    transformers = library("transformers")
    if not path.is_dir():
        raise ConfigError(
            f"The model folder {path} does not exist.\n"
            "Download the model first (config, tokenizer, safetensors) and name its folder."
        )
    transformers.utils.logging.disable_progress_bar()  # ours is the only one on the terminal
    safe = {} if kind == "AutoTokenizer" else {"use_safetensors": True}
    try:
        return getattr(transformers, kind).from_pretrained(
            str(path), local_files_only=True, trust_remote_code=False, **safe
        )
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().split("\n", 1)[0][:300]
        raise ConfigError(f"The model folder {path} cannot be loaded: {first}") from error
