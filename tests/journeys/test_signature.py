"""A detached signature of the seals, as minisign makes it, checked by `verify`."""

from __future__ import annotations

import shutil
import sqlite3
from base64 import b64encode
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.journeys.command_line import CONFIG, guardmark, set_up

from guardmark.app.minisign import read_signature
from guardmark.app.verify.verification import SealSignature, Verification, verify
from guardmark.core.errors import StoreError

KEY: Final = "untrusted comment: any\nRWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\n"
NAME: Final = "E7620F1842B4E81F"
SIGNATURES: Final = {
    "of a hash": (
        (
            "RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOo"
            "crCo8KLzZwo="
        ),
        "timestamp:1633700835\tfile:test\tprehashed",
        "wLMDjy9FLAuxZ3q4NlEvkgtyhrr0gtTu6KC4KBJdITbbOeAi1zBIYo0v4iTgt8jJpIidRJnp94ABQkJAgAooBQ==",
    ),
    "of a whole file": (
        (
            "RWQf6LRCGA9i59SLOFxz6NxvASXDJeRtuZykwQepbDEGt87ig1BNpWaVWuNrm73YiIiJbq71Wi+dP9eKL8OC351v"
            "wIasSSbXxwA="
        ),
        "timestamp:1555779966\tfile:test",
        "QtKMXWyYcwdpZAlPF7tE2ENJkRd1ujvKjlj1m9RtHTBnZPa5WKU5uWRs5GoP5M/VqE81QFuMKI5k/SfNQUaOAA==",
    ),
}
"""Signatures of the four bytes `test` that minisign itself made with this key."""
OWNER: Final = Ed25519PrivateKey.from_private_bytes(b"k" * 32)


def write_signature(path: Path, signed: str, comment: str, over_comment: str) -> None:
    """Write a signature in the form of minisign."""
    lines = ("untrusted comment: x", signed, f"trusted comment: {comment}", over_comment)
    path.write_text("\n".join((*lines, "")), encoding="utf-8")


def sign(run: Path, key: Ed25519PrivateKey, identity: bytes, *, comment: str = "release 3") -> None:
    """Sign the seals of a run as minisign does, and write the public key beside the run."""
    signature = key.sign(blake2b((run / "seals.jsonl").read_bytes()).digest())
    parts = (b"ED" + identity + signature, key.sign(signature + comment.encode()))
    signed, over_comment = (b64encode(each).decode() for each in parts)
    write_signature(run / "seals.jsonl.minisig", signed, comment, over_comment)
    public = b64encode(b"Ed" + identity + key.public_key().public_bytes_raw()).decode()
    (run.parent / "key.pub").write_text(f"untrusted comment: x\n{public}\n", encoding="utf-8")


@pytest.mark.parametrize("case", SIGNATURES)
@pytest.mark.parametrize("content", [b"test", b"Test"])
def test_signatures_of_minisign_itself_are_read(case: str, content: bytes, tmp_path: Path) -> None:
    """Both of its methods; another file is not what was signed."""
    signed, signature, key = (tmp_path / name for name in ("signed", "signed.minisig", "key.pub"))
    key.write_text(KEY, encoding="utf-8")
    signed.write_bytes(content)
    write_signature(signature, *SIGNATURES[case])
    result = read_signature(signed, signature, public_key=key)
    expected = (
        (SIGNATURES[case][1], "") if content == b"test" else ("", "signed is not what was signed")
    )
    assert (result.key, result.comment, result.fault) == (NAME, *expected)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose seals are signed."""
    folder = tmp_path_factory.mktemp("finished")
    set_up(folder, CONFIG, count=12)
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    sign(folder / "out", OWNER, b"identity")
    return folder


@pytest.fixture
def work(finished: Path, tmp_path: Path) -> Path:
    """A copy of the folder, to be tampered with."""
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy"


def look(work: Path) -> Verification:
    """Verify the run against the public key."""
    signature = SealSignature(public_key=work / "key.pub")
    return verify(work / "out", data=[work], signature=signature)


@pytest.mark.slow
def test_a_signed_run_holds_without_a_limit(work: Path) -> None:
    """Who signed is said, and nothing stays open."""
    done = guardmark("verify", "out", "--public-key", "key.pub", cwd=work)
    assert done.code == 0, done.out
    name = b"identity"[::-1].hex().upper()
    assert (
        f"Shown: seals and head of the records are what was signed, with key {name}: release 3."
        in done.out
    )
    assert "Not shown" not in done.out
    assert "unless" not in done.out.splitlines()[-1]
    moved = work / "elsewhere.minisig"
    (work / "out" / "seals.jsonl.minisig").rename(moved)
    given = ("--public-key", "key.pub", "--signature", moved)
    assert guardmark("verify", "out", *given, cwd=work).code == 0


def test_seals_that_are_broken_are_not_held_against_the_signature_too(work: Path) -> None:
    """The line that does not follow is named once; before that the signature was the owner's."""
    whole = look(work)
    assert (whole.holds, whole.is_signed) == (True, True)
    path = work / "out" / "seals.jsonl"
    first, second, *rest = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join([first, second.replace('"', '" ', 1), *rest]), encoding="utf-8")
    places = [each.where for each in look(work).mismatches]
    assert "seals.jsonl: line 2" in places
    assert not any("minisig" in place for place in places)


@pytest.mark.slow
def test_a_run_made_anew_is_not_the_one_that_was_signed(work: Path) -> None:
    """Records, seals and reports of another hand agree with each other, not with the signature."""
    text = (work / "bench.yaml").read_text(encoding="utf-8")
    (work / "bench.yaml").write_text(text.replace("ignore", "forget"), encoding="utf-8")
    assert guardmark("run", "bench.yaml", "-o", "out", "--fresh", cwd=work).code == 0
    assert verify(work / "out", data=[work]).holds
    result = look(work)
    assert not result.holds
    assert [each.stated for each in result.mismatches] == ["seals.jsonl is not what was signed"]


def test_what_the_seals_say_is_compared_with_the_records(work: Path) -> None:
    """Signed seals beside other records do not hold, though nobody touched the seals."""
    with closing(sqlite3.connect(work / "out" / "records.sqlite")) as connection:
        connection.execute("DELETE FROM records WHERE batch = (SELECT max(id) FROM batches)")
        connection.execute("DELETE FROM batches WHERE id = (SELECT max(id) FROM batches)")
        connection.commit()
    stated = [each.stated for each in look(work).mismatches]
    assert "the records are not those that were signed" in stated


def test_a_gate_with_a_key_refuses_what_its_holder_did_not_sign(work: Path) -> None:
    """A signed run is gated; an unsigned one, one of another hand, and changed records are not."""
    (work / "limits.yaml").write_text("fpr_upper: 1.0\n", encoding="utf-8")
    gate = ("gate", "out", "--policy", "limits.yaml", "--public-key", "key.pub")
    assert guardmark(*gate, cwd=work).code == 0
    with closing(sqlite3.connect(work / "out" / "records.sqlite")) as connection:
        connection.execute("UPDATE records SET outcome = 1 - outcome WHERE sample = 3")
        connection.commit()
    changed = guardmark(*gate, cwd=work)
    assert changed.code == 3
    assert "its records are not those that were signed" in changed.err
    (work / "out" / "seals.jsonl.minisig").unlink()
    unsigned = guardmark(*gate, cwd=work)
    assert unsigned.code == 3
    assert "is not signed: there is no seals.jsonl.minisig" in unsigned.err
    assert "Next: " in unsigned.err
    without_key = guardmark("gate", "out", "--policy", "limits.yaml", cwd=work)
    assert without_key.code == 0


def test_whose_key_it_is_counts(work: Path) -> None:
    """Another key, also under the same name, and a comment that was changed."""
    other = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
    for identity, stated in ((b"identity", "seals.jsonl is not"), (b"stranger", "made with key")):
        key = (work / "key.pub").read_bytes()
        sign(work / "out", other, identity)
        (work / "key.pub").write_bytes(key)
        assert [stated in each.stated for each in look(work).mismatches] == [True]
    sign(work / "out", OWNER, b"identity")
    path = work / "out" / "seals.jsonl.minisig"
    path.write_text(path.read_text("utf-8").replace("release 3", "release 4"), encoding="utf-8")
    stated = [each.stated for each in look(work).mismatches]
    assert stated == ["its comment is not what was signed"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("key.pub", b""), ("key.pub", b"\xff\n\xff\n"), ("out/seals.jsonl.minisig", b"x" * 99_999)],
)
def test_files_that_minisign_did_not_write_are_refused(
    name: str, content: bytes, work: Path
) -> None:
    """In plain words, whatever they hold."""
    (work / name).write_bytes(content)
    with pytest.raises(StoreError, match=r"is not a file of minisign|has more than 16 KiB"):
        look(work)
    (work / name).unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        look(work)
