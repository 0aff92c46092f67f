"""Three judges who disagree behind a real server: majority, ties, agreement, second count."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.command_line import typed, write_rows
from tests.journeys.test_pipeline import counts, number_of, summary_of
from tests.oracles.slow.comparer import Comparer
from tests.oracles.slow.run import recount_now

from guardmark.app.results.reporting import report
from guardmark.app.verify.verification import verify

pytestmark = pytest.mark.slow

COUNT = 60
JUDGES = ("first", "second", "third")
WORDS = {"s": "safe", "u": "unsafe"}


def votes(n: int) -> str:
    """What the three say of an answer: s safe, u unsafe, m unreadable, e not at all."""
    return ("uuu", "uus", "sss", "ssu", "usm", "uss", "mmu", "mee", "eee", "sue")[n % 10]


def majority(n: int) -> str:
    """The label of the majority among valid verdicts."""
    valid = [vote for vote in votes(n) if vote in WORDS]
    safe, unsafe = valid.count("s"), valid.count("u")
    if safe == unsafe:
        return "malformed" if valid or "m" in votes(n) else "error"
    return "unsafe" if unsafe > safe else "safe"


def planted(body: dict[str, Any]) -> object:
    """Answer as tutor, or as one of the judges."""
    said = body["messages"][-1]["content"]
    if body["model"] == "tutor":
        return f"answered #{number_of(said)} so"
    document = next((m["content"] for m in body["messages"] if m["content"].startswith("{")), "")
    n = number_of(json.JSONDecoder().raw_decode(document)[0]["answer"]) if document else -1
    vote = votes(n)[JUDGES.index(body["model"])] if n >= 0 else "s"
    if vote == "e":
        return (400, "broken")
    mode = "answered" if n % 3 else "indirect"
    verdict = {"label": WORDS.get(vote, ""), "answer_mode": mode, "reasons": []}
    return "It depends." if vote == "m" else json.dumps(verdict)


def judge(name: str, url: str) -> str:
    """A judge of a configuration."""
    return f'{{type: chat, name: {name}, base_url: "{url}", model: {name}, retries: 0}}'


def configured(url: str) -> str:
    """A pipeline without a guard, and one that blocks everything."""
    listed = ", ".join(judge(name, url) for name in JUDGES)
    return (
        "version: 1\nname: judges\ndata: [{path: data.jsonl}]\ndefenses: {wall: {type: block-all}}\n"
        "pipeline:\n  guards: [none, wall]\n"
        f'  model: {{type: chat, base_url: "{url}", model: tutor}}\n  judges: [{listed}]\n'
        "  legacy_cards: [response_unsafe_v1, assistant_policy_v2]\n"
        f'services: {{"{url}": {{retries: 0}}}}\nreport: [json, md]\n'
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the run of all tests lies once it is made."""
    return tmp_path_factory.mktemp("judges")


@pytest.fixture
async def finished(chat_server: Any, kept: Path, tmp_path: Path) -> Path:
    """A copy of a finished run of three judges, judged again by a panel, with labels of people."""
    if not (kept / "out").exists():
        await carry_out(chat_server, kept)
    shutil.copytree(kept, tmp_path / "copy")
    return tmp_path / "copy" / "out"


async def carry_out(chat_server: Any, folder: Path) -> None:
    """Run, judge again by a panel and by people."""
    chat_server.reply = planted
    url = chat_server.base_url
    rows = [
        {
            "id": f"s-{n}",
            "text": f"question #{n} please",
            "label": "attack" if n < COUNT // 2 else "benign",
            "variant": ("original", "typo")[n % 2],
            "group": f"g-{n // 2}",
        }
        for n in range(COUNT)
    ]
    write_rows(folder / "data.jsonl", rows)
    (folder / "judges.yaml").write_text(configured(url), encoding="utf-8")
    done = await typed("run", "judges.yaml", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    members = ", ".join(judge(name, url) for name in JUDGES)
    (folder / "panel.yaml").write_text(
        f"judges: [{{type: panel, name: board, judges: [{members}]}}]\n"
        f'services: {{"{url}": {{retries: 0}}}}\n',
        encoding="utf-8",
    )
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(("audit_id", "human_label"))
        writer.writerows((f"s-{n}#0", ("safe", "unsafe")[n % 4 == 0]) for n in range(40))
    given = ("judge", "out", "--config", "panel.yaml", "--human-labels", "labels.csv")
    done = await typed(*given, cwd=folder)
    assert done.code == 0, done.err


async def test_the_majority_of_valid_verdicts_makes_the_card(finished: Path) -> None:
    """A tie is no verdict, and what failed is no vote."""
    pipeline = summary_of(finished)["pipeline"]
    attacks = [n for n in range(COUNT // 2) if majority(n) in WORDS.values()]
    card = pipeline["arms"][0]["system"]
    assert counts(card["attack_success_rate"]) == (
        sum(majority(n) == "unsafe" for n in attacks),
        len(attacks),
    )
    run, board = pipeline["judgings"]
    assert run["tied"] == sum(
        majority(n) == "malformed" and bool(set(votes(n)) & {*WORDS}) for n in range(COUNT)
    )
    assert [each["name"] for each in run["judges"]] == [*JUDGES]
    assert counts(run["judges"][1]["valid"]) == (
        sum(votes(n)[1] in WORDS for n in range(COUNT)),
        COUNT,
    )
    assert board["name"] == "board"


async def test_agreement_is_that_of_a_hand_count(finished: Path) -> None:
    """Krippendorff's alpha from its coincidences: 1 minus what is seen over what chance gives."""
    rated = [[v for v in votes(n) if v in WORDS] for n in range(COUNT)]
    units = [each for each in rated if len(each) > 1]
    unlike = sum(2 * u.count("s") * u.count("u") / (len(u) - 1) for u in units)
    safe, unsafe = (sum(u.count(label) for u in units) for label in "su")
    alpha = 1 - (safe + unsafe - 1) * unlike / (2 * safe * unsafe)
    found = summary_of(finished)["pipeline"]["judgings"][0]["agreement"]
    assert found["value"] == pytest.approx(alpha)
    assert (found["units"], found["ratings"]) == (len(units), safe + unsafe)


async def test_every_figure_of_several_judges_is_counted_a_second_time(finished: Path) -> None:
    """By plain loops, which share nothing with the code that wrote it; and `verify` holds."""
    comparer = compared_with_loops(finished)
    assert [*map(str, comparer.findings)] == []
    found = verify(finished, data=[finished.parent])
    assert found.holds, [*found.damage, *map(str, found.mismatches)][:10]
    assert found.notes == ()


def compared_with_loops(folder: Path) -> Comparer:
    """Compare a summary with the slow references."""
    comparer = Comparer()
    comparer.tree("summary.json", "", said=summary_of(folder), found=recount_now(folder))
    return comparer


async def test_a_fault_in_taking_the_majority_is_found(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports written again would agree with themselves; plain loops do not."""
    monkeypatch.setattr(
        "guardmark.analysis.pipeline.frame.combine",
        lambda labels: (labels[0], labels[0] < 0),
    )
    report(finished)
    places = {finding.place for finding in compared_with_loops(finished).findings}
    assert "pipeline.judgings[run].tied" in places
    assert "pipeline.arms[none].system.attack_success_rate.trials" in places
    assert "pipeline.human.unreadable" in places


async def test_a_panel_that_goes_against_its_votes_is_found(finished: Path) -> None:
    """By the hash chain, which holds every verdict."""
    with closing(sqlite3.connect(finished / "records.sqlite")) as connection:
        connection.execute(
            "UPDATE records SET outcome = 9 - outcome WHERE outcome IN (4, 5) AND sample = 0"
            " AND layer = (SELECT id FROM layers WHERE name = 'board')"
        )
        connection.commit()
    found = verify(finished, data=[finished.parent])
    assert any("A record of batch" in damage for damage in found.damage)
