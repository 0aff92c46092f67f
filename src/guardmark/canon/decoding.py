"""Undo encodings, hidden carriers and direction tricks where they stand in a text.

Each function leaves alone whatever it cannot decode to printable text: a repair that damages
ordinary input would be paid for in false alarms.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_RLO, _PDF = "\u202e", "\u202c"
_PAIR = re.compile(f"{_RLO}(.)(.){_PDF}", re.DOTALL)
_WRAP = re.compile(f"{_RLO}([^{_RLO}{_PDF}]*)(?:{_PDF}|$)")
_TAGS = re.compile("[\U000e0020-\U000e007e]+")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]+")
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_QUOTED = re.compile(r"(?:=[0-9A-F]{2}){4,}")
_ENTITIES = re.compile(r"&#(\d{1,7});")
_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
_HEX = re.compile(r"\b(?:[0-9a-fA-F]{2}){8,}\b")
_BINARY = re.compile(r"\b[01]{8}(?: [01]{8}){3,}\b")
_DECIMAL = re.compile(r"\b\d{2,7}(?: \d{2,7}){5,}\b")
_BASE32 = re.compile(r"\b[A-Z2-7]{16,}={0,6}")
_BASE64 = re.compile(r"(?<![\w+/])[A-Za-z0-9+/]{16,}={0,2}")
_LARGEST = 0x10FFFF


def undo_direction(text: str) -> str:
    """Put text behind direction overrides back into reading order."""
    return _WRAP.sub(lambda found: found[1][::-1], _PAIR.sub(r"\2\1", text))


def reveal_tags(text: str) -> str:
    """Write tag characters as the ASCII they mirror."""
    return _TAGS.sub(lambda run: "".join(chr(ord(c) - 0xE0000) for c in run[0]), text)


def reveal_selectors(text: str) -> str:
    """Write the bytes that a run of variation selectors spells as text."""
    return _SELECTORS.sub(lambda run: _text_or(bytes(map(_selector_byte, run[0])), run[0]), text)


def _selector_byte(char: str) -> int:
    code = ord(char)
    return code - 0xFE00 if code < 0xE0000 else code - 0xE0100 + 16


def decode_encodings(text: str) -> str:
    """Decode what is recognisably encoded, in place.

    Knows percent, quoted-printable, numeric character references, backslash-u escapes, binary,
    decimal code points, hex, base32 and base64. Runs shorter than a word are left alone, and so
    is everything that does not decode to printable UTF-8.
    """
    for pattern, decode in _DECODERS:
        text = pattern.sub(lambda run, decode=decode: _decoded(run[0], decode), text)  # type: ignore[misc]
    return text


def _decoded(run: str, decode: Callable[[str], bytes]) -> str:
    try:
        return _text_or(decode(run), run)
    except (ValueError, binascii.Error, OverflowError):
        return run


def _text_or(data: bytes, otherwise: str) -> str:
    """Return the bytes as text when they are printable UTF-8."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return otherwise
    return text if text and all(c.isprintable() or c in "\n\t\r" for c in text) else otherwise


def _from_entity(run: str) -> bytes:
    code = int(run[2:-1])
    if code > _LARGEST:
        raise ValueError("no such character")
    return chr(code).encode()


def _from_escapes(run: str) -> bytes:
    return bytes.fromhex(run.replace("\\u", "")).decode("utf-16-be").encode()


def _from_binary(run: str) -> bytes:
    return bytes(int(word, 2) for word in run.split(" "))


def _from_decimal(run: str) -> bytes:
    return "".join(chr(int(word)) for word in run.split(" ")).encode()


_DECODERS: tuple[tuple[re.Pattern[str], Callable[[str], bytes]], ...] = (
    (_PERCENT, lambda run: bytes.fromhex(run.replace("%", ""))),
    (_QUOTED, lambda run: bytes.fromhex(run.replace("=", ""))),
    (_ENTITIES, _from_entity),
    (_ESCAPES, _from_escapes),
    (_BINARY, _from_binary),
    (_DECIMAL, _from_decimal),
    (_HEX, bytes.fromhex),
    (_BASE32, base64.b32decode),
    (_BASE64, lambda run: base64.b64decode(run, validate=True)),
)
