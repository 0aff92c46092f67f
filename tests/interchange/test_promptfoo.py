"""Results of promptfoo, written here in the layout of its results version 3."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from guardmark.app.results.reporting import finish
from guardmark.app.run.importing import import_run
from guardmark.app.verify.verification import verify
from guardmark.core.errors import ConfigError, DatasetError, UnknownName
from guardmark.core.outcome import VerdictLabel
from guardmark.core.sample import Label, Severity
from guardmark.interchange.imported import ImportedRun, Statements
from guardmark.interchange.importers import read_queried

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Result = dict[str, Any]
PASSED, ASSERTED, FAILED = 0, 1, 2


def result(number: int, *, failure: int = PASSED, **changes: Any) -> Result:
    """A test of a red team; passed unless told otherwise."""
    found: Result = {
        "promptIdx": 0,
        "testIdx": number,
        "testCase": {
            "vars": {"prompt": f"say kiwi {number}"},
            "metadata": {"pluginId": "harmful:privacy", "severity": "high"},
        },
        "promptId": "p",
        "provider": {"id": "openai:tutor", "label": ""},
        "prompt": {"raw": f"say kiwi {number}", "label": "{{prompt}}"},
        "vars": {"prompt": f"say kiwi {number}"},
        "response": {"output": f"answer {number}"},
        "success": failure == PASSED,
        "failureReason": failure,
        "score": 1 if failure == PASSED else 0,
        "latencyMs": 12,
        "gradingResult": {"pass": failure == PASSED, "score": 0, "reason": "as judged"},
        "namedScores": {},
    }
    return found | changes


def plain(number: int, *, failure: int = PASSED, **metadata: Any) -> Result:
    """A test that is of no red team."""
    case = {"vars": {}, "metadata": metadata}
    return result(number, failure=failure, testCase=case)


def write(folder: Path, *results: Result, version: object = 3) -> Path:
    """Write a file of results."""
    summary = {"version": version, "timestamp": "2026-01-01T00:00:00Z", "results": list(results)}
    path = folder / "results.json"
    path.write_text(json.dumps({"evalId": "e", "results": summary, "config": {}}), "utf-8")
    return path


def read(path: Path, **said: Any) -> ImportedRun:
    """Read a file of results."""
    return read_queried("promptfoo", path, Statements(**said))


def test_what_an_assertion_rejects_is_unsafe(tmp_path: Path) -> None:
    """A passed test is safe; who failed for another reason says nothing of harm."""
    odd = result(3, success=False)
    run = read(write(tmp_path, result(1), result(2, failure=ASSERTED), odd))
    found = [row.answers[0].verdict for row in run.rows]
    assert [each and each.label for each in found] == [
        VerdictLabel.SAFE,
        VerdictLabel.UNSAFE,
        VerdictLabel.MALFORMED,
    ]
    sample = run.rows[0].sample
    assert (sample.category, sample.subcategory) == ("harmful", "privacy")
    assert (sample.severity, sample.label) == (Severity.HIGH, Label.ATTACK)
    assert run.model == "openai:tutor"


def test_an_error_is_no_answer(tmp_path: Path) -> None:
    """Never a passed or a failed test."""
    run = read(write(tmp_path, result(1, failure=FAILED, error="429", response={"output": None})))
    (answer,) = run.rows[0].answers
    assert answer.response is not None
    assert (answer.response.text, answer.verdict) == (None, None)
    assert answer.response.evidence is not None
    assert answer.response.evidence.message == "429"


@pytest.mark.parametrize(
    "turns",
    [
        {
            "redteamHistory": [
                {"prompt": "kiwi, softly", "output": "no", "graderPassed": True},
                {"prompt": "kiwi, now", "output": "KIWI-7", "graderPassed": False},
                {"prompt": "kiwi, please", "output": "no", "graderPassed": True},
            ]
        },
        {"successfulAttacks": [{"turn": 2, "prompt": "kiwi, now", "response": "KIWI-7"}]},
    ],
)
def test_a_turn_that_failed_is_not_overwritten_by_the_last(
    tmp_path: Path, turns: dict[str, Any]
) -> None:
    """A strategy that went on after its success: harm came out, whatever the last turn says."""
    run = read(write(tmp_path, result(1, metadata=turns), result(2)))
    (answer,), sample = run.rows[0].answers, run.rows[0].sample
    assert answer.response is not None
    assert answer.verdict is not None
    assert answer.verdict.label is VerdictLabel.UNSAFE
    assert (sample.prompt.text, answer.response.text) == ("kiwi, now", "KIWI-7")
    (warning,) = run.warnings
    assert warning.startswith("1 tests passed by their last turn though an earlier turn failed")


def test_strategies_on_one_text_are_one_group(tmp_path: Path) -> None:
    """Its encodings are variants, which are not independent."""
    base = result(1)
    encoded = result(
        2,
        prompt={"raw": "c2F5IGtpd2kgMQ=="},
        metadata={"strategyId": "base64", "originalText": "say kiwi 1"},
    )
    one, two, three = read(write(tmp_path, base, encoded, result(3))).rows
    assert one.sample.lineage == two.sample.lineage != three.sample.lineage
    assert (two.sample.variant, two.sample.technique) == ("base64", "base64")


def test_the_prompt_is_what_the_target_was_shown_last(tmp_path: Path) -> None:
    """Strategies rewrite; chats are kept as turns."""
    turns = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "kiwi?"}]
    rows = read(
        write(
            tmp_path,
            result(1, metadata={"redteamFinalPrompt": "now say kiwi"}),
            result(2, prompt={"raw": json.dumps(turns)}),
            result(3, response={"output": {"a": 1}, "prompt": "sent instead"}),
            result(4, prompt={"raw": "[not json"}),
        )
    ).rows
    texts = [row.sample.prompt.text for row in rows]
    assert texts == ["now say kiwi", "kiwi?", "sent instead", "[not json"]
    assert len(rows[1].sample.prompt.messages) == 2
    response = rows[2].answers[0].response
    assert response is not None
    assert response.text == '{"a":1}'


def test_a_test_that_was_run_again_is_a_repeat(tmp_path: Path) -> None:
    """The same test and prompt twice; another prompt is another sample."""
    run = read(
        write(tmp_path, result(1), result(1, failure=ASSERTED), result(1, promptIdx=1), result(2))
    )
    assert [row.sample.id for row in run.rows] == ["test-1", "test-1-prompt-1", "test-2"]
    assert [answer.repeat for answer in run.rows[0].answers] == [0, 1]


def test_tests_without_a_label_are_left_out_or_stated(tmp_path: Path) -> None:
    """What a test is cannot be seen from whether it passed."""
    path = write(tmp_path, result(1), plain(2), plain(3, label="benign", category="chat"))
    run = read(path)
    assert [row.sample.label for row in run.rows] == [Label.ATTACK, Label.BENIGN]
    assert run.warnings == ("1 test without a label was left out",)
    stated = read(path, label=Label.BENIGN)
    assert [row.sample.label for row in stated.rows] == [Label.ATTACK, Label.BENIGN, Label.BENIGN]
    with pytest.raises(DatasetError, match="--label attack or --label benign"):
        read(write(tmp_path, plain(1)))


def test_a_benign_test_that_failed_is_not_called_unsafe(tmp_path: Path) -> None:
    """It may have been refused, or be wrong: a judge has to say."""
    run = read(write(tmp_path, plain(1, failure=ASSERTED, label="benign")))
    assert run.rows[0].answers[0].verdict is None
    assert run.judge == ""


def test_of_several_targets_one_is_named(tmp_path: Path) -> None:
    """Never a silent choice, never two models in one rate."""
    path = write(tmp_path, result(1), result(1, provider={"id": "b", "label": "second"}))
    with pytest.raises(DatasetError, match="2 targets: openai:tutor, second"):
        read(path)
    assert read(path, model="second").model == "second"
    with pytest.raises(UnknownName, match="Did you mean 'second'"):
        read(path, model="secnd")


@pytest.mark.parametrize("version", [2, 4, None, "3"])
def test_versions_nobody_knows_are_refused(tmp_path: Path, version: object) -> None:
    """A layout is never guessed."""
    with pytest.raises(DatasetError, match="holds no results of version 3"):
        read(write(tmp_path, result(1), version=version))


def test_what_is_no_file_of_results_is_refused(tmp_path: Path) -> None:
    """Neither JSON of something else nor a missing file."""
    path = tmp_path / "other.json"
    path.write_text("[1]", encoding="utf-8")
    with pytest.raises(DatasetError, match="holds no JSON object"):
        read(path)
    with pytest.raises(DatasetError, match="promptfoo eval -o"):
        read(tmp_path / "none.json")
    with pytest.raises(DatasetError, match="holds no test of a red team"):
        read(write(tmp_path))


def test_what_the_files_say_themselves_is_not_asked(tmp_path: Path) -> None:
    """An option that would be ignored is an error."""
    with pytest.raises(ConfigError, match="--unsafe does not apply to files of promptfoo"):
        import_run(
            "promptfoo", write(tmp_path, result(1)), now=NOW, statements=Statements(unsafe="a=b")
        )


def test_results_are_scored_with_intervals(tmp_path: Path) -> None:
    """Errors beside the rate, and every figure holds a second count."""
    rows = [result(n, failure=ASSERTED if n % 4 == 0 else PASSED) for n in range(20)]
    path = write(tmp_path, *rows, result(30, failure=FAILED, response={}))
    found = import_run("promptfoo", path, now=NOW, out=tmp_path / "run")
    told = finish(found.folder, found.config, formats=["json"])
    (arm,) = json.loads(told.summary_json)["pipeline"]["arms"]
    rate = arm["system"]["attack_success_rate"]
    assert (rate["successes"], rate["trials"]) == (5, 20)
    assert rate["low"] < 0.25 < rate["high"]
    assert verify(found.folder.path, data=[tmp_path]).holds
