"""Several judges as one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from guardmark.app.parts.building import build_parts, open_services
from guardmark.app.parts.loading import LoadedConfig, parse_config
from guardmark.core.errors import ConfigError
from guardmark.core.outcome import AnswerMode, ErrorKind, Evidence, Verdict, VerdictLabel
from guardmark.core.protocols import Judge
from guardmark.core.sample import Prompt
from guardmark.core.usage import Usage
from guardmark.judges.panel import JudgePanel, PanelSettings

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


_WITH_PANEL = """\
version: 1
data: [{{builtin: core}}]
pipeline:
  model: {{type: scripted}}
  judges:
    - type: panel
      name: p
      judges:
        - {{type: rules, canaries: true}}
        - {last}
"""


def _load(last: str) -> LoadedConfig:
    return parse_config(_WITH_PANEL.format(last=last), folder=Path(), shown_as="bench.yaml")


def test_a_panel_is_built_from_its_members_settings() -> None:
    """Its members are built first, each under its own name."""
    loaded = _load("{type: rules, name: strict, unsafe: [x]}")
    (judge,) = build_parts(loaded, None).judges
    assert isinstance(judge.part, JudgePanel)
    assert isinstance(judge.part, Judge)
    assert judge.part.members == ("p-1", "strict")
    assert open_services(loaded) is None


@pytest.mark.parametrize(
    ("last", "mistake"),
    [
        ("{type: rules, unsaf: []}", r"bench.yaml:10:25: .*judges\.0\.judges\.1\.unsaf"),
        ("{type: rule}", "bench.yaml:10:12: .*Did you mean 'rules'"),
        ("{unsafe: [x]}", r"judges\.0\.judges\.1 needs a type"),
    ],
)
def test_mistakes_of_members_are_found_before_anything_is_called(last: str, mistake: str) -> None:
    """Each with its own place in the file."""
    with pytest.raises(ConfigError, match=mistake):
        _load(last)


def test_two_judges_of_one_name_are_refused_before_anything_is_written() -> None:
    """Their verdicts would be told apart by nothing."""
    text = _WITH_PANEL.format(last="{type: rules, canaries: true}")
    again = "    - {type: rules, name: p, canaries: true}\n"
    loaded = parse_config(text + again, folder=Path(), shown_as="bench.yaml")
    with pytest.raises(ConfigError, match=r"pipeline.judges: Two judges are called 'p'.\nNext: g"):
        build_parts(loaded, None)


def test_a_panel_in_a_panel_is_built() -> None:
    """A member may have members."""
    loaded = _load(
        "{type: panel, judges: [{type: rules, canaries: true}, {type: rules, unsafe: [x]}]}"
    )
    (judge,) = build_parts(loaded, None).judges
    assert judge.part.members == ("p-1", "p-2")


async def test_a_member_that_calls_a_service_opens_a_client() -> None:
    """And a limit on how often the service is called at once holds for the panel."""
    loaded = _load("{type: chat, preset: vllm, model: m}")
    services = open_services(loaded)
    assert services is not None
    (judge,) = build_parts(loaded, services).judges
    assert judge.part.members == ("p-1", "p-2")
    await services.close()


def test_a_panel_of_one_is_refused_in_a_file() -> None:
    """Agreement needs two there as well."""
    with pytest.raises(ValidationError, match="at least 2"):
        PanelSettings.model_validate({"judges": [{"type": "rules"}]})
