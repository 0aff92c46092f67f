"""A collector on loopback: takes OTLP over HTTP, and hands on each request as a line of JSON."""

from __future__ import annotations

import gzip
import io
import json
import queue
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH: Final = "/v1/traces"
MOST_BYTES: Final = 16 << 20
"""Of a request, unpacked."""

_WAITING: Final = 1_000  # requests that wait to be counted; senders wait beyond it
_TIMEOUT_S: Final = 30
_LOOK_S: Final = 0.5


_JSON: Final = "application/json"
_PROTOBUF: Final = "application/x-protobuf"
_OK: Final = 200


def _as_json(body: bytes) -> bytes:
    """Write a request of protobuf as JSON.

    Raises:
        ImportError: The extra `otel` is not installed.
        ValueError: It is no request of OTLP.
    """
    from google.protobuf.json_format import MessageToJson
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise ValueError("no request of OTLP") from error
    text: str = MessageToJson(request, indent=None)
    return text.encode()


class Collector:
    """Listens on loopback until it is closed; iterate over it for the requests that came."""

    def __init__(self, port: int) -> None:
        self._queue: queue.Queue[bytes] = queue.Queue(_WAITING)
        handler = type("_OfThis", (_Handler,), {"queue": self._queue})
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        except OSError as error:
            raise ConfigError(
                f"Port {port} cannot be listened on: {error.strerror}.\nNext: name another one."
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where spans are to be sent."""
        return f"http://127.0.0.1:{self._server.server_port}{PATH}"

    def __iter__(self) -> Iterator[bytes]:
        """Yield requests as they come, until closed."""
        while self._thread.is_alive() or not self._queue.empty():
            try:
                yield self._queue.get(timeout=_LOOK_S)
            except queue.Empty:
                continue

    def close(self) -> None:
        """Listen no longer."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One request; what cannot be read is answered with the reason and not counted."""

    queue: queue.Queue[bytes]
    timeout = _TIMEOUT_S

    def do_POST(self) -> None:
        """Take a request of spans."""
        code, why = self._taken()
        content = json.dumps({"partialSuccess": {}} if code == _OK else {"message": why}).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _taken(self) -> tuple[int, str]:
        """Hand a request on; return the status, and why it was not taken."""
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip()
        length = self.headers.get("Content-Length", "")
        refusals = (
            (self.path != PATH, 404, f"spans are taken at {PATH}"),
            (kind not in {_JSON, _PROTOBUF}, 415, f"spans are taken as {_JSON} or {_PROTOBUF}"),
            (not length.isdecimal(), 411, "a request states its length"),
        )
        for is_so, code, why in refusals:
            if is_so:
                return code, why
        if int(length) > MOST_BYTES:
            return 413, f"at most {MOST_BYTES} bytes"
        try:
            body = self._unpacked(self.rfile.read(int(length)))
            if kind == _PROTOBUF:
                body = _as_json(body)
        except ImportError:
            return 415, "send JSON, or install guardmark[otel] for protobuf"
        except ValueError as error:
            return 400, str(error)
        self.queue.put(b" ".join(body.splitlines()))
        return _OK, ""

    def _unpacked(self, body: bytes) -> bytes:
        """Return what a request holds.

        Raises:
            ValueError: It is not what it says, or too much.
        """
        if self.headers.get("Content-Encoding", "identity") != "gzip":
            return body
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
                whole = file.read(MOST_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError("not gzip") from error
        if len(whole) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes of it")
        return whole

    def log_message(self, *_: object) -> None:
        """Say nothing: the terminal is for figures."""
