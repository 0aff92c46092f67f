"""Signatures of files as minisign writes them: Ed25519, in a file beside the one that is signed."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import StoreError, needs

if TYPE_CHECKING:
    from pathlib import Path

_MOST_BYTES: Final = 1 << 14
_COMMENT: Final = b"trusted comment: "
_HASHED: Final = b"ED"
"""How a signature of a file's BLAKE2b hash begins; older ones are of the file itself."""
_KEY: Final = slice(2, 10)
"""Where signatures and keys name the key, after two letters for the method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedFile:
    """Which key should have signed a file, what its holder said of it, and what is wrong."""

    key: str
    comment: str
    fault: str


def read_signature(signed: Path, signature: Path, *, public_key: Path) -> SignedFile:
    """Check the signature of a file with the public key of whoever should have signed it."""
    public = _decoded(public_key, _lines(public_key), 1, length=42)
    lines = _lines(signature)
    own = _decoded(signature, lines, 1, length=74)
    over_comment = _decoded(signature, lines, 3, length=64)
    comment, content = lines[2].removeprefix(_COMMENT), signed.read_bytes()
    message = blake2b(content).digest() if own.startswith(_HASHED) else content
    fault = ""
    if own[_KEY] != public[_KEY]:
        fault = f"made with key {_name(own)}"
    elif not _holds(public, own[10:], message):
        fault = f"{signed.name} is not what was signed"
    elif not _holds(public, over_comment, own[10:] + comment):
        fault = "its comment is not what was signed"
    said = "" if fault else comment.decode(errors="replace")
    return SignedFile(key=_name(public), comment=said, fault=fault)


def _holds(public: bytes, signature: bytes, message: bytes) -> bool:
    with needs("A signature needs cryptography", "sign"):
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    try:
        Ed25519PublicKey.from_public_bytes(public[10:]).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _name(file: bytes) -> str:
    """Return a key's name as minisign prints it."""
    return file[_KEY][::-1].hex().upper()


def _lines(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).splitlines()
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read: {error.strerror}.\n"
            "Next: name the public key (.pub) and the signature (.minisig) that minisign wrote."
        ) from error


def _decoded(path: Path, lines: list[bytes], at: int, *, length: int) -> bytes:
    try:
        value = b64decode(lines[at], validate=True)
    except (IndexError, ValueError):
        value = b""
    if len(value) != length:
        raise StoreError(
            f"{path} is not a file of minisign: line {at + 1} does not hold {length} bytes in "
            "base64.\nNext: name the public key (.pub) and the signature (.minisig) that it wrote."
        )
    return value
