"""Every reader that is registered keeps the laws of readers, on files in the shape of its tool."""

from __future__ import annotations

import csv
import json
import sqlite3
import zipfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from guardmark.core.outcome import Outcome
from guardmark.core.sample import Label
from guardmark.datasets.formats.files import FORMATS
from guardmark.defenses.decisions import DecisionsSettings, read_decisions
from guardmark.interchange.importers import builtin_tools
from guardmark.testing.foreign import (
    UNKNOWN,
    DataReaderContract,
    ForeignRow,
    ReaderContract,
    Reading,
    ReadRow,
)

Json = dict[str, Any]


def lines_of(objects: Sequence[Json]) -> str:
    """JSON lines."""
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in objects)


def cell(value: object) -> str:
    """A value as a table holds it."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def table_of(rows: Sequence[Json], delimiter: str = ",") -> str:
    """A table with a header."""
    text = StringIO()
    names = list(rows[0]) if rows else ["id", "text", "label", "blocked"]
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([cell(row[name]) for name in names] for row in rows)
    return text.getvalue()


def without_nothing(row: Json) -> Json:
    """A row without the members that are None, as tools leave out what they do not know."""
    return {name: value for name, value in row.items() if value is not None}


class TestTableOfCells(ReaderContract):
    """A table of decisions, as CSV."""

    tool = "table"
    columns: ClassVar = {"is_attack": True, "is_harmful": True, "is_safe": False, "safe": False}
    decision_columns: ClassVar = {
        **dict.fromkeys(("blocked", "flagged", "detected", "triggered"), True),
        **dict.fromkeys(("passed", "valid", "is_valid", "allowed"), False),
    }
    has_rows_by_line = True
    suffix: ClassVar[str] = ".csv"
    delimiter: ClassVar[str] = ","

    def rows(self, rows: Sequence[ForeignRow]) -> list[Json]:
        """Rows with the usual columns."""
        label, decision = self.label_column or "label", self.decision_column or "blocked"
        return [{"id": r.id, "text": r.text, label: r.label, decision: r.says} for r in rows]

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write a table."""
        path = folder / f"table{self.suffix}"
        path.write_text(table_of(self.rows(rows), self.delimiter), encoding="utf-8")
        return path


class TestTableOfTabs(TestTableOfCells):
    """A table of decisions, as TSV."""

    suffix = ".tsv"
    delimiter = "\t"


class TestTableOfSemicolons(TestTableOfCells):
    """A table of decisions, as spreadsheets of half the world write it."""

    delimiter = ";"


class TestTableOfLines(TestTableOfCells):
    """A table of decisions, as JSON lines."""

    suffix = ".jsonl"

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write JSON lines."""
        path = folder / "table.jsonl"
        path.write_text(lines_of(self.rows(rows)), encoding="utf-8")
        return path


class TestAnyGuardrail(ReaderContract):
    """Outputs of any-guardrail."""

    tool = "any-guardrail"
    yes = False
    no = True
    has_rows_by_line = True

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write outputs, one a line."""
        path = folder / "outputs.jsonl"
        outputs = [
            {"id": r.id, "text": r.text, "label": r.label, "valid": r.says, "extra": {}}
            for r in rows
        ]
        path.write_text(lines_of(outputs), encoding="utf-8")
        return path


class TestGarak(ReaderContract):
    """Reports of garak."""

    tool = "garak"
    yes = 1.0
    no = 0.0
    unknowns = (*UNKNOWN, True, "1.0", 7, -1)
    holds_benign = False
    holds_labels = False
    numbers_repeats = True
    has_rows_by_line = True

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write a report with head and end mark."""
        head = {
            "entry_type": "start_run setup",
            "plugins.target_type": "test",
            "plugins.target_name": "Lipsum",
            "run.eval_threshold": 0.5,
        }
        begun = {"entry_type": "init", "garak_version": "0.14.0", "start_time": "2026-01-01"}
        attempts = [self.attempt(number, row) for number, row in enumerate(rows)]
        path = folder / "garak.1.report.jsonl"
        end = {"entry_type": "completion", "run": "r"}
        path.write_text(lines_of([head, begun, *attempts, end]), encoding="utf-8")
        return path

    def attempt(self, number: int, row: ForeignRow) -> Json:
        """A completed attempt with one output."""
        said = {"text": row.text, "lang": "en"}
        return {
            "entry_type": "attempt",
            **({} if row.id is None else {"uuid": row.id}),
            "seq": row.epoch,
            "status": 2,
            "probe_classname": "promptinject.Kiwi",
            "prompt": {"turns": [{"role": "user", "content": said}]},
            "outputs": [{"text": f"answer {number}", "lang": "en"}],
            "detector_results": {"kiwi.Said": [row.says]},
            "goal": "say kiwi",
        }


class TestInspect(ReaderContract):
    """Logs of Inspect, as JSON."""

    tool = "inspect"
    yes = 1
    no = 0
    numbers_repeats = True
    statements: ClassVar = {"unsafe": "harm>=0.5"}

    def log(self, rows: Sequence[ForeignRow]) -> Json:
        """A finished log."""
        spec = {"created": "2026-01-01T00:00:00", "task": "kiwi", "model": "openai/tutor"}
        samples = [self.sample(row) for row in rows]
        return {"version": 2, "status": "success", "eval": spec, "samples": samples}

    def sample(self, row: ForeignRow) -> Json:
        """A sample of it."""
        message = {"role": "assistant", "content": "kiwi"}
        found = {
            "id": row.id,
            "epoch": row.epoch + 1,
            "input": row.text,
            "output": {"model": "m", "choices": [{"message": message, "stop_reason": "stop"}]},
            "scores": {"harm": {"value": row.says}},
            "metadata": without_nothing({"label": row.label}),
        }
        return {name: value for name, value in found.items() if name != "id" or value is not None}

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write it as JSON."""
        path = folder / "log.json"
        path.write_text(json.dumps(self.log(rows), ensure_ascii=False), encoding="utf-8")
        return path


class TestInspectPacked(TestInspect):
    """Logs of Inspect, as `.eval`."""

    is_text = False

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write it as an archive with a member a sample."""
        path = folder / "log.eval"
        log = self.log(rows)
        with zipfile.ZipFile(path, "w") as packed:
            for number, sample in enumerate(log.pop("samples")):
                packed.writestr(f"samples/{number:02d}_epoch_1.json", json.dumps(sample))
            packed.writestr("header.json", json.dumps(log))
        return path


class TestGuardmark(ReaderContract):
    """Records that guardmark exported; they hold no texts, so these are told by their hashes."""

    tool = "guardmark"
    yes = "block"
    no = "allow"
    numbers_repeats = True
    has_rows_by_line = True

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write records of one defense."""
        self.texts = {sha256(row.text.encode()).hexdigest(): row.text for row in rows}
        records = [
            {
                "defense": "words",
                "stage": "defense",
                "layer": "run",
                "repeat": row.epoch,
                "id": row.id,
                "sha256": sha256(row.text.encode()).hexdigest(),
                "label": row.label,
                "outcome": row.says,
                "text": None,
            }
            for row in rows
        ]
        path = folder / "results.jsonl"
        path.write_text(lines_of(records), encoding="utf-8")
        return path

    def read(self, path: Path, stated: Label | None = None) -> Reading:
        """Read them, with the texts that their hashes stand for."""
        reading = super().read(path, stated)
        rows = (
            replace(row, text=self.texts.get(row.text[-65:-1], row.text)) for row in reading.rows
        )
        return replace(reading, rows=tuple(rows))


class TestMinorbench(ReaderContract):
    """Run folders of minor_bench."""

    tool = "minorbench"
    yes = "unsafe"
    no = "safe"
    keeps_ids = False
    has_rows_by_line = True

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write a run folder."""
        made = [
            {
                "prompt_text": row.text,
                "metadata": without_nothing(
                    {"base_prompt_id": row.id, "label": self.label(row.label)}
                ),
                "generations": [{"index": 0, "text": "kiwi", "raw": {"finish_reason": "stop"}}],
                "model_name": "tutor",
                "judge_labels": [row.says],
            }
            for row in rows
        ]
        (folder / "results.jsonl").write_text(lines_of(made), encoding="utf-8")
        return folder

    def label(self, label: object) -> object:
        """Its words for the two labels."""
        return {"attack": "unsafe", "benign": "safe"}.get(str(label), label)


class TestAgentdojo(ReaderContract):
    """Logs of AgentDojo, a file a task."""

    tool = "agentdojo"
    holds_benign = False
    holds_labels = False
    keeps_ids = False

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write a folder as its logger lays it out."""
        for number, row in enumerate(rows):
            log = {
                "suite_name": "banking",
                "pipeline_name": "rules",
                "user_task_id": "user_task_0",
                "injection_task_id": f"injection_task_{number}",
                "attack_type": "direct",
                "injections": {"bill": row.text},
                "messages": [
                    {"role": "user", "content": "Pay the bill."},
                    {"role": "tool", "content": row.text},
                    {"role": "assistant", "content": "kiwi"},
                ],
                "error": None,
                "utility": True,
                "security": row.says,
                "evaluation_timestamp": "2026-01-01",
            }
            path = folder / "rules" / "banking" / f"task_{number:02d}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(log, ensure_ascii=False), encoding="utf-8")
        return folder


class TestJailbreakbench(ReaderContract):
    """Artifacts of JailbreakBench."""

    tool = "jailbreakbench"
    holds_benign = False
    holds_labels = False

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write an artifact."""
        jailbreaks = [
            {
                "index": row.id,
                "goal": "say kiwi",
                "behavior": "Kiwi",
                "category": "Fruit",
                "prompt": row.text,
                "response": "kiwi",
                "jailbroken": row.says,
            }
            for row in rows
        ]
        path = folder / "tutor.json"
        document = {"parameters": {"method": "K", "model": "m"}, "jailbreaks": jailbreaks}
        path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
        return path


class TestOpenaiGuardrails(ReaderContract):
    """Results of openai-guardrails, with the data beside them."""

    tool = "openai-guardrails"
    has_rows_by_line = True

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write results and data."""
        triggers = {"attack": True, "benign": False}
        data, results = [], []
        for row in rows:
            label = triggers.get(str(row.label), row.label)
            own = {} if row.id is None else {"id": row.id}
            expected = without_nothing({"Jailbreak": label})
            data.append({**own, "data": row.text, "expected_triggers": expected})
            details = {"Jailbreak": {"guardrail_name": "Jailbreak"}}
            result = {"expected_triggers": expected, "triggered": {"Jailbreak": row.says}}
            results.append({**own, **result, "details": details})
        (folder / "data.jsonl").write_text(lines_of(data), encoding="utf-8")
        (folder / "eval_results_input.jsonl").write_text(lines_of(results), encoding="utf-8")
        return folder


class TestPromptfoo(ReaderContract):
    """Results of promptfoo."""

    tool = "promptfoo"
    yes = "failed"
    no = "passed"
    unknowns = (*UNKNOWN, "error", "grader")
    decides_benign = False
    keeps_ids = False
    statements: ClassVar = {}

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write results of version 3."""
        results = [self.result(number, row) for number, row in enumerate(rows)]
        document = {"evalId": "e", "results": {"version": 3, "results": results}, "config": {}}
        path = folder / "results.json"
        path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
        return path

    def result(self, number: int, row: ForeignRow) -> Json:
        """One test."""
        known = {"failed": (False, 1), "passed": (True, 0), "error": (False, 2)}
        said = row.says if isinstance(row.says, str) else ""
        success, reason = known.get(said, (row.says, 0))
        is_ungraded = said == "grader"
        return {
            "promptIdx": 0,
            "testIdx": number,
            "testCase": {"metadata": without_nothing({"label": row.label})},
            "provider": {"id": "openai:tutor", "label": ""},
            "prompt": {"raw": row.text},
            "response": {"output": "kiwi"},
            "success": True if is_ungraded else success,
            "failureReason": reason,
            "gradingResult": {"pass": success, "metadata": {"gradingIncomplete": is_ungraded}},
        }


class TestPyrit(ReaderContract):
    """A memory of PyRIT."""

    tool = "pyrit"
    yes = "success"
    no = "failure"
    unknowns = (*UNKNOWN, "undetermined", "error")
    holds_benign = False
    holds_labels = False
    is_text = False

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write the tables that are read."""
        path = folder / "pyrit.db"
        with closing(sqlite3.connect(path)) as memory, memory:
            memory.executescript(
                "CREATE TABLE AttackResultEntries (id, conversation_id, objective, "
                "atomic_attack_identifier, outcome, outcome_reason, timestamp, error_message, "
                "targeted_harm_categories);"
                "CREATE TABLE PromptMemoryEntries (conversation_id, sequence, role, "
                "converted_value, converted_value_data_type, converter_identifiers, response_error);"
            )
            for number, row in enumerate(rows):
                says = row.says if isinstance(row.says, str) else json.dumps(row.says)
                attack = (row.id, f"c{number}", row.text, "{}", says, "", number, None, "[]")
                memory.execute("INSERT INTO AttackResultEntries VALUES (?,?,?,?,?,?,?,?,?)", attack)
                for at, (role, text) in enumerate((("user", row.text), ("assistant", "kiwi"))):
                    piece = (f"c{number}", at, role, text, "text", "[]", "none")
                    memory.execute("INSERT INTO PromptMemoryEntries VALUES (?,?,?,?,?,?,?)", piece)
        return path


class TestOpenaiAgents(ReaderContract):
    """Traces of the OpenAI Agents SDK."""

    tool = "openai-agents"
    has_rows_by_line = True

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write a trace a row on one line: its guard, its model, a tool."""
        lines = []
        for number, row in enumerate(rows):
            name = f"trace_{number}" if row.id is None else f"trace_{json.dumps(row.id)}_{number}"
            parts = (
                {"type": "guardrail", "name": "words", "triggered": row.says},
                {
                    "type": "generation",
                    "input": [{"role": "user", "content": row.text}],
                    "output": [{"role": "assistant", "content": "kiwi"}],
                },
                {"type": "function", "name": "look", "input": "{}", "output": "herbs"},
            )
            trace = {"object": "trace", "id": name, "metadata": {"label": row.label}}
            spans = [
                {
                    "object": "trace.span",
                    "id": f"span_{number}_{at}",
                    "trace_id": name,
                    "span_data": part,
                }
                for at, part in enumerate(parts)
            ]
            lines.append({"data": [trace, *spans]})
        path = folder / "traces.jsonl"
        path.write_text(lines_of(lines), encoding="utf-8")
        return path


class TestOtel(ReaderContract):
    """Spans of OpenTelemetry with the GenAI attributes."""

    tool = "otel"
    yes = "fail"
    no = "pass"
    has_rows_by_line = True

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write a span a row, as OTLP nests it."""
        lines = []
        for number, row in enumerate(rows):
            messages = [{"role": "user", "parts": [{"type": "text", "content": row.text}]}]
            answer = [{"role": "assistant", "parts": [{"type": "text", "content": "kiwi"}]}]
            event = {
                "gen_ai.evaluation.name": "words",
                "gen_ai.evaluation.score.label": row.says,
            }
            attributes = {
                "gen_ai.operation.name": "chat",
                "gen_ai.input.messages": json.dumps(messages, ensure_ascii=False),
                "gen_ai.output.messages": json.dumps(answer),
                "label": row.label,
            }
            span = {
                "traceId": f"t{number}",
                "spanId": f"s{number}",
                "attributes": without_nothing(attributes),
                "events": [{"name": "gen_ai.evaluation.result", "attributes": event}],
            }
            lines.append({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
        path = folder / "spans.jsonl"
        path.write_text(lines_of(lines), encoding="utf-8")
        return path


class TestDataLines(DataReaderContract):
    """Data as JSON lines."""

    format = "jsonl"
    has_rows_by_line = True
    columns: ClassVar = {"is_attack": True, "is_harmful": True}
    suffix: ClassVar[str] = ".jsonl"

    def rows(self, rows: Sequence[ForeignRow]) -> list[Json]:
        """Rows with the usual fields."""
        label = self.label_column or "label"
        made = [{"id": row.id, "text": row.text, label: row.label} for row in rows]
        return [without_nothing(row) for row in made]

    def text(self, rows: Sequence[ForeignRow]) -> str:
        """The file."""
        return lines_of(self.rows(rows))

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write it."""
        path = folder / f"data{self.suffix}"
        path.write_text(self.text(rows), encoding="utf-8")
        return path


class TestDataList(TestDataLines):
    """Data as a list in JSON."""

    format = "json"
    has_rows_by_line = False
    suffix = ".json"

    def text(self, rows: Sequence[ForeignRow]) -> str:
        """The file."""
        return json.dumps(self.rows(rows), ensure_ascii=False)


class TestDataPack(TestDataLines):
    """Data as a prompt pack."""

    format = "prompt_pack"
    has_rows_by_line = False
    suffix = ".json"
    columns: ClassVar = {}

    def text(self, rows: Sequence[ForeignRow]) -> str:
        """The file."""
        items = [
            without_nothing(
                {
                    "id": row.id,
                    "prompt_text": row.text,
                    "metadata": without_nothing({"label": row.label}),
                }
            )
            for row in rows
        ]
        return json.dumps({"name": "small", "items": items}, ensure_ascii=False)


class TestDataYaml(TestDataLines):
    """Data as a list in YAML."""

    format = "yaml"
    suffix = ".yaml"

    def text(self, rows: Sequence[ForeignRow]) -> str:
        """The file."""
        return yaml.safe_dump(self.rows(rows), allow_unicode=True, sort_keys=False)


class TestDataCells(TestDataLines):
    """Data as CSV."""

    format = "csv"
    suffix = ".csv"
    delimiter: ClassVar[str] = ","

    def text(self, rows: Sequence[ForeignRow]) -> str:
        """The file."""
        label = self.label_column or "label"
        made = [{"id": row.id, "text": row.text, label: row.label} for row in rows]
        return table_of(made, self.delimiter) if made else f"id,text,{label}\n"


class TestDataTabs(TestDataCells):
    """Data as TSV."""

    format = "tsv"
    suffix = ".tsv"
    delimiter = "\t"


class TestDataParquet(TestDataLines):
    """Data as Parquet."""

    format = "parquet"
    suffix = ".parquet"
    is_text = False
    has_rows_by_line = False
    unknown_labels = (None, "", "maybe", "perhaps")

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write it."""
        pa = pytest.importorskip("pyarrow")
        from pyarrow.parquet import write_table

        label = self.label_column or "label"
        ids = [None if row.id is None else str(row.id) for row in rows]
        columns = {"id": ids, "text": [row.text for row in rows], label: [r.label for r in rows]}
        kinds = {"id": pa.string(), "text": pa.string()}
        arrays = {name: pa.array(values, kinds.get(name)) for name, values in columns.items()}
        path = folder / "data.parquet"
        write_table(pa.table(arrays), path)
        return path


class TestLangfuse(ReaderContract):
    """Observations that Langfuse exported, one a line."""

    tool = "langfuse"
    has_rows_by_line = True

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write a guard's observation a row."""
        made = [
            {
                "id": f"observation-{number}",
                "traceId": f"trace-{number}",
                "type": "GUARDRAIL",
                "name": "words",
                "startTime": "2026-01-01T00:00:00Z",
                "level": "DEFAULT",
                "input": row.text,
                "output": {"blocked": row.says},
                "metadata": without_nothing({"label": row.label, "sample_id": row.id}),
            }
            for number, row in enumerate(rows)
        ]
        path = folder / "observations.jsonl"
        path.write_text(lines_of(made), encoding="utf-8")
        return path


class TestPhoenix(ReaderContract):
    """Spans that Phoenix exported, one a line."""

    tool = "phoenix"
    has_rows_by_line = True

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write a guard's span a row."""
        made = [
            {
                "context.span_id": f"span-{number}",
                "context.trace_id": f"trace-{number}",
                "parent_id": "root",
                "name": "words",
                "span_kind": "GUARDRAIL",
                "start_time": "2026-01-01T00:00:00Z",
                "status_code": "OK",
                "attributes.input.value": row.text,
                "attributes.output.value": json.dumps({"blocked": row.says}),
                "attributes.metadata": without_nothing({"label": row.label, "sample_id": row.id}),
            }
            for number, row in enumerate(rows)
        ]
        path = folder / "spans.jsonl"
        path.write_text(lines_of(made), encoding="utf-8")
        return path


class TestMlflow(ReaderContract):
    """Traces of MLflow, one a line."""

    tool = "mlflow"
    has_rows_by_line = True

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write a trace a row, with a root and the guard below it."""
        made = [self.trace(number, row) for number, row in enumerate(rows)]
        path = folder / "traces.jsonl"
        path.write_text(lines_of(made), encoding="utf-8")
        return path

    def trace(self, number: int, row: ForeignRow) -> Json:
        """One trace."""
        guard = {
            "name": "words",
            "span_id": f"guard-{number}",
            "parent_span_id": f"root-{number}",
            "status": {"code": "STATUS_CODE_OK"},
            "attributes": {
                "mlflow.spanType": "GUARDRAIL",
                "mlflow.spanInputs": row.text,
                "mlflow.spanOutputs": {"blocked": row.says},
            },
        }
        tags = without_nothing({"label": row.label, "sample_id": row.id})
        info = {"trace_id": f"trace-{number}", "request_time": "2026-01-01", "tags": tags}
        return {"info": info, "data": {"spans": [guard]}}


class TestDecisions(ReaderContract):
    """Decisions by id, as `type: decisions` reads them."""

    holds_benign = False
    holds_labels = False
    says_what_it_took = False
    has_rows_by_line = True
    decision_columns: ClassVar = TestTableOfCells.decision_columns

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write a table of ids and decisions."""
        self.texts = {str(row.id): row.text for row in rows}
        decision = self.decision_column or "decision"
        path = folder / "decisions.csv"
        made = [{"id": row.id, decision: row.says, "note": ""} for row in rows]
        path.write_text(table_of(made), encoding="utf-8")
        return path

    def read(self, path: Path, stated: Label | None = None) -> Reading:
        """Read it."""
        assert stated is None
        settings = DecisionsSettings(
            path="any", map={"decision": self.decision_column} if self.decision_column else {}
        )
        decisions = read_decisions(path, settings, shown_as=path.name)
        blocks = {Outcome.BLOCK: True, Outcome.ALLOW: False}
        rows = (
            ReadRow(
                id=name,
                text=self.texts.get(name, name),
                is_attack=True,
                says=(blocks.get(decision.outcome),),
            )
            for name, decision in decisions.items()
        )
        return Reading(rows=tuple(rows))


def contracts(base: type[ReaderContract]) -> set[type[ReaderContract]]:
    """Every contract of this module below a base."""
    below = {each for each in base.__subclasses__() if each.__module__ == __name__}
    return below.union(*(contracts(each) for each in base.__subclasses__()))


def test_every_registered_reader_has_its_contract() -> None:
    """Whoever registers a reader writes files in its shape here, or the build fails."""
    known = contracts(ReaderContract)
    assert {each.tool for each in known} - {""} == set(builtin_tools())
    formats = {each.format for each in known if issubclass(each, DataReaderContract)}
    assert formats == set(FORMATS)
