"""F4, F5, F6: letters exchanged for others that look alike, or under marks."""

from __future__ import annotations

from functools import partial
from string import ascii_lowercase, ascii_uppercase, digits
from typing import TYPE_CHECKING

from guardmark.attacks.contract import LegitUse, Operator, Parameter, Slot, Tier, Use
from guardmark.canon.steps import CYRILLIC, GREEK, tables_digest

if TYPE_CHECKING:
    from collections.abc import Mapping


_ASCII = range(128)


def exchange_table(images: Mapping[str, str]) -> dict[int, int]:
    """Return a table for `str.translate` that also names every ASCII character it leaves alone.

    For a character without an entry `translate` raises and catches an error of its own, which
    costs more than the exchange of ten others; and a code point is written faster than a text.
    """
    return dict(zip(_ASCII, _ASCII, strict=True)) | {
        ord(char): ord(image) for char, image in images.items()
    }


def blend(text: str, written: str, draws: bytes, bound: int) -> str:
    """Take each character from one of two texts, as draws say."""
    if not (text.isascii() and written.isascii() and len(text) == len(written) == len(draws)):
        return "".join(
            [
                new if draw < bound else old
                for old, new, draw in zip(text, written, draws, strict=True)
            ]
        )
    # ASCII texts are numbers of one byte a character: old ^ (old ^ new) is new, and a mask of
    # ones where draws hit lets (old ^ new) through there only.
    mask = int.from_bytes(draws.translate(b"\xff" * bound + bytes(256 - bound)), "little")
    old, new = (int.from_bytes(side.encode("ascii"), "little") for side in (text, written))
    return (old ^ (old ^ new) & mask).to_bytes(len(text), "little").decode("ascii")


_TABLES = {"cyrillic": CYRILLIC, "greek": GREEK, "mixed": GREEK | CYRILLIC}
_TO_IMAGES = {name: exchange_table(table) for name, table in _TABLES.items()}
_FROM_IMAGES = {
    name: exchange_table({image: letter for letter, image in table.items()})
    for name, table in _TABLES.items()
}
_IMAGES = frozenset(CYRILLIC.values()) | frozenset(GREEK.values())


def _write_images(text: str, use: Use) -> str:
    written = text.translate(_TO_IMAGES[use.word("script")])
    if use.number("p") >= 1:
        return written
    return blend(text, written, use.draws(len(text)), use.threshold("p"))


HOMOGLYPHS = (
    Operator(
        name="homoglyph",
        family="F4",
        slot=Slot.SURFACE,
        tier=Tier.V0,
        legit_use=LegitUse.NICHE,
        seeded=True,
        parameters=(
            Parameter(name="script", values=("cyrillic", "greek", "mixed")),
            Parameter(name="p", values=(0.3, 0.1, 1.0)),
        ),
        summary="Latin letters as Cyrillic or Greek ones that look the same.",
        rewrite=_write_images,
        restore=lambda text, use: text.translate(_FROM_IMAGES[use.word("script")]),
        domain=lambda text: text.isascii() or _IMAGES.isdisjoint(text),
        domain_words="text without a character of the image set (V1 otherwise)",
        table_digest=tables_digest,
    ),
)
"""The operator of F4."""


_RAISED = {
    **dict(zip("abcdefghijklmnoprstuvwxyz", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ", strict=True)),
    **dict(zip("ABDEGHIJKLMNOPRTUVW", "ᴬᴮᴰᴱᴳᴴᴵᴶᴷᴸᴹᴺᴼᴾᴿᵀᵁⱽᵂ", strict=True)),
    **dict(zip(digits, "⁰¹²³⁴⁵⁶⁷⁸⁹", strict=True)),
}
_SEPARATOR = "\u200b"  # two regional indicators side by side would be drawn as a flag


def _block(upper: int, lower: int, numeral: int | None = None) -> dict[str, str]:
    """Map letters (and digits) to blocks that hold them in order."""
    table = {c: chr(upper + i) for i, c in enumerate(ascii_uppercase)}
    table |= {c: chr(lower + i) for i, c in enumerate(ascii_lowercase)}
    if numeral is not None:
        table |= {c: chr(numeral + i) for i, c in enumerate(digits)}
    return table


_FORMS: tuple[tuple[str, str, dict[str, str]], ...] = (
    (
        "fullwidth",
        "Full-width forms, as in East Asian typesetting.",
        {chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)},
    ),
    ("math_bold", "Mathematical bold letters and digits.", _block(0x1D400, 0x1D41A, 0x1D7CE)),
    (
        "math_italic",
        "Mathematical italic letters.",
        _block(0x1D434, 0x1D44E) | {"h": "\u210e"},  # the one italic that has another place
    ),
    ("math_script", "Mathematical bold script letters.", _block(0x1D4D0, 0x1D4EA)),
    (
        "math_monospace",
        "Mathematical monospace letters and digits.",
        _block(0x1D670, 0x1D68A, 0x1D7F6),
    ),
    (
        "circled",
        "Circled letters and digits.",
        _block(0x24B6, 0x24D0)
        | {c: chr(0x2460 + i) for i, c in enumerate("123456789")}
        | {"0": "\u24ea"},
    ),
    ("superscript", "Raised letters and digits.", _RAISED),
)


def _form(name: str, summary: str, table: dict[str, str]) -> Operator:
    forward = exchange_table(table)
    back = exchange_table({image: letter for letter, image in table.items()})
    images = frozenset(table.values())
    return Operator(
        name=name,
        family="F5",
        slot=Slot.SURFACE,
        tier=Tier.V0,
        legit_use=LegitUse.NICHE,
        summary=summary,
        rewrite=lambda text, _: text.translate(forward),
        restore=lambda text, _: text.translate(back),
        domain=lambda text: text.isascii() or images.isdisjoint(text),
        domain_words="text without these forms (V1 otherwise)",
    )


_INDICATORS = str.maketrans(
    {
        letter: chr(0x1F1E6 + i) + _SEPARATOR
        for case in (ascii_lowercase, ascii_uppercase)
        for i, letter in enumerate(case)
    }
)


COMPATIBILITY_FORMS = (
    *(_form(*form) for form in _FORMS),
    Operator(
        name="regional_indicator",
        family="F5",
        slot=Slot.SURFACE,
        tier=Tier.V1,
        legit_use=LegitUse.NICHE,
        summary="Letters as regional indicator symbols; case is lost.",
        rewrite=lambda text, _: text.translate(_INDICATORS),
    ),
)
"""The operators of F5."""


_ACCENTS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308"
_MARKS = _ACCENTS + "\u030a\u030b\u030c\u0311\u0316\u0317\u0323\u0324\u0325\u032d\u0330\u0331"


def _decorate(text: str, use: Use, marks: str, count: int) -> str:
    """Set `count` drawn marks on every letter."""
    draws = use.draws(count * len(text))
    size = len(marks)
    if count == 1:
        return "".join(
            [
                char + marks[draw % size] if char.isalpha() else char
                for char, draw in zip(text, draws, strict=True)
            ]
        )
    return "".join(
        [
            char + "".join([marks[d % size] for d in draws[count * i : count * (i + 1)]])
            if char.isalpha()
            else char
            for i, char in enumerate(text)
        ]
    )


def _drop(text: str, use: Use) -> str:  # noqa: ARG001 - one signature for every operator
    for mark in _MARKS:  # twenty passes in C are quicker than one table look-up a character
        text = text.replace(mark, "")
    return text


_marks = partial(
    Operator,
    family="F6",
    slot=Slot.SURFACE,
    tier=Tier.V0,
    legit_use=LegitUse.NONE,
    seeded=True,
    restore=_drop,
    domain=lambda text: text.isascii() or not any(mark in text for mark in _MARKS),
    domain_words="text without these combining marks (V1 otherwise)",
)
COMBINING_MARKS = (
    _marks(
        name="accent",
        summary="One accent on every letter.",
        rewrite=lambda text, use: _decorate(text, use, _ACCENTS, 1),
    ),
    _marks(
        name="zalgo",
        parameters=(Parameter(name="marks", values=(1, 3)),),
        summary="A pile of marks on every letter.",
        rewrite=lambda text, use: _decorate(text, use, _MARKS, use.count("marks")),
    ),
)
"""The operators of F6."""
