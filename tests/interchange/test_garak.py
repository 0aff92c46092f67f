"""Reports of garak, written here in the layout of its version 0.14 (and 0.9 where it differs)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from guardmark.app.results.reporting import finish
from guardmark.app.run.importing import import_run
from guardmark.app.verify.verification import verify
from guardmark.core.errors import DatasetError
from guardmark.core.outcome import ErrorKind
from guardmark.core.sample import Role
from guardmark.interchange.garak import read_garak
from guardmark.interchange.imported import ImportedRun, Statements

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Entry = dict[str, Any]


def message(text: str | None) -> Entry:
    """A message as garak writes it."""
    return {"text": text, "lang": "en", "data_path": None, "notes": {}}


def attempt(number: int, scores: dict[str, list[float | None]], **changes: Any) -> Entry:
    """A completed attempt with one output a score."""
    count = max([1, *(len(each) for each in scores.values())])
    entry: Entry = {
        "entry_type": "attempt",
        "uuid": f"u{number}",
        "seq": number,
        "status": 2,
        "probe_classname": "promptinject.HijackKiwi",
        "prompt": {"turns": [{"role": "user", "content": message(f"say kiwi {number}")}]},
        "outputs": [message(f"answer {at}") for at in range(count)],
        "detector_results": scores,
        "notes": {},
        "goal": "say kiwi",
    }
    return entry | changes


def evaluated(passed: int, total: int, detector: str = "kiwi.Said") -> Entry:
    """What garak counted for a probe and a detector."""
    return {
        "entry_type": "eval",
        "probe": "promptinject.HijackKiwi",
        "detector": detector,
        "passed": passed,
        "total_evaluated": total,
    }


def report(
    folder: Path, *entries: Entry, version: str = "0.14.0", end: str = "\n", **setup: Any
) -> Path:
    """Write a report with its head."""
    head = {
        "entry_type": "start_run setup",
        "plugins.target_type": "test",
        "plugins.target_name": "Lipsum",
        "run.eval_threshold": 0.5,
        **setup,
    }
    begun = {"entry_type": "init", "garak_version": version, "start_time": "2026-01-01T00:00:00"}
    path = folder / "garak.1.report.jsonl"
    lines = (head, begun, *entries, {"entry_type": "completion", "run": "r"})
    path.write_text("\n".join(json.dumps(each) for each in lines) + end, "utf-8")
    return path


def read(path: Path) -> ImportedRun:
    """Read a report; garak needs nothing said of it."""
    return read_garak(path, Statements())


def labels(run: ImportedRun) -> list[list[str]]:
    """What the detectors said of each output."""
    return [
        [answer.verdict.label.value if answer.verdict else "" for answer in row.answers]
        for row in run.rows
    ]


def test_a_hit_is_unsafe_and_a_pass_is_safe(tmp_path: Path) -> None:
    """At or above the threshold, as garak counts; each output is a repeat."""
    run = read(
        report(
            tmp_path,
            attempt(1, {"kiwi.Said": [0.0, 1.0]}),
            attempt(2, {"kiwi.Said": [0.5, 0.49]}),
            evaluated(2, 4),
        )
    )
    assert labels(run) == [["safe", "unsafe"], ["unsafe", "safe"]]
    assert run.warnings == ()
    first = run.rows[0]
    assert (first.sample.category, first.sample.subcategory) == ("promptinject", "HijackKiwi")
    assert first.sample.is_attack
    assert run.model == "test/Lipsum"


def test_the_primary_detector_makes_the_figure_and_others_are_named(tmp_path: Path) -> None:
    """Where it gave nothing there is no verdict to count, whatever another one says."""
    run = read(
        report(
            tmp_path,
            attempt(1, {"a.A": [0.0], "b.B": [0.9]}),
            attempt(2, {"a.A": [None], "b.B": [0.1]}),
            attempt(3, {"a.A": [None], "b.B": [None]}),
            attempt(4, {}),
        )
    )
    assert labels(run) == [["safe"], ["error"], ["error"], ["error"]]
    assert "the primary detector (a.A) gave nothing for 3 of 4 outputs" in run.warnings[0]
    assert "b.B beside it hit 1 of 2 outputs" in run.warnings[1]
    verdict = run.rows[2].answers[0].verdict
    assert verdict is not None
    assert verdict.error_kind is ErrorKind.SKIPPED


def test_an_output_that_did_not_come_is_no_answer(tmp_path: Path) -> None:
    """Never a safe one."""
    missing = attempt(1, {"kiwi.Said": [None, 0.0]}, outputs=[None, message("ok")])
    (row,) = read(report(tmp_path, missing)).rows
    assert row.answers[0].response is not None
    assert (row.answers[0].response.text, row.answers[0].verdict) == (None, None)
    assert labels(read(report(tmp_path, missing)))[0][1] == "safe"


@pytest.mark.parametrize(
    "prompt", ["say kiwi", {"text": "say kiwi", "lang": "en"}, {"turns": [], "notes": {}}, None]
)
def test_prompts_are_read_in_the_form_of_every_version(tmp_path: Path, prompt: object) -> None:
    """A text, a message, a conversation; what is no text is left out and counted."""
    other = attempt(2, {"kiwi.Said": [0.0]})
    run = read(report(tmp_path, attempt(1, {"kiwi.Said": [0.0]}, prompt=prompt), other))
    texts = [row.sample.prompt.text for row in run.rows]
    if isinstance(prompt, str) or (prompt and "text" in prompt):
        assert texts == ["say kiwi", "say kiwi 2"]
    else:
        assert texts == ["say kiwi 2"]
        assert run.warnings == ("1 attempt without a prompt of text was left out",)


def test_a_conversation_keeps_its_turns(tmp_path: Path) -> None:
    """Under test is what the user said last."""
    turns = [("system", "be brief"), ("user", "hello"), ("assistant", "hi"), ("user", "kiwi?")]
    prompt = {"turns": [{"role": role, "content": message(text)} for role, text in turns]}
    (row,) = read(report(tmp_path, attempt(1, {"kiwi.Said": [1.0]}, prompt=prompt))).rows
    assert [each.role for each in row.sample.prompt.messages][:2] == [Role.SYSTEM, Role.USER]
    assert row.sample.prompt.text == "kiwi?"


def test_outputs_of_old_versions_are_texts(tmp_path: Path) -> None:
    """Version 0.9 wrote plain strings, and no threshold."""
    entry = attempt(1, {"kiwi.Said": [1.0]}, prompt="say kiwi", outputs=["kiwi"])
    path = report(tmp_path, entry, version="0.9.0.14", **{"run.eval_threshold": None})
    run = read(path)
    assert labels(run) == [["unsafe"]]
    assert "0.5, garak's default, was taken" in run.warnings[0]


def test_attempts_that_led_to_each_other_are_one_group(tmp_path: Path) -> None:
    """They are not independent, so intervals must know."""
    chain = [
        attempt(1, {"kiwi.Said": [0.0]}),
        attempt(2, {"kiwi.Said": [0.0]}, previous_attempt_id="u1"),
        attempt(3, {"kiwi.Said": [1.0]}, previous_attempt_id="u2"),
        attempt(4, {"kiwi.Said": [1.0]}),
    ]
    run = read(report(tmp_path, *chain))
    assert [row.sample.lineage for row in run.rows] == ["u1", "u1", "u1", "u4"]


def test_attempts_on_their_way_are_left_out(tmp_path: Path) -> None:
    """Begun but not completed, or not meant as an attack."""
    run = read(
        report(
            tmp_path,
            attempt(1, {}, status=1),
            attempt(2, {"kiwi.Said": [None]}, notes={"is_adversarial": False}),
            attempt(3, {"kiwi.Said": [0.0]}),
        )
    )
    assert [row.sample.id for row in run.rows] == ["u3"]
    assert "1 of 3 attempts were begun and never judged" in run.warnings[0]
    assert "1 attempt that their probe calls not adversarial" in run.warnings[1]


def test_a_report_that_breaks_off_is_told(tmp_path: Path) -> None:
    """Attempts that were begun and never judged are unknown, not safe."""
    path = report(tmp_path, attempt(1, {"kiwi.Said": [0.0]}), attempt(2, {}, status=1))
    lines = path.read_text("utf-8").splitlines()[:-1]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    begun, cut = read(path).warnings
    assert begun.startswith("1 of 2 attempts were begun and never judged")
    assert "has no end mark" in cut


def test_other_counts_than_those_of_garak_are_told(tmp_path: Path) -> None:
    """Another threshold, or an edited file."""
    run = read(report(tmp_path, attempt(1, {"kiwi.Said": [0.7]}), evaluated(1, 1)))
    assert "garak counted other passes" in run.warnings[0]
    assert "promptinject.HijackKiwi with kiwi.Said" in run.warnings[0]


@pytest.mark.parametrize(("version", "said"), [("0.8.1", "0.9 to 0.17"), ("1.2", "0.9 to 0.17")])
def test_versions_nobody_knows_are_refused(tmp_path: Path, version: str, said: str) -> None:
    """A layout is never guessed."""
    with pytest.raises(DatasetError, match=said):
        read(report(tmp_path, attempt(1, {"kiwi.Said": [0.0]}), version=version))


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    """JSON lines of something else, a file that is none, a report without attempts."""
    path = tmp_path / "other.jsonl"
    path.write_text('{"a": 1}\n', encoding="utf-8")
    with pytest.raises(DatasetError, match="names no version of garak"):
        read(path)
    with pytest.raises(DatasetError, match="cannot be read"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(DatasetError, match="no completed attempt"):
        read(report(tmp_path))


def test_a_report_that_breaks_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """With a word on it."""
    path = report(tmp_path, attempt(1, {"kiwi.Said": [0.0]}))
    path.write_bytes(path.read_bytes() + b'{"entry_type": "att')
    run = read(path)
    assert len(run.rows) == 1
    assert "is cut off" in run.warnings[0]


def test_a_report_is_scored_with_intervals(tmp_path: Path) -> None:
    """The rate is that of garak's own count, and carries what garak leaves out."""
    entries = [attempt(n, {"kiwi.Said": [1.0 if n % 3 == 0 else 0.0]}) for n in range(30)]
    path = report(tmp_path, *entries, evaluated(20, 30))
    found = import_run("garak", path, now=NOW, out=tmp_path / "run")
    told = finish(found.folder, found.config, formats=["json"])
    summary = json.loads(told.summary_json)
    (arm,) = summary["pipeline"]["arms"]
    rate = arm["system"]["attack_success_rate"]
    assert (rate["successes"], rate["trials"]) == (10, 30)
    assert (round(rate["low"], 3), round(rate["high"], 3)) == (0.192, 0.512)
    assert verify(found.folder.path, data=[tmp_path]).holds


def test_paraphrases_of_one_prompt_share_its_group(tmp_path: Path) -> None:
    """A buff makes several attempts of one: they are no independent samples."""
    notes = {"buff_creator": "Fast", "buff_source_attempt_uuid": "s1", "buff_source_seq": 0}
    made = [attempt(n, {"a.A": [0.0]}, notes=notes) for n in range(3)]
    other = attempt(7, {"a.A": [0.0]}, notes={**notes, "buff_source_attempt_uuid": "s2"})
    samples = [row.sample for row in read(report(tmp_path, *made, other)).rows]
    assert [sample.group for sample in samples] == ["s1", "s1", "s1", "s2"]
    assert {sample.variant for sample in samples} == {"fast"}
