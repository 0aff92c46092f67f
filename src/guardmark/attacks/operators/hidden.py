"""F3, F10: characters that show nothing, between letters or as the carrier of the text."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from guardmark.attacks.tables import OperatorRules

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.attacks.contract import Use

_INVISIBLE = "\u200b\u200c\u200d\u2060\u00ad\u034f"


def _char(use: Use) -> str:
    return chr(int(use.word("char"), 16))


_WORD = re.compile(r"([^\W_]{2,})")


@cache
def _stretch(every: int) -> re.Pattern[str]:
    """Return what finds so many letters of a word that goes on behind them."""
    return re.compile(rf"([^\W_]{{{every}}})(?=[^\W_])")


def _insert(text: str, use: Use) -> str:
    char = _char(use)
    every = use.count("every")
    if every == 1:
        pieces = _WORD.split(text)
        pieces[1::2] = map(char.join, pieces[1::2])
    else:
        pieces = _stretch(every).split(text)
        pieces[1::2] = [stretch + char for stretch in pieces[1::2]]
    return "".join(pieces)


def _holds_none(text: str) -> bool:
    return text.isascii() or set(_INVISIBLE).isdisjoint(text)


_COVERS = {"greeting": "Hello! \U0001f600", "emoji": "\U0001f600", "none": ""}
_TAGS = {code: 0xE0000 + code for code in range(0x20, 0x7F)}
_UNTAGS = {tag: code for code, tag in _TAGS.items()}
_SELECTORS = tuple(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
"""The variation selector that stands for each byte."""
_UNSELECT = {selector: byte for byte, selector in enumerate(_SELECTORS)}
_BITS = str.maketrans("01", "\u2062\u2064")
_OCTETS = tuple(format(byte, "08b").translate(_BITS) for byte in range(256))


def _cover(use: Use) -> str:
    return _COVERS[use.word("cover")]


def _behind_cover(variant: str, use: Use) -> str:
    cover = _cover(use)
    if not variant.startswith(cover):
        raise ValueError("the cover is missing")
    return variant[len(cover) :]


def _tag(text: str, use: Use) -> str:
    hidden = text.translate(_TAGS)
    if hidden == text:
        return text
    return _cover(use) + hidden


def _unselect(variant: str, use: Use) -> str:
    try:
        data = bytes(map(_UNSELECT.__getitem__, _behind_cover(variant, use)))
    except KeyError as missing:
        raise ValueError(f"{missing} is not a variation selector") from None
    return data.decode()


def _unbits(variant: str, use: Use) -> str:
    bits = _behind_cover(variant, use).replace("\u2062", "0").replace("\u2064", "1")
    if not bits:
        return ""
    return int(bits, 2).to_bytes(len(bits) // 8, "big").decode()


def _behind(
    write: Callable[[str, Use], str],
    restore: Callable[[str, Use], str],
    domain: Callable[[str], bool] | None = None,
) -> OperatorRules:
    """Build a carrier that stands behind a cover."""
    return OperatorRules(
        rewrite=write, restore=restore, domain=domain, wrap=lambda text, use: _cover(use) + text
    )


RULES = {
    "invisible": OperatorRules(
        rewrite=_insert, restore=lambda text, use: text.replace(_char(use), ""), domain=_holds_none
    ),
    "tag_characters": _behind(
        _tag,
        lambda variant, use: _behind_cover(variant, use).translate(_UNTAGS),
        lambda text: text.isascii() and text.isprintable(),
    ),
    "variation_selectors": _behind(
        lambda text, use: _cover(use) + "".join(map(_SELECTORS.__getitem__, text.encode())),
        _unselect,
    ),
    "invisible_bits": _behind(
        lambda text, use: _cover(use) + "".join(map(_OCTETS.__getitem__, text.encode())), _unbits
    ),
}
"""What the operators of F3 and F10 do."""
