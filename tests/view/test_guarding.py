"""Who may read the pages, and what no request can do."""

from __future__ import annotations

import http.client
import socket
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.journeys.command_line import guardmark
from tests.view.site_server import Site, serving

from guardmark.view.server import LEAST_TOKEN

pytestmark = pytest.mark.slow

TOKEN = "0123456789abcdef-token"  # noqa: S105 - of a test


def raw(site: Site, line: str, *headers: str) -> bytes:
    """Send a request line as it is, which no client library would."""
    place = urlsplit(site.url)
    assert place.hostname
    assert place.port
    host = () if any(each.lower().startswith("host:") for each in headers) else (place.netloc,)
    with socket.create_connection((place.hostname, place.port), timeout=20) as wire:
        said = [line, *(f"Host: {each}" for each in host), *headers, "Connection: close", "", ""]
        wire.sendall("\r\n".join(said).encode("latin-1"))
        return b"".join(iter(lambda: wire.recv(65536), b""))


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "localhost.evil"],
)
def test_another_host_is_refused(site: Site, host: str) -> None:
    """A name bent to this address (DNS rebinding) names itself, and gets nothing."""
    answer = site.ask(Host=host.format(port=urlsplit(site.url).port))
    assert answer.code in {400, 421}
    assert "<" not in answer.text


def test_two_hosts_are_refused(site: Site) -> None:
    """Whatever the second one says."""
    place = urlsplit(site.url).netloc
    answer = raw(site, "GET / HTTP/1.1", f"Host: {place}", "Host: evil.example")
    assert answer.split()[1] in {b"400", b"421"}


def test_localhost_is_this_machine(site: Site) -> None:
    """Under any of its names."""
    port = urlsplit(site.url).port
    assert site.ask(Host=f"localhost:{port}").code == 200
    assert site.ask(Host=f"LOCALHOST:{port}").code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(site: Site, method: str) -> None:
    """There is nothing to forge a request for."""
    assert site.ask(method=method).code == 405


def test_other_sites_cannot_load_pages(site: Site) -> None:
    """As a picture, a script, a frame or data; following a link is fine."""
    assert site.ask(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").code == 403
    assert site.ask("progress", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="cors").code == 403
    assert site.ask(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").code == 200
    assert site.ask(Sec_Fetch_Site="same-origin", Sec_Fetch_Mode="cors").code == 200


@pytest.mark.parametrize("path", ["", "style.css", "progress", "no/such/page"])
def test_every_answer_is_marked(site: Site, path: str) -> None:
    """Nothing from elsewhere is loaded, framed, guessed or kept."""
    headers = site.ask(path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/run/../../../../etc/passwd",
        "/run/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/report/..%2f..%2freport.html",
        "/report//etc/passwd",
        "/report/%00",
        "/style.css/../../view.py",
        "//etc/passwd",
        "/run/" + "a" * 60_000,
        "/templates/view.js",
    ],
)
def test_no_path_leads_out(site: Site, path: str) -> None:
    """A key is looked up, never made into a path."""
    answer = raw(site, f"GET {path} HTTP/1.1")
    assert answer.split()[1] in {b"404", b"400", b"414", b"431"}
    assert b"root:" not in answer


def test_links_are_not_followed(runs: Path, tmp_path: Path) -> None:
    """Neither to a folder outside nor to a file outside in place of a report."""
    secret = tmp_path / "secret.html"
    secret.write_text("<p>secret words", encoding="utf-8")
    outside = tmp_path / "outside"
    (runs / "other").rename(outside)
    (runs / "link").symlink_to(outside, target_is_directory=True)
    report = runs / "a" / "first" / "report.html"
    report.unlink()
    report.symlink_to(secret)
    with serving(runs) as site:
        assert site.runs == 3
        for key in {part[:16] for part in site.ask().text.split("/run/")[1:]}:
            assert "secret words" not in site.ask(f"report/{key}").text


def test_other_machines_need_consent_and_a_token(made: Path) -> None:
    """Three steps, each refused with the next one named; nothing is listened on."""
    done = guardmark("view", made, "--host", "0.0.0.0", cwd=made)  # noqa: S104 - to be refused
    assert (done.code, "--allow-remote" in done.err) == (2, True)
    done = guardmark("view", made, "--host", "example.invalid", cwd=made)
    assert done.code == 2
    done = guardmark("view", made, "--host", "0.0.0.0", "--allow-remote", cwd=made)  # noqa: S104 - to be refused
    assert (done.code, "--token-env" in done.err) == (2, True)
    given = ("view", made, "--host", "0.0.0.0", "--allow-remote", "--token-env", "GM_TOKEN")  # noqa: S104 - to be refused
    done = guardmark(*given, cwd=made, env={"GM_TOKEN": "short"})
    assert (done.code, "GM_TOKEN" in done.err) == (2, True)
    assert "short" not in done.err


def test_a_token_is_shown_once_and_kept_in_a_cookie(made: Path) -> None:
    """Wrong, missing and doubled ones are refused; the address loses it at once."""
    with serving(made, "--token-env", "GM_TOKEN", env={"GM_TOKEN": TOKEN}) as site:
        assert site.ask().code == 401
        assert site.ask("?token=wrong").code == 401
        assert site.ask(f"?token={TOKEN}&token={TOKEN}").code == 401
        assert site.ask(Cookie="guardmark-view=1").code == 401
        assert site.ask(Authorization=f"Bearer {TOKEN}").code == 200
        entered = site.ask(f"?words=x&token={TOKEN}")
        assert (entered.code, entered.headers["location"]) == (303, "/?words=x")
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert TOKEN not in cookie
        assert site.ask(Cookie=cookie.split(";")[0]).code == 200
        away = site.ask(f"/evil.example?token={TOKEN}")
        assert away.headers["location"] == "/evil.example"


def test_other_users_of_this_machine_need_the_printed_address(made: Path) -> None:
    """Without the token there is nothing to read, and it differs from one start to the next."""
    tokens = set()
    for _ in range(2):
        with serving(made, "--token") as site:
            address, _, token = site.url.partition("?token=")
            tokens.add(token)
            bare = replace(site, url=address)
            assert len(token) >= LEAST_TOKEN
            assert bare.ask().code == 401
            assert bare.ask("progress").code == 401
            first = site.ask()
            assert first.code == 303
            cookie = first.headers["set-cookie"].partition(";")[0]
            assert token not in first.headers["location"]
            assert bare.ask(Cookie=cookie).code == 200
    assert len(tokens) == 2


def test_a_token_and_none_contradict_each_other(made: Path) -> None:
    """Neither is guessed."""
    done = guardmark("view", made, "--no-token", "--token-env", "GM_TOKEN", cwd=made)
    assert done.code == 2


def test_a_taken_port_is_named(site: Site, made: Path) -> None:
    """With the way out."""
    done = guardmark("view", made, "--port", str(urlsplit(site.url).port), cwd=made)
    assert (done.code, "--port" in done.err) == (2, True)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """Not an empty list."""
    done = guardmark("view", "nowhere", cwd=tmp_path)
    assert (done.code, "nowhere" in done.err) == (2, True)


def test_reading_leaves_the_runs_alone(runs: Path) -> None:
    """Pages write nothing into a run."""

    def stamps() -> dict[str, int]:
        return {
            str(path): path.stat().st_mtime_ns
            for path in runs.rglob("*")
            if path.is_file() and not path.name.endswith(("-shm", "-wal"))
        }

    before = stamps()
    with serving(runs) as site:
        for key in {part[:16] for part in site.ask().text.split("/run/")[1:]}:
            site.ask(f"run/{key}")
            site.ask(f"report/{key}")
    assert stamps() == before


def test_a_head_request_has_no_body(site: Site) -> None:
    """As the protocol wants it."""
    place = urlsplit(site.url)
    wire = http.client.HTTPConnection(place.netloc, timeout=20)
    wire.request("HEAD", "/")
    answer = wire.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    wire.close()
