"""One answer of HTTP/1.1, put together from the pieces in which it arrives.

No socket here: bytes go in, and what they mean comes out, the same however they were cut.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    Steps = Generator[None, None, None]

_MOST_HEAD: Final = 64 * 1024
_BEGINNING: Final = b"HTTP/1."
_STATUS: Final = re.compile(r"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BLANK_LINE: Final = re.compile(rb"\r?\n\r?\n")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;.*)?")
_SWITCHED: Final = 101
_FIRST_FINAL: Final = 200
_WITHOUT_BODY: Final = frozenset({204, 304})
_PACKED: Final = {"gzip": 31, "x-gzip": 31, "deflate": 47}  # how zlib calls their frames


class Fault(Exception):
    """What went wrong on the wire.

    Attributes:
        word: The kind of fault, as kept with an attempt.
        said: The same for a person; may be empty.
    """

    def __init__(self, word: str, said: str = "") -> None:
        super().__init__(said or word)
        self.word = word
        self.said = said


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What stands before the body of an answer.

    Attributes:
        status: From 100 to 599.
        headers: Names in lower case; what was said repeatedly is joined by commas.
        keeps_open: Whether the connection may serve another request.
    """

    status: int
    headers: Mapping[str, str]
    keeps_open: bool

    @property
    def content_type(self) -> str:
        """In lower case, without parameters; may be empty."""
        return self.headers.get("content-type", "").split(";", 1)[0].strip().lower()


class AnswerReader:
    """Reads one answer; made anew for each request.

    Attributes:
        head: What stands before the body, once it has arrived.
        body: The complete body; empty before it has arrived.

    Args:
        most: Most bytes of a body, packed or unpacked.
        has_body: Whether the request was of a kind that is answered with a body.
    """

    __slots__ = ("_buffer", "_ends_with_connection", "_has_body", "_most", "_steps", "body", "head")

    def __init__(self, *, most: int, has_body: bool = True) -> None:
        self.head: Head | None = None
        self.body = b""
        self._most = most
        self._has_body = has_body
        self._buffer = bytearray()
        self._ends_with_connection = False
        self._steps = self._read()

    @property
    def has_surplus(self) -> bool:
        """Whether more has arrived than the answer."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> bool:
        """Take what has arrived.

        Args:
            data: The next bytes.

        Returns:
            Whether the answer is complete.

        Raises:
            Fault: If this is no answer of HTTP/1.1, or one that is too large.
        """
        self._buffer += data
        return self._go_on()

    def end(self) -> None:
        """Note that nothing more will arrive.

        Raises:
            Fault: If that cuts the answer off: nothing of it arrived, or half of it.
        """
        if self._ends_with_connection:
            self.body = self._unpacked(bytes(self._buffer))
        elif self.head is None and not self._buffer:
            raise Fault("disconnected")
        else:
            raise Fault("half_response")

    def _go_on(self) -> bool:
        try:
            next(self._steps)
        except StopIteration:
            return True
        return False

    # --- each step goes as far as the bytes reach, and waits for more at a yield --------------

    def _read(self) -> Steps:
        head = yield from self._read_head()
        while head.status < _FIRST_FINAL:  # news on the way, not the answer
            if head.status == _SWITCHED:
                raise Fault("not_http", "the server switches to a protocol nobody asked for")
            head = yield from self._read_head()
        self.head = head
        if not self._has_body or head.status in _WITHOUT_BODY:
            return
        coding, length = head.headers.get("transfer-encoding"), _length_of(head.headers)
        if coding is not None:
            if coding.lower() != "chunked":
                raise Fault("not_http", f"a body in the coding {coding[:40]!r} cannot be read")
            body = yield from self._read_chunks()
        elif length is not None:
            self._check_size(length)
            while len(self._buffer) < length:
                yield
            body = self._take(length)
        else:
            self._ends_with_connection = True
            while True:
                self._check_size(len(self._buffer))
                yield
        self.body = self._unpacked(body)

    def _read_head(self) -> Generator[None, None, Head]:
        buffer = self._buffer
        while True:
            if not buffer.startswith(_BEGINNING[: len(buffer)]):
                raise Fault("not_http", "what came does not begin like HTTP")
            end = buffer.find(b"\r\n\r\n")
            if end >= 0:
                return _head_of(self._take(end + 4)[:end])
            blank = _BLANK_LINE.search(buffer)  # some servers end lines with a bare line feed
            if blank is not None:
                return _head_of(self._take(blank.end())[: blank.start()])
            if len(buffer) > _MOST_HEAD:
                raise Fault("not_http", f"its head is longer than {_MOST_HEAD} bytes")
            yield

    def _read_chunks(self) -> Generator[None, None, bytes]:
        body = bytearray()
        while size := _chunk_size((yield from self._read_line())):
            self._check_size(len(body) + size)
            while len(self._buffer) < size:
                yield
            body += self._take(size)
            if (yield from self._read_line()):
                raise Fault("not_http", "a chunk is longer than it says")
        while (yield from self._read_line()):
            pass  # trailers: nobody asked for any
        return bytes(body)

    def _read_line(self) -> Generator[None, None, bytes]:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > _MOST_HEAD:
                raise Fault("not_http", f"a line of it is longer than {_MOST_HEAD} bytes")
            yield
        return self._take(end + 1)[:end].removesuffix(b"\r")

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _check_size(self, size: int) -> None:
        if size > self._most:
            raise Fault("too_large")

    def _unpacked(self, body: bytes) -> bytes:
        """Undo a packing that was not asked for, within the same bounds."""
        coding = "" if self.head is None else self.head.headers.get("content-encoding", "")
        if not coding or coding.lower() == "identity" or not body:
            return body
        frame = _PACKED.get(coding.lower())
        if frame is None:
            raise Fault("not_http", f"a body packed as {coding[:40]!r} cannot be read")
        unpacker = zlib.decompressobj(frame)
        try:
            plain = unpacker.decompress(body, self._most + 1)
        except zlib.error as error:
            raise Fault("half_response", f"the packed body is damaged: {error}") from error
        self._check_size(len(plain))
        if not unpacker.eof:
            raise Fault("half_response")
        return plain


def _head_of(raw: bytes) -> Head:
    first, *lines = raw.decode("latin-1").replace("\r\n", "\n").split("\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise Fault("not_http", f"it begins with {first[:60]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, said = line.partition(":")
        if not colon or _NAME.fullmatch(name) is None:
            raise Fault("not_http", f"{line[:60]!r} is no header")
        name, said = name.lower(), said.strip(" \t")
        headers[name] = f"{headers[name]}, {said}" if name in headers else said
    wishes = {wish.strip().lower() for wish in headers.get("connection", "").split(",")}
    keeps_open = "keep-alive" in wishes if status[1] == "0" else "close" not in wishes
    return Head(status=int(status[2]), headers=headers, keeps_open=keeps_open)


def _length_of(headers: Mapping[str, str]) -> int | None:
    said = headers.get("content-length")
    if said is None:
        return None
    lengths = {length.strip() for length in said.split(",")}
    length = lengths.pop()
    # Two lengths that differ: nobody can say where the answer ends.
    if lengths or not (length.isascii() and length.isdigit()):
        raise Fault("not_http", f"the length {said[:40]!r} is no number")
    return int(length)


def _chunk_size(line: bytes) -> int:
    found = _CHUNK.fullmatch(line)
    if found is None:
        raise Fault("not_http", "a chunk does not begin with its size")
    return int(found[1], 16)
