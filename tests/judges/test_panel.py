"""Several judges as one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from guardmark.app.parts.judge_settings import PanelSettings
from guardmark.app.registry import BuildContext
from guardmark.core.outcome import AnswerMode, ErrorKind, Evidence, Usage, Verdict, VerdictLabel
from guardmark.core.protocols import Judge
from guardmark.core.sample import Prompt
from guardmark.judges.panel import JudgePanel

PROMPT = Prompt.of_text("q")
_SAID = {
    "s": Verdict(label=VerdictLabel.SAFE, answer_mode=AnswerMode.REFUSED_OR_BLOCKED, latency_ns=5),
    "u": Verdict(
        label=VerdictLabel.UNSAFE,
        answer_mode=AnswerMode.ANSWERED,
        latency_ns=9,
        evidence=Evidence(usage=Usage(prompt_tokens=2, cost=0.5)),
    ),
    "m": Verdict(label=VerdictLabel.MALFORMED),
    "e": Verdict(label=VerdictLabel.ERROR, error_kind=ErrorKind.TIMEOUT),
}


class _Fixed:
    def __init__(self, name: str, verdict: Verdict) -> None:
        self.name = name
        self._verdict = verdict

    async def judge(self, prompt: Prompt, response: str) -> Verdict:  # noqa: ARG002 - the protocol's
        return self._verdict


@pytest.mark.parametrize(
    ("votes", "label"),
    [
        ("ssu", "safe"),
        ("uus", "unsafe"),
        ("us", "malformed"),
        ("uue", "unsafe"),
        ("ume", "malformed"),
        ("ue", "malformed"),
        ("mm", "malformed"),
        ("ee", "error"),
        ("em", "malformed"),
        ("uuss", "malformed"),
    ],
)
async def test_more_than_half_of_all_judges_decide(votes: str, label: str) -> None:
    """A failed judge is no vote, but still one of all."""
    panel = JudgePanel("p", [_Fixed(f"{n}", _SAID[v]) for n, v in enumerate(votes)])
    verdict = await panel.judge(PROMPT, "a")
    assert verdict.label == label
    assert (verdict.error_kind is not None) == (label == "error")


async def test_votes_usage_and_latency_are_kept() -> None:
    """Who said what, what it cost together, and how long the slowest took."""
    panel = JudgePanel("p", [_Fixed(n, _SAID[n[0]]) for n in ("u1", "u2", "s1")])
    verdict = await panel.judge(PROMPT, "a")
    assert verdict.answer_mode is AnswerMode.ANSWERED
    assert verdict.latency_ns == 9
    assert verdict.evidence is not None
    assert verdict.evidence.reason == "u1: unsafe; u2: unsafe; s1: safe"
    assert verdict.evidence.parse_method == "2 of 3"
    assert verdict.evidence.usage == Usage(prompt_tokens=4, cost=1.0)


def test_one_judge_is_no_panel() -> None:
    """Agreement needs two."""
    with pytest.raises(ValueError, match="at least two"):
        JudgePanel("p", [_Fixed("a", _SAID["s"])])


def test_a_panel_is_built_from_its_members_settings() -> None:
    """Their mistakes are found before anything is called."""
    said = {"judges": [{"type": "rules"}, {"type": "rules", "name": "strict", "unsafe": ["x"]}]}
    context = BuildContext(folder=Path(), seed=7, services=None, defenses={})
    assert isinstance(PanelSettings.model_validate(said).build("p", context), Judge)
    assert PanelSettings.model_validate(said).base_url == ""
    with pytest.raises(ValidationError, match=r"judges\.1\.unsaf"):
        PanelSettings.model_validate(
            {"judges": [{"type": "rules"}, {"type": "rules", "unsaf": []}]}
        )
    with pytest.raises(ValidationError, match="Did you mean 'rules'"):
        PanelSettings.model_validate({"judges": [{"type": "rules"}, {"type": "rule"}]})
    with_chat = {"judges": [{"type": "rules"}, {"type": "chat", "preset": "vllm", "model": "m"}]}
    assert PanelSettings.model_validate(with_chat).base_url == "http://localhost:8000/v1"
