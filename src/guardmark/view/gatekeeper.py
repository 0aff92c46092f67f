"""Who may ask: the right host, the right site, the token, reading only."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Pages load their own style and script, and nothing else from anywhere."""

_HEADERS: Final = {
    "Content-Security-Policy": PAGE_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Who may ask."""

    hosts: frozenset[str]
    token: str = ""


class Gatekeeper:
    """Lets only permitted requests through, and marks every answer."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules
        self._proof = sha256(f"guardmark view {rules.token}".encode()).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, _marked(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._rules.hosts:
            return _refused(421, "This address does not answer for that host.")
        if scope["method"] not in {"GET", "HEAD"}:
            return _refused(405, "These pages are for reading only.")
        is_foreign = headers.get("sec-fetch-site") in {"cross-site", "same-site"}
        if is_foreign and headers.get("sec-fetch-mode") != "navigate":
            return _refused(403, "Other sites may not read these pages.")
        return self._unproved(scope, headers) if self._rules.token else None

    def _unproved(self, scope: Scope, headers: Headers) -> Response | None:
        name = f"guardmark-view-{scope['server'][1]}"
        cookies = cookie_parser(headers.get("cookie", ""))
        if _same(cookies.get(name, ""), self._proof):
            return None
        if _same(headers.get("authorization", ""), f"Bearer {self._rules.token}"):
            return None
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        shown = [value for key, value in asked if key == "token"]
        if len(shown) != 1 or not _same(shown[0], self._rules.token):
            return _refused(401, "Open the address with ?token=... once; the token is missing.")
        rest = urlencode([pair for pair in asked if pair[0] != "token"])
        # Slashes in front would make the address one of another host.
        path = "/" + scope["path"].lstrip("/\\")
        there = RedirectResponse(f"{path}?{rest}" if rest else path, status_code=303)
        there.set_cookie(name, self._proof, httponly=True, samesite="strict")
        return there


def _same(shown: str, wanted: str) -> bool:
    return hmac.compare_digest(shown.encode(), wanted.encode())


def _refused(code: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status_code=code)


def _marked(send: Send) -> Send:
    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return marked
