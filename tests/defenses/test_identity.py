"""What can be known of a function or an object: other settings are another defense."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from guardmark.defenses.identity import identity_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Words:
    """A defense with settings."""

    version = "1.4"

    def __init__(self, words: list[str], *, api_key: str = "", model: object = None) -> None:
        self.words = words
        self.api_key = api_key
        self.model = model
        self.pattern = re.compile("|".join(words))
        self._calls = 0

    def evaluate(self, text: str) -> bool:
        """Block a text with one of the words."""
        self._calls += 1
        return bool(self.pattern.search(text))


@dataclass(slots=True)
class Limit:
    """A defense as a data class with slots."""

    most: int
    config: object = None

    def __call__(self, text: str) -> bool:
        """Block long texts."""
        return len(text) > self.most


class Scored:
    """A defense that compares a score of its own with a limit of its own."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def evaluate(self, text: str) -> bool:
        """Block a text of many capitals."""
        return sum(letter.isupper() for letter in text) / len(text) > self.threshold


def longer_than(most: int) -> Callable[[str], bool]:
    """Return a function that closes over a limit."""
    return lambda text: len(text) > most


def blocks(text: str, word: str = "canary", *, twice: bool = False) -> bool:
    """Block a text with a word."""
    return text.count(word) > twice


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Words(["a"]), Words(["b"])),
        (Words(["a"]).evaluate, Words(["b"]).evaluate),
        (Limit(3), Limit(4)),
        (Scored(0.5), Scored(0.9)),
        (longer_than(3), longer_than(4)),
        (partial(blocks, word="a"), partial(blocks, word="b")),
        (Limit(3, config={"layers": ["x"]}), Limit(3, config={"layers": ["y"]})),
    ],
)
def test_other_settings_are_another_defense(one: object, other: object) -> None:
    """Attributes, closed-over values, arguments and configuration count; the same ones agree."""
    assert identity_of(one).fingerprint != identity_of(other).fingerprint
    assert identity_of(one).fingerprint == identity_of(one).fingerprint


def test_equal_settings_are_one_defense_also_after_calls() -> None:
    """Private state, such as a count of calls, is no setting."""
    one, other = Words(["a"]), Words(["a"])
    one.evaluate("text")
    assert identity_of(one).fingerprint == identity_of(other).fingerprint


def test_version_config_and_attributes_are_told_and_keys_are_not() -> None:
    """What a report shows; a key is neither shown nor hashed."""
    one = identity_of(Words(["a"], api_key="not-a-real-key-1"))
    assert one.version == "1.4"
    assert one.settings["attributes"] == {
        "words": ["a"],
        "api_key": "(hidden)",
        "model": None,
        "pattern": "/a/ flags 32",
    }
    assert one.fingerprint == identity_of(Words(["a"], api_key="not-a-real-key-2")).fingerprint
    given = identity_of(Words(["a"]), version="2", config={"token": "t", "depth": 3})
    assert given.version == "2"
    assert given.config == {"token": "(hidden)", "depth": 3}


def test_what_cannot_be_known_is_named() -> None:
    """A model in memory says nothing about itself, and nobody reads what is private."""
    one = identity_of(Words(["a"], model=object()))
    assert one.unknown == ("model (object)", "private: _calls")
    assert one.settings["not_known"] == list(one.unknown)


def test_of_many_private_attributes_a_few_are_named() -> None:
    """An object of a large library has dozens."""
    many = SimpleNamespace(**{f"_p{number}": number for number in range(9)})
    assert identity_of(many).unknown == ("private: _p0, _p1, _p2, _p3, _p4, 4 more",)


def test_long_values_are_shown_by_their_hash() -> None:
    """Ten thousand words count, and do not fill the report."""
    many = [f"word{index}" for index in range(10_000)]
    one, other = identity_of(Words(many)), identity_of(Words(many[:-1]))
    assert "SHA-256" in str(one.settings["attributes"])
    assert len(str(one.settings)) < 5_000 + len(str(one.attributes["pattern"]))
    assert one.fingerprint != other.fingerprint


def test_a_function_without_source_is_known_by_its_code() -> None:
    """What was typed without a file has no address in its fingerprint."""
    prints = []
    for number in (1, 1, 2):
        space: dict[str, object] = {}
        exec(f"def f(text):\n    return len(text) > {number}\n", space)  # noqa: S102 - has no source
        prints.append(identity_of(space["f"]).fingerprint)
    assert prints[0] == prints[1] != prints[2]
