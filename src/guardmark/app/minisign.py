"""Signatures of files as minisign writes them: Ed25519, in a file beside the one that is signed."""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import blake2b, scrypt
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import StoreError, needs
from guardmark.core.limits import MOST_SIGNATURE_BYTES
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from pathlib import Path

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
    """Check the signature of a file with the public key of its signer."""
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
    said = ""
    if not fault:
        said = comment.decode(errors="replace")
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
    if path.exists() and not path.is_file():
        raise _not_minisign(path, "it is not a file")
    try:
        with path.open("rb") as file:
            content = file.read(MOST_SIGNATURE_BYTES + 1)
    except OSError as error:
        raise _not_minisign(path, str(error.strerror)) from error
    if len(content) > MOST_SIGNATURE_BYTES:
        raise _not_minisign(path, f"it has more than {MOST_SIGNATURE_BYTES >> 10} KiB")
    return content.splitlines()


def _not_minisign(path: Path, reason: str) -> StoreError:
    return StoreError(
        f"{path} cannot be read: {reason}.\n"
        "Next: name the public key (.pub) and the signature (.minisig) that minisign wrote."
    )


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


_SECRET_BYTES: Final = 158
_SCRYPT: Final = b"Sc"
_MOST_MEMORY: Final = (1 << 31) - 2  # bytes: what OpenSSL may be told
_BLOCK: Final = 8  # scrypt's r, as minisign uses it


def sign_file(path: Path, secret_key: Path, *, comment: str, password: str = "") -> Path:
    """Sign a file as `minisign -S` does, and return the signature beside it.

    Args:
        path: The file.
        secret_key: A secret key of minisign, with a password or without (`minisign -G -W`).
        comment: What the signature states in a way that cannot be changed; one line.
        password: That of the key; empty where it has none.

    Raises:
        StoreError: The key cannot be read, is none, or the password is wrong.
    """
    with needs("A signature needs cryptography", "sign"):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    key_id, seed = _secret(secret_key, password)
    key = Ed25519PrivateKey.from_private_bytes(seed)
    signature = key.sign(blake2b(path.read_bytes()).digest())
    trusted = " ".join(comment.split())
    over_comment = key.sign(signature + trusted.encode())
    beside = path.with_name(f"{path.name}.minisig")
    beside.write_bytes(
        b"untrusted comment: signature of a guardmark card\n"
        + b64encode(_HASHED + key_id + signature)
        + b"\n"
        + _COMMENT
        + trusted.encode()
        + b"\n"
        + b64encode(over_comment)
        + b"\n"
    )
    return beside


def _secret(path: Path, password: str) -> tuple[bytes, bytes]:
    """Return the id and the seed of a secret key, and refuse a key that does not open."""
    raw = _decoded(path, _lines(path), 1, length=_SECRET_BYTES)
    method, kdf, salt = raw[:2], raw[2:4], raw[6:38]
    ops, memory = (int.from_bytes(raw[at : at + 8], "little") for at in (38, 46))
    hidden = raw[54:]
    if kdf == _SCRYPT:
        if not password:
            raise StoreError(
                f"{path} has a password, and none is given.\nNext: set the environment variable "
                "that --password-env names (GUARDMARK_SIGN_PASSWORD)."
            )
        stream = _stream(password, salt, ops=ops, memory=memory, length=len(hidden))
        hidden = bytes(one ^ other for one, other in zip(hidden, stream, strict=True))
    key_id, seed, public, check = hidden[:8], hidden[8:40], hidden[40:72], hidden[72:]
    made = blake2b(method + key_id + seed + public, digest_size=32).digest()
    if kdf == _SCRYPT and made != check:  # a key without a password carries no check
        raise StoreError(f"{path} does not open: the password is wrong, or the file is damaged.")
    return key_id, seed


def _stream(password: str, salt: bytes, *, ops: int, memory: int, length: int) -> bytes:
    """Derive the bytes that hide a secret key, by the parameters that libsodium picks."""
    most = ops // (_BLOCK * 4) if ops < memory // 32 else memory // (_BLOCK * 128)
    power = next((each for each in range(1, 63) if 1 << each > most // 2), 1)
    cost = 1 << power
    parallel = 1
    if ops >= memory // 32:
        parallel = min((ops // 4) // cost, 0x3FFFFFFF) // _BLOCK or 1
    if cost * _BLOCK * 128 * 3 // 2 > _MOST_MEMORY:
        raise StoreError("The key asks for more memory than 2 GiB to be opened.")
    return scrypt(
        password.encode(),
        salt=salt,
        n=cost,
        r=_BLOCK,
        p=parallel,
        maxmem=_MOST_MEMORY,
        dklen=length,
    )
