"""F5: the same letters in forms that Unicode keeps for compatibility."""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase, digits

from guardmark.attacks.contract import LegitUse, Operator, Slot, Tier, Use
from guardmark.attacks.operators.exchange import exchange_table

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


_FORMS: tuple[tuple[str, str, dict[str, str], LegitUse], ...] = (
    (
        "fullwidth",
        "Full-width forms, as in East Asian typesetting.",
        {chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)},
        LegitUse.NICHE,
    ),
    (
        "math_bold",
        "Mathematical bold letters and digits.",
        _block(0x1D400, 0x1D41A, 0x1D7CE),
        LegitUse.NICHE,
    ),
    (
        "math_italic",
        "Mathematical italic letters.",
        _block(0x1D434, 0x1D44E) | {"h": "\u210e"},  # the one italic that has another place
        LegitUse.NICHE,
    ),
    (
        "math_script",
        "Mathematical bold script letters.",
        _block(0x1D4D0, 0x1D4EA),
        LegitUse.NICHE,
    ),
    (
        "math_monospace",
        "Mathematical monospace letters and digits.",
        _block(0x1D670, 0x1D68A, 0x1D7F6),
        LegitUse.NICHE,
    ),
    (
        "circled",
        "Circled letters and digits.",
        _block(0x24B6, 0x24D0)
        | {c: chr(0x2460 + i) for i, c in enumerate("123456789")}
        | {"0": "\u24ea"},
        LegitUse.NICHE,
    ),
    ("superscript", "Raised letters and digits.", _RAISED, LegitUse.NICHE),
)


def _form(name: str, summary: str, table: dict[str, str], legit_use: LegitUse) -> Operator:
    forward = exchange_table(table)
    back = exchange_table({image: letter for letter, image in table.items()})
    images = frozenset(table.values())
    return Operator(
        name=name,
        version=1,
        family="F5",
        slot=Slot.SURFACE,
        tier=Tier.V0,
        legit_use=legit_use,
        summary=summary,
        rewrite=lambda text, use: text.translate(forward),  # noqa: ARG005 - one signature for every operator
        restore=lambda text, use: text.translate(back),  # noqa: ARG005 - as above
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


def _indicate(text: str, use: Use) -> str:  # noqa: ARG001 - one signature for every operator
    return text.translate(_INDICATORS)


OPERATORS = (
    *(_form(*form) for form in _FORMS),
    Operator(
        name="regional_indicator",
        version=1,
        family="F5",
        slot=Slot.SURFACE,
        tier=Tier.V1,
        legit_use=LegitUse.NICHE,
        summary="Letters as regional indicator symbols; case is lost.",
        rewrite=_indicate,
    ),
)
"""The operators of F5."""
