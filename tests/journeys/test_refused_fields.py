"""Servers that refuse a field of a request by its name are asked without it, and it is said."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.journeys.command_line import typed, write_rows

from guardmark.net.client import Services

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """\
version: 1
name: narrow
data: [{{path: data.jsonl}}]
defenses:
  guard: {{type: guard-model, profile: llama-guard-3, base_url: "{url}", model: guard}}
pipeline:
  guards: [guard]
  model: {{type: chat, base_url: "{url}", model: tutor}}
  judges: [{{type: chat, name: judge, base_url: "{url}", model: judge}}]
services: {{"{url}": {{retries: 0}}}}
report: [json, md]
"""
REFUSED = {
    "guard": ("top_logprobs", "Unrecognized request argument supplied: top_logprobs"),
    "tutor": ("max_tokens", "Unsupported parameter: use 'max_completion_tokens' instead."),
    "judge": ("response_format", "response_format is not supported by this model"),
}


class Narrow:
    """A server that takes few fields, and counts what it refused."""

    def __init__(self) -> None:
        self.refused = Counter[str]()
        self.limits: set[int] = set()

    def __call__(self, body: dict[str, Any]) -> object:
        """Answer one request."""
        field, message = REFUSED[body["model"]]
        if field in body:
            self.refused[body["model"]] += 1
            return 400, json.dumps({"error": {"message": message}})
        if body["model"] == "guard":
            return "unsafe\nS1" if "attack" in body["messages"][-1]["content"] else "safe"
        if body["model"] == "tutor":
            self.limits.add(body["max_completion_tokens"])
            return "So it goes."
        return json.dumps({"label": "safe", "answer_mode": "answered", "reasons": []})


@pytest.mark.slow
async def test_each_field_is_left_out_after_one_refusal(chat_server: Any, tmp_path: Path) -> None:
    """Every call then succeeds; the report names the fields."""
    chat_server.reply = server = Narrow()
    rows = [
        {"id": f"s-{n}", "text": f"{kind} {n}", "label": kind, "category": category}
        for n in range(6)
        for kind, category in (("attack", "jailbreak"), ("benign", "school"))
        if kind == ("attack", "benign")[n % 2]
    ]
    write_rows(tmp_path / "data.jsonl", rows)
    text = CONFIG.format(url=chat_server.base_url)
    (tmp_path / "narrow.yaml").write_text(text, encoding="utf-8")
    done = await typed("run", "narrow.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert server.refused["tutor"] == server.refused["judge"] == 1
    assert server.refused["guard"] <= 2, "its first two calls go out together"
    assert server.limits == {512}
    markdown = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    markdown = markdown.replace("\\", "").replace("&#58;", ":")
    assert "no score: the server gives no token probabilities" in markdown
    assert f"{chat_server.base_url} refuses max_tokens: max_completion_tokens was sent" in markdown
    assert f"{chat_server.base_url} refuses response_format: it was left out" in markdown
    assert (await typed("verify", "out", cwd=tmp_path)).code == 0


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "It refuses the request itself"),
        (401, "Check that its key is the right one"),
        (404, "Check the path of the address, and the name of the model"),
        (429, "It asks for fewer requests"),
        (503, "The service itself failed"),
    ],
)
@pytest.mark.slow
async def test_the_advice_fits_the_status_and_quotes_the_server(
    chat_server: Any, tmp_path: Path, status: int, advice: str
) -> None:
    """Before anything is spent, in the server's own words."""
    chat_server.reply = lambda _body: (status, json.dumps({"error": {"message": "no turnips"}}))
    write_rows(tmp_path / "data.jsonl", [{"id": "a", "text": "attack", "label": "attack"}])
    text = CONFIG.format(url=chat_server.base_url)
    (tmp_path / "narrow.yaml").write_text(text, encoding="utf-8")
    done = await typed("run", "narrow.yaml", "-o", "out", cwd=tmp_path)
    assert done.code != 0
    assert advice in done.err
    assert "no turnips" in done.err


async def test_a_refused_field_is_remembered_for_the_service(chat_server: Any) -> None:
    """Another model there is not asked with it, unless it took the field before."""
    services, where = Services(), chat_server.base_url

    def refuse(body: dict[str, Any]) -> object:
        is_refused = body["model"] == "narrow" and "top_logprobs" in body
        return (400, json.dumps({"error": {"message": "no top_logprobs"}})) if is_refused else "hi"

    chat_server.reply = refuse
    given: dict[str, Any] = {"options": {"top_logprobs": 5}, "price": None, "secret_headers": {}}
    wide, narrow, third = (
        services.model("chat", where, model=name, **given) for name in ("wide", "narrow", "third")
    )
    try:
        for model in (wide, narrow, third, wide):
            assert (await model.complete([{"role": "user", "content": "hi"}])).text == "hi"
    finally:
        await services.close()
    sent = [(each["model"], "top_logprobs" in each) for each in chat_server.requests]
    assert sent == [
        ("wide", True),
        ("narrow", True),
        ("narrow", False),
        ("third", False),
        ("wide", True),
    ]
    refused = {address: fields for address, fields in services.refused.items() if fields}
    assert refused == {where: {"logprobs": "", "top_logprobs": ""}}


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens is too large: 512. This model supports at most 256 completion tokens.",
        "'max_tokens' or 'max_completion_tokens' is too large: 512.",
        "max_tokens: 512 > 256, which is the maximum allowed number of output tokens",
        "`max_tokens` must be less than or equal to `256`",
    ],
)
async def test_a_limit_that_is_too_large_is_not_left_out(chat_server: Any, words: str) -> None:
    """The server takes the field: without it, answers would have another limit than was set."""
    services = Services()
    chat_server.reply = lambda _body: (400, json.dumps({"error": {"message": words}}))
    model = services.model(
        "chat",
        chat_server.base_url,
        model="small",
        options={"max_tokens": 512},
        price=None,
        secret_headers={},
    )
    try:
        answer = await model.complete([{"role": "user", "content": "hi"}])
    finally:
        await services.close()
    assert answer.text is None
    assert words in answer.message
    assert [each["max_tokens"] for each in chat_server.requests] == [512]


async def test_a_server_that_refuses_every_field_is_asked_a_few_times_and_no_more(
    chat_server: Any,
) -> None:
    """What is sent in place of a field may be refused as well; then neither is sent."""
    services = Services()
    fields = {"max_tokens": 9, "response_format": {"type": "json_object"}, "top_logprobs": 5}
    names = ("max_tokens: use max_completion_tokens", "max_completion_tokens", *list(fields)[1:])

    def refuse(body: dict[str, Any]) -> object:
        named = [name for name in names if name.partition(":")[0] in body]
        return (400, json.dumps({"error": {"message": f"no {named[0]}"}})) if named else "hello"

    chat_server.reply = refuse
    model = services.model(
        "chat", chat_server.base_url, model="narrow", options=fields, price=None, secret_headers={}
    )
    try:
        answer = await model.complete([{"role": "user", "content": "hi"}])
    finally:
        await services.close()
    assert answer.text == "hello"
    assert len(chat_server.requests) == len(names) + 1
    assert sorted(chat_server.requests[-1]) == ["messages", "model"]
