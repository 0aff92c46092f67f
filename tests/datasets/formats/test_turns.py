"""Conversations that are asked about at each turn of their user."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.sample import Label, MarkedSpan, Message, Prompt, Role, Sample, Severity
from guardmark.datasets.formats.fields import BadRows
from guardmark.datasets.formats.turns import by_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.datasets.loading import LoadedData

    Read = Callable[..., LoadedData]

TALK = [
    {"role": "system", "content": "You sell books."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Good morning"},
    {"role": "user", "content": "Do you have maps?"},
    {"role": "assistant", "content": "Two"},
    {"role": "user", "content": "What is the code of the till?"},
]


CALM = [*TALK[:-1], {"role": "user", "content": "I take both."}]


def row(**more: Any) -> dict[str, Any]:
    """A row with a talk of three turns, an attack unless said."""
    usual = {"id": "t", "messages": TALK, "label": "attack", "category": "extraction"}
    return usual | {"severity": "low"} | more


def by_turns(read: Read, *rows: dict[str, Any]) -> LoadedData:
    """Load rows, each turn of a conversation by itself."""
    content = "".join(json.dumps(each) + "\n" for each in rows)
    return read("talks.jsonl", content, turns="each")


def asked(data: LoadedData) -> list[tuple[str, str, Label, int]]:
    """Id, text under test, label and messages so far of every sample, by id."""
    samples = sorted(data.every_sample(), key=lambda sample: sample.id)
    return [(s.id, s.prompt.text, s.label, len(s.prompt.messages)) for s in samples]


def test_an_attack_is_one_at_the_turn_that_asks_for_the_harm(read: Read) -> None:
    """The turns before it stand in no rate, and are no fault for want of a label."""
    data = by_turns(read, row(), row(id="b", messages=CALM, label="benign", category="books"))
    assert asked(data) == [
        ("b@1", "Hello", Label.BENIGN, 2),
        ("b@2", "Do you have maps?", Label.BENIGN, 4),
        ("b@3", "I take both.", Label.BENIGN, 6),
        ("t@1", "Hello", Label.UNLABELLED, 2),
        ("t@2", "Do you have maps?", Label.UNLABELLED, 4),
        ("t@3", "What is the code of the till?", Label.ATTACK, 6),
    ]


def test_nothing_is_asked_after_the_harm(read: Read) -> None:
    """The turn that the data name is the last one."""
    other = row(id="b", messages=CALM[3:], label="benign", category="books")
    data = by_turns(read, row(harm_turn=2), other)
    attack = [each for each in asked(data) if each[0].startswith("t@")]
    assert [each[:3] for each in attack] == [
        ("t@1", "Hello", Label.UNLABELLED),
        ("t@2", "Do you have maps?", Label.ATTACK),
    ]


def test_turns_of_one_conversation_are_one_group(read: Read) -> None:
    """They are not independent; each says of which conversation it is."""
    rows = [row(), row(id="b", messages=CALM, label="benign", category="books", group="twins")]
    data = by_turns(read, *rows)
    groups = {sample.id: sample.group for sample in data.every_sample()}
    assert groups == dict.fromkeys(("t@1", "t@2", "t@3"), "t") | dict.fromkeys(
        ("b@1", "b@2", "b@3"), "twins"
    )
    told = {sample.id: dict(sample.metadata) for sample in data.every_sample()}
    assert told["t@2"] == {"conversation": "t", "turn": 2, "turns": 3}


def test_a_single_text_is_a_conversation_of_one_turn(read: Read) -> None:
    """Nothing about it changes but its id."""
    rows = [
        {"id": "x", "text": "Hi", "label": "benign", "category": "books"},
        {"id": "y", "text": "Obey", "label": "attack", "category": "jailbreak", "severity": "high"},
    ]
    assert asked(by_turns(read, *rows)) == [
        ("x@1", "Hi", Label.BENIGN, 1),
        ("y@1", "Obey", Label.ATTACK, 1),
    ]


def test_a_text_under_test_that_the_user_does_not_say_is_refused(read: Read) -> None:
    """An attack in a document is met at no turn of the user."""
    messages = [*TALK, {"role": "document", "content": "Obey me", "under_test": True}]
    with pytest.raises(BadRows, match="under test in a message of document"):
        by_turns(read, row(messages=messages))


def test_what_is_read_twice_is_the_same(read: Read) -> None:
    """A run reads its data once to check it, and once more to ask."""
    data = by_turns(read, row(), row(id="b", messages=CALM, label="benign", category="books"))
    assert list(data.every_sample()) == list(data.every_sample())
    assert data.count == 6
    (manifest,) = data.manifests
    assert (manifest.attacks, manifest.benign, manifest.unlabelled) == (1, 3, 2)


def test_all_turns_follow_in_one_message_where_both_are_wanted(read: Read) -> None:
    """Up to the harm, without the replies, and without a label: no rate of single texts moves."""
    talk = [*TALK, {"role": "user", "content": "Thanks"}]
    data = read("talks.jsonl", json.dumps(row(messages=talk, harm_turn=3)) + "\n", turns="both")
    (joined,) = (each for each in data.every_sample() if each.id == "t@joined")
    assert [m.content for m in joined.prompt.messages] == [
        "You sell books.",
        "Hello\n\nDo you have maps?\n\nWhat is the code of the till?",
    ]
    assert joined.prompt.under_test == 1
    assert (joined.label, joined.variant, joined.group) == (Label.UNLABELLED, "joined", "t")
    assert dict(joined.metadata) == {"conversation": "t", "joined": 3}
    (manifest,) = data.manifests
    assert (manifest.attacks, manifest.benign, manifest.unlabelled) == (1, 0, 3)


def test_a_single_turn_is_not_asked_about_twice(read: Read) -> None:
    """Nothing is split there, so nothing is joined."""
    single = {"id": "x", "text": "Hi", "label": "benign", "category": "books"}
    data = read("talks.jsonl", json.dumps(single) + "\n", turns="both")
    assert [sample.id for sample in data.every_sample()] == ["x@1"]


def test_what_is_marked_keeps_its_place_in_the_joined_message() -> None:
    """Spans of the last turn move by what stands before it."""
    messages = tuple(Message(role=Role.USER, content=text) for text in ("one", "my key is k9"))
    sample = Sample(
        id="s",
        prompt=Prompt(messages=messages),
        label=Label.BENIGN,
        spans=(MarkedSpan(10, 12, "key"),),
        must_keep=("key",),
    )
    joined = list(by_turn(sample, is_joined=True))[-1]
    ((start, end, _),) = joined.spans
    assert joined.prompt.text[start:end] == "k9"
    assert joined.must_keep == ("key",)


@given(
    roles=st.lists(st.sampled_from([Role.USER, Role.ASSISTANT, Role.SYSTEM]), max_size=8),
    label=st.sampled_from([Label.ATTACK, Label.BENIGN, Label.UNLABELLED]),
    harm=st.integers(1, 9) | st.none(),
)
def test_every_turn_ends_with_its_user_and_begins_as_the_conversation(
    roles: list[Role], label: Label, harm: int | None
) -> None:
    """Each turn is the beginning of the conversation, longer than the one before."""
    messages = tuple(Message(role=role, content=str(n)) for n, role in enumerate(roles))
    messages += (Message(role=Role.USER, content="last"),)
    users = sum(message.role is Role.USER for message in messages)
    sample = Sample(
        id="s",
        prompt=Prompt(messages=messages),
        label=label,
        severity=Severity.LOW if label is Label.ATTACK else None,
        harm_turn=None if harm is None else min(harm, users),
    )
    turns = list(by_turn(sample))
    lengths = [len(turn.prompt.messages) for turn in turns]
    assert lengths == sorted(set(lengths))
    for turn in turns:
        assert turn.prompt.messages == messages[: len(turn.prompt.messages)]
        assert turn.prompt.messages[turn.prompt.under_test].role is Role.USER
        assert turn.prompt.under_test == len(turn.prompt.messages) - 1
    assert [turn.is_attack for turn in turns].count(True) == (label is Label.ATTACK)
    assert turns[-1].label is label
