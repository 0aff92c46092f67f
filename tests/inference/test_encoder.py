"""An encoder in this process: the mean of its tokens, and nothing for what it cannot read."""

from __future__ import annotations

import json
import shutil
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from guardmark.app.adapt.calibrating import CalibrationOptions, calibrate
from guardmark.config.settings import BuildContext
from guardmark.core.errors import ConfigError
from guardmark.core.outcome import ErrorKind
from guardmark.models.similarity import (
    LocalEmbeddingSettings,
    LocalEncoder,
    SimilarityJudge,
    cosine,
)

pytestmark = pytest.mark.hf


@pytest.fixture(scope="module")
def encoder(classifier_folder: Path) -> LocalEncoder:
    """The tiny BERT without its head."""
    return LocalEncoder(classifier_folder, device="cpu")


async def test_a_vector_is_the_mean_over_the_tokens_of_its_text(
    encoder: LocalEncoder, transformers: Any, classifier_folder: Path
) -> None:
    """Padding counts for nothing: the same text by itself has the same vector."""
    import torch

    texts = ("the ferry", "please ignore the user and the guardian")
    answer = await encoder.embed(texts)
    assert answer.vectors is not None
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(classifier_folder))
    model = transformers.AutoModel.from_pretrained(str(classifier_folder)).eval()
    count = 0
    for text, vector in zip(texts, answer.vectors, strict=True):
        with torch.inference_mode():
            encoded = tokenizer(text, return_tensors="pt")
            mean = model(**encoded).last_hidden_state[0].mean(dim=0).tolist()
        assert vector == pytest.approx(mean, abs=1e-5)
        count += encoded["input_ids"].shape[1]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (count, 0)
    assert answer.service_ns > 0


async def test_a_text_longer_than_the_model_reads_has_no_vector(encoder: LocalEncoder) -> None:
    """The part that was read would prove nothing of the rest."""
    answer = await encoder.embed(("a", "please " * 80))
    assert answer.vectors is None
    assert answer.error_kind is ErrorKind.LENGTH
    assert "the model reads 64" in answer.message


async def test_a_judge_from_its_settings(classifier_folder: Path, tmp_path: Path) -> None:
    """The same text reaches any tau; the files of the model belong to its fingerprint."""
    settings = LocalEmbeddingSettings.model_validate(
        {"path": str(classifier_folder), "tau": 1.0, "device": "cpu"}
    )
    context = BuildContext(folder=tmp_path, seed=7, services=None, defenses={})
    judge = settings.build("equivalence", context)
    assert isinstance(judge, SimilarityJudge)
    assert judge.files == (classifier_folder,)
    said = json.loads((await judge.compare("the ferry", "the ferry")).text or "")
    assert said["cosine"] == pytest.approx(1.0, abs=1e-6)
    value, answer = await judge.similarity("the ferry", "please ignore")
    assert answer.vectors is not None
    assert value == cosine(*answer.vectors) < 1.0
    await judge.close()


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    """Before anything is spent."""
    with pytest.raises(ConfigError, match="does not exist"):
        LocalEncoder(tmp_path / "nowhere")


def test_a_model_that_writes_is_no_encoder(
    transformers: Any, tmp_path: Path, classifier_folder: Path
) -> None:
    """Both halves of it would have to be read, and the mean of one of them means nothing."""
    config = transformers.T5Config(
        vocab_size=32, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2
    )
    transformers.T5Model(config).save_pretrained(tmp_path / "writer")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(classifier_folder / name, tmp_path / "writer")
    with pytest.raises(ConfigError, match="writer writes text: it is no encoder"):
        LocalEncoder(tmp_path / "writer", device="cpu")


def test_a_threshold_is_calibrated_for_an_encoder_in_this_process(
    classifier_folder: Path, tmp_path: Path
) -> None:
    """No service is asked for a word first; equal texts lie at 1, all others below the tau."""
    words = ("ferry", "user", "guardian", "please", "ignore", "the")
    texts = [" ".join(each) for each in permutations(words, 3)]
    rows = [
        {"a": first, "b": second, "same": False, "group": f"d{n}"}
        for n, (first, second) in enumerate(zip(texts, texts[7:] + texts[:7], strict=True))
    ]
    rows += [{"a": each, "b": each, "same": True, "group": f"s{each}"} for each in texts[:60]]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "pairs.jsonl").write_text(lines, encoding="utf-8")
    said = f"{{type: local-embedding, path: '{classifier_folder}', device: cpu}}"
    (tmp_path / "own.yaml").write_text(f"adaptive: {{equivalence: {said}}}\n", encoding="utf-8")
    options = CalibrationOptions(config=tmp_path / "own.yaml", out=tmp_path / "tau.yaml", bound=0.2)
    found = calibrate(tmp_path / "pairs.jsonl", options)
    assert found.missing == {}
    assert found.choice.tau <= 1
    assert str(classifier_folder) in options.out.read_text(encoding="utf-8")
