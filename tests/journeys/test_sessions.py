"""A service that keeps the state of a conversation hears its turns in order, under one id."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from tests.journeys.command_line import guardmark, kill_once_stored, printed, typed, write_rows

from guardmark.core.record import Stage
from guardmark.store.reader import RecordReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Serve

    from guardmark.core.record import Record

BENCH = """\
version: 1
data: [{{path: talks.jsonl, turns: {turns}}}]
defenses:
  service:
    type: http
    url: "{url}/check"
    body: {{talk: {{$input: session}}, message: {{$input: text}}}}
    blocked: "$.blocked"
run: {{concurrency: 4, repeats: {repeats}{more}}}
"""


class KeepsTalks:
    """Blocks a message where its session has heard red and blue; takes note of every session."""

    def __init__(self, wait_s: float = 0.0) -> None:
        self.heard: defaultdict[str, list[str]] = defaultdict(list)
        self.doubled: list[str] = []
        self._asked: set[str] = set()
        self._wait_s = wait_s

    async def answer(self, request: web.Request) -> web.Response:
        """Answer by everything that was said in the session so far."""
        asked = await request.json()
        session, message = asked["talk"], asked["message"]
        if session.startswith("single-"):  # the look at the service before the run
            return web.json_response({"blocked": "red" in message and "blue" in message})
        if session in self._asked:
            self.doubled.append(session)
        self._asked.add(session)
        await asyncio.sleep(self._wait_s)
        self.heard[session].append(message)
        said = " ".join(self.heard[session])
        self._asked.discard(session)
        return web.json_response({"blocked": "red" in said and "blue" in said})


def talks(count: int, turns: int = 3) -> list[dict[str, Any]]:
    """Conversations, attacks in turn with benign ones; attacks say red first and blue last."""
    rows = []
    for number in range(count):
        is_attack = number % 2 == 0
        said = [f"talk {number} turn {turn}" for turn in range(1, turns + 1)]
        if is_attack:
            said[0] += " red"
            said[-1] += " blue"
        rows.append(
            {
                "id": f"t{number}",
                "messages": [{"role": "user", "content": text} for text in said],
                "label": "attack" if is_attack else "benign",
                "category": "extraction" if is_attack else "books",
            }
        )
    return rows


def prepared(folder: Path, url: str, count: int, *, turns: str = "each", **more: Any) -> None:
    """Write data and configuration."""
    write_rows(folder / "talks.jsonl", talks(count))
    settings = {"repeats": 1, "more": ""} | more
    (folder / "bench.yaml").write_text(BENCH.format(url=url, turns=turns, **settings), "utf-8")


def whole_talks(service: KeepsTalks) -> list[list[str]]:
    """Sessions that heard a conversation to its end; each heard one alone, in order."""
    whole = []
    for heard in service.heard.values():
        number = heard[0].split()[1]
        wanted = [f"talk {number} turn {turn}" for turn in range(1, 4)]
        assert [" ".join(text.split()[:4]) for text in heard] == wanted[: len(heard)]
        if len(heard) == 3:
            whole.append(heard)
    return whole


def turn_figures(folder: Path) -> dict[str, Any]:
    """What the summary says of whole conversations."""
    summary = json.loads((folder / "out" / "summary.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = summary["defenses"][0]["turns"]
    return found


def _decisions(reader: RecordReader) -> Iterator[Record]:
    """Every decision, of turns without a label too; no call before the measured ones."""
    return reader.records(stage=Stage.DEFENSE, is_every=True)


async def test_turns_come_in_order_and_never_two_at_once(tmp_path: Path, serve: Serve) -> None:
    """An id a conversation and repeat; only a service that remembers stops what is split."""
    service = KeepsTalks(0.002)
    prepared(tmp_path, (await serve(service.answer)).url, 10, repeats=2)
    await printed("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert len(whole_talks(service)) == len(service.heard) == 20
    assert service.doubled == []
    figures = turn_figures(tmp_path)
    assert (figures["stopped"]["successes"], figures["stopped"]["trials"]) == (10, 10)
    assert (figures["before"]["successes"], figures["interrupted"]["successes"]) == (0, 0)
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "service keeps a session" in report


async def test_the_message_of_all_turns_has_a_session_of_its_own(
    tmp_path: Path, serve: Serve
) -> None:
    """What is joined is another conversation, of one message."""
    service = KeepsTalks()
    prepared(tmp_path, (await serve(service.answer)).url, 4, turns="both")
    await printed("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    lengths = sorted(len(heard) for heard in service.heard.values())
    assert lengths == [1] * 4 + [3] * 4


@pytest.mark.slow
async def test_a_killed_run_asks_from_the_first_turn_under_another_id(
    tmp_path: Path, serve: Serve
) -> None:
    """No stored answer comes from a session with a gap, and each is stored once."""
    service = KeepsTalks(0.02)
    prepared(tmp_path, (await serve(service.answer)).url, 120)
    await asyncio.to_thread(kill_once_stored, "run", "bench.yaml", "-o", "out", cwd=tmp_path)
    await asyncio.sleep(0.3)  # the service ends what it was asked before the kill
    before = set(service.heard)
    await printed("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    after = [service.heard[session] for session in service.heard if session not in before]
    assert after
    assert all(len(heard) == 3 for heard in after)
    assert {heard[0].split()[1] for heard in whole_talks(service)} == set(map(str, range(120)))
    with RecordReader(tmp_path / "out" / "records.sqlite") as reader:
        positions = [record.key.sample for record in _decisions(reader)]
    assert sorted(positions) == list(range(360))
    figures = turn_figures(tmp_path)
    assert (figures["stopped"]["successes"], figures["stopped"]["trials"]) == (60, 60)
    assert figures["interrupted"]["successes"] == 0
    assert guardmark("verify", "out", cwd=tmp_path).code == 0


async def test_a_budget_that_ends_in_a_conversation_says_what_is_asked_again(
    tmp_path: Path, serve: Serve
) -> None:
    """Answers of a conversation that was broken off are not stored, and that is said."""
    service = KeepsTalks()
    url = (await serve(service.answer)).url
    prepared(tmp_path, url, 8, more=", max_calls: 20")
    done = await typed("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code != 0
    with RecordReader(tmp_path / "out" / "records.sqlite") as reader:
        stored = [record.key.sample for record in _decisions(reader)]
    assert len(stored) % 3 == 0
    assert 0 < len(stored) < 20
    assert "broken off" in done.err


ARMS = """\
version: 1
data: [{{path: data.jsonl{turns}}}]
defenses:
  mask: {{type: python, target: "guards.py:mask"}}
  service: &service
    type: http
    url: "{url}/check"
    body: {{talk: {{$input: session}}, message: {{$input: text}}}}
    blocked: "$.blocked"
{more}pipeline:
  model: {{type: scripted, otherwise: "An answer in blue."}}
  judges: [{{type: rules, unsafe: ["blue"]}}]
  arms: {arms}
run: {{concurrency: 4, repeats: {repeats}}}
"""
MASK = """\
from guardmark import Decision, Outcome


def mask(text):
    if "name" not in text:
        return False
    return Decision(outcome=Outcome.ALLOW, text=text.replace("name", "[hidden]"))
"""
BOTH = "{bare: {}, both: {input: [mask, service], output: service}}"
ANSWER = "An answer in blue."


def laid_out(
    folder: Path,
    url: str,
    arms: str = BOTH,
    *,
    repeats: int = 1,
    count: int = 6,
    turns: str = "",
    more: str = "",
) -> None:
    """Write guards, data and a configuration of arms: every second text has a name in it."""
    (folder / "guards.py").write_text(MASK, "utf-8")
    colours = {0: " red", 10: " red and blue"}
    texts = [
        f"text {n}{colours.get(n if n == 10 else n % 3, '')}{' name' if n % 2 else ''}"
        for n in range(count)
    ]
    write_rows(
        folder / "data.jsonl",
        [
            {
                "id": f"s{n}",
                "text": text,
                "label": "benign" if n % 3 else "attack",
                "category": "extraction",
            }
            for n, text in enumerate(texts)
        ],
    )
    config = ARMS.format(url=url, arms=arms, repeats=repeats, turns=turns, more=more)
    (folder / "bench.yaml").write_text(config, "utf-8")


def heard_in_arm(service: KeepsTalks) -> list[list[str]]:
    """What was heard under each id, without the look before the run and the calls to warm up."""
    return sorted(said for said in service.heard.values() if said)


async def test_a_service_hears_request_and_answer_of_an_arm_under_one_id(
    tmp_path: Path, serve: Serve
) -> None:
    """One id a sample and repeat; what a mask wrote anew and its answer belong together."""
    service = KeepsTalks()
    laid_out(tmp_path, (await serve(service.answer)).url, repeats=2)
    await printed("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    plain = [[f"text {n}{' red' if n % 3 == 0 else ''}", ANSWER] for n in (0, 2, 4)]
    raw = [f"text {n}{' red' if n % 3 == 0 else ''} name" for n in (1, 3, 5)]
    masked = [[text.replace("name", "[hidden]"), ANSWER] for text in raw]
    expected = [*plain, *([text] for text in raw), *masked]
    assert heard_in_arm(service) == sorted(expected * 2)
    # Of what was said in red the answer in blue is one too many: known from the session alone.
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    (both,) = (arm for arm in summary["pipeline"]["arms"] if arm["name"] == "both")
    stopped = {(each["guard"], each["place"]): each["attacks"] for each in both["stopped"]}
    assert stopped["service", "output"]["successes"] == 4  # two attacks, each repeat
    assert "service keeps a session" in (tmp_path / "out" / "report.md").read_text("utf-8")
    assert guardmark("verify", "out", cwd=tmp_path).code == 0


async def test_a_session_belongs_to_one_arm(tmp_path: Path, serve: Serve) -> None:
    """Two arms would share its calls: refused with what to write; two defenses hear two sessions."""
    service = KeepsTalks()
    url = (await serve(service.answer)).url
    laid_out(tmp_path, url, "{before: {input: service}, both: {input: service, output: service}}")
    for command in (("check", "bench.yaml"), ("run", "bench.yaml", "-o", "out")):
        said = await printed(*command, cwd=tmp_path, code=2)
        assert "service inserts session and stands in the arms before and both" in said
        assert "service-before and service-both" in said
    assert service.heard == {}
    arms = "{before: {input: service}, both: {input: other, output: other}}"
    laid_out(tmp_path, url, arms, more="  other: *service\n")
    await printed("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    lengths = sorted(len(said) for said in heard_in_arm(service))
    assert lengths == [1] * 6 + [2] * 6


@pytest.mark.slow
async def test_a_killed_run_of_arms_goes_on_under_the_same_ids(
    tmp_path: Path, serve: Serve
) -> None:
    """What was stored is not asked again; what was under way is, in its session."""
    service = KeepsTalks(0.01)
    arms = "{both: {input: service, output: service}}"
    laid_out(tmp_path, (await serve(service.answer)).url, arms, count=300)
    await asyncio.to_thread(kill_once_stored, "run", "bench.yaml", "-o", "out", cwd=tmp_path)
    await asyncio.sleep(0.3)  # the service ends what it was asked before the kill
    before = {session: list(said) for session, said in service.heard.items()}
    assert any(len(said) == 1 for said in before.values())
    with RecordReader(tmp_path / "out" / "records.sqlite") as reader:
        stored = Counter(
            record.key.sample
            for record in reader.records()
            if record.key.defense.startswith("service")
        )
    answered = {sample for sample, places in stored.items() if places == 2}
    assert answered
    await printed("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert len(service.heard) == 300
    ended_before = {s: said for s, said in service.heard.items() if said[-1] != ANSWER}
    assert any("red and blue" in said[0] for said in ended_before.values())
    for session, said in ended_before.items():
        # The service remembers: of a red request whose blue answer it had heard before the kill, it
        # blocks the request when it is sent again.
        is_remembered = "red" in said[0] and ANSWER in before.get(session, ())
        assert "red and blue" in said[0] or is_remembered
    again = {session for session, said in service.heard.items() if len(said) > 2}
    assert again <= set(before)
    assert answered.isdisjoint(int(service.heard[session][0].split()[1]) for session in again)
    assert guardmark("verify", "out", cwd=tmp_path).code == 0


async def test_where_turns_do_not_come_in_order_a_session_is_refused(
    tmp_path: Path, serve: Serve
) -> None:
    """Turns around a model, before anything is asked; and an attack on a run that is measured."""
    service = KeepsTalks()
    url = (await serve(service.answer)).url
    laid_out(tmp_path, url, turns=", turns: each")
    said = await printed("run", "bench.yaml", "-o", "out", cwd=tmp_path, code=2)
    assert "service inserts session, but around a model turns" in said
    assert service.heard == {}
    prepared(tmp_path, url, 4)
    said = await printed("adapt", "bench.yaml", "-o", "out2", cwd=tmp_path, code=2)
    assert "service inserts session" in said
    assert len(service.heard) == 4
