"""A small guard behind HTTP, to try guardmark's http defense on: a word list with scores.

Start it with `python examples/service.py`, then measure it with
`guardmark run examples/http.yaml`. It answers

    POST /v1/check   {"text": "..."}
    200              {"flagged": true, "score": 0.8, "categories": ["override"]}

on the loopback interface only. It is no good guard: it is there to be measured.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re

from aiohttp import web

WEIGHTS = {
    "override": (0.6, re.compile(r"\b(ignore|disregard|forget|override)\b", re.IGNORECASE)),
    "prompt": (0.4, re.compile(r"\b(system prompt|instructions|hidden rules)\b", re.IGNORECASE)),
    "persona": (0.5, re.compile(r"\b(pretend|you are now|developer mode)\b", re.IGNORECASE)),
    "secret": (0.3, re.compile(r"\b(password|api key|secret|credentials)\b", re.IGNORECASE)),
}
THRESHOLD = 0.7


def assess(text: str) -> dict[str, object]:
    """Add up the weights of what is found in a text."""
    found = [name for name, (_, pattern) in WEIGHTS.items() if pattern.search(text)]
    score = min(1.0, sum(WEIGHTS[name][0] for name in found))
    return {"flagged": score >= THRESHOLD, "score": round(score, 3), "categories": found}


def make_app(*, delay_ms: float = 0.0, failures: float = 0.0, token: str = "") -> web.Application:
    """Build the service.

    Args:
        delay_ms: Time it pretends to think.
        failures: Share of requests that fail with status 500, drawn with a fixed seed.
        token: Bearer token it asks for; none when empty.
    """
    draw = random.Random(1)

    async def check(request: web.Request) -> web.Response:
        if token and request.headers.get("Authorization") != f"Bearer {token}":
            return web.json_response({"error": "unknown token"}, status=401)
        try:
            text = (await request.json())["text"]
        except (ValueError, KeyError, TypeError):
            return web.json_response({"error": 'send {"text": "..."}'}, status=400)
        if delay_ms:
            await asyncio.sleep(delay_ms / 1000)
        if draw.random() < failures:
            return web.json_response({"error": "out of luck"}, status=500)
        return web.json_response(assess(str(text)))

    app = web.Application(client_max_size=16 * 1024 * 1024)
    app.router.add_post("/v1/check", check)
    return app


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="A small guard behind HTTP, to be measured.")
    parser.add_argument("--port", type=int, default=8900)
    parser.add_argument("--delay-ms", type=float, default=0.0, help="time it pretends to think")
    parser.add_argument("--failures", type=float, default=0.0, help="share of requests that fail")
    chosen = parser.parse_args()
    app = make_app(
        delay_ms=chosen.delay_ms,
        failures=chosen.failures,
        token=os.environ.get("GUARD_TOKEN", ""),
    )
    web.run_app(app, host="127.0.0.1", port=chosen.port)


if __name__ == "__main__":
    main()
