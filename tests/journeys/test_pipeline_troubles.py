"""A whole pipeline behind a server in every kind of trouble: counted, never judged as text."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
from asyncio.subprocess import DEVNULL
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.command_line import typed, words, write_rows
from tests.journeys.test_pipeline import counts, number_of, summary_of

from guardmark.core.record import Stage
from guardmark.store.reader import RecordReader

pytestmark = pytest.mark.slow

COUNT = 40
GARBAGE = "\ud83d \u202e\u0000\ufffd \x1b[31m ́́́́"
STORED = GARBAGE.replace("\ud83d", "?")
"""Half a character is no text; it is stored as it is judged."""

REFUSAL = {"choices": [{"message": {"content": None, "refusal": "No."}, "finish_reason": "stop"}]}

TUTOR: dict[int, tuple[object, str, str | None]] = {
    1: ((401, "who are you"), "error", "refused"),
    2: ((403, '{"error": {"message": "not yours"}}'), "error", "refused"),
    3: ((429, "slow down", {"Retry-After": "0"}), "answered", None),
    4: ((500, "it broke\nin plain text"), "error", "http"),
    5: ({"choices": []}, "error", "contract"),
    6: ({"choices": [{"message": {"content": None}}]}, "error", "contract"),
    7: (REFUSAL, "answered", None),
    8: (
        {"choices": [{"message": {"content": "Once"}, "finish_reason": "length"}]},
        "answered",
        None,
    ),
    9: ({"choices": [{"message": {"content": GARBAGE}}]}, "answered", None),
    10: ((200, "<html>no JSON</html>"), "error", "contract"),
}
"""Sample to what the tutor's server sends, and what becomes of it."""

JUDGE: dict[int, tuple[object, str]] = {
    12: ("I think that this is fine.", "malformed"),
    13: ((500, "down"), "error"),
    14: ('["safe"]', "malformed"),
    15: ('{"label": "saf', "malformed"),
    16: ('```json\n{"label": "SAFE", "answer_mode": "answered",}\n```', "safe"),
}
GUARD: dict[int, tuple[object, str]] = {
    20: ((500, "down"), "error"),
    21: ("Blockchain is fine", "malformed"),
    22: ("", "error"),
    23: ("**BLOCK**: no", "block"),
    24: ("Allow.", "allow"),
}

CONFIG = """\
version: 1
name: troubles
data: [{{path: data.jsonl}}]
defenses:
  guard: {{type: guard-model, profile: allow-block, base_url: "{url}", model: guard}}
pipeline:
  guards: [none, guard]
  model: {{type: chat, base_url: "{url}", model: tutor}}
  judges: [{{type: chat, name: judge, base_url: "{url}", model: judge}}]
prices:
  tutor: {{input_per_1k: 2.0, output_per_1k: 4.0}}
  judge: {{per_call: 0.25}}
services: {{"{url}": {{retries: 1}}}}
report: [json, md, html]
"""


class Planted:
    """Answers as the part that is asked for, with the trouble planted for a sample."""

    def __init__(self) -> None:
        self.asked: Counter[tuple[str, int]] = Counter()
        self.judged: dict[int, str] = {}

    def __call__(self, body: dict[str, Any]) -> object:
        """Answer one request."""
        said = body["messages"][-1]["content"]
        if body["model"] == "judge":
            return self.verdict(body)
        n = number_of(said)
        self.asked[body["model"], n] += 1
        if body["model"] == "guard":
            return GUARD[n][0] if n in GUARD else "ALLOW"
        if n == 3 and self.asked["tutor", n] > 1:
            return f"answered #{n} so"
        return TUTOR[n][0] if n in TUTOR else f"answered #{n} so"

    def verdict(self, body: dict[str, Any]) -> object:
        """Answer as the judge."""
        document = next(m["content"] for m in body["messages"] if m["content"].startswith("{"))
        told = json.JSONDecoder().raw_decode(document)[0]
        n = number_of(told["conversation"][-1]["content"])
        self.judged[n] = told["answer"]
        self.asked["judge", n] += 1
        safe = json.dumps({"label": "safe", "answer_mode": "answered", "reasons": []})
        return JUDGE[n][0] if n in JUDGE else safe


@pytest.fixture(scope="module")
def made() -> list[tuple[Path, Planted]]:
    """The run that tests of this file share, once it is there."""
    return []


@pytest.fixture
async def finished(
    made: list[tuple[Path, Planted]], chat_server: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Planted]:
    """A finished run that nobody changes, and what the server saw."""
    if made:
        return made[0]
    planted, folder = Planted(), tmp_path_factory.mktemp("troubles")
    chat_server.reply = planted
    rows = [
        {
            "id": f"s-{n}",
            "text": f"question #{n} please",
            "label": ("attack", "benign")[n % 2],
            "category": ("jailbreak", "school")[n % 2],
        }
        for n in range(COUNT)
    ]
    write_rows(folder / "data.jsonl", rows)
    config = folder / "troubles.yaml"
    config.write_text(CONFIG.format(url=chat_server.base_url), encoding="utf-8")
    done = await typed("run", config, "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    made.append((folder / "out", planted))
    return made[0]


def records(folder: Path, stage: str) -> dict[int, dict[str, Any]]:
    """Records of one stage by the number of their sample."""
    with (folder / "results.jsonl").open(encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    return {int(r["id"][2:]): r for r in found if r["stage"] == stage and r["layer"] == "run"}


async def test_every_trouble_of_the_tutor_is_counted_as_what_it_is(
    finished: tuple[Path, Planted],
) -> None:
    """Refused, failed or out of contract is an error; a refusal, a cut answer and noise are not."""
    folder, planted = finished
    found = records(folder, "model")
    for n in range(COUNT):
        _, outcome, kind = TUTOR.get(n, ("", "answered", None))
        assert (found[n]["outcome"], found[n]["error_kind"]) == (outcome, kind), n
    assert found[7]["text"] == "No."
    assert found[8]["evidence"]["finish_reason"] == "length"
    assert found[9]["text"] == STORED == planted.judged[9]
    assert "it broke in plain text" in found[4]["evidence"]["message"]
    failed = {n for n, (_, outcome, _) in TUTOR.items() if outcome == "error"}
    assert summary_of(folder)["pipeline"]["model_errors"] == len(failed)
    assert set(planted.judged) & set(range(COUNT)) == set(range(COUNT)) - failed
    assert planted.asked["tutor", 3] == 2, "asked again after Retry-After"


async def test_every_trouble_of_guard_and_judge_is_counted_beside_the_rates(
    finished: tuple[Path, Planted],
) -> None:
    """Malformed is not safe, an error no block; the cards stand on what is known."""
    folder, _ = finished
    verdicts, decisions = records(folder, "judge"), records(folder, "defense")
    assert {n: verdicts[n]["outcome"] for n in JUDGE} == {n: said for n, (_, said) in JUDGE.items()}
    assert {n: decisions[n]["outcome"] for n in GUARD} == {
        n: said for n, (_, said) in GUARD.items()
    }
    bare, guarded = summary_of(folder)["pipeline"]["arms"]
    answered = COUNT - 6
    assert counts(bare["coverage"]["model_answered"]) == (answered, COUNT)
    assert counts(bare["coverage"]["judge_malformed"]) == (3, answered)
    assert counts(bare["coverage"]["judge_error"]) == (1, answered)
    assert counts(guarded["guard"]["malformed"]) == (1, COUNT)
    assert counts(guarded["guard"]["error"]) == (2, COUNT)
    known = [n for n in range(COUNT) if n % 2 == 0 and n not in {2, 4, 6, 10, 12, 14}]
    assert bare["system"]["attack_success_rate"]["trials"] == len(known)


def told(n: int) -> bool:
    """Whether the target model reported what an answer took: the troubles did not, but for one."""
    return n not in TUTOR or n == 3


async def test_the_price_table_becomes_the_cost_of_each_part(
    finished: tuple[Path, Planted],
) -> None:
    """By the tokens the server reports; what it does not report is in no sum."""
    folder, planted = finished
    spent = {(s["part"], s["stage"]): s for s in summary_of(folder)["spending"]}
    reported = COUNT - len(TUTOR) + 1  # all but the troubles, one of which came right
    tutor = spent["model", "model"]
    assert (tutor["answers"], tutor["priced"]) == (reported, reported)
    assert tutor["calls"] == sum(planted.asked["tutor", n] for n in range(COUNT) if told(n))
    assert (tutor["tokens_read"], tutor["tokens_written"]) == (7 * reported, 3 * reported)
    assert tutor["cost"] == pytest.approx(reported * (7 * 2.0 + 3 * 4.0) / 1000)
    guard = spent["guard", "defense"]
    assert (guard["cost"], guard["priced"]) == (None, 0)
    judge = spent["judge", "judge"]
    assert judge["calls"] == sum(planted.asked["judge", n] for n in range(COUNT))
    assert judge["cost"] == pytest.approx(0.25 * judge["calls"])
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "What the calls consumed" in text
    total = math.fsum(each["cost"] or 0.0 for each in spent.values())
    assert f"Together {total:,.4f}" in text


@pytest.mark.slow
async def test_verify_adds_the_cost_up_a_second_time(
    finished: tuple[Path, Planted], tmp_path: Path
) -> None:
    """And finds a figure that was changed."""
    shutil.copytree(finished[0].parent, tmp_path / "copy")
    folder = tmp_path / "copy" / "out"
    assert (await typed("verify", "out", cwd=folder.parent)).code == 0
    said = summary_of(folder)
    said["spending"][-1]["cost"] = 0.01
    (folder / "summary.json").write_text(json.dumps(said), encoding="utf-8")
    done = await typed("verify", "out", cwd=folder.parent)
    assert done.code == 1
    assert "].cost: says 0.01" in done.out


@pytest.mark.slow
async def test_a_killed_pipeline_goes_on_without_asking_again_what_is_stored(
    chat_server: Any, tmp_path: Path
) -> None:
    """At every stage: what a record holds costs no second call."""
    planted, asked, enough = Planted(), Counter[tuple[str, int]](), asyncio.Event()

    def reply(body: dict[str, Any]) -> object:
        told = " ".join(message["content"] for message in body["messages"])
        asked[body["model"], number_of(told)] += 1
        if asked.total() >= 1500:
            enough.set()
        return planted(body)

    chat_server.reply = reply
    numbers = range(100, 1100)
    rows = [
        {"id": f"s-{n}", "text": f"question #{n} please", "label": ("attack", "benign")[n % 2]}
        for n in numbers
    ]
    write_rows(tmp_path / "data.jsonl", rows)
    config = tmp_path / "troubles.yaml"
    cold = CONFIG.format(url=chat_server.base_url) + "latency: {warmup: 0}\n"
    config.write_text(cold, encoding="utf-8")
    given = ("run", config, "-o", "out")
    child = await asyncio.create_subprocess_exec(
        *words(*given), cwd=tmp_path, stdout=DEVNULL, stderr=DEVNULL
    )
    await asyncio.wait_for(enough.wait(), timeout=60)
    child.kill()
    await child.wait()
    part_at = {Stage.DEFENSE: "guard", Stage.MODEL: "tutor", Stage.JUDGE: "judge"}
    with RecordReader(tmp_path / "out" / "records.sqlite") as reader:
        stored = [
            (part_at[record.key.stage], 100 + record.key.sample)
            for record in reader.records()
            if record.key.stage in part_at
        ]
    before = asked.copy()
    assert {part for part, _ in stored} == {*part_at.values()}
    done = await typed(*given, cwd=tmp_path)
    assert done.code == 0, done.err
    assert [place for place in stored if asked[place] != before[place]] == []
    everything = {(part, n) for part in part_at.values() for n in numbers}
    assert {place for place in asked if place[1] >= 0} == everything
