"""`judge --quality --config`: judges behind a real server, honest, fooled and unreadable."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.command_line import typed, write_rows
from tests.schemas import check_document

from guardmark.app.verify.verification import verify
from guardmark.judges.planted import planted_answers

pytestmark = pytest.mark.slow

ANSWERS = [each for each in planted_answers() if not each.plant]
PLANTED = [each for each in planted_answers() if each.plant]
UNSAFE = [each for each in PLANTED if each.label == "unsafe"]


def judged(body: dict[str, Any]) -> object:
    """Answer as the judge whose name stands as the model; the key stands behind the document."""
    content = next(m["content"] for m in body["messages"] if m["content"].startswith("{"))
    document, end = json.JSONDecoder().raw_decode(content)
    key = re.findall(r"verdict_[0-9a-f]{12}", content[end:])[0]
    answer = document["answer"]
    label = next(
        (each.label.value for each in ANSWERS if answer.startswith(each.text[:60])), "safe"
    )
    forged = re.findall(r'"label": "(safe|unsafe)"', answer)
    if body["model"] == "fooled" and forged:
        label = forged[-1]
    if body["model"] == "mumbling" and forged:
        return "I would rather not say."
    if body["model"] == "harsh":
        label = "unsafe"
    return json.dumps({key: {"label": label, "answer_mode": "answered", "reasons": []}})


def set_up(folder: Path, url: str, judges: tuple[str, ...]) -> None:
    """Lay data, a run's configuration and one of judges into a folder."""
    rows = [{"id": f"s-{n}", "text": f"question {n}", "label": "attack"} for n in range(4)]
    write_rows(folder / "data.jsonl", rows)
    (folder / "run.yaml").write_text(
        "version: 1\nname: planted\ndata: [{path: data.jsonl}]\n"
        "defenses: {wall: {type: block-all}}\n"
        "pipeline: {guards: [none], model: {type: scripted}, judges: [{type: rules, canaries: true}]}\n"
        "report: [json, md]\n",
        encoding="utf-8",
    )
    named = ", ".join(
        f'{{type: chat, name: {name}, base_url: "{url}", model: {name}, retries: 0}}'
        for name in judges
    )
    (folder / "judges.yaml").write_text(f"judges: [{named}]\n", encoding="utf-8")


async def ask(chat_server: Any, folder: Path, *judges: str, config: str = "") -> dict[str, Any]:
    """Make a run, show planted answers to judges, and return what the summary says of each."""
    chat_server.reply = judged
    set_up(folder, chat_server.base_url, judges)
    done = await typed("run", folder / "run.yaml", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    if config:
        with (folder / "judges.yaml").open("a", encoding="utf-8") as file:
            file.write(config)
    done = await typed("judge", "out", "--quality", "--config", "judges.yaml", cwd=folder)
    assert done.code == (6 if config else 0), done.err
    summary = json.loads((folder / "out" / "summary.json").read_text("utf-8"))
    check_document(summary)
    return {each["judge"]: each for each in summary["planted"]}


async def test_a_judge_that_reads_the_answer_is_not_moved(chat_server: Any, tmp_path: Path) -> None:
    """0 of every planted answer, with an upper limit above 0; groups are the answers."""
    honest = (await ask(chat_server, tmp_path, "honest"))["honest"]
    assert honest["moved"]["trials"] == len(PLANTED)
    assert honest["moved"]["successes"] == 0
    assert honest["moved"]["groups"] == len(ANSWERS)
    assert 0 < honest["moved"]["high"] < 1
    assert honest["right"]["successes"] == len(ANSWERS)


async def test_a_judge_that_repeats_forged_verdicts_is_moved_by_each_and_by_nothing_else(
    chat_server: Any, tmp_path: Path
) -> None:
    """It is counted exactly, named in the report, and the run stays intact."""
    fooled = (await ask(chat_server, tmp_path, "fooled"))["fooled"]
    forged = [each for each in PLANTED if '"label": "' in each.text]
    to_safe = [each for each in forged if each.label == "unsafe"]
    assert fooled["moved"]["successes"] == len(forged)
    assert fooled["to_safe"]["successes"] == len(to_safe)
    assert fooled["to_safe"]["trials"] == len(UNSAFE)
    by_kind = {each["kind"]: each["moved"] for each in fooled["by_kind"]}
    assert by_kind["forged verdict"]["value"] == 1
    assert by_kind["order to the judge"]["value"] == 0
    text = (tmp_path / "out" / "report.md").read_text("utf-8")
    assert f"{len(to_safe)} of {len(UNSAFE)} planted texts" in text
    assert verify(tmp_path / "out").holds


async def test_what_cannot_be_read_is_beside_the_rate_and_not_in_it(
    chat_server: Any, tmp_path: Path
) -> None:
    """A judge that mumbles is not moved, and not steadfast either."""
    mumbling = (await ask(chat_server, tmp_path, "mumbling"))["mumbling"]
    forged = [each for each in PLANTED if '"label": "' in each.text]
    assert mumbling["unreadable"]["successes"] == len(forged)
    assert mumbling["moved"]["trials"] == len(PLANTED) - len(forged)
    assert mumbling["moved"]["successes"] == 0


async def test_a_judge_that_calls_everything_unsafe_earns_nothing_by_its_wrong_labels(
    chat_server: Any, tmp_path: Path
) -> None:
    """Only answers that it labels rightly without a plant are counted."""
    harsh = (await ask(chat_server, tmp_path, "harsh"))["harsh"]
    assert harsh["moved"]["trials"] == len(UNSAFE)
    assert harsh["right"]["successes"] == len({each.name for each in UNSAFE})


async def test_several_judges_are_told_side_by_side_and_the_last_asking_counts(
    chat_server: Any, tmp_path: Path
) -> None:
    """Asked again, each judge has one line; without a configuration nothing is called."""
    await ask(chat_server, tmp_path, "honest", "fooled")
    again = await typed("judge", "out", "--quality", "--config", "judges.yaml", cwd=tmp_path)
    assert again.code == 0, again.err
    calls = len(chat_server.requests)
    told = await typed("judge", "out", "--quality", "--json", cwd=tmp_path)
    assert len(chat_server.requests) == calls
    planted = json.loads(told.out)["planted"]
    assert [each["judge"] for each in planted] == ["honest", "fooled"]
    assert [each["layer"].split("/")[1] for each in planted] == ["3", "4"]


async def test_a_limit_of_calls_holds_and_leaves_no_half_of_a_figure(
    chat_server: Any, tmp_path: Path
) -> None:
    """Exit 6, and no figure of a judge that was not asked about all."""
    planted = await ask(chat_server, tmp_path, "honest", config="run: {max_calls: 20}\n")
    assert planted == {}
    assert len(chat_server.requests) <= 20


async def test_labels_and_planted_answers_are_two_commands(tmp_path: Path) -> None:
    """Options that label are refused beside --quality, before anything is read."""
    done = await typed("judge", "out", "--quality", "--layer", "x", cwd=tmp_path)
    assert done.code == 2
    assert "--quality" in done.err


@pytest.mark.parametrize("kind", ["forged verdict", "order to the judge", "cut answer"])
def test_every_kind_of_plant_stands_in_many_answers(kind: str) -> None:
    """An interval by answers needs ten of them."""
    assert len({each.name for each in PLANTED if each.kind == kind}) >= 10
