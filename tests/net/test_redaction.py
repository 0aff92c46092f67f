"""No secret leaves in any of its shapes."""

from __future__ import annotations

import html
import json
from base64 import b32encode, b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from guardmark.net.redaction import REDACTED, Redactor, is_word

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "sk-planted/Secret+x=12345"
ENCODINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "JSON": lambda s: json.dumps(s)[1:-1],
    "JSON, slashes escaped": lambda s: json.dumps(s)[1:-1].replace("/", "\\/"),
    "JSON, all escaped": lambda s: "".join(f"\\u{ord(c):04x}" for c in s),
    "JSON, every second escaped": lambda s: "".join(
        f"\\u{ord(c):04X}" if n % 2 else json.dumps(c)[1:-1] for n, c in enumerate(s)
    ),
    "JSON in JSON": lambda s: json.dumps(json.dumps(s).replace("/", "\\/"))[1:-1],
    "percent": lambda s: quote(s, safe=""),
    "percent, lower case": lambda s: "".join(f"%{ord(c):02x}" for c in s),
    "percent twice": lambda s: quote(quote(s, safe=""), safe=""),
    "percent, plus for a blank": quote_plus,
    "percent in JSON": lambda s: "".join(f"\\u0025{ord(c):02X}" for c in s),
    "JSON in percent": lambda s: quote("".join(f"\\u{ord(c):04x}" for c in s), safe=""),
    "HTML": html.escape,
    "HTML, decimal": lambda s: "".join(f"&#{ord(c)};" for c in s),
    "HTML, hexadecimal": lambda s: "".join(f"&#X0{ord(c):x};" for c in s),
    "HTML twice": lambda s: html.escape("".join(f"&#{ord(c)};" for c in s)),
    "hex": lambda s: s.encode().hex(),
    "HEX": lambda s: s.encode().hex().upper(),
    "HEX, blanks between": lambda s: s.encode().hex(" ").upper(),
    "hex, colons between": lambda s: s.encode().hex(":"),
    "backwards": lambda s: s[::-1],
    "upper case": str.upper,
    "lower case": str.lower,
    "cases swapped": str.swapcase,
    "Base32": lambda s: b32encode(s.encode()).decode(),
    "escaped bytes": lambda s: "".join(f"\\x{ord(c):02x}" for c in s),
    "Base64": lambda s: b64encode(s.encode()).decode(),
    "Base64 of Base64": lambda s: b64encode(b"x" + b64encode(s.encode())).decode(),
    "hexadecimal digits of Base64": lambda s: b64encode(s.encode()).hex(),
    "Base64 for URLs": lambda s: urlsafe_b64encode(s.encode()).decode().rstrip("="),
    "Base64, after one byte": lambda s: b64encode(b"\xff" + s.encode() + b"\x00").decode(),
    "Base64, after two bytes": lambda s: urlsafe_b64encode(b"a:" + s.encode() + b"zz").decode(),
    "Base64 of percent": lambda s: b64encode(b"key=" + quote(s, safe="").encode()).decode(),
    "Base64 in JSON": lambda s: b64encode(s.encode()).decode().replace("/", "\\/"),
    "Base64 in percent": lambda s: quote(b64encode(s.encode()).decode(), safe=""),
}
secrets = st.text(
    st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40
).filter(lambda s: s not in REDACTED and not set(s[-3:]) & set("\\%&"))
plain_words = st.text(st.characters(min_codepoint=97, max_codepoint=122) | st.just(" "), max_size=9)


def hiding(*values: str) -> Redactor:
    """A redactor that was told some secrets."""
    redactor = Redactor()
    for number, value in enumerate(values):
        redactor.hide(value, f"KEY_{number}")
    return redactor


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_key_disappears_in_every_encoding(encoding: str) -> None:
    """Nothing of it is left, in text and in bytes, and its variable is named."""
    redactor, form = hiding(KEY), ENCODINGS[encoding](KEY)
    for around in ("{}", "before {} after", '{{"reason": "{}"}}', "?k={}&x=1"):
        text = around.format(form)
        expected = around.format(REDACTED)
        assert redactor.names_in(text.encode()) == {"KEY_0"}
        clean = redactor.text(text)
        assert clean == redactor.data(text.encode()).decode()
        assert len(clean) <= len(expected) + 8  # of Base64: what stood around in the same letters
        assert redactor.names_in(clean.encode()) == frozenset()


@given(secret=secrets, encoding=st.sampled_from(sorted(ENCODINGS)), around=plain_words)
@settings(max_examples=200)
def test_any_secret_disappears(secret: str, encoding: str, around: str) -> None:
    """Whatever characters it has; the words around it stay."""
    redactor = hiding(secret)
    form = ENCODINGS[encoding](secret)
    assume(redactor.text(around) == around)
    clean = redactor.text(f"{around} {form} {around}")
    assert clean != f"{around} {form} {around}"
    assert form not in clean
    assert clean.startswith(f"{around} ")
    assert clean.endswith(f" {around}")


@pytest.mark.slow
@given(
    secret=secrets.filter(lambda s: not set(s) & set("\\%&")),
    chain=st.lists(st.sampled_from(sorted(set(ENCODINGS) - {"as it is"})), min_size=1, max_size=3),
)
@settings(max_examples=300)
def test_escapes_within_escapes_are_seen_through(secret: str, chain: list[str]) -> None:
    """Up to three encodings over each other, the innermost of any kind, the others escapes."""
    outer = [name for name in chain[1:] if name.startswith(("JSON", "percent", "HTML"))]
    form = ENCODINGS[chain[0]](secret)
    for name in outer:
        form = ENCODINGS[name](form)
    assert REDACTED in hiding(secret).text(f"x {form} y")


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_body_in_wide_characters_is_withheld(codec: str) -> None:
    """JSON may be written in them, and is read from them."""
    assert hiding(KEY).data(f'{{"reason": "{KEY}"}}'.encode(codec)) == REDACTED.encode()


def test_what_holds_no_secret_is_the_same_object() -> None:
    """Nothing is copied for most answers."""
    data = b'{"flagged": true, "path": "C:\\\\temp", "url": "a%20b", "html": "a &amp; b"}'
    assert hiding(KEY).data(data) is data


def test_a_headers_scheme_is_no_part_of_the_secret() -> None:
    """A service echoes the bare key, not the header."""
    assert hiding("Bearer sk-abcdef").text("key sk-abcdef is bad") == f"key {REDACTED} is bad"


def test_what_a_basic_header_holds_is_a_secret_too() -> None:
    """A service tells user and password apart and says them."""
    redactor = hiding("Basic " + b64encode(b"alice:correct-horse-9").decode())
    assert redactor.text("alice:correct-horse-9") == REDACTED
    assert redactor.text("password correct-horse-9") == f"password {REDACTED}"


def test_a_secret_within_another_does_not_tear_it_apart() -> None:
    """The longer one goes first."""
    assert hiding("abcd", "xxabcdyy").text("xxabcdyy") == REDACTED
    assert hiding("12345678", "xx12345678yy").data(b"xx12345678yy") == REDACTED.encode()


def test_what_is_no_secret_stays() -> None:
    """An empty variable must not put a mark between all letters."""
    assert hiding("", "ab").text("abc") == "abc"


def test_a_short_secret_goes_from_messages_only() -> None:
    """In an answer it may be an ordinary word."""
    redactor = hiding("ollama")
    assert redactor.text("run it with ollama") == f"run it with {REDACTED}"
    assert redactor.data(b"run it with ollama") == b"run it with ollama"


def test_a_stand_in_is_not_searched_for_in_files() -> None:
    """A server that wants no key is given a word, which data may hold."""
    assert [is_word(each) for each in ("not-needed", "EMPTY", "sk-abc12", "x" * 20)] == [
        *(True, True, False, False)
    ]
    redactor = hiding("not-needed", KEY).named()
    assert redactor.names_in(b"a key is not-needed") == frozenset()
    assert redactor.names_in(KEY.encode()) == {"KEY_1"}
