"""The http defense against real loopback services, in the shapes services have."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from aiohttp import web
from pydantic import ValidationError

from guardmark.app.registry import settings_model
from guardmark.config.settings import BuildContext
from guardmark.core.errors import ConfigError
from guardmark.core.outcome import Decision, ErrorKind, Outcome, ScoreKind
from guardmark.core.sample import Message, Prompt, Role, View
from guardmark.net.client import Services
from guardmark.net.service import ServiceLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Ask = Callable[..., Awaitable[Decision]]

HELLO = Prompt.of_text("hello")
TEXT = "body: {text: {$input: text}}"


def build(settings: str, services: Services | None, **known: str) -> Any:
    """Build a defense from its YAML, as the command line does."""
    document = yaml.safe_load(settings) | known
    model = settings_model("defense", "http").model_validate(document)
    context = BuildContext(folder=Path(), seed=1, services=services, defenses={})
    return model.build("vendor", context)  # type: ignore[attr-defined]


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    """A client whose retries do not wait long."""
    client = Services(
        default=ServiceLimits(backoff_s=0.001, connect_timeout_s=10, read_timeout_s=10, retries=1)
    )
    yield client
    await client.close()


@pytest.fixture
async def ask(services: Services, serve: Any) -> Ask:
    """Ask a service that always gives one answer."""

    async def ask_one(
        settings: str,
        answer: object = None,
        *,
        status: int = 200,
        content_type: str = "application/json",
        prompt: Prompt = HELLO,
    ) -> Decision:
        async def reply(request: web.Request) -> web.Response:
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            return web.Response(status=status, body=body, content_type=content_type)

        server = await serve(reply)
        decision = await build(f"{{{TEXT}, {settings}}}", services, url=server.url).decide(prompt)
        assert isinstance(decision, Decision)
        return decision

    return ask_one


@pytest.mark.parametrize(
    ("settings", "answer", "outcome"),
    [
        ("blocked: $.flagged", {"flagged": True}, "block"),
        ("blocked: $.flagged", {"flagged": False}, "allow"),
        (
            "blocked: '$.results[*].flagged'",
            {"results": [{"flagged": False}, {"flagged": True}]},
            "block",
        ),
        ("blocked: $.verdict, blocked_when: BLOCK", {"verdict": "BLOCK"}, "block"),
        ("blocked: $.verdict, blocked_when: BLOCK", {"verdict": "ALLOW"}, "allow"),
        ("blocked: $.n, blocked_when: [1, 2]", {"n": 2}, "block"),
        ("blocked: $.n, blocked_when: [1, 2]", {"n": 0}, "allow"),
        ("blocked: $.v, blocked_when: {one_of: [bad], allowed: [ok]}", {"v": "ok"}, "allow"),
        ("blocked: $.severity, blocked_when: {at_least: 4}", {"severity": 4}, "block"),
        ("blocked: $.severity, blocked_when: {at_least: 4}", {"severity": 2}, "allow"),
        ("blocked: '$[0][*]', blocked_when: {exists: true}", [[{"start": 0}]], "block"),
        ("blocked: '$[0][*]', blocked_when: {exists: true}", [[]], "allow"),
        (
            "action: $.action, actions: {NONE: allow, INTERVENED: block}",
            {"action": "INTERVENED"},
            "block",
        ),
        ("action: $.action, actions: {NONE: allow, MASKED: allow}", {"action": "MASKED"}, "allow"),
        ("score: $.score, threshold: 0.5", {"score": 0.5}, "block"),
        ("score: $.score, threshold: 0.5", {"score": 0.49}, "allow"),
        ("score: '$.c.*', threshold: 0.5", {"c": {"hate": 0.1, "jailbreak": 0.7}}, "block"),
    ],
)
async def test_answers_in_many_shapes_are_understood(
    ask: Ask, settings: str, answer: object, outcome: str
) -> None:
    """Booleans, words, levels, findings, actions, scores."""
    decision = await ask(settings, answer)
    assert decision.outcome is Outcome(outcome)
    assert decision.latency_ns is not None
    assert decision.latency_ns > 0


@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        ("blocked: $.flagged", {}),
        ("blocked: $.flagged", {"flagged": None}),
        ("blocked: $.flagged", {"flagged": "false"}),
        ("blocked: $.flagged", {"flagged": 1}),
        ("blocked: $.flagged", []),
        ("blocked: $.flagged", "blocked"),
        ("blocked: $.flagged", None),
        ("blocked: $.flagged", b'{"flagged": tr'),
        ("blocked: $.flagged", b""),
        ("blocked: $.flagged", b"[" * 50_000),
        ("blocked: $.flagged", b'{"flagged": "\xff"}'),
        ("blocked: $.v, blocked_when: BLOCK", {"v": None}),
        ("blocked: $.v, blocked_when: BLOCK", {"v": {"BLOCK": True}}),
        ("blocked: $.v, blocked_when: 1", {"v": True}),
        ("blocked: $.v, blocked_when: {one_of: [bad], allowed: [ok]}", {"v": "maybe"}),
        ("blocked: $.v, blocked_when: {at_least: 4}", {"v": "5"}),
        ("action: $.action, actions: {NONE: allow}", {"action": "SOMETHING_NEW"}),
        ("action: $.action, actions: {NONE: allow}", {}),
        ("score: $.score, threshold: 0.5", {}),
        ("score: $.score, threshold: 0.5", {"score": None}),
        ("score: $.score, threshold: 0.5", {"score": "high"}),
        ("score: $.score, threshold: 0.5", {"score": 87}),
        ("score: $.score, threshold: 0.5", b'{"score": NaN}'),
        ("score: $.score, threshold: 0.5", b'{"score": 1e999}'),
        ("score: $.score, threshold: 0.5", {"score": True}),
    ],
)
async def test_what_cannot_be_read_is_malformed(ask: Ask, settings: str, answer: object) -> None:
    """Never a silent block, never a silent allow, and the answer is kept for a look."""
    decision = await ask(settings, answer)
    assert decision.outcome is Outcome.MALFORMED
    assert decision.score is None
    assert decision.evidence is not None
    assert decision.evidence.message


async def test_another_kind_of_page_is_an_error(ask: Ask) -> None:
    """A proxy's login page with status 200 is no answer of the service."""
    decision = await ask("blocked: $.flagged", b"<html>log in</html>", content_type="text/html")
    assert (decision.outcome, decision.error_kind) == (Outcome.ERROR, ErrorKind.CONTRACT)
    assert decision.evidence is not None
    assert "text/html" in decision.evidence.message


async def test_json_under_another_name_is_still_json(ask: Ask) -> None:
    """Many services forget the content type."""
    decision = await ask("blocked: $.flagged", {"flagged": True}, content_type="text/plain")
    assert decision.outcome is Outcome.BLOCK


@pytest.mark.parametrize(
    ("settings", "answer", "score", "kind"),
    [
        ("score: $.s", {"s": 0.25}, 0.25, ScoreKind.SELF_REPORTED),
        ("score: $.s, score_range: [0, 100]", {"s": 25}, 0.25, ScoreKind.SELF_REPORTED),
        ("score: $.s, score_range: [1, 0]", {"s": 0.75}, 0.25, ScoreKind.SELF_REPORTED),
        (
            "score: $.s, score_range: [0, 7], score_kind: severity",
            {"s": 7},
            1.0,
            ScoreKind.SEVERITY,
        ),
        ("score: $.s, score_labels: {LOW: 0.25, HIGH: 1}", {"s": "LOW"}, 0.25, ScoreKind.ORDINAL),
        ("score: '$.s[*]'", {"s": [0.1, 0.25]}, 0.25, ScoreKind.CATEGORY_MAX),
        ("score: $.s", {"s": 1.0000000002}, 1.0, ScoreKind.SELF_REPORTED),
        ("score: $.s", {}, None, ScoreKind.NONE),
    ],
)
async def test_scores_become_risks(
    ask: Ask, settings: str, *, answer: dict[str, object], score: float | None, kind: ScoreKind
) -> None:
    """On the service's own scale, upside down or in words; a missing one stays missing."""
    decision = await ask(f"blocked: $.flagged, {settings}", {"flagged": False} | answer)
    assert decision.outcome is Outcome.ALLOW
    assert decision.score == (None if score is None else pytest.approx(score))
    assert decision.score_kind is kind


async def test_the_services_own_decision_stands_beside_a_threshold(ask: Ask) -> None:
    """A threshold beside blocked is reported, and does not decide."""
    decision = await ask("blocked: $.f, score: $.s, threshold: 0.9", {"f": True, "s": 0.2})
    assert (decision.outcome, decision.score) == (Outcome.BLOCK, 0.2)


@pytest.mark.parametrize(
    ("status", "settings", "outcome", "kind"),
    [
        (403, "status: {403: block, 200: allow}", "block", None),
        (200, "status: {403: block, 200: allow}", "allow", None),
        (503, "status: {503: block}", "block", None),
        (204, "status: {204: error}", "error", "http"),
        (
            400,
            "blocked: $.f, rejection: {path: $.error.code, codes: [content_filter]}",
            "block",
            None,
        ),
        (400, "blocked: $.f, rejection: {path: $.error.code, codes: [other]}", "error", "http"),
        (400, "blocked: $.f", "error", "http"),
        (401, "blocked: $.f", "error", "refused"),
        (403, "blocked: $.f", "error", "refused"),
        (500, "blocked: $.f", "error", "http"),
        (429, "blocked: $.f", "error", "http"),
    ],
)
async def test_statuses_mean_what_the_settings_say(
    ask: Ask, status: int, settings: str, *, outcome: str, kind: str | None
) -> None:
    """A refusal for the content is a block; every other failure stays an error."""
    answer = b"" if status == 204 else {"error": {"code": "content_filter"}}
    decision = await ask(settings, answer, status=status)
    assert decision.outcome is Outcome(outcome)
    assert decision.error_kind is (None if kind is None else ErrorKind(kind))


async def test_a_refusal_that_is_no_json_is_no_rejection(ask: Ask) -> None:
    """A page of a proxy that speaks of the code in its text blocks nothing."""
    settings = "blocked: $.f, rejection: {path: $.error.code, codes: [content_filter]}"
    decision = await ask(settings, b"<p>content_filter</p>", status=400, content_type="text/html")
    assert (decision.outcome, decision.error_kind) == (Outcome.ERROR, ErrorKind.HTTP)


async def test_evidence_is_kept_when_there_is_something_to_say(ask: Ask) -> None:
    """Categories, reason and the service's own word; nothing for a bare decision."""
    answer = {
        "action": "MASKED",
        "why": "holds a name",
        "categories": {"pii": True, "hate": 0.1, "note": "x"},
        "items": [{"detector_type": "prompt_attack", "detected": False, "score": 0.2}],
    }
    rich = await ask(
        "action: $.action, actions: {MASKED: allow}, reason: $.why, categories: '$.categories', "
        "keep_raw: true",
        answer,
    )
    assert rich.evidence is not None
    assert rich.evidence.native_action == "MASKED"
    assert rich.evidence.reason == "holds a name"
    assert [(c.name, c.flagged, c.score) for c in rich.evidence.categories] == [
        ("pii", True, None),
        ("hate", None, 0.1),
    ]
    assert json.loads(rich.evidence.raw) == answer
    listed = await ask("blocked: $.b, categories: '$.items'", answer | {"b": False})
    assert listed.evidence is not None
    assert [(c.name, c.flagged, c.score) for c in listed.evidence.categories] == [
        ("prompt_attack", False, 0.2)
    ]
    assert (await ask("blocked: $.b", {"b": False})).evidence is None


@pytest.mark.parametrize(
    "text", ["{{7*7}}", "${HOME}", "%s", "\x00\x1b[2J", "\u202egnp\u2066.exe", "é" * 500_000]
)
async def test_an_attack_arrives_byte_for_byte(services: Services, serve: Any, text: str) -> None:
    """Proved by hash on the other side."""
    seen: list[str] = []

    async def look(request: web.Request) -> web.Response:
        document = json.loads(await request.read())
        seen.append(hashlib.sha256(document["text"].encode()).hexdigest())
        return web.json_response({"flagged": False})

    server = await serve(look)
    defense = build(f"{{{TEXT}, blocked: $.flagged}}", services, url=server.url)
    await defense.decide(Prompt.of_text(text))
    assert seen == [hashlib.sha256(text.encode()).hexdigest()]


async def test_keys_come_from_the_environment(
    services: Services, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are sent, and stand in no manifest and no message."""
    seen: dict[str, str] = {}

    async def look(request: web.Request) -> web.Response:
        seen.update(request.headers)
        return web.Response(status=400, text="unknown key " + request.headers["X-Key"])

    monkeypatch.setenv("GUARD_TEST_KEY", "sk-very-secret\n")
    server = await serve(look)
    settings = (
        f"{{{TEXT}, blocked: $.f, api_key: {{env: GUARD_TEST_KEY}}, "
        "headers: {X-Plain: p, X-Key: {env: GUARD_TEST_KEY, prefix: 'Key '}}}"
    )
    decision = await build(settings, services, url=server.url).decide(HELLO)
    assert seen["Authorization"] == "Bearer sk-very-secret"
    assert (seen["X-Key"], seen["X-Plain"]) == ("Key sk-very-secret", "p")
    assert "sk-very-secret" not in repr(decision)


async def test_only_names_of_variables_are_replaced_in_an_address(
    services: Services, serve: Any
) -> None:
    """A brace that names none belongs to the address, and is sent as it is written."""
    seen: list[str] = []

    async def look(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.json_response({"f": True})

    server = await serve(look)
    settings = f"{{{TEXT}, blocked: $.f, variables: {{project: demo}}}}"
    defense = build(settings, services, url=f"{server.url}/{{project}}/{{check}}")
    assert (await defense.decide(HELLO)).outcome is Outcome.BLOCK
    assert seen == ["/demo/{check}"]


async def test_a_view_that_a_sample_cannot_show_is_skipped(services: Services, serve: Any) -> None:
    """A sample without a document says nothing about a document scanner."""
    calls: list[Any] = []

    async def look(request: web.Request) -> web.Response:
        calls.append(await request.json())
        return web.json_response({"f": True})

    server = await serve(look)
    scanner = build("{body: {d: {$input: documents}}, blocked: $.f}", services, url=server.url)
    assert scanner.view is View.DOCUMENT
    decision = await scanner.decide(HELLO)
    assert (decision.outcome, decision.error_kind) == (Outcome.ERROR, ErrorKind.SKIPPED)
    letter = Prompt(
        messages=(
            Message(role=Role.TOOL, content="a letter"),
            Message(role=Role.USER, content="sum it up"),
        )
    )
    assert (await scanner.decide(letter)).outcome is Outcome.BLOCK
    assert calls == [{"d": ["a letter"]}]


@pytest.mark.parametrize(("rule", "outcome"), [("skip", "error"), ("cut", "block")])
async def test_texts_beyond_the_services_limit(
    services: Services, serve: Any, rule: str, outcome: str
) -> None:
    """Skipped and counted, or cut and said to be cut."""
    seen: list[str] = []

    async def look(request: web.Request) -> web.Response:
        seen.append((await request.json())["text"])
        return web.json_response({"f": True})

    server = await serve(look)
    defense = build(
        f"{{{TEXT}, blocked: $.f, max_chars: 3, too_long: {rule}}}", services, url=server.url
    )
    decision = await defense.decide(HELLO)
    assert decision.outcome is Outcome(outcome)
    assert seen == ([] if rule == "skip" else ["hel"])
    assert decision.evidence is not None
    assert decision.evidence.truncated is (rule == "cut")


LETTER = Prompt(
    messages=(
        Message(role=Role.SYSTEM, content="be kind"),
        Message(role=Role.TOOL, content="a letter"),
        Message(role=Role.USER, content="sum it up"),
    ),
    under_test=1,
)


@pytest.mark.parametrize(
    ("body", "limit", "sent"),
    [
        (
            "{m: {$input: messages}}",
            19,
            (
                b'{"m":[{"role":"system","content":"be kind"},{"role":"tool","content":"a l"},'
                b'{"role":"user","content":"sum it up"}]}'
            ),
        ),
        ("{d: {$input: documents}}", 5, b'{"d":["a let"]}'),
        ("{t: {$input: text}, d: {$input: documents}}", 3, b'{"t":"a l","d":["a l"]}'),
        (
            "{t: {$input: text}, m: {$input: messages}}",
            18,
            (
                b'{"t":"a letter","m":[{"role":"system","content":"be kind"},'
                b'{"role":"tool","content":"a "},{"role":"user","content":"sum it up"}]}'
            ),
        ),
        (
            "{m: {$input: messages}, d: {$input: documents}}",
            19,
            (
                b'{"m":[{"role":"system","content":"be kind"},{"role":"tool","content":"a l"},'
                b'{"role":"user","content":"sum it up"}],"d":["a l"]}'
            ),
        ),
        (
            "{id: {$input: id}, d: {$input: documents}}",
            1,
            b'{"id":"%s","d":["a"]}' % LETTER.digest().hex().encode(),
        ),
    ],
)
async def test_what_is_cut_is_cut_in_the_bytes_that_are_sent(
    services: Services, serve: Any, *, body: str, limit: int, sent: bytes
) -> None:
    """The text under test is shortened among messages and documents; the rest is sent whole."""
    received: list[bytes] = []

    async def look(request: web.Request) -> web.Response:
        received.append(await request.read())
        return web.json_response({"f": True})

    server = await serve(look)
    defense = build(
        f"{{body: {body}, blocked: $.f, max_chars: {limit}, too_long: cut}}",
        services,
        url=server.url,
    )
    decision = await defense.decide(LETTER)
    assert received == [sent]
    assert decision.evidence is not None
    assert decision.evidence.truncated


@pytest.mark.parametrize(
    ("body", "limit"),
    [("{m: {$input: messages}}", 24), ("{d: {$input: documents}}", 8)],
)
async def test_what_fits_is_sent_whole(
    services: Services, serve: Any, body: str, limit: int
) -> None:
    """As long as the service takes is not too long; the limit counts all messages together."""
    received: list[bytes] = []

    async def look(request: web.Request) -> web.Response:
        received.append(await request.read())
        return web.json_response({"f": True})

    server = await serve(look)
    settings = f"body: {body}, blocked: $.f, too_long: cut"
    whole = build(f"{{{settings}}}", services, url=server.url)
    limited = build(f"{{{settings}, max_chars: {limit}}}", services, url=server.url)
    for defense in (whole, limited):
        decision = await defense.decide(LETTER)
        assert decision.evidence is None
    assert received[0] == received[1]


@pytest.mark.parametrize(
    ("body", "under_test", "rule"),
    [
        ("{m: {$input: messages}}", 1, "skip"),
        ("{m: {$input: messages}}", 1, "cut"),
        ("{d: {$input: documents}}", 2, "cut"),
    ],
)
async def test_what_cannot_be_cut_to_fit_is_skipped(
    services: Services, serve: Any, *, body: str, under_test: int, rule: str
) -> None:
    """What stands around the text under test is never cut, and nothing is sent that is too long."""

    async def never(_request: web.Request) -> web.Response:
        pytest.fail("nothing may be sent")

    server = await serve(never)
    defense = build(
        f"{{body: {body}, blocked: $.f, max_chars: 5, too_long: {rule}}}", services, url=server.url
    )
    decision = await defense.decide(Prompt(messages=LETTER.messages, under_test=under_test))
    assert (decision.outcome, decision.error_kind) == (Outcome.ERROR, ErrorKind.SKIPPED)
    assert decision.evidence is not None
    assert "characters are more than the 5" in decision.evidence.message
    assert ("even without" in decision.evidence.message) is (rule == "cut")


async def test_order_is_kept_under_concurrency(services: Services, serve: Any) -> None:
    """Many questions at once, each with its own answer."""

    async def echo(request: web.Request) -> web.Response:
        number = int((await request.json())["text"])
        await asyncio.sleep((number % 7) / 1000)
        return web.json_response({"score": number / 1000, "f": number % 3 == 0})

    server = await serve(echo)
    defense = build(f"{{{TEXT}, blocked: $.f, score: $.score}}", services, url=server.url)
    decisions = await asyncio.gather(*(defense.decide(Prompt.of_text(str(n))) for n in range(200)))
    assert [d.score for d in decisions] == [n / 1000 for n in range(200)]
    assert [d.outcome is Outcome.BLOCK for d in decisions] == [n % 3 == 0 for n in range(200)]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("{}", "says nowhere what the answer means"),
        ("{score: $.s}", "needs a threshold"),
        ("{action: $.a}", "go together"),
        ("{action: $.a, actions: {x: block}, blocked: $.b}", "only one can decide"),
        ("{blocked: $.b, score: $.s, score_range: [1, 1]}", "two different numbers"),
        ("{score: $.s, threshold: 0.5, blocked_when: x}", "needs blocked"),
        ("{blocked: $.b, blocked_when: {at_least: 1, exists: true}}", "exactly one"),
        ("{blocked: $.b, blocked_when: {at_least: 1, allowed: [0]}}", "allowed goes with one_of"),
        ("{blocked: $.b, api_key: sk-123}", "api_key"),
        ("{blocked: $.b, headers: {X-Api-Key: sk-123}}", r"X-Api-Key: \{env: NAME, prefix"),
        ("{blocked: $.b, timeout: 3}", "timeout"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: str, told: str) -> None:
    """With the reason."""
    with pytest.raises(ValidationError, match=told):
        build(f"{{{TEXT}, {settings[1:]}", None, url="http://localhost/")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("{blocked: flagged}", r"defenses\.vendor\.blocked"),
        ("{blocked: $.b, body: {text: x}}", "inserts nothing"),
        ("{blocked: $.b, api_key: {env: GUARD_TEST_UNSET}}", "GUARD_TEST_UNSET"),
        ("{blocked: $.b, headers: {X: {env: GUARD_TEST_UNSET}}}", r"headers\.X"),
        ("{blocked: $.b, url: 'localhost:8900'}", "is not an address"),
        ("{blocked: $.b, view: text, body: {m: {$input: messages}}}", "conversation"),
    ],
)
def test_parts_that_cannot_be_built_are_named(settings: str, told: str, services: Services) -> None:
    """Nothing has been called by then."""
    document = yaml.safe_load(f"{{{TEXT}, url: 'http://localhost/'}}") | yaml.safe_load(settings)
    with pytest.raises(ConfigError, match=told):
        build(json.dumps(document), services)


def test_a_run_that_may_call_nothing_has_no_http_defense() -> None:
    """It says so instead of failing on every sample."""
    with pytest.raises(ConfigError, match="may call nothing"):
        build(f"{{{TEXT}, blocked: $.b}}", None, url="http://localhost/")
