"""Alphabets for eye, ear and hand: Braille, Morse code, the NATO spelling alphabet."""

from __future__ import annotations

import re
from string import ascii_lowercase, digits

_CELLS = "⠁⠃⠉⠙⠑⠋⠛⠓⠊⠚⠅⠇⠍⠝⠕⠏⠟⠗⠎⠞⠥⠧⠺⠭⠽⠵"
_CAPITAL, _NUMBER = "⠠", "⠼"
_LETTER_CELLS = dict(zip(ascii_lowercase, _CELLS, strict=True))
_DIGIT_CELLS = dict(zip("1234567890", _CELLS, strict=False))
_TO_BRAILLE = str.maketrans(
    _LETTER_CELLS
    | {letter.upper(): _CAPITAL + cell for letter, cell in _LETTER_CELLS.items()}
    | {digit: _NUMBER + cell for digit, cell in _DIGIT_CELLS.items()}
)
_FROM_CELL = {cell: letter for letter, cell in _LETTER_CELLS.items()}
_FROM_NUMBER = {cell: digit for digit, cell in _DIGIT_CELLS.items()}
_SIGNED = re.compile(f"([{_CAPITAL}{_NUMBER}])([{_CELLS}])")
_TO_LETTERS = str.maketrans(_FROM_CELL)

_MORSE_CODES = (
    ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - "
    "..- ...- .-- -..- -.-- --.. ----- .---- ..--- ...-- ....- ..... -.... --... ---.. ----."
)
_MORSE = dict(zip(ascii_lowercase + digits, _MORSE_CODES.split(), strict=True))
_FROM_MORSE = {code: char for char, code in _MORSE.items()}

_NATO_WORDS = (
    "Alfa Bravo Charlie Delta Echo Foxtrot Golf Hotel India Juliett Kilo Lima Mike November Oscar "
    "Papa Quebec Romeo Sierra Tango Uniform Victor Whiskey X-ray Yankee Zulu "
    "Zero One Two Three Four Five Six Seven Eight Nine"
)
_NATO = dict(zip(ascii_lowercase + digits, _NATO_WORDS.split(), strict=True))
_FROM_NATO = {word: char for char, word in _NATO.items()}
_OTHER = re.compile(r"[^a-z0-9\s]+")


def write_braille(text: str) -> str:
    """Write letters and digits as Braille cells; everything else stays."""
    return text.translate(_TO_BRAILLE)


def read_braille(code: str) -> str:
    """Read what `write_braille` wrote."""

    def signed(found: re.Match[str]) -> str:
        sign, cell = found.groups()
        return _FROM_CELL[cell].upper() if sign == _CAPITAL else _FROM_NUMBER[cell]

    return _SIGNED.sub(signed, code).translate(_TO_LETTERS)


def write_morse(text: str) -> str:
    """Write ASCII letters and digits in Morse code; what has no code is lost."""
    return " / ".join(" ".join(map(_MORSE.__getitem__, word)) for word in _words(text))


def read_morse(code: str) -> str:
    """Read Morse code."""
    return _read(code.split(" / "), _FROM_MORSE)


def write_nato(text: str) -> str:
    """Spell ASCII letters and digits by the NATO alphabet; everything else is lost."""
    return ", ".join(" ".join(map(_NATO.__getitem__, word)) for word in _words(text))


def read_nato(code: str) -> str:
    """Read the NATO alphabet."""
    return _read(code.split(", "), _FROM_NATO)


def _words(text: str) -> list[str]:
    return _OTHER.sub("", text.lower()).split()


def _read(words: list[str], table: dict[str, str]) -> str:
    try:
        return " ".join("".join(map(table.__getitem__, word.split(" "))) for word in words)
    except KeyError as missing:
        raise ValueError(f"unknown sign {missing}") from None
