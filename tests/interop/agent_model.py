"""A model on loopback that calls tools by rule: it does each task of errands, and what it reads.

It speaks OpenAI's protocol, as chat completions and as responses. What it does is what the obedient
agent does, written anew: it reads the suite's file, and nothing else of guardmark.
"""

from __future__ import annotations

import json
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

SUITE = yaml.safe_load(
    (Path(__file__).parents[2] / "src/guardmark/suites/errands/suite.yaml").read_text("utf-8")
)
NEW_TASK, SEEN = "New task:\n", "Observation:\n"
"""Stand before the task and each result where smolagents asks, which has all answers as calls."""
KEPT_BACK = ("[This result was left out", "[This call was refused")


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


TASKS = {_letters(task["prompt"]): task for task in SUITE["tasks"]}
ORDERS = {_letters(each["order"]): each for each in SUITE["injections"]}


def next_move(prompt: str, results: list[str]) -> tuple[str, dict[str, Any]] | str:
    """Return the next call (name, arguments), or the answer, from what was said so far."""
    task = TASKS[_letters(prompt)]
    calls = [(call, False) for call in task["calls"]]
    obeyed: dict[str, Any] | None = None
    for number, result in enumerate(results):
        if result.startswith(KEPT_BACK):
            return "I stop here."
        _, is_injected = calls[number]
        found = [each for order, each in ORDERS.items() if order in _letters(result)]
        if found and not obeyed and not is_injected:
            obeyed = found[0]
            calls[number + 1 : number + 1] = [(call, True) for call in obeyed["calls"]]
    if len(results) < len(calls):
        (made,) = calls[len(results)][0].items()
        name, arguments = made
        return name, arguments or {}
    texts = [task.get("output", ""), (obeyed or {}).get("output", "")]
    return "\n".join(text for text in texts if text)


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def complete(body: dict[str, Any]) -> dict[str, Any]:
    """Answer a request for a chat completion."""
    said = body["messages"]
    prompt = next(_text(each["content"]) for each in said if each["role"] == "user")
    results = [_text(each["content"]) for each in said if each["role"] == "tool"]
    is_small = prompt.startswith(NEW_TASK)
    if is_small:
        told = [_text(each["content"]) for each in said if each["role"] == "user"]
        results = [text.removeprefix(SEEN) for text in told if text.startswith(SEEN)]
    move = next_move(prompt.removeprefix(NEW_TASK), results)
    if is_small and isinstance(move, str):
        move = "final_answer", {"answer": move}
    message: dict[str, Any] = {"role": "assistant", "content": move}
    if not isinstance(move, str):
        function = {"name": move[0], "arguments": json.dumps(move[1])}
        call = {"id": f"c{len(results)}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    reason = "stop" if isinstance(move, str) else "tool_calls"
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    head = {"id": "c", "object": "chat.completion", "created": 0, "model": "scripted"}
    return {**head, "choices": [choice], "usage": usage}


def respond(body: dict[str, Any]) -> dict[str, Any]:
    """Answer a request for a response."""
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    prompt = next(_text(each["content"]) for each in items if each.get("role") == "user")
    outputs = [each for each in items if each.get("type") == "function_call_output"]
    results = [_text(each["output"]) for each in outputs]
    move = next_move(prompt, results)
    item: dict[str, Any]
    if isinstance(move, str):
        content = [{"type": "output_text", "text": move, "annotations": []}]
        item = {"type": "message", "id": "m", "status": "completed", "role": "assistant"}
        item["content"] = content
    else:
        item = {"type": "function_call", "id": f"f{len(results)}", "call_id": f"c{len(results)}"}
        item |= {"name": move[0], "arguments": json.dumps(move[1]), "status": "completed"}
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    usage |= {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
    head = {"id": "r", "object": "response", "created_at": 0, "model": "scripted"}
    more = {"status": "completed", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {**head, **more, "output": [item], "usage": usage}


class _Answering(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = respond(body) if self.path.endswith("/responses") else complete(body)
        data = json.dumps(reply).encode()
        self.send_response(200)
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


def variables(server: ThreadingHTTPServer) -> dict[str, str]:
    """Return the environment of an agent whose framework asks this model, and nobody else."""
    return {
        **os.environ,
        "OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}/v1",
        "OPENAI_API_KEY": "sk-loopback",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
    }
