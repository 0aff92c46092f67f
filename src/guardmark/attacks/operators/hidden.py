"""F10: the text carried by characters that show nothing, behind a harmless cover."""

from __future__ import annotations

from guardmark.attacks.contract import LegitUse, Operator, Parameter, Slot, Tier, Use

_COVERS = {"greeting": "Hello! \U0001f600", "emoji": "\U0001f600", "none": ""}
_COVER = Parameter(name="cover", values=("greeting", "emoji", "none"))
_TAGS = {code: 0xE0000 + code for code in range(0x20, 0x7F)}
_UNTAGS = {tag: code for code, tag in _TAGS.items()}
_SELECTORS = tuple(
    chr(0xFE00 + byte) if byte < 16 else chr(0xE0100 + byte - 16) for byte in range(256)
)
_UNSELECT = {selector: byte for byte, selector in enumerate(_SELECTORS)}
_BITS = str.maketrans("01", "\u2062\u2064")
_UNBITS = str.maketrans("\u2062\u2064", "01")
_OCTETS = tuple(format(byte, "08b").translate(_BITS) for byte in range(256))


def _cover(use: Use) -> str:
    return _COVERS[use.word("cover")]


def _covered(text: str, use: Use) -> str:
    return _cover(use) + text


def _behind_cover(variant: str, use: Use) -> str:
    cover = _cover(use)
    if not variant.startswith(cover):
        raise ValueError("the cover is missing")
    return variant[len(cover) :]


def _tag(text: str, use: Use) -> str:
    hidden = text.translate(_TAGS)
    return text if hidden == text else _cover(use) + hidden


def _untag(variant: str, use: Use) -> str:
    return _behind_cover(variant, use).translate(_UNTAGS)


def _select(text: str, use: Use) -> str:
    return _cover(use) + "".join(map(_SELECTORS.__getitem__, text.encode()))


def _unselect(variant: str, use: Use) -> str:
    try:
        data = bytes(map(_UNSELECT.__getitem__, _behind_cover(variant, use)))
    except KeyError as missing:
        raise ValueError(f"{missing} is no variation selector") from None
    return data.decode()


def _bits(text: str, use: Use) -> str:
    return _cover(use) + "".join(map(_OCTETS.__getitem__, text.encode()))


def _unbits(variant: str, use: Use) -> str:
    bits = _behind_cover(variant, use).translate(_UNBITS)
    return int(bits, 2).to_bytes(len(bits) // 8, "big").decode() if bits else ""


def _is_printable_ascii(text: str) -> bool:
    return text.isascii() and text.isprintable()


OPERATORS = (
    Operator(
        name="tag_characters",
        version=1,
        family="F10",
        slot=Slot.ENCODING,
        tier=Tier.V0,
        legit_use=LegitUse.NONE,
        needs_decoder=True,
        parameters=(_COVER,),
        summary="Tag characters, the invisible mirror of ASCII, behind a cover.",
        rewrite=_tag,
        restore=_untag,
        wrap=_covered,
        domain=_is_printable_ascii,
        domain_words="printable ASCII text",
    ),
    Operator(
        name="variation_selectors",
        version=1,
        family="F10",
        slot=Slot.ENCODING,
        tier=Tier.V0,
        legit_use=LegitUse.NONE,
        needs_decoder=True,
        parameters=(_COVER,),
        summary="The bytes of the text as variation selectors of an emoji.",
        rewrite=_select,
        restore=_unselect,
        wrap=_covered,
    ),
    Operator(
        name="invisible_bits",
        version=1,
        family="F10",
        slot=Slot.ENCODING,
        tier=Tier.V0,
        legit_use=LegitUse.NONE,
        needs_decoder=True,
        parameters=(_COVER,),
        summary="The bits of the text as two invisible operators.",
        rewrite=_bits,
        restore=_unbits,
        wrap=_covered,
    ),
)
"""The operators of F10."""
