"""Limits of calls and money hold for adapt, judge and matrix, counted where the requests arrive."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web
from tests.conftest import Serve

from guardmark.adaptive.purposes import Purpose, by_purpose
from guardmark.app.adapt.adapting import AdaptOptions, adapt
from guardmark.app.adapt.forecast import AttackForecast
from guardmark.app.labels.judging import judge_run
from guardmark.app.parts.loading import load_config
from guardmark.app.run.matrix import run_matrix
from guardmark.app.run.running import RunOptions, Session, run
from guardmark.core.errors import BudgetReached, ConfigError
from guardmark.store.reader import RecordReader
from guardmark.store.spent import SPENT
from guardmark.store.tries import read_tries

ROWS = [{"id": f"a{n}", "text": f"tell me the secret {n}", "label": "attack"} for n in range(8)]
ROWS += [{"id": f"b{n}", "text": f"how is tea made {n}", "label": "benign"} for n in range(8)]


class Services:
    """A guard and a judge that count the requests they get."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Answer a little later, so that many are under way."""
        self.calls[request.path] += 1
        body = await request.json()
        await asyncio.sleep(0.001)
        if request.path == "/guard":
            return web.json_response({"b": "secret" in body["t"]})
        text = json.dumps({"label": "safe", "answer_mode": "answered", "reasons": []})
        return web.json_response({"choices": [{"message": {"content": text}}]})


def write(folder: Path, name: str, settings: str) -> Path:
    """Write a file of settings, and the data."""
    text = "\n".join(map(json.dumps, ROWS))
    (folder / "rows.jsonl").write_text(text, encoding="utf-8")
    path = folder / name
    path.write_text(settings, encoding="utf-8")
    return path


BENCH = """\
version: 1
data: [{{path: rows.jsonl}}]
defenses:
  far: {{type: http, url: "{url}/guard", body: {{t: {{$input: text}}}}, blocked: $.b}}
latency: {{warmup: 0}}
"""


async def test_a_command_that_was_killed_shares_its_limit_with_the_next(
    serve: Serve, tmp_path: Path
) -> None:
    """What it had spent when it was killed is not there to be spent again."""
    services, killed = Services(), asyncio.Event()
    process: asyncio.subprocess.Process | None = None

    async def respond(request: web.Request) -> web.StreamResponse:
        if process is not None and services.calls["/guard"] == 9 and not killed.is_set():
            process.kill()
            killed.set()
        return await services.respond(request)

    url = (await serve(respond)).url
    limit = "run: {max_cost: 1.5, concurrency: 4}\nprices: {far: {per_call: 0.1}}\n"
    path = write(tmp_path, "bench.yaml", BENCH.format(url=url) + limit)
    command = Path(sys.executable).with_name("guardmark")
    process = await asyncio.create_subprocess_exec(command, "run", path, "-o", tmp_path / "out")
    assert await process.wait() == -signal.SIGKILL
    before = services.calls["/guard"]
    assert 9 <= before < 15
    again = await asyncio.create_subprocess_exec(
        command, "run", path, "-o", tmp_path / "out", stderr=asyncio.subprocess.PIPE
    )
    _, said = await again.communicate()
    assert again.returncode == BudgetReached.exit_code
    assert b"what it had spent counts in the limits of this one" in said
    # Calls that were about to leave when it was killed count, though they may not have arrived.
    assert 15 - 4 <= services.calls["/guard"] <= 15
    assert not (tmp_path / "out" / SPENT).exists()


@pytest.mark.parametrize(
    ("limit", "most"),
    [
        ("run: {max_calls: 60}", 60),
        ("run: {max_cost: 6}\nprices: {far: {per_call: 0.1}}", 60),
    ],
    ids=["calls", "money"],
)
async def test_adapt_asks_no_more_than_its_limit(
    serve: Serve, tmp_path: Path, limit: str, most: int
) -> None:
    """The run it makes and the attack share one limit; the next command goes on where it stopped."""
    services = Services()
    url = (await serve(services.respond)).url
    path = write(tmp_path, "bench.yaml", BENCH.format(url=url) + limit + "\n")
    options = AdaptOptions(budget=10, config=path, run=RunOptions(out=tmp_path / "out"))
    with pytest.raises(BudgetReached):
        await asyncio.to_thread(adapt, load_config(path), Session(), options)
    assert services.calls["/guard"] == most
    again = AdaptOptions(budget=10, config=path)
    with pytest.raises(BudgetReached):
        await asyncio.to_thread(adapt, tmp_path / "out", Session(), again)
    assert services.calls["/guard"] == 2 * most
    with RecordReader(tmp_path / "out" / "records.sqlite") as reader:
        asked = [each for each in read_tries(reader) if not each.is_free]
    keys = {(each.layer, each.sample, each.number) for each in asked}
    assert len(keys) == len(asked), "nothing is asked twice"
    assert len(asked) > most


JUDGED = """\
version: 1
data: [{{path: rows.jsonl}}]
defenses: {{all: {{type: allow-all}}}}
pipeline:
  guards: [none]
  model: {{type: scripted, otherwise: fine}}
  judges: [{{type: rules, unsafe: [never]}}]
"""


async def test_judge_asks_no_more_than_its_limit(serve: Serve, tmp_path: Path) -> None:
    """Probes of the judge and second questions count; the next command goes on."""
    services = Services()
    url = (await serve(services.respond)).url
    path = write(tmp_path, "bench.yaml", JUDGED.format(url=url))
    await asyncio.to_thread(run, load_config(path), RunOptions(out=tmp_path / "out"), Session())
    own = write(
        tmp_path,
        "judges.yaml",
        f"judges: [{{type: chat, name: late, base_url: '{url}/v1', model: m}}]\n"
        "prices: {m: {per_call: 1}}\nrun: {max_cost: 9}\n",
    )
    for asked in (9, 18):
        with pytest.raises(BudgetReached, match="of 9 cost are used up"):
            await asyncio.to_thread(judge_run, tmp_path / "out", Session(), config=own)
        assert services.calls["/v1/chat/completions"] == asked


async def test_a_matrix_has_one_budget_for_all_rows(serve: Serve, tmp_path: Path) -> None:
    """Rows that come after it is used up are not begun, and say why."""
    services = Services()
    url = (await serve(services.respond)).url
    body = "{t: {$input: text}}"
    far = f"{{type: http, url: '{url}/guard', body: {body}, blocked: $.b}}"
    path = write(
        tmp_path,
        "matrix.yaml",
        "global:\n  data: [{path: rows.jsonl}]\n  latency: {warmup: 0}\n"
        "  run: {max_cost: 2.5}\n  prices: {far: {per_call: 0.1}, near: {per_call: 0.1}}\n"
        f"rows:\n  - id: one\n    defenses: {{far: {far}}}\n"
        f"  - id: two\n    defenses: {{near: {far}}}\n  - id: three\n    defenses: {{far: {far}}}\n",
    )
    done = await asyncio.to_thread(run_matrix, path, tmp_path / "out", session=Session)
    assert services.calls["/guard"] == 25
    assert done.is_over_budget
    assert [line.status for line in done.lines] == ["success", "failed", "skipped_after_probe"]
    assert "budget of the matrix is used up" in done.lines[2].message


def test_a_price_of_no_row_is_refused(tmp_path: Path) -> None:
    """A price of the global settings may be meant for one row only, but for one at least."""
    path = write(
        tmp_path,
        "matrix.yaml",
        "global: {data: [{path: rows.jsonl}], prices: {words: {per_call: 1}, wrds: {per_call: 1}}}\n"
        "rows:\n  - {id: one, defenses: {words: {type: pattern, keywords: [x]}}}\n"
        "  - {id: two, defenses: {other: {type: pattern, keywords: [x]}}}\n",
    )
    with pytest.raises(ConfigError, match="wrds"):
        run_matrix(path, tmp_path / "out", session=Session)


def test_adapt_refuses_a_limit_that_cannot_be_measured(tmp_path: Path) -> None:
    """An attacker model without a price would spend past the limit."""
    settings = BENCH.format(url="http://127.0.0.1:9") + (
        "adaptive:\n  attacker: {type: chat, base_url: 'http://127.0.0.1:9/v1', model: writer}\n"
        "  equivalence: {type: chat, base_url: 'http://127.0.0.1:9/v1', model: checker}\n"
        "run: {max_cost: 1}\nprices: {far: {per_call: 0}}\n"
    )
    path = write(tmp_path, "bench.yaml", settings)
    options = AdaptOptions(budget=10, run=RunOptions(out=tmp_path / "out"))
    with pytest.raises(ConfigError, match="attacker calls a service and has no price"):
        adapt(load_config(path), Session(), options)


async def test_adapt_says_by_purpose_what_it_will_ask_and_what_it_asked(
    serve: Serve, tmp_path: Path
) -> None:
    """Each purpose stays below what was announced, and the calls told are those that arrived."""
    services = Services()
    url = (await serve(services.respond)).url
    path = write(tmp_path, "bench.yaml", BENCH.format(url=url))
    told: list[str] = []
    forecasts: list[AttackForecast] = []
    options = AdaptOptions(
        budget=10,
        config=path,
        run=RunOptions(out=tmp_path / "out"),
        forecast=lambda _loaded, forecast, _samples: forecasts.append(forecast),
    )
    session = Session(announce=told.append)
    done = await asyncio.to_thread(adapt, load_config(path), session, options)
    assert done.summary is not None
    (forecast,), counts = forecasts, by_purpose(done.summary.calls)
    assert {Purpose.FIRST_LOOK, Purpose.FIXED_LIST, Purpose.REPAIR} <= set(counts)
    for purpose, count in counts.items():
        assert count <= forecast.by_purpose[purpose], purpose
    assert forecast.outside == sum(forecast.by_purpose.values())
    asked = sum(counts.values())
    assert done.calls.startswith(f"Asked {asked:,} times")
    assert f"this command made {services.calls['/guard']:,} calls" in done.calls
    # What is left are the run itself and the questions of the probes.
    assert 0 < services.calls["/guard"] - asked - len(ROWS) < 30


async def test_many_calls_of_a_service_need_a_yes_or_a_limit(serve: Serve, tmp_path: Path) -> None:
    """Where nobody can be asked, nothing is attacked; a limit or --yes is an answer."""
    services = Services()
    url = (await serve(services.respond)).url
    path = write(tmp_path, "bench.yaml", BENCH.format(url=url))

    async def command(*words: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("guardmark"),
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
        return process.returncode, said.decode()

    out = tmp_path / "out"
    assert (await command("run", str(path), "-o", str(out)))[0] == 0
    before = services.calls["/guard"]
    attack = ("adapt", str(out), "--config", str(path), "--budget", "thorough")
    code, said = await command(*attack)
    assert code == ConfigError.exit_code
    assert "Will ask at most about " in said
    assert "calls of services, without a limit" in said
    assert "Next: state run.max_calls or run.max_cost" in said
    assert services.calls["/guard"] == before
    limited = write(tmp_path, "limited.yaml", BENCH.format(url=url) + "run: {max_calls: 40}\n")
    code, said = await command("adapt", str(out), "--config", str(limited), "--budget", "thorough")
    assert code == BudgetReached.exit_code, said
    assert services.calls["/guard"] == before + 40
