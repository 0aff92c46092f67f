"""One labelled input and the context it stands in."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from guardmark.core.errors import DatasetError
from guardmark.core.limits import MOST_IMAGE_BYTES
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence


class Role(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    DOCUMENT = "document"


class Label(StrEnum):
    """What a sample is; an unlabelled one is answered and judged, and stands in no rate."""

    ATTACK = "attack"
    BENIGN = "benign"
    UNLABELLED = "unlabelled"


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


MATERIAL = (Role.TOOL, Role.DOCUMENT)  # what was brought, in which an attack may hide
_SEEN = {
    View.CONVERSATION: (tuple(Role), 0),
    View.DOCUMENT: (MATERIAL, 0),
    View.RESPONSE: ((Role.ASSISTANT,), -1),
}
"""View to the roles of the messages that it shows, and the first of them."""
_IMAGE = re.compile(r"[0-9a-f]{64} image/(gif|jpeg|png|webp)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture in a message.

    Attributes:
        sha256: Hash (hex) of its bytes.
        media_type: Such as `image/png`.
        place: Path of its file, or a `data:` URL; no part of what it is.
    """

    sha256: str
    media_type: str
    place: str = field(compare=False)

    def __post_init__(self) -> None:
        """Refuse what could be taken for a path, or for more of a URL."""
        if not _IMAGE.fullmatch(f"{self.sha256} {self.media_type}"):
            raise ValueError("an image needs a SHA-256 and a media type")

    def read(self) -> bytes:
        """Return its bytes, if they are still there and the same."""
        path, content = Path(self.place), b""
        if self.place.startswith("data:"):
            content = b64decode(self.place.partition(",")[2])
        elif path.is_file() and path.stat().st_size <= MOST_IMAGE_BYTES:
            content = path.read_bytes()
        if sha256(content).hexdigest() != self.sha256:
            raise DatasetError(f"The image {self.sha256[:12]} is gone, or was changed since.")
        return content


class ToolCall(NamedTuple):
    """A call of a tool that an assistant asks for; its arguments are JSON, as text.

    Attributes:
        id: What the result names the call by.
        name: The tool.
        arguments: JSON, as text.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """What an agent, or whoever answers a conversation, is told of a tool.

    Attributes:
        name: Identifier, unique within a suite or a conversation.
        description: What it does, in words.
        parameters: JSON Schema of its arguments.
    """

    name: str
    description: str
    parameters: Mapping[str, object] = field(default_factory=dict, hash=False)

    @property
    def chat(self) -> dict[str, Any]:
        """The definition as chat services take it."""
        parameters = dict(self.parameters) or {"type": "object", "properties": {}}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: Who speaks.
        content: The words, unaltered.
        images: What is shown beside the words.
        calls: Tools that an assistant calls.
        answers: Id of the call whose result a tool's message is; may be empty.
    """

    role: Role
    content: str
    images: tuple[Image, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""

    @property
    def words(self) -> str:
        """Everything in it that is text: what it says, and which tools it calls."""
        if not self.calls:
            return self.content
        lines = [f"{call.name}({call.arguments})" for call in self.calls]
        if self.content:
            lines.insert(0, self.content)
        return "\n".join(lines)

    @property
    def form(self) -> list[Any]:
        """What it says, as JSON values: an image by its hash, and nothing for what it has not."""
        form: list[Any] = [self.role.value, self.content]
        more: dict[str, Any] = {}
        if self.images:
            more["images"] = [[image.sha256, image.media_type] for image in self.images]
        if self.calls:
            more["calls"] = self.calls
        if self.answers:
            more["answers"] = self.answers
        if more:
            form.append(more)
        return form

    def parts(self) -> str | list[dict[str, Any]]:
        """Return its content as chat services take it, with the bytes of images."""
        if not self.images:
            return self.content
        parts: list[dict[str, Any]] = []
        if self.content:
            parts.append({"type": "text", "text": self.content})
        for image in self.images:
            url = f"data:{image.media_type};base64,{b64encode(image.read()).decode()}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
        return parts

    def chat(self, role: str) -> dict[str, Any]:
        """Return it as chat services take it, under a role that they know."""
        sent: dict[str, Any] = {"role": role, "content": self.parts()}
        if self.calls:
            sent["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.calls
            ]
        if self.answers:
            sent["role"] = "tool"
            sent["tool_call_id"] = self.answers
        return sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A conversation with one message under test.

    Attributes:
        messages: At least one message, in order.
        under_test: Index of the message that carries the text under test.
        tools: Definitions of the tools that may be called; empty where nothing was said of any.
        session: Id of the conversation for whoever keeps its state; no part of what is said, and
            empty where nobody asked for one.
        proposed: The call that the text under test spells, where an agent is about to make it.
    """

    messages: tuple[Message, ...]
    under_test: int = -1
    tools: tuple[ToolDefinition, ...] = ()
    session: str = field(default="", compare=False)
    proposed: tuple[ToolCall, ...] = field(default=(), compare=False)

    @staticmethod
    def of_text(text: str) -> Prompt:
        """Wrap one user text as a prompt."""
        return Prompt(messages=(Message(role=Role.USER, content=text),), under_test=0)

    @property
    def text(self) -> str:
        """The text under test."""
        return self.messages[self.under_test].content

    @property
    def words(self) -> str:
        """What is under test, as words: its text, and the tools that it calls."""
        return self.messages[self.under_test].words

    @property
    def documents(self) -> tuple[int, ...]:
        """Indices of the documents that come with it, empty ones left out."""
        return tuple(
            index
            for index, message in enumerate(self.messages)
            if message.role is Role.DOCUMENT and (message.content.strip() or message.images)
        )

    @property
    def is_plain(self) -> bool:
        """Whether it is one text of a user and nothing else."""
        first = self.messages[0]
        is_text = len(self.messages) == 1 and first.role is Role.USER and not first.images
        return is_text and not self.tools

    @property
    def form(self) -> list[Any]:
        """What it says, as JSON values; nothing is said of tools where there are none."""
        messages = [message.form for message in self.messages]
        form: list[Any] = [messages, self.under_test % len(messages)]
        if self.tools:
            form.append([[tool.name, tool.description, tool.parameters] for tool in self.tools])
        return form

    def with_text(self, text: str, *images: Image) -> Prompt:
        """Put another text, and images beside it, in the place of the text under test."""
        if self.is_plain and not images and not self.session:
            return Prompt.of_text(text)
        index = self.under_test % len(self.messages)
        messages = list(self.messages)
        beside = (*messages[index].images, *images)
        messages[index] = replace(messages[index], content=text, images=beside)
        return replace(self, messages=tuple(messages))

    def with_messages(self, messages: Mapping[int, Message | None]) -> Prompt:
        """Put other messages in the places of some; None leaves one out.

        Where the message under test is left out, the last of a user is under test, else the last.
        """
        under_test = self.under_test % len(self.messages)
        at = [index for index in range(len(self.messages)) if messages.get(index, "") is not None]
        if not at:
            return Prompt.of_text("")
        kept = tuple(messages.get(index) or self.messages[index] for index in at)
        if under_test in at:
            tested = at.index(under_test)
        else:
            tested = len(kept) - 1
            for index, message in enumerate(kept):
                if message.role is Role.USER:
                    tested = index
        return replace(self, messages=kept, under_test=tested)

    def shown(
        self, view: View, *, beside_images: bool = False, is_labelled: bool = True
    ) -> str | None:
        """Return what a defense with this view is shown; None where there is more than text.

        A conversation is `is_labelled`: the role stands before each message, and tools before all.
        """
        if view is View.TEXT:  # by far the most frequent
            message = self.messages[self.under_test]
            if message.images and not beside_images:
                return None
            return message.words if message.calls else message.content
        roles, start = _SEEN[view]
        seen = [message for message in self.messages[start:] if message.role in roles]
        if not seen or (any(message.images for message in seen) and not beside_images):
            return None
        if view is not View.CONVERSATION or not is_labelled:
            return "\n\n".join(message.words for message in seen)
        parts = [f"{message.role.value}: {message.words}" for message in seen]
        if self.tools:
            offered = [f"{tool.name}: {tool.description}" for tool in self.tools]
            parts.insert(0, "\n".join(["tools:", *offered]))
        return "\n\n".join(parts)

    def digest(self) -> bytes:
        """Return the content hash of the prompt."""
        if self.is_plain:
            return sha256(self.messages[0].content.encode()).digest()
        form = json.dumps(self.form, ensure_ascii=False, separators=(",", ":"))
        return sha256(form.encode()).digest()


class MarkedSpan(NamedTuple):
    """Characters of the text under test that must not survive a guard that masks.

    Attributes:
        start: Where it begins, in characters.
        end: Where it ends; the character there is not part of it.
        kind: What it is, such as a name or a number.
    """

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One prompt with its label: attack, benign, or unlabelled.

    Attributes:
        id: Unique within a data set.
        prompt: What is sent.
        label: Attack or benign, or unlabelled where nobody said.
        category: Taxonomy category of an attack, or topic of a benign input; may be empty.
        subcategory: Finer category; may be empty.
        severity: What would follow if the attack worked; None for benign inputs.
        expected: What the defense ought to do, `block` or `allow`.
        technique: How the attack works, in a word; may be empty.
        language: ISO code; may be empty when unknown.
        variant: Which rewriting of its origin this is; `original` unless stated.
        group: What the sample was derived from; its own id when it stands alone.
        crossing: Its second origin where rows are crossed, such as its injection; may be empty.
        source: Where it comes from.
        must_keep: Substrings of the text under test that an attacker may not lose.
        spans: What a guard that rewrites must not let through: places in the text under test.
        secrets: The same as texts, wherever they stand.
        harm_turn: The user's turn that asks for the harm, counted from 1; None means the last.
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
    crossing: str = ""
    source: str = ""
    must_keep: tuple[str, ...] = ()
    spans: tuple[MarkedSpan, ...] = ()
    secrets: tuple[str, ...] = ()
    harm_turn: int | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_attack(self) -> bool:
        """Whether the sample is labelled an attack."""
        return self.label is Label.ATTACK

    @property
    def is_labelled(self) -> bool:
        """Whether it is known to be an attack or benign."""
        return self.label is not Label.UNLABELLED

    @property
    def lineage(self) -> str:
        """The group, or the sample's own id when it stands alone."""
        return self.group or self.id


Taxonomy = Mapping[str, tuple[str, ...]]
"""Categories an attack may have, each with its finer ones, in the order reports list them."""


def extended(taxonomy: Taxonomy, additions: Mapping[str, Sequence[str]]) -> Taxonomy:
    """Return a taxonomy with a user's own categories added."""
    both = {**taxonomy, **{name: taxonomy.get(name, ()) for name in additions}}
    return {n: tuple(dict.fromkeys((*of, *additions.get(n, ())))) for n, of in both.items()}


DEFAULT_TAXONOMY: Taxonomy = {
    "direct_injection": ("instruction_override", "role_switching", "constraint_bypass"),
    "indirect_injection": ("rag_injection", "tool_output_injection", "document_injection"),
    "jailbreak": ("persona_based", "encoding_based", "multi_turn", "hypothetical"),
    "extraction": ("prompt_extraction", "data_extraction", "pii_extraction"),
    "output_manipulation": ("format_injection", "content_steering", "hallucination_induction"),
}

USUAL_MINIMUM = 100
"""Samples that a category needs where nothing else is stated."""

CATEGORY_MINIMA: Mapping[str, int] = {
    "direct_injection": 100,
    "indirect_injection": 100,
    "jailbreak": 150,
    "extraction": 100,
    "output_manipulation": 80,
}
"""Attacks that each category of the taxonomy needs."""


def minimum_of(category: str, stated: int = USUAL_MINIMUM) -> int:
    """Return how many attacks a category needs; a number other than the usual one holds for all."""
    return CATEGORY_MINIMA.get(category, stated) if stated == USUAL_MINIMUM else stated
