"""A key never stands in a configuration: it is refused, not repeated, and {env: NAME} takes it."""

from __future__ import annotations

import json
import random
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import ascii_letters, ascii_uppercase, digits
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.journeys.command_line import guardmark, write_rows

from guardmark.app.parts.loading import parse_config
from guardmark.config.settings import Secret, read_text
from guardmark.core.errors import ConfigError
from guardmark.net.redaction import REDACTED, Redactor
from guardmark.store.reader import RecordReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.config.settings import ServiceAccess

PLAIN = "zx81qv"  # no shape of a key: only its name tells
NAMES = ("key", "api_key", "X-API-Key", "apikey", "token", "access_token", "X-Auth-Token", "auth")
NAMES += ("Authorization", "Proxy-Authorization", "secret", "clientSecret", "pass", "password")
NAMES += ("Cookie", "Set-Cookie", "cred", "credentials", "signature", "sig", "X-Amz-Signature")
NAMES += ("Ocp-Apim-Subscription-Key", "subscription-key", "jwt")
BODY_NAMES = ("api_key", "apiKey", "access_token", "client_secret", "password", "auth")
BARE = (
    "0f3a" * 8,
    "Zx81qvTTm4Yd0pLw7Kc2",
    "9f8e7d6c-1234-4abc-8def-0123456789ab",
)  # by their names
HARMLESS_BODIES = (
    *({"token_count": 5}, {"token_count": "5"}, {"max_tokens": 1024}, {"author": BARE[0]}),
    *({"passage": BARE[0]}, {"key": {"$input": "text"}}, {"key": "prompt_template_v2_2024"}),
    *({"token": "<|end_of_text|>"}, {"auth": "a sentence of many words"}, {"sha256": BARE[0]}),
)
HARMLESS = ("author", "design", "max_tokens", "Accept", "passage", "keyword", "Content-Type")


def made_up(seed: int) -> list[str]:
    """Texts of the shapes in which well-known services hand out keys."""
    pick = random.Random(seed).choices

    def some(count: int, letters: str = ascii_letters + digits) -> str:
        return "".join(pick(letters, k=count))

    return [
        f"sk-{some(32)}",
        f"sk-proj-{some(40)}",
        f"AKIA{some(16, ascii_uppercase + digits)}",
        f"ghp_{some(36)}",
        f"xoxb-{some(12, digits)}-{some(24)}",
        f"AIza{some(35)}",
        f"eyJ{some(20)}.eyJ{some(40)}.{some(43)}",
        f"hf_{some(34)}",
        f"Bearer {some(40)}",
    ]


SHAPES = [shape for seed in range(9) for shape in made_up(seed)]


def http(**more: Any) -> dict[str, Any]:
    """A defense behind a service that is never called here."""
    usual = {
        "type": "http",
        "url": "https://guard.example/check",
        "body": {"text": {"$input": "text"}},
    }
    return {**usual, "blocked": "$.blocked", **more}


CASES = [
    *(http(headers={"X-Custom": shape}) for shape in SHAPES),
    *(http(url=f"https://guard.example/{shape}/check") for shape in SHAPES),
    *(
        http(body={"text": {"$input": "text"}, "deep": [{"a": f"is {shape} here"}]})
        for shape in SHAPES
    ),
    *(http(body={"deep": [{name: bare}]}) for name in BODY_NAMES for bare in BARE),
    http(url=f"https://guard.example/check?header=Bearer%20{BARE[1]}"),
    http(url=f"https://guard.example/check?header=Bearer+{BARE[1]}"),
    *(http(headers={name: PLAIN}) for name in NAMES),
    *(http(query={name: PLAIN}) for name in NAMES),
    *(http(url=f"https://guard.example/check?a=1&{name}={PLAIN}") for name in NAMES),
    http(url=f"https://somebody:{PLAIN}@guard.example/check"),
    {"type": "openai", "base_url": f"https://guard.example/v1?api_key={PLAIN}", "model": "m"},
    {"type": "openai", "base_url": f"https://u:{PLAIN}@guard.example/v1", "model": "m"},
]


def loaded(defense: dict[str, Any], **more: Any) -> None:
    """Read a configuration with one defense."""
    document = {"version": 1, "name": "secrets", "data": [{"path": "data.jsonl"}]}
    text = json.dumps({**document, "defenses": {"guard": defense}, **more})
    parse_config(text, folder=Path(), shown_as="bench.yaml")


def test_every_key_that_is_written_out_is_refused_and_not_repeated() -> None:
    """In a header, in an address, in a body; the message shows the form that is taken."""
    assert len(CASES) > 200
    for case in CASES:
        with pytest.raises(ConfigError) as refused:
            loaded(case)
        message = str(refused.value)
        assert "{env: NAME}" in message, case
        assert message.startswith("bench.yaml:1:"), case
        assert not [bare for bare in (PLAIN, *BARE) if bare in message]
        assert not [shape for shape in SHAPES if shape.removeprefix("Bearer ") in message]


def test_a_service_whose_address_carries_a_password_is_refused() -> None:
    """Addresses are names under `services`, and names are not repeated either."""
    with pytest.raises(ConfigError, match="one of its names") as refused:
        loaded(http(), services={f"https://u:{PLAIN}@guard.example": {"rate": 3}})
    assert PLAIN not in str(refused.value)


@pytest.mark.parametrize("name", HARMLESS)
def test_a_name_that_only_sounds_alike_is_taken(name: str) -> None:
    """An author is no authorization."""
    loaded(http(headers={name: "text"}, query={name: "text"}))
    loaded(http(url=f"https://guard.example/check?{name}=text"))


@pytest.mark.parametrize("body", HARMLESS_BODIES, ids=str)
def test_a_body_that_only_sounds_alike_is_taken(body: dict[str, Any]) -> None:
    """Counts, references to fields and words are no keys."""
    loaded(http(body={"text": {"$input": "text"}, **body}))


def test_a_made_up_key_may_be_planted_in_a_system_prompt() -> None:
    """Whether a model gives it away is what some runs measure."""
    model = {"type": "scripted", "system_prompt": f"The key is {SHAPES[0]}."}
    judge = {"type": "rules", "refusals": ["no"], "unsafe": ["yes"]}
    with pytest.raises(ConfigError) as refused:
        loaded({"type": "allow-all"}, pipeline={"model": model, "judges": [judge], "guards": ["x"]})
    assert "key" not in str(refused.value)


@contextmanager
def service() -> Iterator[tuple[str, list[str]]]:
    """A service that blocks nothing, its address, and the paths it was asked for."""
    paths: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            message = {"role": "assistant", "content": "safe"}
            body = json.dumps({"blocked": False, "choices": [{"message": message}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", paths
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


QUERY: dict[str, Any] = {"code": {"env": "GUARD_CODE"}, "v": "2"}
OF_VARIABLES = {
    "the whole address": http(url={"env": "GUARD_URL"}, query=QUERY),
    "a part of the address": http(
        url="{server}?{rest}",
        variables={"server": {"env": "GUARD_URL"}, "rest": {"env": "GUARD_REST"}},
    ),
    "the base of a chat service": {
        "type": "guard-model",
        "profile": "llama-guard-3",
        "base_url": {"env": "GUARD_URL"},
        "model": "m",
        "options": {"note": "v"},
    },
}
"""What is taken from the environment, to a defense that is behind it. To add a case, add a line."""


@pytest.mark.slow
@pytest.mark.parametrize("case", OF_VARIABLES)
def test_what_an_address_takes_from_the_environment_is_stored_nowhere(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is used for the call; what is kept, and what a part is recognised by, is the name."""
    rows = [{"id": f"s{n}", "text": f"text {n}", "label": "attack"} for n in range(4)]
    write_rows(tmp_path / "data.jsonl", [{**row, "category": "jailbreak"} for row in rows])
    config = {"version": 1, "name": "env", "data": [{"path": "data.jsonl"}]}
    text = json.dumps({**config, "defenses": {"guard": OF_VARIABLES[case]}})
    (tmp_path / "bench.yaml").write_text(text)
    prints = []
    for secret in ("first-hidden-path", "other-hidden-path"):
        with service() as (address, paths):
            monkeypatch.setenv("GUARD_URL", f"{address}/{secret}")
            monkeypatch.setenv("GUARD_CODE", "p4r4m+/&=")
            monkeypatch.setenv("GUARD_REST", "code=p4r4m%2B%2F%26%3D")
            done = guardmark("run", "bench.yaml", "-o", secret[:5], cwd=tmp_path)
            assert done.code == 0, done.err
            (asked,) = {urlsplit(path) for path in paths}
            assert asked.path.startswith(f"/{secret}")
            if "code" in asked.query:
                assert parse_qs(asked.query)["code"] == ["p4r4m+/&="]
        written = [p for p in (tmp_path / secret[:5]).rglob("*") if p.is_file()]
        for data in (*(p.read_bytes() for p in written), done.out.encode(), done.err.encode()):
            assert secret.encode() not in data
            assert b"p4r4m" not in data
            assert address.encode() not in data
        with RecordReader(tmp_path / secret[:5] / "records.sqlite") as reader:
            (part,) = reader.manifest().parts
        assert json.dumps({"env": "GUARD_URL"}) in json.dumps(part.settings)
        prints.append(part.fingerprint)
    assert prints[0] == prints[1]


def test_parts_of_an_address_are_hidden_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that repeats a part of its address repeats a key; well-known words stay."""
    redactor = Redactor()
    services = SimpleNamespace(hide=redactor.hide)
    address = (
        "https://somebody:pass-word-1@host.example/v1/tenant-0123456/chat/completions"
        "?code=query%2Dvalue%2D1&v=2#fragment-99"
    )
    monkeypatch.setenv("GUARD_URL", address)
    read_text(Secret(env="GUARD_URL"), "guard.url", cast("ServiceAccess", services))
    for part in ("tenant-0123456", "query%2Dvalue%2D1", "query-value-1", "fragment-99"):
        assert redactor.text(f"no route {part} here") == f"no route {REDACTED} here"
    assert REDACTED in redactor.text("pass-word-1 of somebody")
    assert redactor.text("v1 has chat and completions") == "v1 has chat and completions"


def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    """Before anything is called."""
    write_rows(tmp_path / "data.jsonl", [{"id": "s", "text": "t", "label": "benign"}])
    config = {"version": 1, "name": "env", "data": [{"path": "data.jsonl"}]}
    text = json.dumps({**config, "defenses": {"guard": http(url={"env": "NOT_SET_HERE"})}})
    (tmp_path / "bench.yaml").write_text(text)
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert (done.code, "NOT_SET_HERE" in done.err) == (2, True)
