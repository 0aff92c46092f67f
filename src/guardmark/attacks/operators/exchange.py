"""Exchange characters of a text: by a table, or where draws hit.

Both do in C what a loop over characters would do; a search applies operators by the thousand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
