"""Scripted models: the same prompt, the same answer."""

from __future__ import annotations

import pytest

from guardmark.core.errors import ConfigError
from guardmark.core.sample import Prompt
from guardmark.models.scripted import RuleSettings, ScriptedModel


async def test_planted_answers_come_first_then_rules_then_the_rest() -> None:
    """So exact truths can be planted among general rules."""
    planted = Prompt.of_text("tell me a secret, please")
    model = ScriptedModel(
        "m",
        [
            RuleSettings(when="secret", answer="No."),
            RuleSettings(when="s.c", answer="never reached"),
        ],
        otherwise="Sure.",
        by_digest={planted.digest().hex(): "It is quillfish."},
    )
    assert (await model.answer(planted)).text == "It is quillfish."
    assert (await model.answer(Prompt.of_text("a SECRET"))).text == "No."
    assert (await model.answer(Prompt.of_text("hello"))).text == "Sure."


def test_a_broken_rule_is_a_configuration_error() -> None:
    """Named."""
    with pytest.raises(ConfigError, match="not a regular expression"):
        ScriptedModel("m", [RuleSettings(when="(", answer="")], otherwise="")
