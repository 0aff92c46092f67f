"""A judge in this process, and models by the name they have in the local cache of the hub."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guardmark.app.registry import build_part, settings_model
from guardmark.config.settings import BuildContext
from guardmark.core.errors import ConfigError
from guardmark.core.outcome import AnswerMode, VerdictLabel
from guardmark.core.sample import Prompt

pytestmark = pytest.mark.hf

VERDICT = '{"label":"unsafe","answer_mode":"answered","reasons":["it"]}'
PROMPTS = [Prompt.of_text(f"please the ferry {n}") for n in range(5)]


def _build(kind: str, part_type: str, **said: object) -> Any:
    settings = settings_model(kind, part_type).model_validate({"device": "cpu", **said})
    context = BuildContext(folder=Path("/"), seed=7, services=None, defenses={})
    return build_part(settings, "it", context)


@pytest.fixture(scope="module")
def judge_folder(causal_folder: Callable[..., Path]) -> Path:
    """A model whose likeliest first token is a whole verdict."""
    return causal_folder(says=VERDICT, against="No", words=[VERDICT])


@pytest.fixture
def cached(judge_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The local cache of the hub with that model as `planted/judge`."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    model, revision = tmp_path / "models--planted--judge", "0123456789" * 4
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(revision, encoding="utf-8")
    (model / "snapshots").mkdir()
    (model / "snapshots" / revision).symlink_to(judge_folder, target_is_directory=True)
    return model / "snapshots" / revision


async def test_it_judges_several_answers_in_a_batch(judge_folder: Path) -> None:
    """Its words are read as those of a judge behind a server are."""
    judge = _build("judge", "local", path=str(judge_folder))
    verdicts = await asyncio.gather(*(judge.judge(prompt, "an answer") for prompt in PROMPTS))
    assert {verdict.label for verdict in verdicts} == {VerdictLabel.UNSAFE}
    assert {verdict.answer_mode for verdict in verdicts} == {AnswerMode.ANSWERED}
    assert verdicts[0].evidence.reason == "it"
    assert verdicts[0].evidence.usage.prompt_tokens > 0
    assert judge.files == (judge_folder,), "another model is another judge"
    await judge.close()


async def test_words_that_are_no_verdict_are_malformed_and_asked_about_again(
    causal_folder: Callable[..., Path],
) -> None:
    """A tiny model that says Yes is no judge."""
    judge = _build("judge", "local", path=str(causal_folder(says="Yes", against="No")))
    verdict = await judge.judge(PROMPTS[0], "an answer")
    assert verdict.label is VerdictLabel.MALFORMED
    assert verdict.evidence.raw == "Yes"
    assert verdict.evidence.usage.completion_tokens == 2, "it was asked twice"
    await judge.close()


@pytest.mark.parametrize(
    ("kind", "part_type", "more"),
    [
        ("judge", "local", {"path": "planted/judge"}),
        ("model", "local", {"path": "planted/judge"}),
        ("defense", "guard-model", {"path": "planted/judge", "profile": "allow-block"}),
        (
            "defense",
            "guard-model",
            {"preset": "auto", "model": "planted/judge", "profile": "allow-block"},
        ),
    ],
)
async def test_a_model_in_the_local_cache_is_known_by_its_name(
    cached: Path, kind: str, part_type: str, more: dict[str, object]
) -> None:
    """What is hashed is the revision that is there."""
    part = _build(kind, part_type, **more)
    told = part.capabilities if kind == "defense" else part
    assert told.files == (cached,)
    await part.close()


@pytest.mark.parametrize("part_type", ["guard-model", "classifier"])
def test_a_model_that_is_not_in_the_cache_comes_with_the_command_that_fetches_it(
    cached: Path, part_type: str
) -> None:
    """Nothing is loaded from the network on the side."""
    assert cached.is_dir()
    more: dict[str, object] = {"profile": "allow-block"}
    if part_type == "classifier":
        more = {"positive": ["x"], "threshold": 0.5}
    with pytest.raises(ConfigError, match=r"Fetch it: hf download planted/other \("):
        _build("defense", part_type, path="planted/other", **more)
