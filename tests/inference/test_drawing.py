"""Answers drawn at random by a local model: known odds, and equal whatever lies beside them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from guardmark.app.registry import build_part, settings_model
from guardmark.config.settings import BuildContext
from guardmark.core.protocols import DrawingModel
from guardmark.core.sample import Prompt
from guardmark.inference.generator import Draws, SeededChoice

pytestmark = pytest.mark.hf

PROMPTS = [Prompt.of_text(f"{n} please the ferry " * (1 + n % 7)) for n in range(40)]


def _target(folder: Path, **said: object) -> Any:
    settings = settings_model("model", "local").model_validate(
        {"device": "cpu", "path": str(folder), "max_tokens": 4, "batch_tokens": 256, **said}
    )
    context = BuildContext(folder=Path("/"), seed=7, services=None, defenses={})
    return build_part(settings, "it", context)


async def _together(target: Any, prompts: list[Prompt], *, repeat: int = 0) -> list[str]:
    asked = [target.draw(prompt, repeat=repeat) for prompt in prompts]
    return [response.text for response in await asyncio.gather(*asked)]


@pytest.fixture(scope="module")
def folder(causal_folder: Callable[..., Path]) -> Path:
    """A model that says Yes, three to one against No."""
    return causal_folder(says="Yes", against="No")


async def test_drawn_answers_depend_on_nothing_beside_them(folder: Path) -> None:
    """One by one, all at once, in another order: the same answers."""
    target = _target(folder, temperature=1.0)
    together = await _together(target, PROMPTS)
    alone = [(await target.answer(prompt)).text for prompt in PROMPTS]
    turned = await _together(target, PROMPTS[::-1])
    assert together == alone == turned[::-1]
    assert set(together) == {"Yes", "No"}
    await target.close()


async def test_each_repetition_and_each_seed_draws_anew(folder: Path) -> None:
    """And the seed of the run is the seed unless another is given."""
    target, same = _target(folder, temperature=1.0), _target(folder, temperature=1.0, seed=7)
    other = _target(folder, temperature=1.0, seed=8)
    assert isinstance(target, DrawingModel)
    first = await _together(target, PROMPTS)
    assert first == await _together(same, PROMPTS)
    assert first != await _together(target, PROMPTS, repeat=1)
    assert first != await _together(other, PROMPTS)
    for each in (target, same, other):
        await each.close()


async def test_answers_come_in_the_odds_of_the_model(folder: Path) -> None:
    """Three to one at temperature 1; nine to one at a half; only the likeliest in a nucleus."""
    for said, share in (
        ({"temperature": 1.0}, 0.75),
        ({"temperature": 0.5}, 0.9),
        ({"temperature": 1.0, "top_p": 0.7}, 1.0),
    ):
        target = _target(folder, **said)
        found = Counter[str]()
        for repeat in range(10):
            found.update(await _together(target, PROMPTS, repeat=repeat))
        # Five standard errors of 400 draws.
        margin = 5 * (share * (1 - share) / 400) ** 0.5
        assert found["Yes"] / 400 == pytest.approx(share, abs=margin + 1e-9)
        await target.close()


async def test_the_likeliest_answer_is_the_same_in_any_batch(folder: Path) -> None:
    """The default: greedy."""
    target = _target(folder)
    alone = [(await target.answer(prompt)).text for prompt in PROMPTS]
    assert alone == await _together(target, PROMPTS) == ["Yes"] * len(PROMPTS)
    assert alone == await _together(target, PROMPTS, repeat=3)
    await target.close()


def test_one_step_leaves_one_token_a_row_and_never_an_impossible_one(transformers: Any) -> None:
    """Whatever stands beside a row, its token is that of its own seed."""
    import torch

    assert transformers is not None
    logits = torch.tensor([[0.0, float("-inf"), 1.0, 2.0]]).repeat(500, 1)
    seeds = tuple(range(500))
    chosen = SeededChoice(Draws(temperature=1.0, seeds=seeds))(None, logits)
    assert (chosen == 0).sum(dim=-1).tolist() == [1] * 500
    tokens = chosen.argmax(dim=-1).tolist()
    assert set(tokens) == {0, 2, 3}
    backwards = SeededChoice(Draws(temperature=1.0, seeds=seeds[::-1]))(None, logits)
    assert backwards.argmax(dim=-1).tolist() == tokens[::-1]


def test_a_nucleus_keeps_the_fewest_tokens_that_reach_its_share(transformers: Any) -> None:
    """Odds 4 to 3 to 2 to 1: seven tenths are the first two."""
    import torch

    assert transformers is not None
    logits = torch.log(torch.tensor([[0.1, 0.4, 0.2, 0.3]])).repeat(300, 1)
    for top_p, kept in ((0.3, {1}), (0.65, {1, 3}), (0.75, {1, 2, 3}), (1.0, {0, 1, 2, 3})):
        draws = Draws(temperature=1.0, top_p=top_p, seeds=tuple(range(300)))
        assert set(SeededChoice(draws)(None, logits).argmax(dim=-1).tolist()) == kept


@pytest.mark.parametrize("said", [{"top_p": 0.9}, {"seed": 3}])
def test_chance_without_a_temperature_is_a_mistake(said: dict[str, object]) -> None:
    """A setting without any effect would stand in the manifest as if it had one."""
    with pytest.raises(ValidationError, match="need a temperature above 0"):
        settings_model("model", "local").model_validate({"path": "m", **said})
