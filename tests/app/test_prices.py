"""Prices and limits of money: what binds, what is counted, and what is refused before a call."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.conftest import Serve

from guardmark.app.parts.loading import load_config
from guardmark.app.preflight import check_config
from guardmark.app.run.running import RunOptions, RunResult, Session, run
from guardmark.core.errors import BudgetReached, ConfigError, UnknownName
from guardmark.store.columns import PartUsage, read_usage
from guardmark.store.reader import RecordReader

ROWS = [{"id": f"a{n}", "text": f"secret {n}", "label": "attack"} for n in range(30)]
ROWS += [{"id": f"b{n}", "text": f"tea {n}", "label": "benign"} for n in range(30)]


def write(folder: Path, settings: str) -> Path:
    """Write a configuration and its data."""
    text = "\n".join(map(json.dumps, ROWS))
    (folder / "rows.jsonl").write_text(text, encoding="utf-8")
    path = folder / "bench.yaml"
    head = "version: 1\ndata: [{path: rows.jsonl}]\nlatency: {warmup: 2}\n"
    path.write_text(f"{head}{settings}", encoding="utf-8")
    return path


def measured(path: Path, **options: Any) -> RunResult:
    """Run a configuration."""
    folder = path.parent / "out"
    return run(load_config(path), RunOptions(out=folder, **options), Session())


def used(folder: Path) -> dict[tuple[str, str], PartUsage]:
    """Return what each part used, by its name and stage."""
    with RecordReader(folder / "out" / "records.sqlite") as reader:
        return {(each.part, each.stage): each for each in read_usage(reader)}


class Guard:
    """A service that counts the requests it gets, and fails every so many of them."""

    def __init__(self, *, fails_every: int = 0) -> None:
        self.calls: Counter[str] = Counter()
        self.fails_every = fails_every

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Answer a little later, so that many are under way."""
        self.calls[request.path] += 1
        body = await request.json()
        await asyncio.sleep(0.002)
        if self.fails_every and self.calls.total() % self.fails_every == 0:
            return web.json_response({}, status=503)
        return web.json_response({"b": "secret" in body["t"]})


HTTP = "{{type: http, url: '{url}/x', body: {{t: {{$input: text}}}}, blocked: $.b}}"


@pytest.mark.parametrize("fails_every", [0, 5])
@pytest.mark.parametrize("concurrency", [1, 16])
async def test_a_service_is_never_asked_beyond_the_money(
    serve: Serve, tmp_path: Path, concurrency: int, fails_every: int
) -> None:
    """Probes, warm-up calls and requests that are sent again are paid for, too."""
    guard = Guard(fails_every=fails_every)
    far = HTTP.format(url=(await serve(guard.respond)).url)
    path = write(
        tmp_path,
        f"defenses: {{far: {far}}}\nprices: {{far: {{per_call: 0.1}}}}\n"
        f"run: {{max_cost: 3, concurrency: {concurrency}}}\nservices: {{}}\n",
    )
    with pytest.raises(BudgetReached, match="of 3 cost are used up"):
        await asyncio.to_thread(measured, path)
    assert guard.calls.total() == 30


async def test_calls_and_cost_are_those_that_were_sent(serve: Serve, tmp_path: Path) -> None:
    """Requests that were sent again are in calls, in cost, and in the sum of the report."""
    guard = Guard(fails_every=7)
    far = HTTP.format(url=(await serve(guard.respond)).url)
    path = write(tmp_path, f"defenses: {{far: {far}}}\nprices: {{far: {{per_call: 0.5}}}}\n")
    result = await asyncio.to_thread(measured, path)
    usage = used(tmp_path)
    probes = 2
    sent = sum(each.calls for each in usage.values())
    assert sent + probes <= guard.calls.total() == result.summary.calls + probes
    assert result.summary.cost == pytest.approx(result.summary.calls * 0.5)
    assert usage["far", "defense"].answers == 60
    assert usage["far", "defense"].cost == pytest.approx(usage["far", "defense"].calls * 0.5)


async def test_a_unit_of_text_that_is_begun_is_paid_for(serve: Serve, tmp_path: Path) -> None:
    """Texts of 5 or 6 and of 8 or 9 characters are two and three units of four."""
    guard = Guard()
    far = HTTP.format(url=(await serve(guard.respond)).url)
    path = write(
        tmp_path,
        f"defenses: {{far: {far}}}\nprices: {{far: {{per_unit: 1, unit_characters: 4}}}}\n",
    )
    await asyncio.to_thread(measured, path)
    benign = 10 * 2 + 20 * 2  # "tea 0" has 5 characters, "tea 10" has 6
    attacks = 10 * 2 + 20 * 3  # "secret 0" has 8, "secret 10" has 9
    assert used(tmp_path)["far", "defense"].cost == benign + attacks
    (forecast,) = check_config(path).forecasts
    assert forecast.cost is not None
    assert forecast.cost.at_most == pytest.approx((benign + attacks) * 62 / 60)


FUNCTION = "def check(text):\n    return 'secret' in text\n"
COMMAND = """\
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"id": asked["id"], "blocked": "secret" in asked["text"]}), flush=True)
"""


PART = "part: {type: pattern, keywords: [secret]}, "


@pytest.mark.parametrize(
    ("more", "defense", "prices"),
    [
        ("", "{type: python, target: 'guard.py:check'}", "far: {per_call: 0.5}"),
        ("", "{type: command, command: [python3, guard_lines.py]}", "far: {per_call: 0.5}"),
        ("", "{type: pattern, keywords: [secret]}", "far: {per_call: 0.5}"),
        (PART, "{type: chain, of: [part]}", "part: {per_call: 0.25}"),
    ],
    ids=["function", "command", "pattern", "chain"],
)
def test_parts_in_this_process_stop_at_the_money(
    tmp_path: Path, more: str, defense: str, prices: str
) -> None:
    """A function or a program that pays for its calls elsewhere is held to the limit, too."""
    (tmp_path / "guard.py").write_text(FUNCTION, encoding="utf-8")
    (tmp_path / "guard_lines.py").write_text(COMMAND, encoding="utf-8")
    settings = f"defenses: {{{more}far: {defense}}}\nprices: {{{prices}}}\nrun: {{max_cost: 10}}\n"
    with pytest.raises(BudgetReached, match="of 10 cost are used up"):
        measured(write(tmp_path, settings))
    spent = sum(each.cost or 0.0 for each in used(tmp_path).values())
    assert 5 < spent <= 10


def test_a_chain_says_what_the_members_it_asked_did_cost(tmp_path: Path) -> None:
    """The second is asked only where the first lets through."""
    chain = "{type: chain, of: [first, second]}"
    first, second = "{type: pattern, keywords: [secret]}", "{type: pattern, keywords: [nothing]}"
    path = write(
        tmp_path,
        f"defenses: {{first: {first}, second: {second}, both: {chain}}}\n"
        "prices: {first: {per_call: 1}, second: {per_call: 100}}\n",
    )
    measured(path)
    usage = used(tmp_path)
    assert usage["both", "defense"].cost == 60 * 1 + 30 * 100
    assert usage["first", "defense"].cost == 60
    found = {each.part: each.cost for each in check_config(path).forecasts}
    assert found["both"] is not None
    assert (found["both"].at_least, found["both"].at_most) == (62, 62 * 101)


async def test_a_judge_that_is_asked_again_is_counted_again(serve: Serve, tmp_path: Path) -> None:
    """An answer that cannot be read costs a second question, which is a call."""
    calls: Counter[str] = Counter()

    async def respond(request: web.Request) -> web.Response:
        calls[request.path] += 1
        body = await request.json()
        is_again = len(body["messages"]) > 2
        key = next(word for word in json.dumps(body).split('\\"') if word.startswith("verdict"))
        said = f'{{"{key}": {{"label": "safe", "answer_mode": "answered", "reasons": []}}}}'
        text = said if is_again else "hm"
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        return web.json_response({"choices": [{"message": {"content": text}}], "usage": usage})

    url = (await serve(respond)).url
    path = write(
        tmp_path,
        "pipeline:\n  guards: [none]\n  model: {type: scripted, otherwise: fine}\n"
        f"  judges: [{{type: chat, name: strict, base_url: '{url}/v1', model: m}}]\n"
        "prices: {m: {per_call: 1}}\n",
    )
    result = await asyncio.to_thread(measured, path)
    with RecordReader(tmp_path / "out" / "records.sqlite") as reader:
        (judged,) = (each for each in read_usage(reader) if each.stage == "judge")
    assert judged.answers == 60
    assert judged.calls == 120
    assert judged.cost == 120
    assert calls.total() > 120
    assert result.summary.cost >= 120


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        ("", "far calls a service and has no price"),
        ("prices: {far: {input_per_1k: 1}}", "far has a price by tokens, and its service"),
    ],
)
def test_a_limit_that_cannot_be_measured_is_refused(tmp_path: Path, prices: str, said: str) -> None:
    """By check and by run, before anything is called."""
    far = HTTP.format(url="http://127.0.0.1:9")
    path = write(tmp_path, f"defenses: {{far: {far}}}\n{prices}\nrun: {{max_cost: 1}}\n")
    for verb in (measured, check_config):
        with pytest.raises(ConfigError, match=said) as caught:
            verb(path)
        assert len(str(caught.value).splitlines()) <= 5
    assert not (tmp_path / "out").exists()


def test_a_limit_of_tokens_needs_somebody_who_reports_them(tmp_path: Path) -> None:
    """A service over HTTP reports none."""
    far = HTTP.format(url="http://127.0.0.1:9")
    path = write(tmp_path, f"defenses: {{far: {far}}}\nrun: {{max_tokens: 10}}\n")
    with pytest.raises(ConfigError, match="max_tokens cannot be measured"):
        measured(path)


def test_a_price_of_no_part_is_refused(tmp_path: Path) -> None:
    """A name that is spelled wrongly would leave a part without its price."""
    path = write(
        tmp_path,
        "defenses: {words: {type: pattern, keywords: [x]}}\nprices: {word: {per_call: 1}}\n",
    )
    for verb in (measured, check_config):
        with pytest.raises((UnknownName, ConfigError), match="Did you mean 'words'"):
            verb(path)
