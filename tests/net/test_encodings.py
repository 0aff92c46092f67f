"""In which encodings a secret is found, and in which it is not: SECURITY.md names both."""

from __future__ import annotations

import binascii
import codecs
import gzip
from base64 import a85encode, b32encode, b32hexencode, b64encode, b85encode, urlsafe_b64encode
from pathlib import Path
from string import ascii_letters
from urllib.parse import quote

import pytest

from guardmark.net.redaction import REDACTED, Redactor

SECRET = "Zx81qvTTm4Yd0pLw7Kc2-ab"  # noqa: S105 - made up for this test
_DATA = SECRET.encode()
_ATBASH = str.maketrans(ascii_letters, ascii_letters[:26][::-1] + ascii_letters[26:][::-1])

COVERED = {
    "as it is": SECRET,
    "backwards": SECRET[::-1],
    "in upper case": SECRET.upper(),
    "in lower case": SECRET.lower(),
    "in swapped case": SECRET.swapcase(),
    "hexadecimal digits": _DATA.hex(),
    "hexadecimal digits with separators": _DATA.hex(":"),
    "Base32": b32encode(_DATA).decode(),
    "Base64": b64encode(_DATA).decode(),
    "Base64 for addresses": urlsafe_b64encode(_DATA).decode(),
    "Base64 within longer data": b64encode(b"x" + _DATA + b"yz").decode(),
    "Base64 twice": b64encode(b64encode(_DATA)).decode(),
    "hexadecimal digits of Base64": b64encode(_DATA).hex(),
    "escapes of JSON": "".join(f"\\u{code:04x}" for code in _DATA),
    "`\\x` escapes": "".join(f"\\x{code:02x}" for code in _DATA),
    "escapes of addresses": "".join(f"%{code:02X}" for code in _DATA),
    "escapes of addresses twice": quote("".join(f"%{code:02X}" for code in _DATA)),
    "escapes of HTML": "".join(f"&#{code};" for code in _DATA),
    "hexadecimal escapes of HTML": "".join(f"&#x{code:x};" for code in _DATA),
}

NOT_COVERED = {
    "Base64 of hexadecimal digits": b64encode(_DATA.hex().encode()).decode(),
    "Base64 of the text backwards": b64encode(_DATA[::-1]).decode(),
    "Base32 in lower case": b32encode(_DATA).decode().lower(),
    "Base32 with the hexadecimal alphabet": b32hexencode(_DATA).decode(),
    "Base85": b85encode(_DATA).decode(),
    "Ascii85": a85encode(_DATA).decode(),
    "uuencoding": binascii.b2a_uu(_DATA).decode().strip(),
    "quoted-printable": "".join(f"={code:02X}" for code in _DATA),
    "UTF-7": f"+{b64encode(SECRET.encode('utf-16-be')).decode().rstrip('=')}-",
    "ROT13": codecs.encode(SECRET, "rot13"),
    "Atbash": SECRET.translate(_ATBASH),
    "octal escapes": "".join(f"\\{code:03o}" for code in _DATA),
    "`\\U` escapes of eight digits": "".join(f"\\U{code:08x}" for code in _DATA),
    "`\\u{...}` escapes": "".join(f"\\u{{{code:x}}}" for code in _DATA),
    "hexadecimal codes with `0x`": " ".join(f"0x{code:02x}" for code in _DATA),
    "decimal codes": " ".join(str(code) for code in _DATA),
    "binary digits": " ".join(f"{code:08b}" for code in _DATA),
    "compressed data": b64encode(gzip.compress(_DATA, mtime=0)).decode(),
    "blanks between the letters": " ".join(SECRET),
    "hyphens between the letters": "-".join(SECRET),
    "zero-width characters between the letters": "\u200b".join(SECRET),
    "full-width letters": "".join(chr(ord(letter) + 0xFEE0) for letter in SECRET),
    "tag characters": "".join(chr(ord(letter) + 0xE0000) for letter in SECRET),
    "split over two fields": f'{SECRET[:11]}", "b": "{SECRET[11:]}',
}


def redacted(text: str) -> str:
    """Redact a text by a redactor that knows the secret."""
    redactor = Redactor()
    redactor.hide(SECRET, "KEY")
    return redactor.text(f"before {text} after")


@pytest.mark.parametrize("encoding", COVERED)
def test_a_secret_in_a_usual_encoding_is_taken_out(encoding: str) -> None:
    """As services, languages and logs write it."""
    written = redacted(COVERED[encoding])
    assert REDACTED in written
    assert COVERED[encoding] not in written


@pytest.mark.parametrize("encoding", NOT_COVERED)
def test_what_is_said_not_to_be_covered_is_not(encoding: str) -> None:
    """A page that warns of too much would be as untrue as one that promises too much."""
    assert NOT_COVERED[encoding] in redacted(NOT_COVERED[encoding])


@pytest.mark.parametrize("encoding", [*COVERED, *NOT_COVERED])
def test_the_page_on_security_names_every_encoding(encoding: str) -> None:
    """In the list it belongs to."""
    page = " ".join(Path(__file__).parents[2].joinpath("SECURITY.md").read_text("utf-8").split())
    covered, _, not_covered = page.partition("It is not found in these encodings:")
    listed = covered if encoding in COVERED else not_covered
    assert encoding in listed
