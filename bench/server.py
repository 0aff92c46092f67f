"""A stand-in guardrail service: answers every request after a fixed delay, and counts.

`python bench/server.py DELAY_MS [KIND]` prints its port; the kind says what it answers (`check`,
`chat`, `judge`, `guard`). `GET /stats` gives the counts since the last time it was asked: requests,
connections, mean and most in flight, when the first request came (on the
machine's monotonic clock) and seconds from it to the last answer. `GET /watch/PID`
asks it to note how much CPU time a process has had when the next request comes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from time import perf_counter


def _chat(content: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}}
    said = {"choices": [{**choice, "finish_reason": "stop"}], "model": "stand-in"}
    return json.dumps(said).encode()


VERDICT = {"label": "safe", "answer_mode": "answered", "reasons": []}
ANSWERS = {
    "check": b'{"flagged": false, "score": 0.125}',
    "chat": _chat("Here is what you asked for."),
    "judge": _chat(json.dumps(VERDICT)),
    "guard": _chat("safe"),
}


class Counts:
    """What was seen since the last question."""

    def __init__(self) -> None:
        self.requests = self.answered = self.connections = self.now = self.most = 0
        self.first = self.last = self.busy = 0.0
        self.watched: int | None = None
        self.cpu_s = 0.0

    def as_json(self) -> bytes:
        """Return the counts."""
        span = self.last - self.first
        said = {
            "requests": self.requests,
            "connections": self.connections,
            "most_in_flight": self.most,
            "mean_in_flight": self.busy / span if span else 0.0,
            "first": self.first,
            "span_s": span,
            "cpu_s_at_first": self.cpu_s,
        }
        return json.dumps(said).encode()

    def note_cpu(self) -> None:
        """Note the CPU time of the process that is watched, once."""
        if self.watched is not None:
            fields = Path(f"/proc/{self.watched}/stat").read_text().rpartition(")")[2].split()
            self.cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            self.watched = None


COUNTS = Counts()


class Service(asyncio.Protocol):
    """One connection; requests come one after the other."""

    delay_s = 0.0
    body = ANSWERS["check"]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self.transport: asyncio.WriteTransport = transport  # type: ignore[assignment]
        self.buffer = b""
        self.is_counted = False

    def data_received(self, data: bytes) -> None:
        """Answer what is complete."""
        self.buffer += data
        while True:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.buffer[:end]
            at = head.lower().find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            self.buffer = self.buffer[end + 4 + length :]
            if head.startswith(b"GET /stats"):
                self.tell()
            elif head.startswith(b"GET /watch/"):
                COUNTS.watched = int(head.split(b" ", 2)[1].rpartition(b"/")[2])
                self.answer(b"{}")
            else:
                self.take()

    def tell(self) -> None:
        """Give the counts and begin anew."""
        global COUNTS
        body, COUNTS = COUNTS.as_json(), Counts()
        self.answer(body)

    def take(self) -> None:
        """Count a request and answer it later."""
        now, counts = perf_counter(), COUNTS
        if not self.is_counted:
            self.is_counted = True
            counts.connections += 1
        if not counts.first:
            counts.first = now
            counts.note_cpu()
        counts.requests += 1
        counts.now += 1
        counts.most = max(counts.most, counts.now)
        if self.delay_s:
            asyncio.get_running_loop().call_later(self.delay_s, self.done, now, counts)
        else:
            self.done(now, counts)

    def done(self, began: float, counts: Counts) -> None:
        """Answer a request."""
        counts.last = perf_counter()
        counts.busy += counts.last - began
        counts.now -= 1
        # A service whose answers are all alike gets no verdict: every second score is another one.
        counts.answered += 1
        is_other = counts.answered % 2 == 0
        self.answer(self.body.replace(b"0.125", b"0.250") if is_other else self.body)

    def answer(self, body: bytes) -> None:
        """Send one answer."""
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(body), body)
            )


async def main(delay_ms: float, kind: str = "check") -> None:
    """Serve until standard input ends."""
    Service.delay_s, Service.body = delay_ms / 1000, ANSWERS[kind]
    server = await asyncio.get_running_loop().create_server(Service, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), *sys.argv[2:]))
