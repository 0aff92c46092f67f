"""Classes of characters that carry no letters of their own."""

from __future__ import annotations

IGNORABLE_RANGES = (
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5),
    (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164),
    (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
"""Code points that Unicode calls default ignorable: a renderer shows nothing for them."""

MARK_RANGES = (
    (0x0300, 0x036F), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF), (0xFE20, 0xFE2F),
)  # fmt: skip
"""Blocks of combining marks that decorate any letter.

The vowel signs of Indic and other scripts are combining marks too, but they are spelling, not
decoration, and lie outside these blocks.
"""


def char_class(ranges: tuple[tuple[int, int], ...]) -> str:
    """Return ranges as the inside of a regular expression's character class."""
    return "".join(f"\\U{first:08X}-\\U{last:08X}" for first, last in ranges)


def is_within(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    """Say whether a code point lies in one of the ranges."""
    return any(first <= code <= last for first, last in ranges)
