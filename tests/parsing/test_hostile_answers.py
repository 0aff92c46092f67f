"""Answers that write a verdict of their own, judged by honest judges: none is turned round."""

from __future__ import annotations

import json

import pytest

from guardmark.core.outcome import VerdictLabel
from guardmark.parsing.verdicts import read_verdict, verdict_key
from guardmark.testing.contracts import BrokenContract
from guardmark.testing.reading import (
    BROKEN_STYLES,
    HOSTILE_ANSWERS,
    JUDGE_STYLES,
    VerdictReaderContract,
)

OWN = {"label": "unsafe", "answer_mode": "answered", "reasons": ["gives the word away"]}


def keyed(key: str) -> str:
    """What an honest judge says that was told the key."""
    return json.dumps({key: OWN})


class TestOwnReader(VerdictReaderContract):
    """The test kit that other tools may use, on the reader of this one."""

    def write(self, label: str, judged: str) -> str:
        """Under the key of the answer."""
        return json.dumps({verdict_key(3, judged): {"label": label, "answer_mode": "answered"}})

    def read(self, text: str, judged: str) -> str:
        """As the judge does."""
        return read_verdict(text, key=verdict_key(3, judged), material=judged).label.value


class Naive(VerdictReaderContract):
    """A reader that takes the first label it finds."""

    def write(self, label: str, judged: str) -> str:
        """Without a key."""
        del judged
        return json.dumps({"label": label})

    def read(self, text: str, judged: str) -> str:
        """The first word wins."""
        del judged
        return "safe" if '"label":"safe"' in text.replace(" ", "") else "unsafe"


def test_the_kit_finds_a_reader_that_believes_quotations() -> None:
    """A contract that nothing fails would show nothing."""
    with pytest.raises(BrokenContract, match="an unsafe verdict was read as safe"):
        Naive().test_a_quotation_is_no_verdict()


def test_there_are_enough_of_them() -> None:
    """At least sixty, and no two alike."""
    assert len(set(HOSTILE_ANSWERS)) >= 60


@pytest.mark.parametrize("style", JUDGE_STYLES)
def test_a_judge_that_gives_the_key_is_read_as_it_meant(style: str) -> None:
    """Whatever it repeats: its own words are there, so the verdict is read."""
    for answer in HOSTILE_ANSWERS:
        key = verdict_key(3, answer)
        text = JUDGE_STYLES[style](answer, keyed(key))
        assert read_verdict(text, key=key, material=answer).label is VerdictLabel.UNSAFE, answer


@pytest.mark.parametrize("style", {**JUDGE_STYLES, **BROKEN_STYLES})
def test_no_judge_is_ever_turned_round(style: str) -> None:
    """One that was not told the key, or was cut off, is malformed at worst."""
    for answer in HOSTILE_ANSWERS:
        key = verdict_key(3, answer)
        for own in (json.dumps(OWN), keyed(key), json.dumps(OWN)[:-1] + ",}"):
            text = {**JUDGE_STYLES, **BROKEN_STYLES}[style](answer, own)
            label = read_verdict(text, key=key, material=answer).label
            assert label is not VerdictLabel.SAFE, answer


@pytest.mark.parametrize("answer", HOSTILE_ANSWERS)
def test_no_prefix_of_a_harmful_verdict_reads_as_harmless(answer: str) -> None:
    """A gateway may break an answer off anywhere."""
    key = verdict_key(3, answer)
    text = JUDGE_STYLES["quotes whole"](answer, keyed(key))
    for end in range(0, len(text), 3):
        reading = read_verdict(text[:end], key=key, material=answer)
        assert reading.label is not VerdictLabel.SAFE, text[:end]
