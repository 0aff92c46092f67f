"""Answers of HTTP/1.1: read the same however they were cut, and refused when they are none."""

from __future__ import annotations

import gzip
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.net.framing import AnswerReader, Fault

OK = b"HTTP/1.1 200 OK\r\n"
MOST = 1000


def _read(*pieces: bytes, most: int = MOST, has_body: bool = True) -> AnswerReader:
    """Feed pieces; the connection ends after them unless the answer was complete before."""
    reader = AnswerReader(most=most, has_body=has_body)
    if not any(reader.feed(piece) for piece in pieces):
        reader.end()
    return reader


def _fault(*pieces: bytes) -> str:
    with pytest.raises(Fault) as caught:
        _read(*pieces)
    return caught.value.word


def _chunked(body: bytes, sizes: list[int]) -> bytes:
    said, at = bytearray(), 0
    for size in [*sizes, len(body)]:
        piece = body[at : at + size]
        if piece:
            said += b"%X;note=1\r\n%b\r\n" % (len(piece), piece)
        at += len(piece)
    return bytes(said + b"0\r\nX-Trailer: 1\r\n\r\n")


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """An answer as it goes over the wire, in one of the ways to say where it ends; its body."""
    body = draw(st.binary(max_size=60))
    way = draw(st.sampled_from(["length", "chunks", "packed", "end"]))
    news = draw(st.sampled_from([b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"]))
    if way == "length":
        return news + OK + b"Content-Length: %d\r\n\r\n%b" % (len(body), body), body
    if way == "chunks":
        sizes = draw(st.lists(st.integers(1, 9), max_size=6))
        return news + OK + b"Transfer-Encoding: chunked\r\n\r\n" + _chunked(body, sizes), body
    if way == "packed":
        packed = draw(st.sampled_from([gzip.compress, zlib.compress]))(body)
        word = b"gzip" if packed.startswith(b"\x1f\x8b") else b"deflate"
        head = b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (word, len(packed))
        return news + OK + head + packed, body
    return news + OK + b"\r\n" + body, body


@given(answers(), st.lists(st.integers(0, 300), max_size=8))
def test_an_answer_is_the_same_however_it_was_cut(
    answer: tuple[bytes, bytes], cuts: list[int]
) -> None:
    """Where packets end is chance."""
    raw, body = answer
    at = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    reader = _read(*(raw[start:end] for start, end in pairwise(at)))
    assert reader.head is not None
    assert (reader.head.status, reader.body) == (200, body)


@given(answers(), st.integers(0, 300))
def test_an_answer_that_breaks_off_is_never_taken_for_whole(
    answer: tuple[bytes, bytes], end: int
) -> None:
    """Unless nothing but the end of the connection says where it ends."""
    raw, body = answer
    if end >= len(raw):
        return
    try:
        reader = _read(raw[:end])
    except Fault as fault:
        assert fault.word in {"disconnected", "half_response"}  # noqa: PT017 - either may come
        return
    is_whole = reader.body == body
    assert is_whole or b"\r\nContent-Length" not in raw
    assert is_whole or b"\r\nTransfer-Encoding" not in raw


@given(st.binary(max_size=80))
def test_what_is_not_http_raises_one_kind_of_error(noise: bytes) -> None:
    """Whatever a port says, a run must not crash over it."""
    try:
        _read(noise)
    except Fault as fault:
        assert fault.word in {"disconnected", "half_response", "not_http"}  # noqa: PT017 - see above


@given(st.binary(max_size=40))
def test_noise_after_a_good_beginning_raises_one_kind_of_error(noise: bytes) -> None:
    """A damaged head or chunk is a fault with a name."""
    for beginning in (b"HTTP/1.1 200", OK, OK + b"Transfer-Encoding: chunked\r\n\r\n"):
        try:
            _read(beginning + noise)
        except Fault as fault:
            assert fault.word in {"disconnected", "half_response", "not_http", "too_large"}  # noqa: PT017 - see above


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 99 Low\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        OK + b"No colon\r\n\r\n",
        OK + b"Bad name : x\r\n\r\n",
        OK + b"A: 1\r\n folded\r\n\r\n",
        OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Content-Length: \xb2\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
        OK + b"Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx",
        OK + b"A: " + b"x" * 70_000,
    ],
    ids=range(14),
)
def test_what_the_protocol_forbids_is_not_http(raw: bytes) -> None:
    """Guessing would make one answer of two, or two of one."""
    assert _fault(raw) == "not_http"


def test_a_length_beside_chunks_counts_for_nothing() -> None:
    """The chunks say where the answer ends (RFC 9112, 6.3)."""
    head = b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert _read(OK + head + _chunked(b"{}", [])).body == b"{}"


def test_equal_lengths_said_twice_are_one() -> None:
    """Some proxies repeat the header."""
    assert _read(OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}").body == b"{}"


def test_lines_may_end_with_a_bare_line_feed() -> None:
    """Small servers do that."""
    reader = _read(b"HTTP/1.1 200 OK\nContent-Type: Text/Plain; charset=x\nContent-Length: 1\n\nx")
    assert reader.head is not None
    assert (reader.head.content_type, reader.body) == ("text/plain", b"x")


@pytest.mark.parametrize("status", [204, 304])
def test_some_statuses_have_no_body(status: int) -> None:
    """Whatever length they name."""
    assert _read(b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\n" % status).body == b""


def test_an_answer_to_head_has_no_body() -> None:
    """Its length is that of an answer to GET."""
    assert _read(OK + b"Content-Length: 5\r\n\r\n", has_body=False).body == b""


@pytest.mark.parametrize(
    "raw",
    [
        OK + b"Content-Length: 1001\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n3e9\r\n",
        OK + b"\r\n" + b"x" * 1001,
        OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(bytes(1001)),
    ],
    ids=["length", "chunk", "until the end", "packed"],
)
def test_what_is_too_large_is_refused_before_it_is_read(raw: bytes) -> None:
    """Packed bytes count unpacked."""
    assert _fault(raw) == "too_large"


def test_damaged_packing_is_half_an_answer() -> None:
    """A body that does not unpack must not be read as it is."""
    packed = gzip.compress(b"{}")
    for body in (packed[:-4], b"no gzip"):
        head = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
        assert _fault(OK + head + body) == "half_response"


@pytest.mark.parametrize(
    ("head", "keeps_open"),
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: x, keep-alive\r\n", True),
    ],
)
def test_the_head_says_whether_the_connection_stays(head: bytes, *, keeps_open: bool) -> None:
    """By default it does since HTTP/1.1, and did not before."""
    reader = _read(head + b"Content-Length: 0\r\n\r\n")
    assert reader.head is not None
    assert reader.head.keeps_open is keeps_open


def test_what_follows_an_answer_is_surplus() -> None:
    """It must not become the next one's beginning."""
    reader = _read(OK + b"Content-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n")
    assert (reader.body, reader.has_surplus) == (b"{}", True)
