"""Plain paths are walked by hand; they must find what the library would find."""

from __future__ import annotations

import jsonpath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.errors import ConfigError
from guardmark.defenses.http.values import compile_path

_KEYS = st.sampled_from(["a", "b", "flagged", "results"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)
_STEPS = st.lists(
    _KEYS.map(lambda key: f".{key}")
    | _KEYS.map(lambda key: f"['{key}']")
    | st.integers(0, 3).map(lambda index: f"[{index}]"),
    max_size=4,
)


@given(steps=_STEPS, value=_VALUES)
def test_a_plain_path_finds_what_the_library_finds(steps: list[str], value: object) -> None:
    """The fast way is a shortcut, not another meaning."""
    text = "$" + "".join(steps)
    path = compile_path(text, where="x")
    assert path.is_singular
    if isinstance(value, dict | list):
        assert path.find(value) == jsonpath.findall(text, value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$.results[*].flagged", [True, False]),
        ("$..score", [0.5]),
        ("$.results[?@.name == 'b'].flagged", [False]),
        ("$.missing[*]", []),
    ],
)
def test_other_paths_go_to_the_library(text: str, found: list[object]) -> None:
    """Wildcards, descent and filters lead to any number of values."""
    value = {
        "results": [{"name": "a", "flagged": True}, {"name": "b", "flagged": False, "score": 0.5}]
    }
    path = compile_path(text, where="x")
    assert path.find(value) == found
    assert not path.is_singular


@pytest.mark.parametrize(
    "text",
    ["", "flagged", "$.", "$[", "$.a[?", "a.b", "$[?@.a =~ /(/]", "$[1e999]", "$[?@.a > 1e999]"],
)
def test_what_is_no_path_is_named_with_its_place(text: str) -> None:
    """The setting stands in the message."""
    with pytest.raises(ConfigError, match=r"defenses\.vendor\.blocked"):
        compile_path(text, where="defenses.vendor.blocked")
