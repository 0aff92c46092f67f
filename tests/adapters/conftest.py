"""A real llama.cpp server on a tiny model that is written here, weight by weight.

The model is built to be known in advance: its one attention layer averages over the prompt, and
the share of the word `ignore` in it moves the answer from the token of `harmless` to that of
`risky`, with probabilities 3 to 1 either way. After a label it ends.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log
from pathlib import Path

import numpy as np
import pytest

_WIDTH = 32
_SURE = 8.0  # logit of the labels over that of everything else


@dataclass(frozen=True)
class LlamaServer:
    """A running server.

    Attributes:
        base_url: What a configuration would name.
    """

    base_url: str


def _vocabulary(labels: tuple[str, str]) -> tuple[list[str], list[int]]:
    """Control, byte and normal tokens with their types."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256))]
    kinds = [2, 3, 3, *([6] * 256)]
    letters = [chr(n) for n in range(33, 127)] + ["\u2581"]
    grown = ["ignore"[:n] for n in range(2, 7)]
    normal = dict.fromkeys([*letters, *grown, *labels])
    return [*pieces, *normal], [*kinds, *([1] * len(normal))]


def _tensors(tokens: list[str], risky: str, harmless: str) -> dict[str, np.ndarray]:
    """Weights: dimension 0 is `nothing seen`, 1 `a label was said`, 2 and 3 `ignore`."""
    unit = np.sqrt(_WIDTH)  # what a lone dimension is after the norm
    count = len(tokens)
    embed = np.zeros((count, _WIDTH), np.float32)
    embed[:, 0] = 1.0
    embed[tokens.index("ignore"), :3] = (0.0, 0.0, 1.0)
    out = np.zeros((count, _WIDTH), np.float32)
    for label in (risky, harmless):
        embed[tokens.index(label), :2] = (0.0, 1e6)
    out[2, 1] = _SURE  # the end, after a label
    for dimension, likely in ((0, harmless), (3, risky)):
        for label in (risky, harmless):
            odds = log(3) if label == likely else 0.0
            out[tokens.index(label), dimension] = _SURE + odds / unit
    zero = np.zeros((_WIDTH, _WIDTH), np.float32)
    value, back = zero.copy(), zero.copy()
    value[0, 2] = 1.0
    back[3, 0] = 1e5
    ones = np.ones(_WIDTH, np.float32)
    return {
        "token_embd.weight": embed,
        "output_norm.weight": ones,
        "output.weight": out,
        "blk.0.attn_norm.weight": ones,
        "blk.0.attn_q.weight": zero,
        "blk.0.attn_k.weight": zero,
        "blk.0.attn_v.weight": value,
        "blk.0.attn_output.weight": back,
        "blk.0.ffn_norm.weight": ones,
        "blk.0.ffn_gate.weight": zero,
        "blk.0.ffn_up.weight": zero,
        "blk.0.ffn_down.weight": zero,
    }


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _entry(key: str, value: object) -> bytes:
    """One key and value; lists are of text, integers or floats."""
    if isinstance(value, str):
        return _text(key) + struct.pack("<I", 8) + _text(value)
    if isinstance(value, float):
        return _text(key) + struct.pack("<If", 6, value)
    if isinstance(value, int):
        return _text(key) + struct.pack("<II", 4, value)
    assert isinstance(value, list)
    kind = {str: 8, int: 5, float: 6}[type(value[0])]
    head = _text(key) + struct.pack("<IIQ", 9, kind, len(value))
    if kind == 8:
        return head + b"".join(map(_text, value))
    return head + struct.pack(f"<{len(value)}{'i' if kind == 5 else 'f'}", *value)


def write_gguf(path: Path, *, risky: str, harmless: str) -> None:
    """Write the model.

    Args:
        path: Where to.
        risky: Said when the prompt holds the word `ignore`.
        harmless: Said otherwise.
    """
    tokens, kinds = _vocabulary((risky, harmless))
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    entries: dict[str, object] = {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.block_count": 1,
        "llama.context_length": 8192,
        "llama.embedding_length": _WIDTH,
        "llama.feed_forward_length": _WIDTH,
        "llama.attention.head_count": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-6,
        "llama.rope.dimension_count": _WIDTH,
        "llama.vocab_size": len(tokens),
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [float(len(token)) for token in tokens],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.chat_template": template,
    }
    tensors = _tensors(tokens, risky, harmless)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    head += b"".join(_entry(key, value) for key, value in entries.items())
    offset, body = 0, b""
    for name, values in tensors.items():
        shape = values.shape[::-1]
        head += _text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += struct.pack("<IQ", 0, offset)
        raw = values.tobytes()
        body += raw + b"\0" * (-len(raw) % 32)
        offset = len(body)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + body)


@pytest.fixture(scope="session")
def start_llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LlamaServer]]:
    """Start llama.cpp's server on a model with the labels asked for; once each."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp's server is for Linux only")
    running: dict[tuple[str, str], tuple[object, LlamaServer]] = {}

    def start(*, risky: str, harmless: str) -> LlamaServer:
        if (risky, harmless) not in running:
            path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
            write_gguf(path, risky=risky, harmless=harmless)
            params = xllamacpp.CommonParams()
            params.model.path = str(path)
            params.n_ctx = 16384  # two slots; the tokens of this model are letters
            params.n_parallel = 2
            params.hostnames = ["127.0.0.1"]
            params.port = 0
            params.warmup = False
            params.cpuparams.n_threads = 1
            params.use_jinja = True
            server = xllamacpp.Server(params)
            running[risky, harmless] = server, LlamaServer(f"{server.listening_address}/v1")
        return running[risky, harmless][1]

    yield start
    running.clear()
