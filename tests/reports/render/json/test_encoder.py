"""One encoder: every value of `analysis` becomes JSON by what its class declares."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.estimate import Estimate
from guardmark.reports.render.json.documents import DOCUMENTS, document_schema
from guardmark.reports.render.json.encoder import encode, lay_out
from guardmark.stats.rates.proportion import wilson

SCRIPT = Path(__file__).resolve().parents[4] / "scripts" / "write_schemas.py"


class Colour(StrEnum):
    """A colour."""

    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """Something within.

    Attributes:
        one: The first, which has
            a second line.
        two: The second, or None.
    """

    one: int
    two: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """Everything that a class may declare."""

    DERIVED: ClassVar = ("double",)

    name: str = field(metadata={"json": "label"})
    colour: Colour
    secret: object = field(default=None, metadata={"json": False})
    beside: Inner = field(metadata={"json": "*"})
    taken: Inner | None = field(metadata={"json": {"half": "two"}})
    table: tuple[tuple[int, Inner], ...]
    listed: tuple[float, ...]
    by_pair: Mapping[tuple[str, str], int]
    # A number that stands
    # for itself.
    number: int = 4  # At the end, too.

    @property
    def double(self) -> int:
        """Twice the number."""
        return 2 * self.number


def told(value: Outer) -> str:
    """Say something of it."""
    return f"a {value.colour.value} one"


SENTENCES = {"Outer": {"text": told}}


def outer(**changes: Any) -> Outer:
    """A value with everything filled in."""
    values: dict[str, Any] = {
        "name": "x",
        "colour": Colour.RED,
        "secret": object(),
        "beside": Inner(one=1),
        "taken": Inner(one=2, two=0.5),
        "table": ((5, Inner(one=3)),),
        "listed": (1.0, 2.0),
        "by_pair": {("a", "b"): 1},
        "number": np.int64(4),
    }
    return Outer(**values | changes)


def test_a_class_says_what_travels_under_which_key() -> None:
    """Fields, properties, what is left out, renamed, taken from within, and words beside."""
    assert encode(outer(), SENTENCES) == {
        "double": 8,
        "label": "x",
        "colour": "red",
        "one": 1,
        "two": None,
        "half": 0.5,
        "table": {"5": {"one": 3, "two": None}},
        "listed": [1.0, 2.0],
        "by_pair": {"a:b": 1},
        "number": 4,
        "text": "a red one",
    }


def test_the_schema_is_made_of_the_same_declarations() -> None:
    """What is encoded keeps to it; what is missing, strange or of another type does not."""
    spec = importlib.util.spec_from_file_location("write_schemas", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script
    spec.loader.exec_module(script)
    schema = script.schema_of(Outer, title="t", description="d", sentences=SENTENCES)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for value in (outer(), outer(taken=None, table=(), listed=())):
        validator.validate(encode(value, SENTENCES))
    good: Any = encode(outer(), SENTENCES)
    for broken in (
        {key: value for key, value in good.items() if key != "half"},
        good | {"stranger": 1},
        good | {"label": 1},
        good | {"label": None},
        good | {"colour": "blue"},
        good | {"table": [[5, 1]]},
    ):
        assert not validator.is_valid(broken)
    assert schema["properties"]["one"]["description"] == "The first, which has a second line."
    assert schema["properties"]["double"] == {"type": "integer", "description": "Twice the number."}
    assert schema["properties"]["text"]["description"] == "Say something of it."
    number = schema["properties"]["number"]["description"]
    assert number == "A number that stands for itself. At the end, too."


@pytest.mark.parametrize("value", [math.nan, math.inf, np.float64("nan")])
def test_a_number_that_is_not_finite_is_a_mistake(value: float) -> None:
    """It is never written as NaN, and never as null."""
    with pytest.raises(ValueError, match="JSON"):
        lay_out(encode({"rate": value}))


def test_what_has_no_form_is_refused() -> None:
    """Not written as the text that Python shows of it."""
    with pytest.raises(TypeError, match="object"):
        encode({"a": object()})


@given(st.integers(0, 200), st.integers(0, 200))
def test_every_estimate_lies_within_its_interval(hits: int, misses: int) -> None:
    """As encoded: undefined without trials, else low <= value <= high."""
    found: Any = encode(wilson(hits, hits + misses))
    assert found.keys() >= {"value", "successes", "trials", "low", "high", "method"}
    if hits + misses:
        assert found["low"] <= found["value"] <= found["high"]
    else:
        assert (found["value"], found["low"], found["high"]) == (None, None, None)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_document_has_a_schema(name: str) -> None:
    """Drawn from the types alone, it names every estimate by one definition."""
    schema = document_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema
    if "Estimate" in schema["$defs"]:
        keys = encode(Estimate(successes=1, trials=2, low=0, high=1, confidence=0.95, method="m"))
        assert isinstance(keys, dict)
        assert schema["$defs"]["Estimate"]["required"] == list(keys)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_field_of_a_schema_is_described(name: str) -> None:
    """By its class, or by the class of what it holds."""
    schema = document_schema(name)
    bare = [
        f"{kind}.{key}"
        for kind, definition in ({"document": schema} | schema["$defs"]).items()
        for key, entry in definition.get("properties", {}).items()
        if not entry.get("description")
    ]
    assert bare == []
