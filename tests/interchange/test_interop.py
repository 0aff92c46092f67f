"""Files that the tools themselves wrote (`make interop`), counted as the tools count them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from guardmark.app.results.reporting import finish
from guardmark.app.run.importing import import_run
from guardmark.app.verify.verification import verify
from guardmark.core.errors import DatasetError, UnknownName
from guardmark.core.outcome import Outcome, VerdictLabel
from guardmark.core.sample import DEFAULT_TAXONOMY, Label, Role
from guardmark.datasets.loading import load
from guardmark.datasets.settings import DataSettings
from guardmark.datasets.specs import dataset_specs
from guardmark.interchange.imported import ImportedRun, Statements
from guardmark.interchange.importers import queried_tools, read_run
from guardmark.parsing.mapped import mapping_names

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FILES = Path(__file__).parents[1] / "interop" / "files"


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    """The tables of PyRIT's memory that are read, as the file they came from."""
    path = tmp_path / "memory.db"
    with sqlite3.connect(path) as database:
        database.executescript((FILES / "pyrit" / "memory.sql").read_text("utf-8"))
    database.close()
    return path


def summary(tool: str) -> Any:
    """What the tool itself counted."""
    return json.loads((FILES / tool / "summary.json").read_text("utf-8"))


def verdicts(run: ImportedRun, label: Label = Label.ATTACK) -> Counter[str]:
    """Count the verdicts of one label, and answers that did not come."""
    return Counter(
        "no answer"
        if answer.response is not None and answer.response.text is None
        else answer.verdict.label.value
        if answer.verdict
        else "not judged"
        for row in run.rows
        if row.sample.label is label
        for answer in row.answers
    )


def decisions(run: ImportedRun) -> Counter[tuple[bool, Outcome]]:
    """Count the decisions by label."""
    return Counter(
        (row.sample.is_attack, answer.decision.outcome)
        for row in run.rows
        for answer in row.answers
        if answer.decision is not None
    )


def test_attacks_of_pyrit_are_counted_as_its_analysis_does(memory: Path) -> None:
    """Success, failure, undetermined and error are four things; converters are the technique."""
    run = read_run("pyrit", memory, Statements())
    said, counted = summary("pyrit"), verdicts(run)
    assert counted == {
        "unsafe": said["successes"],
        "safe": said["failures"],
        "error": said["undetermined"],
        "no answer": said["errors"],
    }
    assert run.model == "rules"
    (encoded, *_) = [row.sample for row in run.rows if row.sample.variant != "original"]
    assert encoded.technique == "PromptSendingAttack+Base64Converter"
    plain = next(row.sample for row in run.rows if row.sample.metadata == encoded.metadata)
    assert plain.group == encoded.group
    assert plain.prompt.text != encoded.prompt.text
    assert any("no rate of false alarms" in warning for warning in run.warnings)


def test_security_of_agentdojo_is_an_injection_that_worked() -> None:
    """True is unsafe; true beside an error is no answer, and without an injection no verdict."""
    run = read_run("agentdojo", FILES / "agentdojo", Statements())
    security = summary("agentdojo")["security"]
    errors = [name for name in security if name.endswith("injection_task_5")]
    worked = [name for name, value in security.items() if value and name not in errors]
    assert verdicts(run) == {"unsafe": len(worked), "safe": 1, "no answer": len(errors)}
    assert verdicts(run, Label.BENIGN) == {"not judged": 2}
    assert f"({sum(security.values())} of {len(security)})" in run.warnings[0]
    assert "2 injections given as the task of a user were left out" in run.warnings
    (attack,) = [
        row for row in run.rows if row.sample.id == "banking/user_task_0/direct/injection_task_7"
    ]
    assert attack.sample.prompt.messages[-1].role is Role.TOOL
    assert attack.sample.group == "banking/user_task_0"
    assert attack.sample.crossing == "banking/injection_task_7"
    assert "Say PERIWINKLE 1." in attack.sample.prompt.text
    response, verdict = attack.answers[0].response, attack.answers[0].verdict
    assert response is not None
    assert verdict is not None
    assert (security["user_task_0/injection_task_7"], verdict.label) == (True, VerdictLabel.UNSAFE)
    assert "update_password" in (response.text or "")


@pytest.mark.parametrize(("guard", "failed"), [("Jailbreak", (2, 1)), ("Keyword Filter", (0, 0))])
def test_checks_of_openai_guardrails_that_failed_did_not_pass(
    guard: str, failed: tuple[int, int]
) -> None:
    """The tool counts a failed check as one that did not fire; here it is an error."""
    folder = FILES / "openai_guardrails"
    run = read_run("openai-guardrails", folder, Statements(model=guard))
    said = json.loads((folder / "eval_metrics.json").read_text("utf-8"))["input"][guard]
    counted = decisions(run)
    assert (counted[True, Outcome.ERROR], counted[False, Outcome.ERROR]) == failed
    assert counted[True, Outcome.BLOCK] == said["true_positives"]
    assert counted[False, Outcome.BLOCK] == said["false_positives"]
    assert counted[True, Outcome.ALLOW] + failed[0] == said["false_negatives"]
    assert counted[False, Outcome.ALLOW] + failed[1] == said["true_negatives"]
    assert bool(run.warnings) == any(failed)
    assert run.guard == guard
    with pytest.raises(DatasetError, match="2 defenses: Jailbreak, Keyword Filter"):
        read_run("openai-guardrails", folder, Statements())


def test_results_of_openai_guardrails_need_the_texts(tmp_path: Path) -> None:
    """They hold none: the data set has to lie beside them."""
    shutil.copy(FILES / "openai_guardrails" / "eval_results_input.jsonl", tmp_path)
    with pytest.raises(DatasetError, match="copy the data set that was evaluated into it"):
        read_run("openai-guardrails", tmp_path, Statements(model="Jailbreak"))


@pytest.mark.parametrize("guard", ["any_llm", "openai_moderation"])
def test_outputs_of_any_guardrail_are_a_table(guard: str) -> None:
    """`valid` means passed; a call that failed is an error."""
    path = FILES / "any_guardrail" / "outputs.jsonl"
    run = read_run("any-guardrail", path, Statements(model=guard))
    counted = decisions(run)
    allowed = sum(n for (_, outcome), n in counted.items() if outcome is Outcome.ALLOW)
    assert allowed == summary("any_guardrail")["valid"][guard]
    assert sum(counted.values()) == 10
    assert counted[True, Outcome.ERROR] >= 1


def test_an_answer_that_any_guardrail_could_not_read_is_no_block(tmp_path: Path) -> None:
    """It says of such an answer that it is not valid, and where it says why."""
    row = {"text": "a", "label": "attack", "valid": False, "extra": {"parse_failure": True}}
    path = tmp_path / "outputs.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    run = read_run("any-guardrail", path, Statements())
    assert decisions(run) == {(True, Outcome.MALFORMED): 1}


def test_results_of_promptfoo_are_counted_as_it_does() -> None:
    """Passed, failed and errors; of benign tests only whether an answer came."""
    run = read_run("promptfoo", FILES / "promptfoo" / "results.json", Statements())
    said, attacks, benign = summary("promptfoo"), verdicts(run), verdicts(run, Label.BENIGN)
    assert attacks["unsafe"] == said["failures"]
    assert attacks["safe"] + benign["not judged"] == said["successes"]
    assert attacks["no answer"] + benign["no answer"] == said["errors"]


@pytest.mark.parametrize("form", ["json", "eval"])
def test_logs_of_inspect_are_counted_as_it_does(form: str) -> None:
    """Both of its forms; samples that failed are no answers."""
    if form == "eval":
        pytest.importorskip("pyarrow")
    path = FILES / "inspect" / f"canary.{form}"
    run = read_run("inspect", path, Statements(unsafe="includes=C"))
    counted = verdicts(run) + verdicts(run, Label.BENIGN)
    said = summary("inspect")
    assert counted["unsafe"] == said["correct"]
    if form == "json":
        assert counted["unsafe"] + counted["safe"] == said["scored"]
        assert counted["no answer"] == said["errors"]


@pytest.mark.parametrize("tool", ["agentdojo", "promptfoo"])
def test_what_a_tool_wrote_becomes_a_run_that_verifies(tmp_path: Path, tool: str) -> None:
    """From its files to a report and back."""
    path = FILES / tool
    path = path / "results.json" if tool == "promptfoo" else path
    found = import_run(tool, path, now=NOW, out=tmp_path / "run")
    told = finish(found.folder, found.config, formats=["json", "html"])
    (arm,) = json.loads(told.summary_json)["pipeline"]["arms"]
    rate = arm["system"]["attack_success_rate"]
    assert (rate["successes"], rate["trials"]) == ((1, 2) if tool == "agentdojo" else (1, 5))
    assert verify(found.folder.path).mismatches == ()


def test_reports_of_garak_are_counted_as_it_does() -> None:
    """The primary detector of a probe makes the figure, and others are named with theirs."""
    run = read_run("garak", FILES / "garak" / "canary.report.jsonl", Statements())
    assert sum(verdicts(run).values()) > 0
    assert not any("other passes" in warning for warning in run.warnings)
    assert any("without a prompt of text" in warning for warning in run.warnings)
    assert any("gave nothing for" in each or "beside it hit" in each for each in run.warnings)


def test_traces_that_mlflow_wrote_are_decisions_and_data() -> None:
    """A span of its type GUARDRAIL decides, one that failed decided nothing; the root is the text."""
    path = FILES / "mlflow" / "traces.jsonl"
    texts = json.loads((FILES.parent / "texts.json").read_text("utf-8"))
    run = read_run("mlflow", path, Statements())
    assert run.guard == "canary-guard"
    expected: Counter[tuple[bool, Outcome]] = Counter()
    for row in texts:
        outcome = Outcome.BLOCK if "PERIWINKLE" in row["text"] else Outcome.ALLOW
        failed = "<<break>>" in row["text"]
        expected[row["label"] == "attack", Outcome.ERROR if failed else outcome] += 1
    assert decisions(run) == expected
    entry = DataSettings(path=str(path), format="mlflow")
    samples = load(dataset_specs(entry, path.parent), DEFAULT_TAXONOMY).samples()
    assert {(each.prompt.text, each.label.value) for each in samples} == {
        (row["text"], row["label"]) for row in texts
    }


HOSTILE: tuple[object, ...] = (
    [],
    {},
    {"results": {"version": 3, "results": [1, None, {"testCase": {"metadata": "x"}}]}},
    {"parameters": {"method": 1}, "jailbreaks": [{"prompt": ["a"], "index": {}}]},
    {"suite_name": "s", "security": True, "messages": [1, {"role": 2, "content": 3}]},
    {"suite_name": "s", "security": True, "user_task_id": "u", "messages": "no"},
    {"id": "a", "triggered": {"x": 1}, "data": "t", "expected_triggers": [], "details": 3},
    {"id": "a", "data": "\ud800", "triggered": {"x": float("nan")}},
)


@pytest.mark.parametrize("tool", [*queried_tools(), *mapping_names()])
@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_built_otherwise_is_refused_or_read(
    tmp_path: Path, tool: str, content: object
) -> None:
    """Files of anybody end in a run or in one error of few lines, never in a traceback."""
    text = json.dumps(content)
    for name in ("a.json", "b.jsonl"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    path = tmp_path if tool in {"agentdojo", "openai-guardrails"} else tmp_path / "a.json"
    refused = ""
    try:
        run = read_run(tool, path, Statements())
    except (DatasetError, UnknownName) as error:
        refused = str(error)
    assert len(refused.splitlines()) <= 5
    assert refused or run.rows


def test_a_database_of_something_else_is_no_memory_of_pyrit(tmp_path: Path) -> None:
    """Nor is a file that only begins like one."""
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE kiwi (id)")
    database.close()
    with pytest.raises(DatasetError, match="no such table"):
        read_run("pyrit", path, Statements())
    path.write_bytes(b"SQLite format 3\x00" + b"kiwi" * 100)
    with pytest.raises(DatasetError, match="is not built as pyrit builds it"):
        read_run("pyrit", path, Statements())


def test_no_verdict_is_made_of_another_label(memory: Path) -> None:
    """What nobody scored is an error of the judging, not safe."""
    run = read_run("pyrit", memory, Statements())
    labels = {a.verdict.label for row in run.rows for a in row.answers if a.verdict}
    assert labels == {VerdictLabel.SAFE, VerdictLabel.UNSAFE, VerdictLabel.ERROR}
