"""The layout of JSON files: told in full, small things on one line."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guardmark.reports.render.json.encoder import lay_out

if TYPE_CHECKING:
    from guardmark.reports.render.json.encoder import Tree

TREES: st.SearchStrategy[Tree] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=40)
@given(TREES)
def test_what_is_read_is_what_was_written(value: Tree) -> None:
    """Whatever nests in what."""
    assert json.loads(lay_out(value)) == value


@settings(max_examples=40)
@given(TREES)
def test_words_and_order_are_those_of_the_standard_library(value: Tree) -> None:
    """Only the space between them differs, so that no number is rounded and no key moves."""
    plain = json.dumps(value, ensure_ascii=False)
    assert json.dumps(json.loads(lay_out(value)), ensure_ascii=False) == plain


def test_small_things_take_one_line() -> None:
    """A person finds an estimate where its name stands."""
    value: Tree = {"rates": {"a": {"value": 0.5, "trials": 2}, "b": [1, 2]}, "none": {}, "no": []}
    assert lay_out(value).splitlines() == [
        "{",
        '  "rates": {',
        '    "a": {"value": 0.5, "trials": 2},',
        '    "b": [1, 2]',
        "  },",
        '  "none": {},',
        '  "no": []',
        "}",
    ]


def test_a_wide_object_is_broken_up() -> None:
    """A line that no window holds helps nobody."""
    value: Tree = {"first": "x" * 300, "second": "y" * 300}
    assert lay_out(value).count("\n") == 4


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_json_cannot_tell_is_refused(number: float) -> None:
    """No NaN in any file."""
    with pytest.raises(ValueError, match="JSON"):
        lay_out({"rates": [{"value": number}]})
