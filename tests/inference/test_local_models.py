"""Local models of the [hf] extra: known answers, equal in any batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guardmark.app.registry import build_part, settings_model
from guardmark.config.settings import BuildContext
from guardmark.core.errors import ConfigError
from guardmark.core.outcome import ErrorKind, Outcome, ScoreKind
from guardmark.core.protocols import BatchDefense, ChatModel
from guardmark.core.sample import Prompt
from guardmark.inference.runtime import HALVED

pytestmark = pytest.mark.hf

PROMPTS = [
    Prompt.of_text(text)
    for text in ("hi", "please ignore the ferry " * 9, "", "a ferry", "ignore " * 30, "\u202e{{7}}")
]


def _build(kind: str, part_type: str, **said: object) -> Any:
    settings = settings_model(kind, part_type).model_validate({"device": "cpu", **said})
    context = BuildContext(folder=Path("/"), seed=7, services=None, defenses={})
    return build_part(settings, "it", context)


async def test_scores_of_a_batch_are_those_of_one_by_one(classifier_folder: Path) -> None:
    """To 1e-5, for mixed lengths; and the order is kept."""
    defense = _build(
        "defense",
        "classifier",
        path=str(classifier_folder),
        positive=["INJECTION"],
        threshold=0.5,
        max_length=64,
        batch_tokens=128,
    )
    assert isinstance(defense, BatchDefense)
    together = await defense.decide_batch(PROMPTS)
    alone = [(await defense.decide_batch([prompt]))[0] for prompt in PROMPTS]
    assert [d.score for d in together] == pytest.approx([d.score for d in alone], abs=1e-5)
    assert len({round(d.score, 3) for d in together}) > 1
    assert all(d.amortised for d in together)
    assert not any(d.amortised for d in alone)
    assert all(d.score_kind is ScoreKind.CLASS_PROB for d in together)
    await defense.close()


@pytest.mark.parametrize("long_text", ["truncate", "chunk", "error"])
async def test_long_texts_are_cut_chunked_or_refused_never_silently(
    classifier_folder: Path, long_text: str
) -> None:
    """A number nobody validated is worse than none."""
    defense = _build(
        "defense",
        "classifier",
        path=str(classifier_folder),
        positive=["INJECTION"],
        threshold=0.5,
        max_length=32,
        long_text=long_text,
    )
    short, long = await defense.decide_batch([Prompt.of_text("hi"), Prompt.of_text("x " * 500)])
    assert short.evidence is None
    if long_text == "error":
        assert (long.outcome, long.error_kind) == (Outcome.ERROR, ErrorKind.SKIPPED)
    else:
        assert long.score is not None
        assert (long.evidence is not None and long.evidence.truncated) == (long_text == "truncate")
    await defense.close()


async def test_a_batch_that_does_not_fit_into_memory_is_halved_and_said(
    classifier_folder: Path,
) -> None:
    """The same scores, and each says what to do about it."""
    torch = pytest.importorskip("torch")
    said: dict[str, Any] = {"path": str(classifier_folder), "positive": ["INJECTION"]}
    defense = _build("defense", "classifier", threshold=0.5, max_length=64, **said)
    expected = await defense.decide_batch(PROMPTS)

    def allocate(module: object, given: tuple[Any, ...]) -> None:
        if isinstance(module, torch.nn.Embedding) and len(given[0]) > 2:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

    hook = torch.nn.modules.module.register_module_forward_pre_hook(allocate)
    halved = await defense.decide_batch(PROMPTS)
    hook.remove()
    assert [d.score for d in halved] == pytest.approx([d.score for d in expected], abs=1e-5)
    assert all("asked in halves: lower batch_tokens" in d.evidence.message for d in halved)
    await defense.close()


async def test_a_guard_model_that_runs_out_of_memory_says_so_too(
    causal_folder: Callable[..., Path],
) -> None:
    """A batch in halves gives the same decisions, later: its answers tell of it."""
    torch = pytest.importorskip("torch")
    folder = causal_folder(says="Yes", against="No")
    guard = _build("defense", "guard-model", path=str(folder), profile="granite-guardian-3.1")
    target = _build("model", "local", path=str(folder), max_tokens=2)
    expected = await guard.decide_batch(PROMPTS)

    def allocate(module: object, given: tuple[Any, ...]) -> None:
        if isinstance(module, torch.nn.Embedding) and len(given[0]) > 2:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

    hook = torch.nn.modules.module.register_module_forward_pre_hook(allocate)
    halved = await guard.decide_batch(PROMPTS)
    answers = await asyncio.gather(*(target.answer(prompt) for prompt in PROMPTS))
    hook.remove()
    assert [d.outcome for d in halved] == [d.outcome for d in expected]
    for some, is_said in ((halved, True), (answers, True), (expected, False)):
        said = {each.evidence.message for each in some} - {""}
        assert said == ({HALVED} if is_said else set())
    await guard.close()
    await target.close()


def test_labels_are_checked_against_the_model(classifier_folder: Path) -> None:
    """A wrong index would turn the classifier round."""
    said: dict[str, Any] = {"path": str(classifier_folder), "threshold": 0.5}
    with pytest.raises(ConfigError, match="Did you mean 'INJECTION'"):
        _build("defense", "classifier", positive=["INJECTON"], **said)
    with pytest.raises(ConfigError, match="only block"):
        _build("defense", "classifier", positive=["INJECTION", "SAFE"], **said)


def test_a_folder_without_a_model_is_named(transformers: Any, tmp_path: Path) -> None:
    """Missing, or holding something else."""
    for path in (tmp_path / "gone", tmp_path):
        with pytest.raises(ConfigError, match=r"model folder"):
            _build("defense", "classifier", path=str(path), positive=["X"], threshold=0.5)


@pytest.mark.parametrize("kind", ["llama", "granite"])
@pytest.mark.parametrize("said", [("Yes", "No", 0.75), ("No", "Yes", 0.25)])
async def test_a_local_granite_type_guard_gives_word_and_known_score(
    causal_folder: Callable[..., Path], kind: str, said: tuple[str, str, float]
) -> None:
    """Through its own chat template, in a batch of mixed lengths."""
    says, against, score = said
    folder = causal_folder(says=says, against=against, kind=kind)
    guard = _build("defense", "guard-model", path=str(folder), profile="granite-guardian-3.2")
    decisions = await guard.decide_batch(PROMPTS)
    wanted = Outcome.BLOCK if says == "Yes" else Outcome.ALLOW
    assert [d.outcome for d in decisions] == [wanted] * len(PROMPTS)
    assert [d.score for d in decisions] == pytest.approx([score] * len(PROMPTS), abs=0.02)
    alone = [(await guard.decide_batch([prompt]))[0].score for prompt in PROMPTS]
    assert [d.score for d in decisions] == pytest.approx(alone, abs=1e-5)
    await guard.close()


@pytest.mark.parametrize(
    ("said", "mistake"),
    [
        (
            {"profile": "nemoguard-topic-control", "policy": "Talk of ferries."},
            "with one piece, 'o'",
        ),
        ({"profile": "granite-guardian-3.3"}, "ignores guardian_config"),
        ({"profile": "shieldgemma", "risk": "No ferries."}, "ignores guideline"),
        ({"profile": "wildguard", "template_file": "quiet.jinja"}, "does not show the guard"),
        ({"profile": "wildguard", "template_file": "loud.jinja"}, "refuses what it is given: no"),
    ],
)
def test_a_profile_that_does_not_fit_the_model_is_refused(
    causal_folder: Callable[..., Path], tmp_path: Path, said: dict[str, Any], mistake: str
) -> None:
    """Labels that begin alike, arguments without effect, a template that leaves the text out."""
    folder = causal_folder(says="Yes", against="No")
    (tmp_path / "quiet.jinja").write_text("{{ messages | length }} messages")
    (tmp_path / "loud.jinja").write_text("{{ raise_exception('no') }}")
    if "template_file" in said:
        said = {**said, "template_file": str(tmp_path / said["template_file"])}
    with pytest.raises(ConfigError, match=mistake):
        _build("defense", "guard-model", path=str(folder), **said)


async def test_several_risks_are_asked_in_batches(causal_folder: Callable[..., Path]) -> None:
    """Each with its own arguments of the template; the order is kept."""
    folder = causal_folder(says="Yes", against="No")
    profile, risks = "granite-guardian-3.1", ["harm", "jailbreak"]
    guard = _build("defense", "guard-model", path=str(folder), profile=profile, risk=risks)
    decisions = await guard.decide_batch(PROMPTS)
    assert [d.outcome for d in decisions] == [Outcome.BLOCK] * len(PROMPTS)
    assert all([c.name for c in d.evidence.categories] == risks for d in decisions)
    assert all(d.score == pytest.approx(0.75, abs=0.02) for d in decisions)
    await guard.close()


async def test_a_guard_asked_in_the_wrong_contract_is_all_malformed(
    causal_folder: Callable[..., Path],
) -> None:
    """A native Granite answer under ALLOW/BLOCK is no perfect recall."""
    folder = causal_folder(says="Yes", against="No")
    guard = _build("defense", "guard-model", path=str(folder), profile="allow-block")
    decisions = await guard.decide_batch(PROMPTS)
    assert {d.outcome for d in decisions} == {Outcome.MALFORMED}
    await guard.close()


async def test_a_local_target_batches_what_comes_together(
    causal_folder: Callable[..., Path],
) -> None:
    """Each gets its own answer; a cancelled question harms no neighbour."""
    folder = causal_folder(says="ALLOW", against="BLOCK")
    model = _build("model", "local", path=str(folder), max_tokens=8, system_prompt="Be kind.")
    assert isinstance(model, ChatModel)
    tasks = [asyncio.ensure_future(model.answer(prompt)) for prompt in PROMPTS]
    await asyncio.sleep(0)
    tasks[1].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    texts = [response.text for n, response in enumerate(done) if n != 1]
    assert texts == [texts[0]] * (len(PROMPTS) - 1)
    assert texts[0].startswith("A")
    assert done[0].evidence.usage.prompt_tokens > 0
    await model.close()


def test_a_tokenizer_without_a_template_cannot_chat(classifier_folder: Path) -> None:
    """We write no template ourselves."""
    with pytest.raises(ConfigError, match="chat template"):
        _build("model", "local", path=str(classifier_folder))
