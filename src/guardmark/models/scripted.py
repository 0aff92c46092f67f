"""A target model that answers by fixed rules: for tests, demonstrations and offline runs."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from guardmark.config.settings import Settings
from guardmark.core.errors import ConfigError
from guardmark.core.outcome import Evidence, Response
from guardmark.core.sample import View
from guardmark.models.chat import SystemPromptSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.config.settings import Alarm, BuildContext
    from guardmark.core.sample import Prompt


class RuleSettings(Settings):
    """What a scripted part says when a pattern is found."""

    when: str
    answer: str


class ScriptedModel:
    """Answers by the first rule that fits."""

    def __init__(
        self,
        name: str,
        rules: Sequence[RuleSettings],
        *,
        otherwise: str,
        by_digest: Mapping[str, str] | None = None,
        view: View = View.TEXT,
        alarm: Alarm = nullcontext,
    ) -> None:
        self.name = name
        self._view = view
        self._rules = [(_compiled(rule.when, name), rule.answer) for rule in rules]
        self._otherwise = otherwise
        self._by_digest = by_digest or {}
        self._alarm = alarm

    async def answer(self, prompt: Prompt) -> Response:
        """Answer one prompt."""
        return Response(text=self._text(prompt), evidence=Evidence(finish_reason="stop"))

    def _text(self, prompt: Prompt) -> str:
        if self._by_digest:
            planted = self._by_digest.get(prompt.digest().hex())
            if planted is not None:
                return planted
        rules, text = self._rules, prompt.text
        if self._view is not View.TEXT:
            text = prompt.shown(self._view, beside_images=True) or ""
        with self._alarm():
            return next((answer for rule, answer in rules if rule.search(text)), self._otherwise)


def _compiled(pattern: str, name: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE | re.DOTALL)
    except re.error as error:
        raise ConfigError(
            f"{name}: {pattern[:80]!r} is not a regular expression: {error}."
        ) from error


class ScriptedModelSettings(SystemPromptSettings):
    """Answers by fixed rules, offline; the system prompt changes nothing but is told to judges."""

    rules: list[RuleSettings] = Field(default_factory=list)
    otherwise: str = "I can help you with that."
    by_sha256: dict[str, str] = Field(default_factory=dict)
    view: Literal[View.TEXT, View.CONVERSATION] = View.TEXT

    @property
    def most_written(self) -> int:
        """The most tokens that an answer can have: no token is shorter than a character."""
        return self.most_characters

    @property
    def most_characters(self) -> int:
        """The most characters that an answer can have."""
        answers = [rule.answer for rule in self.rules]
        return max(map(len, [*answers, self.otherwise, *self.by_sha256.values()]))

    def build(self, name: str, context: BuildContext) -> object:
        """Build the model."""
        return ScriptedModel(
            name,
            self.rules,
            otherwise=self.otherwise,
            by_digest=self.by_sha256,
            view=self.view,
            alarm=context.alarm,
        )
