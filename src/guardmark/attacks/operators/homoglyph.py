"""F4: letters of another script that look the same."""

from __future__ import annotations

from guardmark.attacks.contract import LegitUse, Operator, Parameter, Slot, Tier, Use
from guardmark.attacks.operators.exchange import blend, exchange_table
from guardmark.canon import tables_digest
from guardmark.canon.confusables import CYRILLIC, GREEK

_TABLES = {"cyrillic": CYRILLIC, "greek": GREEK, "mixed": GREEK | CYRILLIC}
_FORWARD = {name: exchange_table(table) for name, table in _TABLES.items()}
_BACK = {
    name: exchange_table({image: letter for letter, image in table.items()})
    for name, table in _TABLES.items()
}
_IMAGES = frozenset(CYRILLIC.values()) | frozenset(GREEK.values())


def _replace(text: str, use: Use) -> str:
    written = text.translate(_FORWARD[use.word("script")])
    if use.number("p") >= 1:
        return written
    return blend(text, written, use.draws(len(text)), use.threshold("p"))


def _back(text: str, use: Use) -> str:
    return text.translate(_BACK[use.word("script")])


def _holds_none(text: str) -> bool:
    return text.isascii() or _IMAGES.isdisjoint(text)


OPERATORS = (
    Operator(
        name="homoglyph",
        version=1,
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
        rewrite=_replace,
        restore=_back,
        domain=_holds_none,
        domain_words="text without a character of the image set (V1 otherwise)",
        table_digest=tables_digest,
    ),
)
"""The operator of F4."""
