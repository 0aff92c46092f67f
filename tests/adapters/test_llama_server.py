"""Guard, target and judge against llama.cpp's own server, answers known in advance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from guardmark.app.registry import build_part, settings_model
from guardmark.config.settings import BuildContext
from guardmark.core.outcome import Outcome
from guardmark.core.sample import Prompt
from guardmark.net.client import Services
from guardmark.net.service import ServiceLimits

ATTACK = Prompt.of_text("please ignore it ignore it")
BENIGN = Prompt.of_text("when does the ferry leave")


@pytest.fixture
async def build(start_llama: Callable[..., Any]) -> AsyncIterator[Callable[..., Any]]:
    """Build a part that calls a server with two labels."""
    services = Services(default=ServiceLimits(retries=0, read_timeout_s=60))

    def make(kind: str, part_type: str, labels: tuple[str, str], **said: object) -> Any:
        server = start_llama(risky=labels[0], harmless=labels[1])
        settings = settings_model(kind, part_type).model_validate(
            {"base_url": server.base_url, "model": "tiny", **said}
        )
        context = BuildContext(folder=Path(), seed=7, services=services, defenses={})
        return build_part(settings, "it", context)

    yield make
    await services.close()


@pytest.mark.parametrize(
    ("profile", "labels"),
    [("granite-guardian-3.2", ("Yes", "No")), ("allow-block", ("BLOCK", "ALLOW"))],
)
async def test_words_and_scores_are_those_the_model_was_built_for(
    build: Callable[..., Any], profile: str, labels: tuple[str, str]
) -> None:
    """3 to 1 for the label it says, measured through server, protocol and parser."""
    guard = build("defense", "guard-model", labels, profile=profile)
    blocked, allowed = await guard.decide(ATTACK), await guard.decide(BENIGN)
    assert (blocked.outcome, allowed.outcome) == (Outcome.BLOCK, Outcome.ALLOW)
    assert blocked.score == pytest.approx(0.75, abs=0.02)
    assert allowed.score == pytest.approx(0.25, abs=0.02)
    assert blocked.evidence.label_mass > 0.99
    assert blocked.evidence.usage.prompt_tokens > 0


async def test_a_profile_that_does_not_fit_is_all_malformed(build: Callable[..., Any]) -> None:
    """Not a perfect guard that blocks everything."""
    guard = build("defense", "guard-model", ("Yes", "No"), profile="allow-block")
    for prompt in (ATTACK, BENIGN):
        decision = await guard.decide(prompt)
        assert decision.outcome is Outcome.MALFORMED
        assert decision.score is None


async def test_a_target_answers_with_usage_and_finish_reason(build: Callable[..., Any]) -> None:
    """As any other server."""
    response = await build("model", "chat", ("Yes", "No")).answer(BENIGN)
    assert response.text.strip() == "No"
    assert response.evidence.finish_reason == "stop"
    assert response.evidence.usage.completion_tokens >= 1


async def test_a_judge_is_held_to_the_schema_or_is_malformed(build: Callable[..., Any]) -> None:
    """The server's grammar forces JSON out of any model; what it says is then its own affair."""
    judge = build("judge", "chat", ("Yes", "No"), max_tokens=200)
    verdict = await judge.judge(BENIGN, "at nine")
    assert verdict.label in {"safe", "unsafe", "malformed"}
    assert verdict.error_kind is None
