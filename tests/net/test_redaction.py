"""No secret leaves in any of its shapes."""

from __future__ import annotations

import json
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from guardmark.net.redaction import REDACTED, Redactor

secrets = st.text(
    st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=30
).filter(lambda s: s not in REDACTED)


@given(secret=secrets, before=st.text(max_size=10), after=st.text(max_size=10))
def test_a_secret_disappears_in_every_shape(secret: str, before: str, after: str) -> None:
    """As it is, in JSON, in a URL; in text and in bytes."""
    redactor = Redactor()
    redactor.hide(secret)
    for shape in (secret, json.dumps(secret)[1:-1], quote(secret, safe="")):
        said = redactor.text(f"{before} {shape} {after}")
        assert shape not in said.replace(REDACTED, "")
        assert shape.encode() not in redactor.data(shape.encode()).replace(REDACTED.encode(), b"")


def test_a_headers_scheme_is_no_part_of_the_secret() -> None:
    """A service echoes the bare key, not the header."""
    redactor = Redactor()
    redactor.hide("Bearer sk-abcdef")
    assert redactor.text("key sk-abcdef is bad") == f"key {REDACTED} is bad"


def test_a_secret_within_another_does_not_tear_it_apart() -> None:
    """The longer one goes first."""
    redactor = Redactor()
    redactor.hide("abcd")
    redactor.hide("xxabcdyy")
    assert redactor.text("xxabcdyy") == REDACTED


def test_what_is_no_secret_stays() -> None:
    """An empty variable must not put a mark between all letters."""
    redactor = Redactor()
    redactor.hide("")
    redactor.hide("ab")
    assert redactor.text("abc") == "abc"
