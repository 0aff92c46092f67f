"""Profiles of guard models: how each is asked, in which words it answers, and their score."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from itertools import product
from math import exp, isnan
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from guardmark.config.settings import Settings
from guardmark.core.errors import UnknownName
from guardmark.core.sample import Message, Role, View
from guardmark.core.values import dataclass
from guardmark.defenses.profile import Profile, load_profile, profile_names
from guardmark.parsing.guard import MALFORMED, READERS
from guardmark.parsing.guard_fields import LabelWords, read_fields, read_final, read_tag, read_word

if TYPE_CHECKING:
    from guardmark.core.outcome import TokenChoice
    from guardmark.core.sample import Prompt
    from guardmark.parsing.guard import GuardReading

ChatMessages = list[dict[str, Any]]
ScoreMethod = Literal["two_token_softmax", "ibm_sum", "none"]
Stage = Literal["prompt", "response"]
Label = Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]


class ProfileLabels(Settings):
    """The words that decide, as the tokens of the answer show them."""

    risky: list[Label] = Field(min_length=1)
    harmless: list[Label] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> ProfileLabels:
        for risky, harmless in product(self.risky, self.harmless):
            if risky.startswith(harmless) or harmless.startswith(risky):
                raise ValueError("risky and harmless are not distinct")
        return self


class ProfileField(Settings):
    """The field of an answer that decides at a stage, and the one that names categories."""

    decides: str = Field(min_length=1)
    categories: str = ""


class RecordedAnswer(Settings):
    """A native answer, and what the reader must make of it."""

    output: str
    stage: Stage = "prompt"
    outcome: Literal["allow", "block", "malformed"]
    reason: str = ""
    confidence: str = ""
    categories: list[str] = Field(default_factory=list)


class GuardProfile(Profile):
    """How one kind of guard model is asked and read.

    `template`: of the model's own tokenizer, given by a file, or none but the instruction.
    """

    models: list[str]
    transports: list[Literal["server", "local"]] = Field(default=["server", "local"], min_length=1)
    template: Literal["own", "given", "none"] = "own"
    view: View
    conversation: Literal["messages", "text"] = "messages"
    content: Literal["text", "parts"] = "text"
    images: bool = False  # whether it is shown the images of a prompt, too
    instruction: str = ""
    policy: Literal["", "system", "last"] = ""  # where the user's policy stands, if it needs one
    options: dict[str, Any] = Field(default_factory=dict)
    risk_option: list[str] = Field(default_factory=list)
    risks: list[str] = Field(default_factory=list)  # those it knows, the usual one first
    max_tokens: int = Field(ge=1)
    reader: str
    fields: dict[Stage, ProfileField] = Field(default_factory=dict)
    score: ScoreMethod
    labels: ProfileLabels
    examples: list[RecordedAnswer] = Field(min_length=2)

    @field_validator("reader")
    @classmethod
    def _known_reader(cls, value: str) -> str:
        known = [*READERS, *_OTHER_READERS]
        if value not in known:
            raise ValueError(str(UnknownName("reader", value, known)))
        return value

    @model_validator(mode="after")
    def _fields_are_named(self) -> GuardProfile:
        if (self.reader in {"fields", "final"}) != bool(self.fields):
            raise ValueError("fields go with the readers fields and final")
        return self

    def read(self, text: str, stage: Stage = "prompt") -> GuardReading:
        """Read an answer by the contract of the profile."""
        if self.reader in READERS:
            return READERS[self.reader](text)
        words = LabelWords(self.labels.risky, self.labels.harmless)
        if self.reader == "tag":
            return read_tag(text, words)
        if self.reader == "word":
            return read_word(text, words)
        field = self.fields.get(stage)
        if field is None:
            return MALFORMED
        if self.reader == "final":
            return read_final(text, words, field=field.decides)
        return read_fields(text, words, field=field.decides, categories=field.categories)

    def before_label(self, stage: Stage) -> str:
        """Return the pattern of what stands before the label; empty where it stands first."""
        if self.reader == "tag":
            return "<score>"
        field = self.fields.get(stage)
        if field is None:
            return ""
        return rf'(?:^|[{{,\n])\s*"?{re.escape(field.decides)}"?\s*:'

    def messages(self, prompt: Prompt, view: View, *, policy: str = "") -> ChatMessages | None:
        """Write the conversation the guard is sent."""
        shown = prompt.shown(view, beside_images=self.images)
        if shown is None:
            return None
        conversation = []
        instruction = policy or self.instruction
        if instruction and self.policy != "last":
            conversation.append(Message(role=Role.SYSTEM, content=instruction))
        if view is View.RESPONSE:
            questions = [message for message in prompt.messages[:-1] if message.role is Role.USER]
            conversation += questions[-1:]
            conversation.append(Message(role=Role.ASSISTANT, content=shown))
        elif view is View.CONVERSATION and self.conversation == "messages":
            conversation += _turns(prompt)
        elif view is View.TEXT:
            images = prompt.messages[prompt.under_test].images
            conversation.append(Message(role=Role.USER, content=shown, images=images))
        else:
            conversation.append(Message(role=Role.USER, content=shown))
        if self.policy == "last":
            conversation.append(Message(role=Role.USER, content=policy))
        chat: ChatMessages = []
        for message in conversation:
            chat.append({"role": message.role.value, "content": self._content(message)})
        return chat

    def _content(self, message: Message) -> object:
        """Return what a message holds: a text, or parts where the guard wants these always."""
        content = message.parts()
        if isinstance(content, str) and self.content == "parts":
            return [{"type": "text", "text": content}]
        return content

    def request_options(self, risk: str) -> dict[str, object]:
        """Return the fields of a request."""
        asked: dict[str, Any] = {"max_tokens": self.max_tokens, **deepcopy(self.options)}
        if self.risk_option and risk:
            table = asked
            for key in self.risk_option[:-1]:
                table = table.setdefault(key, {})
            table[self.risk_option[-1]] = risk
        return asked


_OTHER_READERS = ("fields", "final", "tag", "word")


def stage_of(prompt: Prompt, view: View) -> Stage:
    """Return what is judged: what a user wrote, or what an assistant answered."""
    if view is View.RESPONSE:
        return "response"
    if view is View.CONVERSATION and prompt.messages[-1].role is Role.ASSISTANT:
        return "response"
    return "prompt"


def _turns(prompt: Prompt) -> list[Message]:
    """A conversation in turns of user and assistant, as templates of guards want them."""
    turns: list[Message] = []
    for message in prompt.messages:
        role = Role.USER
        if message.role is Role.ASSISTANT:
            role = Role.ASSISTANT
        words, images = message.words, message.images
        if turns and turns[-1].role is role:
            words, images = f"{turns[-1].content}\n\n{words}", turns.pop().images + images
        turns.append(Message(role=role, content=words, images=images))
    return turns


@cache
def guard_profile(name: str) -> GuardProfile:
    """Return a profile by name."""
    return load_profile("guard-model", name, GuardProfile)


def takes_images(settings: Mapping[str, object]) -> bool:
    """Tell from the settings of a defense whether it is shown images."""
    name = settings.get("profile")
    if name in profile_names("guard-model"):
        return guard_profile(str(name)).images
    return "'content'}" in str(settings.get("body"))


Words = str | Sequence[str]

_IBM_START = 1e-50  # the published notebooks start both sums here, so that no logarithm fails


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScore:
    """A score from token probabilities."""

    score: float
    label_mass: float | None
    is_bound: bool = False


def two_token_softmax(
    choices: Sequence[TokenChoice], *, risky: Words, harmless: Words, after: str = ""
) -> TokenScore | None:
    """Score the first token with a letter or digit, behind the last match of `after`."""
    at = _decision(choices, after)
    if at is None:
        return None
    top = _probabilities(at)
    words = _listed(risky), _listed(harmless)
    label_masses = _label_mass(top, *words), _label_mass(top, *reversed(words))
    if label_masses[0] is None and label_masses[1] is None:
        return None
    risky_mass, harmless_mass = label_masses
    observed = (risky_mass or 0.0) + (harmless_mass or 0.0)
    masses = [mass for _, mass in top]
    at_most = min(*masses, max(0.0, 1 - sum(masses)))  # of a label that is not listed
    if risky_mass is None:
        risky_mass = at_most
    if harmless_mass is None:
        harmless_mass = at_most
    return TokenScore(
        score=risky_mass / (risky_mass + harmless_mass),
        label_mass=min(1.0, observed),
        is_bound=None in label_masses,
    )


def _listed(words: Words) -> Sequence[str]:
    if isinstance(words, str):
        return [words]
    return words


def _decision(choices: Sequence[TokenChoice], after: str) -> TokenChoice | None:
    """Return the token that decides: the first word, or the first that goes past a match."""
    texts = [_shown(choice.token) for choice in choices]
    start = 0
    if after:
        matches = list(re.finditer(after, "".join(texts), re.IGNORECASE))
        if not matches:
            return None
        start = matches[-1].end()
    begin = 0
    for choice, text in zip(choices, texts, strict=True):
        if any(map(str.isalnum, text[max(0, start - begin) :])):
            return choice
        begin += len(text)
    return None


def _shown(token: str) -> str:
    # Some servers show a tokenizer's own marks for a leading blank or line break.
    return token.translate({0x120: " ", 0x2581: " ", 0x10A: "\n"})


def _probabilities(at: TokenChoice) -> list[tuple[str, float]]:
    """Return tokens with probabilities; servers round above 1 and send -9999 for never."""
    probabilities = []
    for token, value in at.alternatives:
        if not isnan(value):
            probabilities.append((token, exp(min(0.0, max(-700.0, value)))))
    return probabilities


def _label_mass(
    top: Sequence[tuple[str, float]], labels: Sequence[str], others: Sequence[str]
) -> float | None:
    """Return the probability of the labels, or None when none of them is shown."""
    masses = []
    for label in labels:
        of_label = [mass for token, mass in top if _bare(token) == label]
        if not of_label:
            rest = [other for other in (*labels, *others) if other != label]
            of_label = [mass for token, mass in top if _is_first_piece(_bare(token), label, rest)]
        masses += of_label
    if not masses:
        return None
    return sum(masses)


def _bare(token: str) -> str:
    return _shown(token).strip(" \t\r\n*\"'`").lower()


def _is_first_piece(token: str, label: str, others: Sequence[str]) -> bool:
    shared = any(other.startswith(token) for other in others)
    return len(token) > 1 and label.startswith(token) and not shared


def ibm_sum(choices: Sequence[TokenChoice], *, risky: Words, harmless: Words) -> TokenScore | None:
    """Score as IBM's notebooks do, by the mass of each label over all positions."""
    risky_words, harmless_words = set(_listed(risky)), set(_listed(harmless))
    risky_sum = harmless_sum = _IBM_START
    for choice in choices:
        for token, mass in _probabilities(choice):
            word = token.strip().lower()
            if word in risky_words:
                risky_sum += mass
            if word in harmless_words:
                harmless_sum += mass
    if max(risky_sum, harmless_sum) <= _IBM_START:
        return None
    return TokenScore(score=risky_sum / (risky_sum + harmless_sum), label_mass=None)
