"""What local models run on: libraries, a device, files, and batches of texts."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import ConfigError, needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeVar

    T = TypeVar("T")

_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)


def library(name: str) -> Any:
    """Import a library of the extra [hf] or [onnx]."""
    extra = "onnx" if name == "onnxruntime" else "hf"
    with needs(f"A local model needs {name}, which cannot be imported", extra):
        return import_module(name)


def device_of(wanted: str) -> Any:
    """Return the device a model runs on."""
    torch = library("torch")
    has_cuda = torch.cuda.is_available()
    if wanted == "cuda" and not has_cuda:
        raise ConfigError("No CUDA device is here.\nNext: set device: cpu or auto.")
    if has_cuda and wanted != "cpu":
        return torch.device("cuda")
    return torch.device("cpu")


def model_folder(folder: Path, given: str) -> Path:
    """Return the folder of a model: one that is there, or that of `owner/name` in the cache."""
    path = folder / given
    if path.is_dir() or not _HUB_ID.fullmatch(given):
        return path
    hub = library("huggingface_hub")
    try:
        return Path(hub.snapshot_download(given, local_files_only=True))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"There is no folder {path}, and the model {given} is not in the local cache of the "
            f"hub.\nFetch it: hf download {given} (a gated one after hf auth login)."
        ) from error


def load(kind: str, path: Path) -> Any:
    """Load a model or tokenizer from a folder, without network and without foreign code."""
    transformers = library("transformers")
    if not path.is_dir():
        raise ConfigError(
            f"The model folder {path} does not exist.\n"
            "Download the model first (config, tokenizer, safetensors) and name its folder."
        )
    transformers.utils.logging.disable_progress_bar()  # ours is the only one on the terminal
    safe = {"use_safetensors": True} if kind.startswith("AutoModel") else {}
    try:
        return getattr(transformers, kind).from_pretrained(
            str(path), local_files_only=True, trust_remote_code=False, **safe
        )
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().split("\n", 1)[0][:300]
        raise ConfigError(
            f"The model folder {path} cannot be loaded: {first}\n"
            "Next: download it again, whole: config, tokenizer and safetensors. For a gated model "
            "accept its terms on its page first, then log in."
        ) from error


CALL: Final = 64
"""What one pass through a model costs beside its tokens, counted in tokens.

Every pass reads all weights and takes the same steps in Python, however little it is given.
Measured on encoders of 6 and 12 layers on a CPU: between 30 and 90 tokens; the best partition
hardly moves within that range.
"""


def token_batches(
    lengths: Sequence[int], *, budget: int, most: int = 64, call: int = CALL
) -> list[list[int]]:
    """Group texts by length so that padding and calls together cost least."""
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    sizes = [lengths[index] for index in order]
    cheapest = [0] * (len(order) + 1)
    ends = [0] * len(order)
    # From the end: the cheapest way to cut what comes after is known when it is asked for.
    for start in range(len(order) - 1, -1, -1):
        longest = sizes[start]  # sorted: the first of a batch is its longest
        room = most
        if longest:
            room = min(most, budget // longest)
        last = min(len(order), start + max(1, room))
        least: int | None = None
        for end in range(start + 1, last + 1):
            cost = call + (end - start) * longest + cheapest[end]
            if least is None or cost <= least:  # of equal costs the larger batch
                least = cost
                cheapest[start] = cost
                ends[start] = end
    batches = []
    start = 0
    while start < len(order):
        batches.append(order[start : ends[start]])
        start = ends[start]
    return batches


HALVED: Final = "a batch did not fit into memory and was asked in halves: lower batch_tokens"


def as_memory_allows(
    batches: Iterable[list[int]], work: Callable[[list[int]], T]
) -> Iterator[tuple[list[int], T, bool]]:
    """Yield what work makes of each batch, or of its halves where memory runs out.

    The third value is whether any batch was halved so far.
    """
    waiting = list(batches)
    waiting.reverse()
    is_halved = False
    while waiting:
        batch = waiting.pop()
        try:
            made = work(batch)
        except (MemoryError, RuntimeError) as error:  # torch has an error of memory for CUDA alone
            is_memory = isinstance(error, MemoryError) or "memory" in str(error).lower()
            if len(batch) < 2 or not is_memory:
                raise
            is_halved = True
            middle = len(batch) // 2
            waiting += [batch[middle:], batch[:middle]]
            continue
        yield batch, made, is_halved
