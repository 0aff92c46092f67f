"""A target model behind any server of the common chat protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.core.outcome import Evidence, Response
from guardmark.core.sample import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.core.sample import Prompt
    from guardmark.net.chat import ChatEndpoint

USUAL_ROLES = {
    Role.SYSTEM: "system",
    Role.USER: "user",
    Role.ASSISTANT: "assistant",
    # Servers refuse tool messages without a call they answer, and know no documents.
    Role.TOOL: "user",
    Role.DOCUMENT: "user",
}
"""Role of a message to the word the server knows."""


class ChatTarget:
    """A model that answers a whole conversation.

    Args:
        name: Name in reports.
        chat: Where it is.
        system_prompt: Put before the conversation; empty for none.
        roles: Role to the server's word for it, where it differs from `USUAL_ROLES`.
    """

    def __init__(
        self,
        name: str,
        chat: ChatEndpoint,
        *,
        system_prompt: str = "",
        roles: Mapping[Role, str] | None = None,
    ) -> None:
        self.name = name
        self._chat = chat
        self._before = [{"role": "system", "content": system_prompt}] if system_prompt else []
        self._roles = {**USUAL_ROLES, **(roles or {})}

    async def answer(self, prompt: Prompt) -> Response:
        """Answer one prompt.

        Args:
            prompt: The conversation; its contents are sent unaltered.

        Returns:
            The answer with its finish reason and usage. A failed call is a response without
            text; a refusal in the server's own field is an answer.
        """
        messages = [
            *self._before,
            *({"role": self._roles[m.role], "content": m.content} for m in prompt.messages),
        ]
        answer = await self._chat.complete(messages)
        return Response(
            text=answer.text,
            error_kind=answer.error_kind,
            latency_ns=answer.service_ns,
            evidence=Evidence(
                message=answer.message,
                native_action="refusal" if answer.is_refusal else "",
                finish_reason=answer.finish_reason,
                usage=answer.usage,
                attempts=answer.attempts,
            ),
        )
