"""T10: local models in batches by length, against the same texts one by one.

Run as `python bench/local.py [ROUNDS]` in a process of its own: prints, as JSON, CPU seconds by
way, a list of one figure a round, and the largest difference of a score. One thread; random
weights, six layers of 384; lengths lognormal with median 42, cut at 480 (workload W4).
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from math import exp
from pathlib import Path
from random import Random
from time import process_time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

CLASSIFIED, GUARDED = 256, 64
WORDS, LONGEST, MEDIAN, SPREAD = 2000, 480, 3.7377, 0.8
TOKENS = 4  # a guard says yes or no and stops
SIZE = {
    "vocab_size": WORDS,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def is_possible() -> bool:
    """Whether the libraries of the [hf] extra are installed."""
    return importlib.util.find_spec("torch") is not None


def has_onnx() -> bool:
    """Whether an ONNX file can be written and run here."""
    return all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime"))


def measure(rounds: int) -> dict[str, list[float]]:
    """Run this file in a process of its own; return what it found."""
    said = subprocess.check_output([sys.executable, __file__, str(rounds)])
    found: dict[str, list[float]] = json.loads(said.splitlines()[-1])
    return found


def texts(count: int) -> list[str]:
    """Texts of known words; the two tokens around each are counted in."""
    random = Random(7)
    lengths = [int(random.lognormvariate(MEDIAN, SPREAD)) for _ in range(count)]
    return [
        " ".join(f"w{random.randrange(WORDS - 4)}" for _ in range(max(1, min(LONGEST, n) - 2)))
        for n in lengths
    ]


def write_models(folder: Path) -> None:
    """Write a classifier and a guard model with random weights, and their tokenizers."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    names = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *(f"w{n}" for n in range(WORDS - 4))]
    made = Tokenizer(models.WordLevel({name: n for n, name in enumerate(names)}, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "[SEP]"}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=512, **special
    )
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(1)
    labels: dict[str, Any] = {
        "id2label": {0: "SAFE", 1: "INJECTION"},
        "label2id": {"SAFE": 0, "INJECTION": 1},
    }
    guard = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**SIZE, bos_token_id=1, eos_token_id=2)
    )
    with torch.no_grad():
        guard.lm_head.weight[2] = 0  # never the likeliest, so that it writes all its tokens
    classifier = transformers.BertForSequenceClassification(
        transformers.BertConfig(**SIZE, **labels)
    )
    for name, model in (("classifier", classifier), ("guard", guard)):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


def write_onnx(folder: Path) -> None:
    """Write a classifier as ONNX files beside its weights: in float, and in int8."""
    import warnings

    import torch
    import transformers
    from onnxruntime.quantization import quantize_dynamic

    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, attn_implementation="eager"
    ).eval()
    ids = torch.ones(2, 8, dtype=torch.long)
    names = ("input_ids", "attention_mask")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter that follows takes twenty times as long
        torch.onnx.export(
            model,
            (),
            kwargs=dict.fromkeys(names, ids),
            f=str(folder / "model.onnx"),
            input_names=list(names),
            output_names=["logits"],
            dynamic_axes={name: {0: "batch", 1: "length"} for name in names},
            dynamo=False,
        )
    quantize_dynamic(folder / "model.onnx", folder / "int8.onnx")


def classifying(folder: Path) -> dict[str, Callable[[], list[float]]]:
    """The ways to score texts: the usual pipeline, one by one, and our batches."""
    import transformers

    from guardmark.inference.classifier import SequenceClassifier

    said = texts(CLASSIFIED)
    model = SequenceClassifier(folder, positive=["INJECTION"], device="cpu")
    usual = transformers.pipeline("text-classification", str(folder), device="cpu", top_k=None)

    def scores(some: list[str], by: SequenceClassifier = model) -> list[float]:
        return [score.probability or 0.0 for score in by.scores(some)]

    def label_of(answer: list[dict[str, Any]]) -> float:
        return next(float(each["score"]) for each in answer if each["label"] == "INJECTION")

    ways: dict[str, Callable[[], list[float]]] = {
        "pipeline": lambda: [label_of(usual([text], truncation=True)[0]) for text in said],
        "alone": lambda: [scores([text])[0] for text in said],
        "batches": lambda: scores(said),
    }
    if has_onnx():
        write_onnx(folder)
        for name, file in (("onnx", "model.onnx"), ("int8", "int8.onnx")):
            other = SequenceClassifier(
                folder, positive=["INJECTION"], device="cpu", onnx=folder / file
            )
            ways[name] = partial(scores, said, other)
    return ways


def guarding(folder: Path) -> dict[str, Callable[[], list[float]]]:
    """The same for a guard model; a score is the probability of its likeliest first token."""
    from guardmark.inference.generator import LocalGenerator

    said = [[{"role": "user", "content": text}] for text in texts(GUARDED)]
    model = LocalGenerator(folder, max_tokens=TOKENS, wants_scores=True, device="cpu")

    def scores(some: list[list[dict[str, str]]]) -> list[float]:
        return [exp(answer.choices[0].alternatives[0][1]) for answer in model.complete(some)]

    return {
        "guard alone": lambda: [scores([messages])[0] for messages in said],
        "guard batches": lambda: scores(said),
    }


def main() -> None:
    """Measure in turns, so that load hits all ways alike, and print it."""
    import torch
    import transformers

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # ONNX Runtime counts cores by it
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        write_models(Path(folder))
        ways = {
            **classifying(Path(folder) / "classifier"),
            **guarding(Path(folder) / "guard"),
        }
        said = {name: way() for name, way in ways.items()}  # the first round warms up
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
            for name, way in ways.items():
                start = process_time()
                way()
                found[name].append(process_time() - start)
    found["difference"] = [
        max(abs(a - b) for a, b in zip(said[one], said[other], strict=True))
        for one, other in (("alone", "batches"), ("guard alone", "guard batches"))
    ]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
