"""Target models over the wire: answers are kept whole, failures are never text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from guardmark.config.chat import PRESETS, ChatSettings
from guardmark.config.settings import BuildContext
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.outcome import ErrorKind
from guardmark.core.protocols import ChatModel
from guardmark.core.sample import Message, Prompt, Role
from guardmark.models.chat import ChatModelSettings, SystemPromptSettings
from guardmark.net.client import Services
from guardmark.net.service import ServiceLimits

HI = Prompt.of_text("hi")


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    """The client of a run, that does not try twice."""
    client = Services(default=ServiceLimits(retries=0))
    yield client
    await client.close()


def _model(server: Any, services: Services | None, folder: Path = Path(), **said: object) -> Any:
    settings = ChatModelSettings.model_validate(
        {"base_url": server.base_url, "model": "tutor", **said}
    )
    context = BuildContext(folder=folder, seed=7, services=services, defenses={})
    built = settings.build("model", context)
    assert isinstance(built, ChatModel)
    return built


async def test_an_answer_keeps_usage_cost_and_finish_reason(
    chat_server: Any, services: Services
) -> None:
    """Cost follows from the user's own price table."""
    chat_server.reply = lambda _: chat_server.document("Hel", finish_reason="length")
    price = {"input_per_1k": 1.0, "output_per_1k": 2.0, "per_call": 0.5}
    response = await _model(chat_server, services, price=price).answer(HI)
    assert response.text == "Hel"
    assert response.evidence.finish_reason == "length"
    assert response.evidence.usage.cost == pytest.approx(0.5 + 0.007 + 0.006)
    assert response.latency_ns > 0


@pytest.mark.parametrize(
    ("price", "usage", "cost"),
    [
        ({"input_per_1k": 1.0}, None, None),
        ({"output_per_1k": 1.0}, {"prompt_tokens": 5}, None),
        ({"input_per_1k": 1.0}, {"prompt_tokens": 5}, 0.005),
        ({"per_call": 0.5}, None, 0.5),
        (None, {"prompt_tokens": 5}, None),
    ],
)
async def test_a_cost_nobody_can_know_is_not_zero(
    chat_server: Any, services: Services, *, price: object, usage: object, cost: float | None
) -> None:
    """Tokens that cost something and were not counted leave the cost unknown."""
    chat_server.reply = lambda _: {"choices": [{"message": {"content": "a"}}], "usage": usage}
    response = await _model(chat_server, services, price=price).answer(HI)
    used = response.evidence.usage
    assert (used.cost if used else None) == cost


async def test_each_repetition_has_a_seed_of_its_own(chat_server: Any, services: Services) -> None:
    """Three answers under one seed would be one answer three times; without one none is sent."""
    seeded, free = _model(chat_server, services, seed=7), _model(chat_server, services)
    for model in (seeded, free):
        for repeat in range(3):
            await model.draw(HI, repeat=repeat)
    await seeded.answer(HI)
    sent = [body.get("seed") for body in chat_server.requests]
    assert sent == [7, 8, 9, None, None, None, 7]


async def test_every_message_reaches_the_model_in_order(
    chat_server: Any, services: Services
) -> None:
    """System prompt first; tool results and documents as words of the user."""
    prompt = Prompt(
        messages=(
            Message(role=Role.USER, content="read it"),
            Message(role=Role.DOCUMENT, content="{{7*7}} \u202e\x00"),
            Message(role=Role.ASSISTANT, content="done"),
        ),
        under_test=1,
    )
    model = _model(chat_server, services, system_prompt="Be kind.", roles={"document": "tool"})
    await model.answer(prompt)
    assert chat_server.requests[0]["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "read it"},
        {"role": "tool", "content": "{{7*7}} \u202e\x00"},
        {"role": "assistant", "content": "done"},
    ]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ((500, "plain text error"), ErrorKind.HTTP),
        ((401, '{"error":{"message":"bad key"}}'), ErrorKind.REFUSED),
        ((403, ""), ErrorKind.REFUSED),
        ((429, "slow down"), ErrorKind.HTTP),
        ((200, ""), ErrorKind.CONTRACT),
        ((200, "[]"), ErrorKind.CONTRACT),
        ((200, '{"choices":[{"message":null}]}'), ErrorKind.CONTRACT),
        ((200, '{"choices":[{"message":{"content":"no","content":"yes"}}]}'), ErrorKind.CONTRACT),
        ({"choices": []}, ErrorKind.CONTRACT),
        ({"choices": [{"message": {"content": None}}]}, ErrorKind.CONTRACT),
        ({"choices": [{"message": {"content": [7]}}]}, ErrorKind.CONTRACT),
    ],
)
async def test_a_failed_call_is_no_text(
    chat_server: Any, services: Services, reply: object, kind: ErrorKind
) -> None:
    """It is never judged as an answer."""
    chat_server.reply = lambda _: reply
    response = await _model(chat_server, services).answer(HI)
    assert (response.text, response.error_kind) == (None, kind)
    assert response.evidence.message


async def test_a_refusal_field_is_an_answer(chat_server: Any, services: Services) -> None:
    """The model spoke, in the place the protocol gives to refusals."""
    chat_server.reply = lambda _: {
        "choices": [{"message": {"content": None, "refusal": "I won't."}, "finish_reason": "stop"}]
    }
    response = await _model(chat_server, services).answer(HI)
    assert response.text == "I won't."
    assert response.evidence.native_action == "refusal"


async def test_a_server_that_is_gone_is_an_error_of_the_connection(services: Services) -> None:
    """Not an exception."""

    class Gone:
        base_url = "http://127.0.0.1:9/v1"

    response = await _model(Gone, services).answer(HI)
    assert (response.text, response.error_kind) == (None, ErrorKind.CONNECTION)


async def test_the_key_comes_from_the_environment_and_stays_out_of_messages(
    chat_server: Any, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may echo it; we do not."""
    monkeypatch.setenv("TUTOR_KEY", "sk-very-secret-1")
    chat_server.reply = lambda _: (500, "you sent sk-very-secret-1")
    response = await _model(chat_server, services, api_key={"env": "TUTOR_KEY"}).answer(HI)
    assert chat_server.headers[0]["Authorization"] == "Bearer sk-very-secret-1"
    assert "sk-very-secret-1" not in repr(response)


def test_a_missing_key_is_named(
    chat_server: Any, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its variable."""
    monkeypatch.delenv("TUTOR_KEY", raising=False)
    with pytest.raises(ConfigError, match="TUTOR_KEY"):
        _model(chat_server, services, api_key={"env": "TUTOR_KEY"})
    with pytest.raises(ConfigError, match="not possible here"):
        _model(chat_server, None)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_preset_fills_in_address_and_key_name_only(preset: str) -> None:
    """Everything else is as without it."""
    settings = ChatSettings.model_validate({"preset": preset, "model": "m"})
    assert settings.address == PRESETS[preset][0]
    own = ChatSettings.model_validate({"preset": preset, "model": "m", "base_url": "http://x/v1/"})
    assert own.address == "http://x/v1"
    with pytest.raises(ValidationError, match="preset"):
        ChatSettings.model_validate({"model": "m"})


def test_system_prompts_by_file_and_by_name(
    chat_server: Any, services: Services, tmp_path: Path
) -> None:
    """A missing one is an error before any call."""
    (tmp_path / "p.yaml").write_text("kind: Be kind.\n")
    for said in (
        {"system_prompt_file": "p.yaml", "system_prompt_name": "kind"},
        {"system_prompt_file": "p.yaml"},
        {"system_prompt_name": "child-tutor"},
    ):
        _model(chat_server, services, tmp_path, **said)
    with pytest.raises(ConfigError, match=r"gone\.txt"):
        _model(chat_server, services, tmp_path, system_prompt_file="gone.txt")
    with pytest.raises(UnknownName, match="Did you mean 'child-tutor'"):
        _model(chat_server, services, tmp_path, system_prompt_name="child-tutr")


FORM = {"type": "object", "properties": {"ready": {"type": "boolean"}}}


async def test_a_form_and_a_seed_are_sent_where_the_server_takes_them(
    chat_server: Any, services: Services
) -> None:
    """Each call has a seed of its own; a seed in the settings wins."""
    model = _model(chat_server, services)
    for seed in (3, 4):
        await model.answer_in(HI, form=FORM, seed=seed)
    assert [body["seed"] for body in chat_server.requests] == [3, 4]
    assert chat_server.requests[0]["response_format"]["json_schema"]["schema"] == FORM
    await _model(chat_server, services, seed=11).answer_in(HI, form=FORM, seed=3)
    assert chat_server.requests[-1]["seed"] == 11


@pytest.mark.parametrize(
    ("unknown", "sent"),
    [
        ({"seed"}, {"response_format"}),
        ({"response_format"}, {"seed"}),
        ({"seed", "response_format"}, set()),
    ],
)
async def test_what_a_server_refuses_is_not_sent_again(
    chat_server: Any, services: Services, unknown: set[str], sent: set[str]
) -> None:
    """Fewer fields are tried until it answers, and every later call is made that way."""
    chat_server.reply = lambda body: (400, "unknown field") if unknown & set(body) else "yes"
    model = _model(chat_server, services)
    assert (await model.answer_in(HI, form=FORM, seed=1)).text == "yes"
    asked = len(chat_server.requests)
    assert (await model.answer_in(HI, form=FORM, seed=2)).text == "yes"
    assert len(chat_server.requests) == asked + 1
    assert {"seed", "response_format"} & set(chat_server.requests[-1]) == sent


async def test_a_refusal_after_the_first_answer_is_an_answers_own_failure(
    chat_server: Any, services: Services
) -> None:
    """Later calls do not depend on one that went wrong."""
    model = _model(chat_server, services)
    await model.answer_in(HI, form=FORM, seed=1)
    chat_server.reply = lambda _: (400, "too long")
    failed = await model.answer_in(HI, form=FORM, seed=2)
    assert failed.text is None
    assert failed.error_kind is ErrorKind.HTTP
    assert len(chat_server.requests) == 2
    chat_server.reply = lambda _: "fine"
    await model.answer_in(HI, form=FORM, seed=3)
    assert {"seed", "response_format"} <= set(chat_server.requests[-1])


@pytest.mark.parametrize("status", [200, 400])
async def test_brackets_without_end_are_no_answer_of_the_protocol(
    chat_server: Any, services: Services, status: int
) -> None:
    """A document too deep to be read is the server's doing, not a crash of ours."""
    chat_server.reply = lambda _: (status, "[" * 100_000)
    response = await _model(chat_server, services).answer(HI)
    kind = ErrorKind.CONTRACT if status == 200 else ErrorKind.HTTP
    assert (response.text, response.error_kind) == (None, kind)


async def test_a_number_beyond_all_floats_is_no_log_probability(
    chat_server: Any, services: Services
) -> None:
    """It is passed over; the answer stands."""
    weighed = {"token": "a", "top_logprobs": [{"token": "a", "logprob": int("9" * 400)}]}
    chat_server.reply = lambda _: chat_server.document("fine", logprobs={"content": [weighed]})
    assert (await _model(chat_server, services).answer(HI)).text == "fine"


async def test_a_tool_that_is_called_is_part_of_the_answer(
    chat_server: Any, services: Services
) -> None:
    """What a model does is no missing answer; words beside it stay, and odd calls are a failure."""
    call = {"type": "function", "function": {"name": "send", "arguments": '{"to": "kettle"}'}}
    document = chat_server.document("On it.")
    message = document["choices"][0]["message"]
    chat_server.reply = lambda _: document
    model, acted = (
        _model(chat_server, services),
        '{"name":"send","arguments":"{\\"to\\": \\"kettle\\"}"}',
    )
    for words, calls, text in (
        ("On it.", [call], f"On it.\n{acted}"),
        (None, [call], acted),
        ("On it.", [], "On it."),
        ("On it.", ["send"], None),
    ):
        message |= {"content": words, "tool_calls": calls}
        response = await model.answer(HI)
        assert response.text == text
        assert (response.error_kind is ErrorKind.CONTRACT) is (text is None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: [", "is not YAML: a map of names to prompts"),
        ("- Be kind.\n", "is not a map of names to prompts.\nWrite each as NAME: text"),
        ("Be kind.\n", "is not a map of names to prompts.\nWrite each as NAME: text"),
    ],
)
def test_a_file_of_named_prompts_that_holds_no_names_is_refused(
    tmp_path: Path, text: str, words: str
) -> None:
    """The message names the file and how a prompt is written in it."""
    (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
    settings = SystemPromptSettings(system_prompt_file="p.yaml", system_prompt_name="kind")
    with pytest.raises(ConfigError) as caught:
        settings.before(tmp_path)
    assert f"{tmp_path / 'p.yaml'} {words}" in str(caught.value)
