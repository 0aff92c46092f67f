"""A defense behind HTTP: any service that takes JSON and answers in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome
from guardmark.core.sample import View
from guardmark.defenses.http_answer import AnswerRules, read_answer
from guardmark.defenses.skipping import NOTHING_SHOWN

if TYPE_CHECKING:
    from guardmark.core.sample import Prompt
    from guardmark.defenses.http_request import RequestBody
    from guardmark.net.client import Endpoint


class HttpDefense:
    """Asks a service about each prompt."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        *,
        body: RequestBody,
        rules: AnswerRules,
        view: View = View.TEXT,
        max_chars: int | None = None,
        cut: bool = False,
    ) -> None:
        self.name = name
        self.view = view
        self.threshold = rules.threshold
        self._endpoint = endpoint
        self._body = body
        self._rules = rules
        self._max_chars = max_chars
        self._cut = cut

    async def decide(self, prompt: Prompt) -> Decision:
        """Ask about one prompt."""
        shown = prompt.shown(self.view)
        if shown is None:
            return NOTHING_SHOWN[self.view]
        too_long = self._max_chars is not None and len(shown) > self._max_chars
        if too_long and not self._cut:
            return self._skipped(len(shown))
        if too_long:
            shown = shown[: self._max_chars]
        exchange = await self._endpoint.send(self._body.encode(prompt, shown))
        return read_answer(self._rules, exchange, truncated=too_long)

    def _skipped(self, length: int) -> Decision:
        message = f"{length} characters are more than the {self._max_chars} the service takes"
        return Decision(
            outcome=Outcome.ERROR,
            error_kind=ErrorKind.SKIPPED,
            evidence=Evidence(message=message),
        )
