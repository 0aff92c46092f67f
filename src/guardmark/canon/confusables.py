"""Characters that are drawn like an ASCII letter or digit.

The first two tables hold pairs that Unicode's data for confusables calls intentional, plus the
few that fonts draw alike in running text; they are what the homoglyph operator writes. The
others are only read: a canonical form has to know more looks than one attacker uses.
"""

# ruff: noqa: RUF001 - look-alikes are what this table is made of

from __future__ import annotations

CYRILLIC = {
    "A": "А", "B": "В", "C": "С", "E": "Е", "G": "Ԍ", "H": "Н", "I": "І", "J": "Ј", "K": "К",
    "M": "М", "N": "Ν", "O": "О", "P": "Р", "Q": "Ԛ", "S": "Ѕ", "T": "Т", "W": "Ԝ", "X": "Х",
    "Y": "Ү", "a": "а", "c": "с", "d": "ԁ", "e": "е", "h": "һ", "i": "і", "j": "ј", "l": "ӏ",
    "o": "о", "p": "р", "q": "ԛ", "s": "ѕ", "v": "ѵ", "w": "ԝ", "x": "х", "y": "у",
}  # fmt: skip
"""ASCII letter to its Cyrillic look-alike (`N` has none and borrows the Greek one)."""

GREEK = {
    "A": "Α", "B": "Β", "E": "Ε", "F": "Ϝ", "H": "Η", "I": "Ι", "K": "Κ", "M": "Μ", "N": "Ν",
    "O": "Ο", "P": "Ρ", "T": "Τ", "X": "Χ", "Y": "Υ", "Z": "Ζ", "a": "α", "i": "ι", "j": "ϳ",
    "k": "κ", "o": "ο", "p": "ρ", "u": "υ", "v": "ν", "y": "γ",
}  # fmt: skip
"""ASCII letter to its Greek look-alike."""

_READ_ONLY = {
    # Small Cyrillic letters drawn like small capitals, and further Cyrillic looks.
    "в": "b", "н": "h", "к": "k", "м": "m", "т": "t", "ү": "y", "У": "Y", "ԍ": "g", "Ӏ": "l",
    "ԁ": "d", "Ԁ": "D", "Ҡ": "K", "З": "3", "з": "3",
    # Armenian.
    "օ": "o", "Օ": "O", "ս": "u", "հ": "h", "ց": "g", "զ": "q", "ո": "n", "ք": "p", "Տ": "S",
    "Լ": "L",
    # Latin letters of other alphabets and phonetics.
    "ı": "i", "ȷ": "j", "ɡ": "g", "ɑ": "a", "ɩ": "i", "ʋ": "v", "ꞵ": "b", "ø": "o", "Ø": "O",
    "đ": "d", "Đ": "D", "ħ": "h", "ł": "l", "Ł": "L", "ŧ": "t", "ƒ": "f", "ƅ": "b", "ƽ": "s",
    # Small capitals.
    "ᴀ": "a", "ʙ": "b", "ᴄ": "c", "ᴅ": "d", "ᴇ": "e", "ꜰ": "f", "ɢ": "g", "ʜ": "h", "ɪ": "i",
    "ᴊ": "j", "ᴋ": "k", "ʟ": "l", "ᴍ": "m", "ɴ": "n", "ᴏ": "o", "ᴘ": "p", "ʀ": "r", "ꜱ": "s",
    "ᴛ": "t", "ᴜ": "u", "ᴠ": "v", "ᴡ": "w", "ʏ": "y", "ᴢ": "z",
    # Lisu.
    "ꓐ": "B", "ꓑ": "P", "ꓓ": "D", "ꓔ": "T", "ꓖ": "G", "ꓗ": "K", "ꓙ": "J", "ꓚ": "C", "ꓜ": "Z",
    "ꓝ": "F", "ꓟ": "M", "ꓠ": "N", "ꓡ": "L", "ꓢ": "S", "ꓣ": "R", "ꓦ": "V", "ꓧ": "H", "ꓪ": "W",
    "ꓫ": "X", "ꓬ": "Y", "ꓮ": "A", "ꓰ": "E", "ꓲ": "I", "ꓳ": "O", "ꓴ": "U",
    # Cherokee.
    "Ꭰ": "D", "Ꭱ": "R", "Ꭲ": "T", "Ꭺ": "A", "Ꭻ": "J", "Ꭼ": "E", "Ꮃ": "W", "Ꮇ": "M", "Ꮋ": "H",
    "Ꮐ": "G", "Ꮓ": "Z", "Ꮞ": "4", "Ꮩ": "V", "Ꮪ": "S", "Ꮮ": "L", "Ꮯ": "C", "Ꮲ": "P", "Ꮶ": "K",
    "Ᏼ": "B",
}  # fmt: skip


def _build() -> dict[str, str]:
    """Turn every table round: look-alike to ASCII."""
    folded = dict(_READ_ONLY)
    for table in (CYRILLIC, GREEK):
        folded.update({image: letter for letter, image in table.items()})
    for offset in range(26):
        letter = chr(ord("a") + offset)
        folded[chr(0x1F1E6 + offset)] = letter  # regional indicators
        folded[chr(0x1F150 + offset)] = letter  # negative circled
        folded[chr(0x1F170 + offset)] = letter  # negative squared
    return folded


FOLDED = _build()
"""Every known look-alike to the ASCII letter or digit it looks like."""
