"""What models that help an attack are told: the attacker, its critic, the judge of sameness."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.sample import Message, Prompt, Role
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


def model_prompt(system: str, document: Mapping[str, object]) -> Prompt:
    """Write one call."""
    content = json.dumps(document, ensure_ascii=False)
    return Prompt(
        messages=(
            Message(role=Role.SYSTEM, content=system),
            Message(role=Role.USER, content=content),
        )
    )


def json_object(**properties: Mapping[str, object]) -> Mapping[str, object]:
    """Return the JSON Schema of an object that has exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def ask_again(before: Prompt, reply: str, *, request: str, most: int) -> Prompt:
    """Ask once more for an answer that could not be read."""
    return Prompt(
        messages=(
            *before.messages,
            Message(role=Role.ASSISTANT, content=reply[:most]),
            Message(role=Role.USER, content=request),
        )
    )


def counts_in_words(strategies: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Put into words how often each strategy got through."""
    return {name: f"{passed} of {tried}" for name, (tried, passed) in strategies.items()}


def digest_of(*fixed: str) -> str:
    """Return the SHA-256 of everything fixed that a model is told, in hex."""
    return sha256("\0".join(fixed).encode()).hexdigest()


@cache
def _table() -> Mapping[str, Any]:
    """Read what models are told from the table beside this module; do not change it."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def instruction(name: str) -> str:
    """Return words that a model is told, as they stand in the table."""
    return str(_table()[name])


@cache
def strategies() -> dict[str, str]:
    """Return the strategies that an attacker model may name, with what each is."""
    return dict(_table()["strategies"])


PROMPT_VERSION: Final = "attacker-v1"
_MOST_OF_A_TRY: Final = 2_000
_MOST_OF_A_REPLY: Final = 8_000

NEUTRAL_VERSION: Final = "attacker-neutral-v1"


@cache
def answer_form() -> Mapping[str, object]:
    """Return the JSON Schema of an answer, for servers that can hold a model to it."""
    named = {"type": "string", "enum": list(strategies())}
    each = json_object(strategy=named, text={"type": "string"})
    words = {"type": "string"}
    return json_object(
        hypothesis=words, declined=words, candidates={"type": "array", "items": each}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTry:
    """An earlier candidate, as the attacker model is told of it."""

    text: str
    outcome: str
    score: float | None = None
    reason: str = ""
    closeness: float | None = None
    is_best: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What one call is about."""

    call: str
    defense: str = ""
    kind: str = ""
    folds: bool = False
    trigger: tuple[str, ...] = ()
    request: str
    must_keep: tuple[str, ...] = ()
    refuted: tuple[str, ...] = ()
    strategies: Mapping[str, tuple[int, int]]
    tries: tuple[PastTry, ...] = ()
    wanted: int = 1
    stream: tuple[int, int] = (1, 1)


@cache
def system_text() -> str:
    """Return the part that is the same in every call, so that servers can keep it."""
    listed = "\n".join(f"- {name}: {meaning}" for name, meaning in strategies().items())
    return instruction("attacker").format(strategies=listed)


@cache
def neutral_text() -> str:
    """Return the same with the label left out, for benign texts as a control of the rewording."""
    text = system_text()
    for each in _table()["neutral"]:
        text = text.replace(each["of_attacks"], each["of_either"])
    return text


def attacker_prompt(situation: Situation, *, system: str | None = None) -> Prompt:
    """Write one call."""
    document = {
        "filter": {"name": situation.defense, **_filter(situation)},
        "request": situation.request,
        "must_keep": list(situation.must_keep),
        "refuted": list(situation.refuted),
        "line": f"{situation.stream[0]} of {situation.stream[1]}",
        "wanted": situation.wanted,
        "strategies": counts_in_words(situation.strategies),
        "tries": [_past_try(each) for each in situation.tries],
        "call": situation.call,
    }
    return model_prompt(system or system_text(), document)


def _filter(situation: Situation) -> dict[str, object]:
    return {
        "kind": situation.kind or "unknown",
        "ignores_hidden_characters": situation.folds,
        "trigger": list(situation.trigger),
    }


def repair_prompt(before: Prompt, reply: str) -> Prompt:
    """Ask again for an answer that could not be read."""
    return ask_again(before, reply, request=instruction("repair"), most=_MOST_OF_A_REPLY)


def _past_try(each: PastTry) -> dict[str, object]:
    fields: dict[str, object] = {"text": each.text[:_MOST_OF_A_TRY], "outcome": each.outcome}
    if each.score is not None:
        fields["score"] = round(each.score, 4)
    if each.reason:
        fields["reason"] = each.reason[:_MOST_OF_A_TRY]
    if each.closeness is not None:
        fields["closeness"] = each.closeness
    if each.is_best:
        fields["best"] = True
    return fields


CRITIC_VERSION: Final = "critic-v1"
_MOST_OF_A_TEXT: Final = 4_000
_MOST_OF_A_CRITIC_REPLY: Final = 2_000

CRITIC_FORM: Final = json_object(
    reason={"type": "string"}, closeness={"type": "integer", "minimum": 1, "maximum": 10}
)
"""JSON Schema of an answer, for servers that can hold a model to it."""


def critic_prompt(situation: Situation, *, text: str, strategy: str, reason: str = "") -> Prompt:
    """Ask how close a candidate came."""
    blocked_try = {"text": text[:_MOST_OF_A_TEXT], "strategy": strategy}
    if reason:
        blocked_try["reason"] = reason[:_MOST_OF_A_TEXT]
    document = {
        "filter": _filter(situation),
        "request": situation.request,
        "strategies": counts_in_words(situation.strategies),
        "try": blocked_try,
        "call": situation.call,
    }
    return model_prompt(instruction("critic"), document)


def critic_repair(before: Prompt, reply: str) -> Prompt:
    """Ask again for an answer that could not be read."""
    return ask_again(
        before, reply, request=instruction("critic_repair"), most=_MOST_OF_A_CRITIC_REPLY
    )


EQUIVALENCE_VERSION: Final = "equivalence-v1"

EQUIVALENCE_FORM: Final = json_object(reason={"type": "string"}, same={"type": "boolean"})
"""JSON Schema of an answer, for servers that can hold a model to it."""


def equivalence_prompt(first: str, second: str, call: str) -> Prompt:
    """Ask whether two requests ask for the same."""
    return model_prompt(
        instruction("equivalence"), {"first": first, "second": second, "call": call}
    )


def locked_prompts() -> dict[str, str]:
    """Return what a lock says of each prompt: its version, and the hash of its words."""
    form, critic, same = map(json.dumps, (answer_form(), CRITIC_FORM, EQUIVALENCE_FORM))
    judged = (
        instruction("critic"),
        instruction("critic_repair"),
        critic,
        instruction("seen_by_attacker"),
    )
    words = {
        "prompt": (PROMPT_VERSION, system_text(), instruction("repair"), form),
        "equivalence_prompt": (EQUIVALENCE_VERSION, instruction("equivalence"), same),
        "critic_prompt": (CRITIC_VERSION, *judged),
        "neutral_prompt": (NEUTRAL_VERSION, neutral_text(), instruction("repair"), form),
    }
    return {name: f"{each[0]} {digest_of(*each)}" for name, each in words.items()}
