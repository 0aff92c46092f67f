"""Exchanges on file: recorded once, replayed as often as wanted, without secrets."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import defaultdict
from hashlib import sha256
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from guardmark.core.errors import ConfigError, StorageError
from guardmark.core.limits import LONGEST_CASSETTE_LINE
from guardmark.core.outcome import Attempt, ErrorKind, TextChunk
from guardmark.core.values import dataclass
from guardmark.net.call_account import present_account
from guardmark.net.service import Exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from guardmark.net.call_account import AskedAbout
    from guardmark.net.redaction import Redactor

    Lock = Callable[[IO[bytes]], bool]

_VERSION = 1
_Ns = Annotated[int, Field(ge=0, lt=1 << 62)]
_NOT_RECORDED = (ValueError, TypeError, LookupError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class CassetteRequest:
    """What makes two requests the same."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class CassetteRecorder:
    """Writes exchanges to a file, one a line, and continues one that an interrupted run left."""

    def __init__(self, path: Path, redactor: Redactor, *, lock: Lock | None = None) -> None:
        self._path = path
        self._redactor = redactor
        self._file = _open_to_append(path, lock)
        self._session = 1 + max((each.session for each in _read(path)), default=-1)

    def add(self, request: CassetteRequest, exchange: Exchange) -> None:
        """Write one exchange."""
        hidden = _redacted(request, self._redactor)
        line = {
            "guardmark_cassette": _VERSION,
            "key": _key(hidden),
            "method": hidden.method,
            "url": hidden.url,
            "headers": dict(hidden.headers),
            "request": _written(hidden.body),
            "status": exchange.status,
            "content_type": exchange.content_type,
            "response": _written(exchange.body),
            "service_ns": exchange.service_ns,
            "error_kind": exchange.error_kind,
            "message": exchange.message,
            "attempts": [[a.service_ns, a.status, a.error, a.wait_ns] for a in exchange.attempts],
        }
        if exchange.chunks is not None:
            line["chunks"] = [[each.end, each.arrival_ns] for each in exchange.chunks]
        account = present_account()
        question = None if account is None else account.asked_about
        if question is not None:
            line |= {"question": question, "session": self._session}
        line["seal"] = _seal(line)
        try:
            self._file.write(json.dumps(line).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class CassettePlayer:
    """Answers from a file instead of the network, with each recorded answer once.

    A question gets the answers that were recorded when it was asked last, since those are stored;
    other equal requests get theirs in the order of the recording.
    """

    def __init__(self, path: Path, redactor: Redactor) -> None:
        self._path = path
        self._redactor = redactor
        self._answers = _load(path)

    def answer(self, request: CassetteRequest) -> Exchange:
        """Return the next recorded answer to a request."""
        hidden = _redacted(request, self._redactor)
        left = self._answers.get(_key(hidden))
        if left:
            account = present_account()
            question = None if account is None else account.asked_about
            own = (each for each in left if question is not None and each.question == question)
            chosen = next(own, left[0])
            left.remove(chosen)
            return chosen.exchange()
        state = "no answer to this request" if left is None else "no further answer"
        shown = hidden.url.split("?", 1)[0]
        return Exchange(
            status=None,
            body=b"",
            service_ns=0,
            error_kind=ErrorKind.REFUSED,
            message=f"{request.method} {shown}: the cassette {self._path} has {state}",
            replayed=True,
        )


def _redacted(request: CassetteRequest, redactor: Redactor) -> CassetteRequest:
    return CassetteRequest(
        method=request.method,
        url=redactor.text(request.url),
        headers={name.lower(): redactor.text(text) for name, text in request.headers.items()},
        body=redactor.data(request.body),
    )


def _key(request: CassetteRequest) -> str:
    """Hash a request of which the secrets are already gone."""
    head = [request.method, request.url, sorted(request.headers.items())]
    return sha256(json.dumps(head).encode() + b"\n" + request.body).hexdigest()


def _seal(line: Mapping[str, object]) -> str:
    """Hash what a line says, so that an edited answer is not replayed as the recorded one."""
    return sha256(json.dumps(line, sort_keys=True).encode()).hexdigest()


def _written(data: bytes) -> object:
    """Write bytes as text where they are text, so that people can read the file."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _read_back(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else b64decode(text["base64"], validate=True)


def _open_to_append(path: Path, lock: Lock | None) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
        if lock is not None and not lock(file):
            file.close()
            raise StorageError(
                f"The cassette {path} is being recorded by another run.\n"
                "Next: wait for it, or name another file with --record."
            )
        file.seek(0)
        file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))
    except OSError as error:
        raise _unwritable(path, error) from error
    return file


def _unwritable(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"The cassette {path} cannot be written: {error.strerror}.\n"
        "Next: free disk space, or name another file with --record."
    )


class _Line(BaseModel, strict=True):
    """One line of a cassette, of which a stranger may have written any."""

    guardmark_cassette: Literal[1]
    key: str
    status: int | None
    body: Annotated[bytes, BeforeValidator(_read_back)] = Field(alias="response")
    content_type: str
    service_ns: _Ns
    error_kind: ErrorKind | None
    message: str
    attempts: list[tuple[_Ns, int | None, str, _Ns]]
    chunks: list[tuple[_Ns, _Ns]] | None = None
    question: tuple[str, int, int] | None = None
    session: int = 0

    def exchange(self) -> Exchange:
        """Return what is answered."""
        told = {"status", "body", "content_type", "service_ns", "error_kind", "message"}
        chunks = None
        if self.chunks is not None:
            chunks = tuple(TextChunk(end=end, arrival_ns=ns) for end, ns in self.chunks)
        return Exchange(
            **self.model_dump(include=told),
            attempts=tuple(
                Attempt(service_ns=ns, status=status, error=error, wait_ns=wait)
                for ns, status, error, wait in self.attempts
            ),
            chunks=chunks,
            replayed=True,
        )


def _load(path: Path) -> dict[str, list[_Line]]:
    """Sort a cassette by request, without what was asked again when the recording went on."""
    lines = list(_read(path))
    last: dict[AskedAbout, int] = {}
    for line in lines:
        if line.question is not None:
            last[line.question] = max(line.session, last.get(line.question, 0))
    answers: dict[str, list[_Line]] = defaultdict(list)
    for line in lines:
        if line.question is None or line.session == last[line.question]:
            answers[line.key].append(line)
    return dict(answers)


def _read(path: Path) -> Iterator[_Line]:
    for number, line in enumerate(_lines(path), start=1):
        try:
            document = json.loads(line)
            if document.pop("seal", None) not in {None, _seal(document)}:
                raise ConfigError(
                    f"{path}, line {number}: this exchange was changed after it was recorded.\n"
                    "Next: record anew; a replay of other answers would be another run."
                )
            yield _Line.model_validate_json(line)
        except _NOT_RECORDED as error:
            mistake = f"{path}, line {number}: guardmark did not record this exchange."
            raise ConfigError(mistake) from error


def _lines(path: Path) -> Iterator[bytes]:
    """Yield whole lines; a last line without its end was cut off while it was written."""
    if path.exists() and not path.is_file():
        raise _unreadable(path, "it is not a file")
    try:
        with path.open("rb") as file:
            while (line := file.readline(LONGEST_CASSETTE_LINE)).endswith(b"\n"):
                yield line
    except OSError as error:
        raise _unreadable(path, error.strerror) from error
    if len(line) == LONGEST_CASSETTE_LINE:
        raise _unreadable(path, f"it has a line of {LONGEST_CASSETTE_LINE >> 20} MiB or more")


def _unreadable(path: Path, reason: str | None) -> ConfigError:
    return ConfigError(
        f"The cassette {path} cannot be read: {reason}.\n"
        "To make one: the same command with --record FILE instead of --replay FILE"
    )
