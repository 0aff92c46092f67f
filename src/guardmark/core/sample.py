"""One labelled input and the context it stands in."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Role(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    DOCUMENT = "document"


class Label(StrEnum):
    """What a sample is."""

    ATTACK = "attack"
    BENIGN = "benign"


class Severity(StrEnum):
    """What would follow if an attack worked."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class View(StrEnum):
    """What of a prompt a defense is shown."""

    TEXT = "text"
    CONVERSATION = "conversation"
    DOCUMENT = "document"
    RESPONSE = "response"


_MATERIAL = (Role.TOOL, Role.DOCUMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: Who speaks.
        content: The words, unaltered.
    """

    role: Role
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A conversation with one message under test.

    Attributes:
        messages: At least one message, in order.
        under_test: Index of the message that carries the text under test.
    """

    messages: tuple[Message, ...]
    under_test: int = -1

    @staticmethod
    def of_text(text: str) -> Prompt:
        """Wrap one user text as a prompt."""
        return Prompt(messages=(Message(role=Role.USER, content=text),), under_test=0)

    @property
    def text(self) -> str:
        """The text under test."""
        return self.messages[self.under_test].content

    def with_text(self, text: str) -> Prompt:
        """Put another text in the place of the text under test."""
        if len(self.messages) == 1 and self.messages[0].role is Role.USER:
            return Prompt.of_text(text)
        index = self.under_test % len(self.messages)
        changed = Message(role=self.messages[index].role, content=text)
        return replace(
            self, messages=(*self.messages[:index], changed, *self.messages[index + 1 :])
        )

    def shown(self, view: View) -> str | None:
        """Return what a defense with this view is shown."""
        if view is View.TEXT:
            return self.text
        if view is View.CONVERSATION:
            return "\n\n".join(f"{m.role.value}: {m.content}" for m in self.messages)
        if view is View.DOCUMENT:
            parts = [m.content for m in self.messages if m.role in _MATERIAL]
            return "\n\n".join(parts) if parts else None
        last = self.messages[-1]
        return last.content if last.role is Role.ASSISTANT else None

    def digest(self) -> bytes:
        """Return the content hash of the prompt."""
        if len(self.messages) == 1 and self.messages[0].role is Role.USER:
            return sha256(self.messages[0].content.encode()).digest()
        under_test = self.under_test % len(self.messages)
        form = [[[m.role.value, m.content] for m in self.messages], under_test]
        return sha256(json.dumps(form, ensure_ascii=False, separators=(",", ":")).encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One labelled prompt, attack or benign.

    Attributes:
        id: Unique within a data set.
        prompt: What is sent.
        label: Attack or benign.
        category: Taxonomy category of an attack, or topic of a benign input; may be empty.
        subcategory: Finer category; may be empty.
        severity: What would follow if the attack worked; None for benign inputs.
        expected: What the defense ought to do, `block` or `allow`.
        technique: How the attack works, in a word; may be empty.
        language: ISO code; may be empty when unknown.
        variant: Which rewriting of its origin this is; `original` unless stated.
        group: What the sample was derived from; its own id when it stands alone.
        source: Where it comes from.
        must_keep: Substrings of the text under test that an attacker may not lose.
        metadata: Whatever else the file said, as JSON values.
    """

    id: str
    prompt: Prompt
    label: Label
    category: str = ""
    subcategory: str = ""
    severity: Severity | None = None
    expected: str = ""
    technique: str = ""
    language: str = ""
    variant: str = "original"
    group: str = ""
    source: str = ""
    must_keep: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_attack(self) -> bool:
        """Whether the sample is labelled an attack."""
        return self.label is Label.ATTACK

    @property
    def lineage(self) -> str:
        """The group, or the sample's own id when it stands alone."""
        return self.group or self.id
