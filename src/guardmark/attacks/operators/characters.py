"""F4, F5, F6: letters exchanged for others that look alike, or under marks."""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase, digits
from typing import TYPE_CHECKING

from guardmark.attacks.tables import OperatorRules
from guardmark.canon.steps import CYRILLIC, GREEK, tables_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.attacks.contract import Use


def exchange_table(images: Mapping[str, str]) -> dict[int, int]:
    """Return a table for `str.translate` that also names every ASCII character it leaves alone.

    For a character without an entry `translate` raises and catches an error of its own, which
    costs more than the exchange of ten others; and a code point is written faster than a text.
    """
    table = {code: code for code in range(128)}
    for char, image in images.items():
        table[ord(char)] = ord(image)
    return table


def _inverse_table(images: Mapping[str, str]) -> dict[int, int]:
    """Return the table for `str.translate` that leads from images back to characters."""
    return exchange_table({image: char for char, image in images.items()})


def blend(text: str, written: str, draws: bytes, bound: int) -> str:
    """Take each character from one of two texts, as draws say."""
    if not (text.isascii() and written.isascii() and len(text) == len(written) == len(draws)):
        blended = list(text)
        for index, (image, draw) in enumerate(zip(written, draws, strict=True)):
            if draw < bound:
                blended[index] = image
        return "".join(blended)
    # ASCII texts are numbers of one byte a character: old ^ (old ^ new) is new, and a mask of
    # ones where draws hit lets (old ^ new) through there only.
    mask = int.from_bytes(draws.translate(b"\xff" * bound + bytes(256 - bound)), "little")
    old = int.from_bytes(text.encode("ascii"), "little")
    new = int.from_bytes(written.encode("ascii"), "little")
    return (old ^ (old ^ new) & mask).to_bytes(len(text), "little").decode("ascii")


_TABLES = {"cyrillic": CYRILLIC, "greek": GREEK, "mixed": GREEK | CYRILLIC}
_TO_IMAGES = {name: exchange_table(table) for name, table in _TABLES.items()}
_FROM_IMAGES = {name: _inverse_table(table) for name, table in _TABLES.items()}
_IMAGES = frozenset(CYRILLIC.values()) | frozenset(GREEK.values())


def _write_images(text: str, use: Use) -> str:
    written = text.translate(_TO_IMAGES[use.word("script")])
    if use.number("p") >= 1:
        return written
    return blend(text, written, use.draws(len(text)), use.threshold("p"))


_RAISED = {
    **dict(zip("abcdefghijklmnoprstuvwxyz", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ", strict=True)),
    **dict(zip("ABDEGHIJKLMNOPRTUVW", "ᴬᴮᴰᴱᴳᴴᴵᴶᴷᴸᴹᴺᴼᴾᴿᵀᵁⱽᵂ", strict=True)),
    **dict(zip(digits, "⁰¹²³⁴⁵⁶⁷⁸⁹", strict=True)),
}
_SEPARATOR = "\u200b"  # two regional indicators side by side would be drawn as a flag


def _block(upper: int, lower: int, numeral: int | None = None) -> dict[str, str]:
    """Map letters (and digits) to blocks that hold them in order."""
    table = _run(ascii_uppercase, upper) | _run(ascii_lowercase, lower)
    if numeral is not None:
        table |= _run(digits, numeral)
    return table


def _run(characters: str, first: int) -> dict[str, str]:
    """Map characters to code points in a row."""
    return {char: chr(code) for code, char in enumerate(characters, start=first)}


_FORMS = {
    "fullwidth": {chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)},
    "math_bold": _block(0x1D400, 0x1D41A, 0x1D7CE),
    # The one italic that has another place.
    "math_italic": _block(0x1D434, 0x1D44E) | {"h": "\u210e"},
    "math_script": _block(0x1D4D0, 0x1D4EA),
    "math_monospace": _block(0x1D670, 0x1D68A, 0x1D7F6),
    "circled": _block(0x24B6, 0x24D0) | _run("123456789", 0x2460) | {"0": "\u24ea"},
    "superscript": _RAISED,
}


def _form(table: dict[str, str]) -> OperatorRules:
    forward = exchange_table(table)
    back = _inverse_table(table)
    images = frozenset(table.values())
    return OperatorRules(
        rewrite=lambda text, _: text.translate(forward),
        restore=lambda text, _: text.translate(back),
        domain=lambda text: text.isascii() or images.isdisjoint(text),
    )


def _indicators() -> dict[int, str]:
    """Map letters of both cases to regional indicators."""
    table = {}
    for index, (small, capital) in enumerate(zip(ascii_lowercase, ascii_uppercase, strict=True)):
        table[small] = table[capital] = chr(0x1F1E6 + index) + _SEPARATOR
    return str.maketrans(table)


_INDICATORS = _indicators()


_ACCENTS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308"
_MARKS = _ACCENTS + "\u030a\u030b\u030c\u0311\u0316\u0317\u0323\u0324\u0325\u032d\u0330\u0331"


def _decorate(text: str, use: Use, marks: str, count: int) -> str:
    """Set `count` drawn marks on every letter."""
    draws = use.draws(count * len(text))
    size = len(marks)
    decorated = list(text)
    for index, char in enumerate(text):
        if char.isalpha():
            for draw in draws[count * index : count * (index + 1)]:
                decorated[index] += marks[draw % size]
    return "".join(decorated)


def _drop(text: str, use: Use) -> str:  # noqa: ARG001 - one signature for every operator
    for mark in _MARKS:  # twenty passes in C are quicker than one table look-up a character
        text = text.replace(mark, "")
    return text


def _marked(marks: str, count: str = "") -> OperatorRules:
    """Build what sets marks, as many as a setting says or one."""

    def rewrite(text: str, use: Use) -> str:
        number = 1
        if count:
            number = use.count(count)
        return _decorate(text, use, marks, number)

    return OperatorRules(
        rewrite=rewrite,
        restore=_drop,
        domain=lambda text: text.isascii() or not any(mark in text for mark in _MARKS),
    )


RULES = {
    "homoglyph": OperatorRules(
        rewrite=_write_images,
        restore=lambda text, use: text.translate(_FROM_IMAGES[use.word("script")]),
        domain=lambda text: text.isascii() or _IMAGES.isdisjoint(text),
        table_digest=tables_digest,
    ),
    **{name: _form(table) for name, table in _FORMS.items()},
    "regional_indicator": OperatorRules(rewrite=lambda text, _: text.translate(_INDICATORS)),
    "accent": _marked(_ACCENTS),
    "zalgo": _marked(_MARKS, "marks"),
}
"""What the operators of F4, F5 and F6 do."""
