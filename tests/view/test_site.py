"""What the pages answer to addresses that a browser kept, and to what is no request for a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from guardmark.view.index import RunIndex

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("starlette", reason="the extra view is not installed")

HOST = "localhost:8765"


async def ask(root: Path, path: str, query: str = "", *, kind: str = "http") -> tuple[int, str]:
    """Ask the pages over a folder; return the status, 0 if nothing was answered, and the text."""
    from guardmark.view.site import Rules, build_site

    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    scope = {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", HOST.encode())],
        "server": ("127.0.0.1", 8765),
    }
    await build_site(RunIndex(root), Rules(hosts=frozenset({HOST})))(scope, receive, send)
    if not said:
        return 0, ""
    return said[0]["status"], b"".join(each.get("body", b"") for each in said[1:]).decode()


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/run/0123456789abcdef", ""),
        ("/report/0123456789abcdef", ""),
        ("/samples/0123456789abcdef", "flaw=bypass"),
        ("/compare", "run=0123456789abcdef&run=fedcba9876543210"),
    ],
)
async def test_a_run_that_was_moved_is_said_to_be_gone(
    tmp_path: Path, path: str, query: str
) -> None:
    """Every page about it says the same."""
    code, page = await ask(tmp_path, path, query)
    assert code == 404
    assert "There is no such run; it may have been moved or removed." in page


async def test_a_run_that_was_moved_has_no_progress(tmp_path: Path) -> None:
    """An empty answer, which leaves an open page as it is."""
    assert await ask(tmp_path, "/progress", "run=0123456789abcdef") == (200, "{}")


async def test_a_web_socket_is_not_answered(tmp_path: Path) -> None:
    """There is nothing to listen to; the same address is a page."""
    assert await ask(tmp_path, "/", kind="websocket") == (0, "")
    assert (await ask(tmp_path, "/"))[0] == 200
