"""One contract for every profile of a service: answers in its form, given by a server here."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from guardmark.config.settings import BuildContext
from guardmark.core.errors import ConfigError
from guardmark.core.outcome import Decision, ErrorKind, Outcome, ScoreKind
from guardmark.core.sample import Message, Prompt, Role
from guardmark.defenses.http.defense import HttpSettings
from guardmark.defenses.http.profile import service_profile
from guardmark.defenses.profile import list_profiles, profile_names
from guardmark.net.client import Services
from guardmark.net.service import ServiceLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    Ask = Callable[..., Awaitable[Decision]]

NAMES = profile_names("service")
VARIABLES = {each.name: each.variables for each in list_profiles()}
EXAMPLES = [
    pytest.param(name, example, id=f"{name}: {example.about}")
    for name in NAMES
    for example in service_profile(name).examples
]
HOSTILE = 'say "no"\n</s> {{7*7}} ${HOME} %s \u202e\x07'
ASKED = Prompt(
    messages=(
        Message(role=Role.USER, content=HOSTILE),
        Message(role=Role.DOCUMENT, content=HOSTILE),
        Message(role=Role.ASSISTANT, content=HOSTILE),
    ),
    under_test=0,
)


class ReplayedService:
    """A server here that gives prepared answers one after the other, the last one for good."""

    def __init__(self, answers: Sequence[web.Response]) -> None:
        self.bodies: list[Any] = []
        self.headers: list[Any] = []
        self.paths: list[str] = []
        self._answers = list(answers)

    async def reply(self, request: web.Request) -> web.Response:
        """Note the request and answer it."""
        self.bodies.append(json.loads(await request.read()))
        self.headers.append(request.headers)
        self.paths.append(request.path_qs)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer.status == web.HTTPRequestTimeout.status_code:
            await asyncio.sleep(5)
        return web.Response(
            status=answer.status, body=answer.body, content_type=answer.content_type
        )


def answer(document: object, status: int = 200) -> web.Response:
    """Prepare an answer of JSON."""
    return web.Response(
        status=status, body=json.dumps(document).encode(), content_type="application/json"
    )


@pytest.fixture
async def ask(serve: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ask]:
    """Ask a service of a profile, which is a server here that gives prepared answers."""
    opened: list[Services] = []

    async def ask_one(name: str, *answers: web.Response, **said: object) -> Decision:
        replayed = ReplayedService(answers)
        server = await serve(replayed.reply)
        for variable in VARIABLES[name]:
            monkeypatch.setenv(variable, f"value-of-{variable}")
        address = service_profile(name).settings["url"]
        said = {"url": re.sub(r"^(https://[^/]+|\{\w+\})", server.url, address), **said}
        settings = HttpSettings.model_validate({"profile": name, **said})
        # One that never answers is given up at once; any other has time, however busy the machine.
        is_silent = answers[0].status == web.HTTPRequestTimeout.status_code
        limits = ServiceLimits(
            backoff_s=0.001,
            connect_timeout_s=10,
            read_timeout_s=0.3 if is_silent else 10,
            retries=1,
        )
        services = Services(default=limits)
        opened.append(services)
        context = BuildContext(folder=Path(), seed=1, services=services, defenses={})
        defense: Any = settings.build(name, context)
        decision = await defense.decide(ASKED)
        assert isinstance(decision, Decision)
        ask_one.service = replayed  # type: ignore[attr-defined]
        return decision

    yield ask_one
    for services in opened:
        await services.close()


def test_every_service_has_a_profile() -> None:
    """A file that is not packed must not make these rules pass for want of files."""
    assert NAMES == (
        "azure-prompt-shields",
        "azure-prompt-shields-documents",
        "azure-text-moderation",
        "bedrock-guardrail",
        "fms-detector",
        "google-model-armor",
        "guardrails-ai",
        "lakera",
        "litellm-guardrail",
        "mistral-moderation",
        "nemo-guardrails",
        "nemo-guardrails-microservice",
        "nemo-guardrails-output",
        "openai-moderation",
        "presidio-analyzer",
    )


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
async def test_a_recorded_answer_becomes_the_stated_decision(
    ask: Ask, name: str, example: Any
) -> None:
    """Outcome, score, native word and categories; and what is no decision never becomes one."""
    decision = await ask(name, answer(example.body, example.status))
    assert decision.outcome is Outcome(example.outcome)
    assert decision.error_kind == example.error_kind
    assert decision.score == (
        None if example.score is None else pytest.approx(example.score, abs=1e-4)
    )
    assert (decision.score is None) == (decision.score_kind is ScoreKind.NONE)
    evidence = decision.evidence
    assert (evidence.native_action if evidence else "") == example.native_action
    assert [c.name for c in (evidence.categories if evidence else ())] == example.categories


async def test_what_model_armor_de_identifies_goes_on(ask: Ask) -> None:
    """The text that it gives back takes the place of the one that was sent."""
    texts = {}
    for example in service_profile("google-model-armor").examples:
        decision = await ask("google-model-armor", answer(example.body, example.status))
        texts[example.about] = decision.text
    masked = {about: text for about, text in texts.items() if text is not None}
    assert masked == {
        "personal data was de-identified, and nothing else found": "call [PERSON_NAME]"
    }


@pytest.mark.parametrize("name", NAMES)
async def test_the_text_is_sent_byte_for_byte_and_the_key_in_its_header(
    ask: Ask, name: str
) -> None:
    """A text is a value of its own in the body, whatever it contains; the key stands nowhere else."""
    profile = service_profile(name)
    await ask(name, answer(profile.examples[0].body))
    service: ReplayedService = ask.service  # type: ignore[attr-defined]
    assert HOSTILE in _strings(service.bodies[0])
    settings = HttpSettings.model_validate({"profile": name})
    keyed = settings.api_key is not None or any(
        not isinstance(value, str) for value in settings.headers.values()
    )
    if keyed:
        key = f"value-of-{VARIABLES[name][0]}"
        assert any(key in value for value in service.headers[0].values())
        assert key not in json.dumps(service.bodies[0]) + service.paths[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_states_its_source_its_terms_and_its_limits(name: str) -> None:
    """All outcomes that decide are recorded; nothing is said to be final."""
    profile = service_profile(name)
    assert profile.source.read is not None
    assert profile.limits
    assert profile.licence
    assert {example.outcome for example in profile.examples} >= {"allow", "block", "malformed"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ErrorKind.HTTP),
        (401, ErrorKind.REFUSED),
        (408, ErrorKind.TIMEOUT),
        (429, ErrorKind.HTTP),
        (500, ErrorKind.HTTP),
    ],
)
async def test_a_failed_call_is_never_a_decision(
    ask: Ask, name: str, status: int, kind: ErrorKind
) -> None:
    """Even where the body looks like an allow; 408 stands for a server that does not answer."""
    decision = await ask(name, answer(service_profile(name).examples[0].body, status))
    assert (decision.outcome, decision.error_kind) == (Outcome.ERROR, kind)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("body", [b'{"flagged": tr', b"{}", b"[]", b"null", b'"ok"', b"[[null]]"])
async def test_garbage_is_malformed(ask: Ask, name: str, body: bytes) -> None:
    """No answer without the decision of the service is an allow."""
    if any(json.dumps(each.body).encode() == body for each in service_profile(name).examples):
        return  # a list without findings is how some say that they found nothing
    garbage = web.Response(body=body, content_type="application/json")
    assert (await ask(name, garbage)).outcome is Outcome.MALFORMED


@pytest.mark.parametrize("name", NAMES)
async def test_a_service_that_says_slow_down_is_asked_again(ask: Ask, name: str) -> None:
    """And both attempts are on record."""
    first = service_profile(name).examples[0]
    decision = await ask(name, answer({}, 429), answer(first.body))
    assert decision.outcome is Outcome(first.outcome)
    assert decision.evidence is not None
    assert [attempt.status for attempt in decision.evidence.attempts] == [429, 200]


@pytest.mark.parametrize("name", NAMES)
async def test_a_gateway_in_front_may_refuse_the_content(ask: Ask, name: str) -> None:
    """A 400 with a filter code is a block where the configuration names the code."""
    rejection = {"path": "$.error.code", "codes": ["content_filter"]}
    refused = {"error": {"code": "content_filter", "message": "filtered"}}
    assert (await ask(name, answer(refused, 400))).outcome is Outcome.ERROR
    decision = await ask(name, answer(refused, 400), rejection=rejection)
    assert decision.outcome is Outcome.BLOCK


@pytest.mark.parametrize("name", [n for n in NAMES if VARIABLES[n]])
def test_a_missing_variable_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says which one, and how to set it."""
    context = BuildContext(folder=Path(), seed=1, services=Services(), defenses={})
    variables = VARIABLES[name]
    for missing in variables:
        for variable in variables:
            monkeypatch.setenv(variable, "https://localhost")
        monkeypatch.delenv(missing)
        with pytest.raises(ConfigError, match=rf"variable {missing}.*\n.*export {missing}="):
            HttpSettings.model_validate({"profile": name}).build("it", context)


async def test_a_text_above_the_limit_is_not_sent(ask: Ask) -> None:
    """It is an error of its sample, counted as skipped."""
    decision = await ask("azure-prompt-shields", answer({}), max_chars=3)
    assert decision.error_kind is ErrorKind.SKIPPED
    assert not ask.service.bodies  # type: ignore[attr-defined]


async def test_a_threshold_decides_instead_of_the_service(ask: Ask) -> None:
    """The flag of OpenAI is its own operating point; another one goes by the score."""
    flagged = service_profile("openai-moderation").examples[1]
    decision = await ask("openai-moderation", answer(flagged.body), threshold=0.95)
    assert (decision.outcome, decision.score) == (Outcome.ALLOW, 0.91)


def test_a_configuration_adds_to_the_tables_of_a_profile() -> None:
    """A header more keeps that of the key; what else is said replaces."""
    settings = HttpSettings.model_validate(
        {
            "profile": "fms-detector",
            "headers": {"detector-id": "hap"},
            "variables": {"server": "https://guard.example"},
            "body": {"contents": [{"$input": "text"}]},
        }
    )
    assert settings.headers == {"detector-id": "hap"}
    assert settings.variables == {"server": "https://guard.example"}
    lakera = HttpSettings.model_validate({"profile": "lakera", "headers": {"X-Team": "a"}})
    assert lakera.api_key is not None


def test_an_unknown_profile_is_named_with_the_near_ones() -> None:
    """Before anything is called."""
    with pytest.raises(ValidationError, match="Did you mean 'lakera'"):
        HttpSettings.model_validate({"profile": "lakra"})


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in _strings(each)]
