"""Commands for labels: what they refuse, and how far they are when they are ended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.cli.striking import struck
from tests.journeys.command_line import guardmark as in_process_of_its_own
from tests.journeys.command_line import set_up

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Type

PIPELINE = """\
version: 1
data: [{path: data.jsonl}]
defenses: {words: {type: pattern, patterns: ['ignore'], flags: [I]}}
pipeline:
  model: {type: scripted, otherwise: 'Here is an explanation.'}
  judges: [{type: rules, name: rules, unsafe: ['here is']}]
report: [json]
"""
JUDGES = "judges: [{type: rules, name: second, unsafe: ['explanation']}]\n"


def test_an_interrupted_judge_changes_no_figure(guardmark: Type, tmp_path: Path) -> None:
    """It says how to go on; the same command then finishes and tells how many verdicts came."""
    set_up(tmp_path, PIPELINE)
    (tmp_path / "judges.yaml").write_text(JUDGES, encoding="utf-8")
    assert guardmark("run", "bench.yaml", "-o", "out").code == 0
    before = (tmp_path / "out" / "summary.json").read_bytes()
    command = ("judge", "out", "--config", "judges.yaml")
    done = struck("open", "judges.yaml", *command, cwd=tmp_path)
    assert (done.code, done.out) == (130, ""), done.err
    assert "To continue: guardmark judge out --config judges.yaml" in done.err
    assert (tmp_path / "out" / "summary.json").read_bytes() == before
    again = guardmark(*command)
    assert again.code == 0, again.err
    assert "verdicts added" in again.out


def test_a_sheet_of_bypasses_is_not_taken_for_messages(guardmark: Type, tmp_path: Path) -> None:
    """Its rows are other questions; the message names the sheet to go on with."""
    from guardmark.app.labels.audit_file import BYPASSES

    row = dict.fromkeys(BYPASSES.columns, "x")
    (tmp_path / "sheet.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    done = guardmark("data", "label", "log.jsonl", "-o", "sheet.jsonl")
    assert done.code == 3
    assert "sheet.jsonl holds bypasses, not messages of `data label`." in done.err


def test_two_sheets_of_other_messages_are_not_compared(guardmark: Type, tmp_path: Path) -> None:
    """Agreement is about the same messages; the way to draw the same is told."""
    log = [json.dumps({"prompt": f"How do I bake bread number {n}?"}) + "\n" for n in range(20)]
    (tmp_path / "log.jsonl").write_text("".join(log), encoding="utf-8")
    draw = ("data", "label", "log.jsonl", "--count", "5", "--draw-only")
    for sheet, seed in (("anna.csv", "1"), ("ben.csv", "2"), ("carl.csv", "1")):
        assert guardmark(*draw, "-o", sheet, "--seed", seed).code == 0
    compare = ("data", "label", "log.jsonl", "-o", "anna.csv", "--against")
    done = guardmark(*compare, "ben.csv")
    assert done.code == 3
    assert "ben.csv holds other messages than anna.csv." in done.err
    assert "with the same --seed" in done.err
    assert guardmark(*compare, "carl.csv").code == 0


@pytest.mark.parametrize(
    ("kind", "content"),
    [("traces", '{"kind": "trace"}\n'), ("cassettes", '{"guardmark_cassette": 1}\n')],
)
def test_an_attack_is_replayed_from_one_trace_and_one_cassette(
    guardmark: Type, tmp_path: Path, kind: str, content: str
) -> None:
    """Of two of a kind nobody could say which one counts."""
    for name in ("one.jsonl", "two.jsonl"):
        (tmp_path / name).write_text(content, encoding="utf-8")
    done = guardmark("adapt", "out", "--replay", "one.jsonl", "--replay", "two.jsonl")
    assert done.code == 2
    assert f"--replay names two {kind}: one.jsonl and two.jsonl." in done.err


def test_a_link_whose_file_was_deleted_is_never_replaced(
    run: Path, guardmark: Type, tmp_path: Path
) -> None:
    """So stands /dev/stderr where the log behind it was removed: what is told goes its way."""
    (tmp_path / "limits.yaml").write_text("asr_upper: 0.9\n", encoding="utf-8")
    link = tmp_path / "stream"
    link.symlink_to(tmp_path / "log")
    guardmark("gate", run, "--policy", "limits.yaml", "--junit", link)
    assert link.is_symlink()
    assert (tmp_path / "log").read_text(encoding="utf-8").startswith("<?xml")


def test_limits_go_to_a_stream_as_junit_too(run: Path, guardmark: Type, tmp_path: Path) -> None:
    """Where the file that is named is none that can be replaced; the same as in a file."""
    (tmp_path / "limits.yaml").write_text("gate: {fpr_upper: 0.99}\n", encoding="utf-8")
    given = ("gate", run, "--policy", "limits.yaml", "--junit")
    code = guardmark(*given, "gate.xml").code
    streamed = in_process_of_its_own(*given, "/dev/stderr", cwd=tmp_path)
    assert streamed.code == code, streamed.err
    assert streamed.err.strip() == (tmp_path / "gate.xml").read_text(encoding="utf-8").strip()
