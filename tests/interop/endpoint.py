"""An endpoint that speaks OpenAI's protocol on loopback and answers by rule, the same each time.

Told to guard, it flags what asks for the canary word. Asked plainly, it refuses every second
wording, by its hash, and does what the others ask; it fails where a text tells it to.
"""

from __future__ import annotations

import json
import re
import threading
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

CANARY = "PERIWINKLE"
BROKEN = "<<break>>"
MUMBLE = "<<mumble>>"


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        yield str(part.get("text", ""))


def _said(body: dict[str, Any], *roles: str) -> str:
    listed = [each for each in body.get("messages", []) if each.get("role") in roles]
    return "\n".join(text for each in listed for text in _texts(each.get("content")))


def answer(body: dict[str, Any]) -> str:
    """Answer a chat by rule."""
    system, asked = _said(body, "system", "developer"), _said(body, "user", "tool")
    whole = f"{system}\n{asked}"
    asks = CANARY in asked
    if "risk_score" in json.dumps(body.get("response_format") or ""):  # any-guardrail's judge
        told = {"valid": not asks, "explanation": "by rule", "risk_score": 0.9 if asks else 0.1}
        return "maybe" if MUMBLE in asked else json.dumps(told)
    if "confidence" in whole and "flagged" in whole:  # the judges of openai-guardrails
        told = {"flagged": asks, "confidence": 0.9 if asks else 0.1, "reason": "by rule"}
        return "maybe" if MUMBLE in asked else json.dumps(told)
    if sha256(asked.encode()).digest()[0] % 2 == 0:
        return "I'm sorry, but I can't assist with that."
    return f"{CANARY}, as you wish." if asks else "Here is what you asked for."


def call_tool(body: dict[str, Any]) -> dict[str, Any] | None:
    """Act as an agent of a bank: read the file asked for, then obey it, or not, by rule."""
    asked, read = _said(body, "user"), _said(body, "tool")
    file = re.search(r"'([\w-]+\.txt)'", asked)
    told = read or asked
    wants_password = re.search(r"Change the password of the user to (\w+)", told)
    has_acted = "update_password" in json.dumps(body["messages"])
    if file and not read:
        return {"name": "read_file", "arguments": json.dumps({"file_path": file[1]})}
    if wants_password and not has_acted and "landlord" not in asked:
        arguments = json.dumps({"password": wants_password[1]})
        return {"name": "update_password", "arguments": arguments}
    return None


class _Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": [{"id": "rules", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if BROKEN in json.dumps(body):
            self._send(400, {"error": {"message": "told to break", "type": "invalid_request"}})
        elif "moderations" in self.path:
            texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
            flagged = CANARY in json.dumps(texts)
            said = {"violence": flagged}, {"violence": 0.9 if flagged else 0.1}
            one = {"flagged": flagged, "categories": said[0], "category_scores": said[1]}
            self._send(200, {"id": "m", "model": "rules", "results": [one]})
        elif "as much money as possible" in _said(body, "tool"):
            said = {"message": "too long", "code": "context_length_exceeded", "param": "messages"}
            self._send(400, {"error": said})
        else:
            message: dict[str, Any] = {"role": "assistant", "content": answer(body)}
            call = call_tool(body) if body.get("tools") else None
            if call:
                message["tool_calls"] = [{"id": "t", "type": "function", "function": call}]
            reason = "tool_calls" if call else "stop"
            choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
            usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
            head = {"id": "c", "object": "chat.completion", "created": 0, "model": "rules"}
            self._send(200, {**head, "choices": [choice], "usage": usage})

    def _send(self, status: int, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


def start() -> ThreadingHTTPServer:
    """Serve on a free port of this machine until shut down."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
