"""Tiny real models with their own tokenizers, built from configurations; no download.

What they say is forced: a bias on the label tokens (causal models), or weights that look for one
word (classifiers).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

WORDS = ["Yes", "No", "BLOCK", "ALLOW", "ignore", "ferry", "the", "a", "please", "user", "guardian"]


@pytest.fixture(scope="session")
def transformers() -> Any:
    """The library, or a skip with the reason."""
    pytest.importorskip("torch", reason="needs the [hf] extra")
    return pytest.importorskip("transformers", reason="needs the [hf] extra")


def _tokenizer(transformers: Any, *, template: str | None, words: Sequence[str] = ()) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE(unk_token=None))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([word for word in WORDS for _ in range(50)], trainer)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special)
    fast.chat_template = template
    fast.add_tokens(list(words))
    return fast


TEMPLATE = (
    "{% if guardian_config is defined %}guardian {{ guardian_config['risk_name'] }}\n{% endif %}"
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@pytest.fixture(scope="session")
def causal_folder(
    transformers: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Write a tiny causal model whose first word is forced; odds 3 to 1 against the other."""
    import torch

    def make(*, says: str, against: str, kind: str = "llama", words: Sequence[str] = ()) -> Path:
        folder = tmp_path_factory.mktemp(kind)
        tokenizer = _tokenizer(transformers, template=TEMPLATE, words=words)
        sizes = {
            "vocab_size": len(tokenizer),
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": 2048,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "tie_word_embeddings": False,
        }
        torch.manual_seed(5)
        if kind == "granite":
            config = transformers.GraniteMoeConfig(
                **sizes, num_local_experts=2, num_experts_per_tok=1
            )
            model = transformers.GraniteMoeForCausalLM(config)
        else:
            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
        _force(model, tokenizer, says=says, against=against)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make


def _force(model: Any, tokenizer: Any, *, says: str, against: str) -> None:
    """Make one hidden dimension constant but after a label, and read the words off it."""
    import torch

    first = [tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in (says, against)]
    with torch.no_grad():
        for layer in model.model.layers:
            for name, weight in layer.named_parameters():
                if "norm" not in name:
                    weight.mul_(0.01)  # nearly nothing, but batches must still agree
        embed, out = model.model.embed_tokens.weight, model.lm_head.weight
        embed.mul_(0.01)
        out.zero_()
        embed[:, 0], embed[:, 1] = 1.0, 0.0
        unit = 32**0.5
        scale = float(getattr(model.config, "logits_scaling", 1.0))
        out[first[0], 0] = scale * (12 + torch.log(torch.tensor(3.0)).item()) / unit
        out[first[1], 0] = scale * 12 / unit
        for token in first:
            embed[token, 0], embed[token, 1] = 0.0, 1.0
        out[2, 1] = scale * 20 / unit  # the end, after a label


@pytest.fixture(scope="session")
def classifier_folder(transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random BERT with the labels SAFE and INJECTION."""
    import torch

    folder = tmp_path_factory.mktemp("bert")
    tokenizer = _tokenizer(transformers, template=None)
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        id2label={0: "SAFE", 1: "INJECTION"},
        label2id={"SAFE": 0, "INJECTION": 1},
        pad_token_id=0,
        initializer_range=0.6,
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def onnx_folder(classifier_folder: Path) -> Path:
    """The same classifier as ONNX files beside it: in float, and in int8."""
    pytest.importorskip("onnxruntime", reason="needs the [onnx] extra")
    pytest.importorskip("onnx", reason="needs onnx to write a model")
    from bench.local import write_onnx

    write_onnx(classifier_folder)
    return classifier_folder
