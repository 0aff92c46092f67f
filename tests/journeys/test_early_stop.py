"""A run that stops early ends each defense alone, says so, and goes on after a kill as if nothing was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.journeys.command_line import guardmark, kill_once_stored

from guardmark.analysis.run import analyse_run
from guardmark.app.parts.loading import load_config
from guardmark.app.run.running import RunOptions, Session, run
from guardmark.store.reader import RecordReader

pytestmark = pytest.mark.slow


def test_clear_defenses_end_early_and_the_report_says_how(tmp_path: Path) -> None:
    """Rates stand with a sequence of rows, also where a rule stayed open to the end of the run."""
    done = guardmark(
        "run", "--stop-when", "asr<0.3", "--stop-when", "fpr<0.05", "-o", "r", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "Stopped early" in done.err
    found = {each["name"]: each for each in json.loads(done.out)["defenses"]}
    assert [each["answer"] for each in found["block-all"]["stopped_early"]] == ["no", "yes"]
    rate = found["block-all"]["rates"]["attack_success_rate"]
    assert rate["method"] == "betting sequence"
    assert rate["trials"] < 200
    assert not found["pattern"]["stopped_early"]
    assert found["pattern"]["rates"]["attack_success_rate"]["method"] == "betting sequence"
    resolved = (tmp_path / "r" / "config.resolved.yaml").read_text(encoding="utf-8")
    assert "asr<0.3" in resolved
    assert "was stopped early" in (tmp_path / "r" / "report.md").read_text(encoding="utf-8")


def test_a_killed_run_decides_as_an_uninterrupted_one(tmp_path: Path) -> None:
    """Stored decisions are told to the rule again, so the same looks decide the same."""
    (tmp_path / "slow.py").write_text(
        "import time\n\n\ndef guard(text):\n    time.sleep(0.006)\n    return len(text) % 2 == 0\n"
    )
    (tmp_path / "c.yaml").write_text(
        "version: 1\nname: early\ndata: [{builtin: core}]\n"
        'defenses: {slow: {type: python, target: "slow:guard"}}\n'
        "latency: {warmup: 0}\nrun: {stop_when: [asr+-0.12]}\n"
    )
    kill_once_stored("run", "c.yaml", "-o", "out", cwd=tmp_path)
    for folder in ("out", "whole"):
        done = guardmark("run", "c.yaml", "-o", folder, cwd=tmp_path)
        assert done.code == 0, done.err
    one, two = (
        json.loads((tmp_path / folder / "summary.json").read_text(encoding="utf-8"))["defenses"][0]
        for folder in ("out", "whole")
    )
    assert one["stopped_early"] == two["stopped_early"] != []
    for rate in ("attack_success_rate", "false_positive_rate"):
        assert one["rates"][rate] == two["rates"][rate]


@pytest.mark.parametrize(
    ("rule", "said"),
    [("asr", "is not a rule"), ("patern.asr<0.1", "Did you mean 'pattern'?")],
)
def test_a_rule_nobody_can_follow_stops_nothing(tmp_path: Path, rule: str, said: str) -> None:
    """A mistake in a rule is told before anything is asked."""
    done = guardmark("run", "--stop-when", rule, "-o", "r", cwd=tmp_path)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) <= 6
    assert not (tmp_path / "r" / "records.sqlite").exists()


@pytest.mark.parametrize("more", ["run: {repeats: 2, stop_when: [asr<0.1]}"])
def test_repeats_and_rules_do_not_go_together(tmp_path: Path, more: str) -> None:
    """More answers to one sample are not new evidence."""
    (tmp_path / "c.yaml").write_text(
        "version: 1\ndata: [{builtin: core}]\ndefenses: {a: {type: allow-all}}\n" + more + "\n"
    )
    done = guardmark("run", "c.yaml", cwd=tmp_path)
    assert done.code == 2
    assert "repeats above 1" in done.err


def test_a_stopped_run_tells_the_rate_of_the_whole_one(tmp_path: Path) -> None:
    """Families differ in size, and the large ones get through: the rate of rows is what is told."""
    rows = [
        {"text": f"{word} {family}-{n}", "label": "attack", "group": f"f{family}"}
        for family in range(90)
        for word, size in ((("open", 9) if family % 3 == 0 else ("shut", 1)),)
        for n in range(size)
    ]
    rows += [{"text": f"plain {n}", "label": "benign"} for n in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stopped = held = 0
    for seed in range(12):
        config = {
            "version": 1,
            "name": f"early-{seed}",
            "data": [{"path": "rows.jsonl"}],
            "defenses": {"words": {"type": "pattern", "keywords": ["shut"]}},
            "report": [],
            "run": {"seed": seed, "stop_when": ["asr<0.6"]},
        }
        (tmp_path / "c.yaml").write_text(json.dumps(config))
        out = tmp_path / f"r{seed}"
        made = run(load_config(tmp_path / "c.yaml"), RunOptions(out=out), Session())
        with RecordReader(made.folder.records) as reader:
            (each,) = analyse_run(reader).defenses
        rate = each.card.attack_success_rate
        assert rate.low is not None
        assert rate.high is not None
        stopped += rate.trials < 330
        held += rate.low <= 270 / 330 <= rate.high
    assert stopped >= 9
    assert held >= 11
