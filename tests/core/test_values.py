"""The other values of the vocabulary: estimates, outcomes, records, protocols."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from guardmark.core import estimate, manifest, outcome, protocols, record, sample
from guardmark.core.embedding import fault_of
from guardmark.core.estimate import Estimate
from guardmark.core.outcome import ALLOWED, BLOCKED, Decision, Outcome
from guardmark.core.record import (
    FIRST_LAYER,
    Record,
    RecordKey,
    Stage,
)
from guardmark.core.sample import Prompt, View

VALUES = [
    each
    for module in (estimate, manifest, outcome, record, sample)
    for _, each in inspect.getmembers(module, inspect.isclass)
    if dataclasses.is_dataclass(each) and each.__module__ == module.__name__
]


def test_an_estimate_without_trials_is_undefined_not_zero() -> None:
    """An empty category must never read as a perfect defense."""
    empty = Estimate(successes=0, trials=0, low=None, high=None, confidence=0.95, method="wilson")
    true_zero = dataclasses.replace(empty, trials=10)
    assert empty.value is None
    assert true_zero.value == 0.0


@pytest.mark.parametrize("value", VALUES, ids=lambda v: v.__name__)
def test_every_value_is_frozen_slotted_and_named(value: type) -> None:
    """Values travel between floors: nobody may change them on the way or mix up positions."""
    parameters = value.__dataclass_params__  # type: ignore[attr-defined]  # a dataclass
    assert parameters.frozen
    assert hasattr(value, "__slots__")
    assert all(field.kw_only for field in dataclasses.fields(value))


@pytest.mark.parametrize("value", VALUES, ids=lambda v: v.__name__)
def test_every_field_is_described(value: type) -> None:
    """A reader of a record should not need the code that wrote it."""
    if value.__name__ in {"Category", "ChatAnswer", "EmbeddingAnswer", "TokenChoice"}:
        return  # no record holds them
    text = inspect.getdoc(value) or ""
    assert all(f"{field.name}:" in text for field in dataclasses.fields(value))


def test_the_two_plain_decisions() -> None:
    """No score, no latency, nothing behind them."""
    assert Decision(outcome=Outcome.ALLOW) == ALLOWED
    assert Decision(outcome=Outcome.BLOCK) == BLOCKED
    assert ALLOWED.score is None


def test_a_record_is_of_the_run_unless_told() -> None:
    """First repeat, stage of the defense, layer of the run."""
    key = RecordKey(defense="d", sample=3)
    assert (key.repeat, key.stage, key.layer) == (0, Stage.DEFENSE, FIRST_LAYER)
    assert Record(key=key, outcome="allow").latency_ns is None


class Careful:
    """A defense as anybody may write it."""

    name = "careful"
    view = View.TEXT

    async def decide(self, prompt: Prompt) -> Decision:
        """Block everything."""
        return BLOCKED if prompt.text else ALLOWED


def test_a_class_needs_no_base_to_be_a_defense() -> None:
    """What counts is what it can do."""
    assert isinstance(Careful(), protocols.Defense)
    assert not isinstance(Careful(), protocols.BatchDefense)
    assert not isinstance(Careful(), protocols.Judge)
    assert not isinstance(object(), protocols.Defense)


@pytest.mark.parametrize(
    ("vectors", "fault"),
    [
        ([(1.0, 0.0), (0.5, 0.5)], ""),
        ([(1.0, 0.0), (1.0,)], "differ in their dimensions (1 and 2)"),
        ([(1.0, float("nan"))], "not a finite number"),
        ([(1.0, 0.0), (0.0, 0.0)], "empty or all zeros"),
        ([()], "empty or all zeros"),
    ],
)
def test_vectors_that_cannot_be_compared_say_why(
    vectors: list[tuple[float, ...]], fault: str
) -> None:
    """A cosine needs the same dimensions, finite numbers, and a length."""
    found = fault_of(vectors)
    assert fault in found
    assert bool(found) == bool(fault)
