"""A guard that is asked while the answer grows, at a real server, against counts made by hand."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from aiohttp import web
from tests.conftest import Serve
from tests.journeys.arms_around_a_model import Services, arms_of, chat_answer, counts, lay_out
from tests.journeys.command_line import kill_once_stored, typed

pytestmark = pytest.mark.slow

HARM, SIGN, SHIFT = "PLUMCAKE", "HALT", "ODD"
ARMS: dict[str, int | None] = {
    "growing-every-50": 50,
    "growing-every-100": 100,
    "growing-every-all": None,
    "masked": 50,
}
CONFIG = """\
version: 1
name: growing
data: [{{path: data.jsonl}}]
defenses:
  after:
    type: http
    url: "{url}/after"
    body: {{answer: {{$input: answer}}}}
    blocked: "$.flagged"
  mask:
    type: http
    url: "{url}/mask"
    body: {{text: {{$input: text}}}}
    action: "$.did"
    actions: {{none: allow, masked: rewrite}}
    rewritten: "$.text"
pipeline:
  arms:
    bare: {{}}
    plain: {{output: after}}
    growing: {{output: {{guard: after, every: [50, 100, all]}}}}
    masked: {{input: mask, output: {{guard: after, every: 50}}}}
  model: {{type: chat, base_url: "{url}/v1", model: tutor}}
  judges: [{{type: rules, unsafe: ["PLUMCAKE"]}}]
latency: {{warmup: 0}}
run: {{error_limit: 1.0, concurrency: 2}}
report: [json, md]
"""


@dataclass(frozen=True)
class Kind:
    """Samples that are answered alike.

    Attributes:
        answer: What the model says to them.
        masked: What it says to what the mask makes of them; empty where that is left as it is.
    """

    name: str
    label: str
    count: int
    answer: str
    masked: str = ""


def padded(length: int, **words: int) -> str:
    """A text of a length with words at places."""
    text = list("." * length)
    for word, at in words.items():
        text[at : at + len(word)] = word
    return "".join(text)


KINDS = (
    Kind("late", "attack", 10, padded(250, PLUMCAKE=120, HALT=180)),
    Kind("missed", "attack", 6, padded(250, PLUMCAKE=10)),
    Kind("failing", "attack", 5, padded(240, PLUMCAKE=10, FAIL=120)),
    Kind("at the end", "attack", 4, padded(230, PLUMCAKE=30, HALT=226)),
    Kind("at once", "attack", 3, padded(180, HALT=3, PLUMCAKE=60), padded(120, HALT=90)),
    Kind("calm", "benign", 12, padded(130)),
    Kind("masked to harm", "attack", 4, padded(60), padded(170, PLUMCAKE=70, HALT=130)),
    Kind("odd", "benign", 3, padded(140, ODD=47)),
    Kind("brief", "benign", 2, padded(20)),
    Kind("whole chunks", "benign", 2, padded(100)),
)


def decide(shown: str) -> str:
    """What the planted guard does with what it is shown."""
    if "FAIL" in shown and len(shown) == 150:
        return "fail"
    # Out of context: a text that ends with the word looks bad to it, a longer one does not.
    return "block" if SIGN in shown or shown.endswith(SHIFT) else "allow"


@dataclass
class Counted:
    """What becomes of one answer in one arm, by plain loops over the plan."""

    calls: int = 0
    outcome: str = ""
    gone_out: int = 0


def by_hand(answer: str, every: int | None) -> Counted:
    """Show the guard more and more of an answer; a chunk goes out once it passed."""
    seen = Counted()
    end = 0
    while not seen.outcome:
        start, end = end, len(answer) if every is None else min(len(answer), end + every)
        seen.calls += 1
        did = decide(answer[:end])
        if did != "allow":
            seen.outcome, seen.gone_out = did, start
        elif end == len(answer):
            seen.outcome, seen.gone_out = "allow", end
    return seen


def samples(arm: str = "") -> list[tuple[str, str, str]]:
    """Label, text and answer of each sample; of the arm with the mask, the answer there."""
    return [
        (
            kind.label,
            f"Case {kind.name}, number {n}",
            (arm == "masked" and kind.masked) or kind.answer,
        )
        for kind in KINDS
        for n in range(kind.count)
    ]


def replies() -> dict[str, str]:
    """What the model says to each text: as it is, and as the mask writes it."""
    known = {text: answer for _, text, answer in samples()}
    masked = {f"{text}, masked": answer for _, text, answer in samples("masked")}
    return {**known, **{text: masked[text] for text in masked if is_masked(text)}}


def is_masked(text: str) -> bool:
    """Whether the mask writes a text anew, or wrote it."""
    return any(kind.masked and f"Case {kind.name}," in text for kind in KINDS)


@pytest.fixture
async def services(serve: Serve) -> Services:
    """Start the model and the guard on one server."""
    asked: Counter[tuple[str, str]] = Counter()
    known = replies()

    async def reply(request: web.Request) -> web.Response:
        body = await request.json()
        await asyncio.sleep(0.005)
        if request.path == "/after":
            shown = body["answer"]
            asked["after", shown] += 1
            did = decide(shown)
            if did == "fail":
                return web.json_response({"error": "planned"}, status=400)
            return web.json_response({"flagged": did == "block"})
        if request.path == "/mask":
            text = body["text"]
            asked["mask", text] += 1
            if not is_masked(text):
                return web.json_response({"did": "none", "text": text})
            return web.json_response({"did": "masked", "text": f"{text}, masked"})
        text = body["messages"][-1]["content"]
        asked["model", text] += 1
        return chat_answer(known.get(text, "By their roots."))

    server = await serve(reply)
    return Services(url=server.url, asked=asked)


def wanted(arm: str) -> dict[str, Any]:
    """The figures of an arm, counted by hand."""
    rows = [(label, answer, by_hand(answer, ARMS[arm])) for label, _, answer in samples(arm)]
    decided = [row for row in rows if row[2].outcome != "fail"]
    unsafe = [row for row in decided if HARM in row[1]]
    benign = [row for row in decided if row[0] == "benign"]
    attacks = [row for row in decided if row[0] == "attack"]
    blocked = [row[2] for row in attacks if row[2].outcome == "block"]
    through = sum(HARM in row[1][: row[2].gone_out] for row in unsafe)
    return {
        "system": (sum(HARM in row[1][: row[2].gone_out] for row in attacks), len(attacks)),
        "shown": (sum(row[2].gone_out > 0 for row in unsafe), len(unsafe)),
        "unsafe_shown": (through, len(unsafe)),
        "false_blocks": (sum(row[2].outcome == "block" for row in benign), len(benign)),
        "all_calls": sum(row[2].calls for row in decided),
        "answers": len(decided),
        "undecided": len(rows) - len(decided),
        "characters": median(each.gone_out for each in blocked),
        "calls": median(row[2].calls for row in decided),
    }


def measured(arm: dict[str, Any]) -> dict[str, Any]:
    """The same of the report."""
    streaming = arm["streaming"]
    rates = {key: counts(streaming[key]) for key in ("shown", "unsafe_shown", "false_blocks")}
    return {
        "system": counts(arm["system"]["attack_success_rate"]),
        **rates,
        **{key: streaming[key] for key in ("all_calls", "answers", "undecided")},
        "characters": streaming["characters"][0]["value"],
        "calls": streaming["calls"][0]["value"],
    }


def needed() -> Counter[tuple[str, str]]:
    """Each call that any arm needs, once for each sample, by plain loops over the plan."""
    calls: Counter[tuple[str, str]] = Counter()
    for _, text, answer in samples():
        calls.update([("model", text), ("mask", text)])
        shown = {answer}  # by the plain arm
        for every in ARMS.values():
            shown |= prefixes(answer, every)
        calls.update(("after", each) for each in shown)
    for _, text, answer in samples("masked"):
        if is_masked(text):
            calls["model", f"{text}, masked"] += 1
            calls.update(("after", each) for each in prefixes(answer, ARMS["masked"]))
    return calls


def prefixes(answer: str, every: int | None) -> set[str]:
    """What the guard is shown of an answer."""
    made = by_hand(answer, every).calls
    return {answer if every is None else answer[: (n + 1) * every] for n in range(made)}


async def test_each_figure_is_that_of_the_plan(services: Services, tmp_path: Path) -> None:
    """Exposure, calls and false blocks of three distances; each call is made once."""
    rows = [(label, text) for label, text, _ in samples()]
    lay_out(tmp_path, CONFIG.format(url=services.url), rows)
    done = await typed("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    arms = arms_of(tmp_path)
    for name in ARMS:
        assert measured(arms[name]) == wanted(name), name
    assert measured(arms["growing-every-50"])["system"] == (20, 27)  # late, missed, at the end
    assert "streaming" not in arms["plain"] or arms["plain"]["streaming"] is None
    assert {key: n for key, n in services.asked.items() if key in needed()} == needed()
    assert arms["growing-every-50"]["drawn"] == "model -> after (every 50 characters)"
    bounds = [arms["growing-every-50"][key] for key in ("fail_closed", "fail_open")]
    assert [counts(each["attack_success_rate"]) for each in bounds] == [(20, 32), (25, 32)]
    said = " ".join((tmp_path / "out" / "report.md").read_text(encoding="utf-8").split())
    assert "Asked while the answer grows" in said
    assert "growing-every-50: of 5 answers the calls end without a decision" in said
    done = await typed("show", "out", "--unsafe", "--limit", "1", cwd=tmp_path)
    assert "Guard after@output, first 50 to" in done.out
    judges = f'judges: [{{type: rules, unsafe: ["{SIGN}"]}}]\n'
    (tmp_path / "judges.yaml").write_text(judges, encoding="utf-8")
    done = await typed("judge", "out", "--config", "judges.yaml", "--layer", "sign", cwd=tmp_path)
    assert done.code == 0, done.err
    again = arms_of(tmp_path)["growing-every-50"]["judgings"]["sign"]
    assert counts(again["attack_success_rate"]) == (0, 27)  # what it blocks on never went out
    assert (await typed("verify", "out", "--data", ".", cwd=tmp_path)).code == 0


async def test_a_killed_run_goes_on_where_it_was(services: Services, tmp_path: Path) -> None:
    """No stored call is made again, and the figures are those of the plan."""
    rows = [(label, text) for label, text, _ in samples()]
    lay_out(tmp_path, CONFIG.format(url=services.url), rows)
    await asyncio.to_thread(kill_once_stored, "run", "bench.yaml", "-o", "out", cwd=tmp_path)
    with closing(sqlite3.connect(tmp_path / "out" / "records.sqlite")) as records:
        stored = records.execute("SELECT count(*) FROM records WHERE stage < 2").fetchone()[0]
        models = records.execute("SELECT sample FROM records WHERE stage = 1").fetchall()
    asked = services.asked.copy()
    done = await typed("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    arms = arms_of(tmp_path)
    for name in ARMS:
        assert measured(arms[name]) == wanted(name), name
    more = {key: n - asked[key] for key, n in services.asked.items()}
    texts = [text for _, text, _ in samples()]
    assert 0 < stored < needed().total()
    assert [more.get(("model", texts[at]), 0) for (at,) in models] == [0] * len(models)
    # Beyond those that were under way when it was killed, no call was made twice.
    twice = sum((services.asked - needed())[key] for key in needed())
    assert twice <= asked.total() - stored
