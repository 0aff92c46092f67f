"""Classifiers as ONNX files: the scores of torch, and a name of their own in int8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guardmark.app.registry import build_part, settings_model
from guardmark.config.settings import BuildContext
from guardmark.core.errors import ConfigError
from guardmark.core.sample import Prompt

pytestmark = pytest.mark.hf

TEXTS = ("hi", "please ignore the ferry " * 9, "", "a ferry", "ignore " * 30, "\u202e{{7}}")
PROMPTS = [Prompt.of_text(text) for text in TEXTS]


def build(folder: Path, name: str = "it", **said: object) -> Any:
    """Build a classifier from a folder."""
    usual = {"path": str(folder), "positive": ["INJECTION"], "threshold": 0.5, "max_length": 64}
    settings = settings_model("defense", "classifier").model_validate({**usual, **said})
    context = BuildContext(folder=Path("/"), seed=7, services=None, defenses={})
    return build_part(settings, name, context)


async def decided(defense: Any) -> list[float]:
    """Score the texts, and end the defense."""
    scores = [decision.score for decision in await defense.decide_batch(PROMPTS)]
    await defense.close()
    return scores


async def test_an_onnx_file_scores_as_torch_does(onnx_folder: Path) -> None:
    """To 1e-4, in batches of mixed lengths as one by one."""
    expected = await decided(build(onnx_folder, device="cpu"))
    defense = build(onnx_folder, onnx="model.onnx")
    alone = [(await defense.decide_batch([prompt]))[0].score for prompt in PROMPTS]
    assert alone == pytest.approx(expected, abs=1e-4)
    assert defense.gradients() is None
    assert await decided(defense) == pytest.approx(expected, abs=1e-4)


async def test_int8_is_another_defense_and_is_named_so(onnx_folder: Path) -> None:
    """Its scores differ, so nobody may take them for those of the model it was made from."""
    with pytest.raises(ConfigError, match="for example shield-int8"):
        build(onnx_folder, "shield", onnx="int8.onnx")
    exact = await decided(build(onnx_folder, onnx="model.onnx"))
    shield = build(onnx_folder, "shield-int8", onnx="int8.onnx")
    alone = [(await shield.decide_batch([prompt]))[0].score for prompt in PROMPTS]
    rounded = await decided(shield)
    assert rounded != exact
    assert rounded == pytest.approx(exact, abs=0.2)
    assert rounded == alone  # the scale is that of a batch: each text is one by itself


def test_labels_are_checked_against_the_config_of_the_model(onnx_folder: Path) -> None:
    """An ONNX file holds no names of labels: those beside it count."""
    with pytest.raises(ConfigError, match="Did you mean 'INJECTION'"):
        build(onnx_folder, onnx="model.onnx", positive=["INJECTON"])


def test_what_cannot_be_loaded_names_the_next_step(onnx_folder: Path) -> None:
    """A file that is missing, empty or something else; a device that is not there."""
    (onnx_folder / "empty.onnx").touch()
    (onnx_folder / "other.onnx").write_bytes(b"no model")
    for said, mistake in (
        ({"onnx": "gone.onnx"}, r"does not exist or is empty\.\nNext: "),
        ({"onnx": "empty.onnx"}, r"does not exist or is empty\.\nNext: "),
        ({"onnx": "other.onnx"}, r"cannot be loaded: [^\n]+\nNext: "),
        ({"onnx": "model.onnx", "device": "cuda"}, "Next: install onnxruntime-gpu"),
    ):
        with pytest.raises(ConfigError, match=mistake):
            build(onnx_folder, **said)


def test_inputs_that_a_tokenizer_does_not_give_are_refused(onnx_folder: Path) -> None:
    """Zeros in their place would be a silent guess."""
    import onnx

    model = onnx.load(onnx_folder / "model.onnx")
    shape = model.graph.input[0].type.tensor_type
    extra = onnx.helper.make_tensor_value_info("position_ids", shape.elem_type, ["batch", "length"])
    model.graph.input.append(extra)
    onnx.save(model, onnx_folder / "positions.onnx")
    with pytest.raises(ConfigError, match="wants position_ids, which a tokenizer does not give"):
        build(onnx_folder, onnx="positions.onnx")
