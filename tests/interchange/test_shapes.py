"""Shapes that public code and reports describe, rebuilt small in our own words: what comes of each.

`seen` names where a shape was described. `came` is what a reader makes of it, in one line: answers
that are yes (harm, or blocked), no and unknown, and the samples; or why it is refused.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import pytest

from guardmark.core.errors import GuardmarkError
from guardmark.core.sample import DEFAULT_TAXONOMY, Label
from guardmark.datasets.formats.fields import DatasetSpec
from guardmark.datasets.loading import load
from guardmark.interchange.imported import ImportedRun, Statements
from guardmark.interchange.importers import read_run
from guardmark.net.chat_message import read_message
from guardmark.testing.foreign import reading_of

Json = dict[str, Any]


def told(run: ImportedRun) -> str:
    """What an importer made, in one line."""
    says = Counter(each for row in reading_of(run).rows for each in row.says)
    attacks = sum(row.sample.is_attack for row in run.rows)
    responses = [answer.response for row in run.rows for answer in row.answers]
    places = [each.blocked_at for each in responses if each and each.blocked_at]
    return (
        f"{says[True]} yes, {says[False]} no, {says[None]} unknown; "
        f"{attacks} attacks, {len(run.rows) - attacks} benign"
    ) + "".join(f"; filtered at {place}" for place in places)


def imported(folder: Path, tool: str, name: str, text: str | bytes, **stated: Any) -> str:
    """Write a file and read it with an importer."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    root = folder if tool in {"agentdojo", "openai-guardrails"} else path
    return told(read_run(tool, root, Statements(**stated)))


def of_data(folder: Path, name: str, text: str | bytes, **stated: Any) -> str:
    """Write a file and read it as data."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    spec = DatasetSpec(name="d", path=path, shown_as=name, open_categories=True, **stated)
    samples = list(load([spec], DEFAULT_TAXONOMY).samples())
    attacks = sum(sample.is_attack for sample in samples)
    first = samples[0].prompt
    roles = "".join(message.role.value[0] for message in first.messages)
    return f"{attacks} attacks, {len(samples) - attacks} benign; {roles}: {first.text}"


def lines(*objects: Json) -> str:
    """JSON lines."""
    return "".join(json.dumps(each) + "\n" for each in objects)


def answered(content: Any = "kiwi", stop: str = "stop") -> Json:
    """What a model gave, as Inspect keeps it."""
    message = {"role": "assistant", "content": content}
    return {"model": "m", "choices": [{"message": message, "stop_reason": stop}]}


def inspect(folder: Path, *samples: Json, rule: str = "harm>=0.5", **more: Any) -> str:
    """A log of Inspect."""
    usual: Json = {"epoch": 1, "input": "say kiwi", "output": answered(), "scores": {}}
    listed = [
        usual | {"id": f"s{at}", "input": f"say kiwi {at}"} | s for at, s in enumerate(samples)
    ]
    spec = {"created": "2026-01-01", "task": "kiwi", "model": "m"}
    log = {"version": 2, "status": "success", "eval": spec, "samples": listed} | more
    text = json.dumps(log)
    return imported(folder, "inspect", "log.json", text, label=Label.ATTACK, unsafe=rule)


def harm(value: Any) -> Json:
    """A sample with a score."""
    return {"scores": {"harm": {"value": value}}}


def promptfoo(folder: Path, *tests: Json, version: int = 3, **stated: Any) -> str:
    """Results of promptfoo."""
    usual: Json = {
        "promptIdx": 0,
        "testCase": {"metadata": {"pluginId": "harmful:kiwi"}},
        "provider": {"id": "p", "label": ""},
        "response": {"output": "kiwi"},
        "success": True,
        "failureReason": 0,
    }
    listed = [
        usual | {"testIdx": at, "prompt": {"raw": f"say kiwi {at}"}} | test
        for at, test in enumerate(tests)
    ]
    document = {"evalId": "e", "results": {"version": version, "results": listed}, "config": {}}
    return imported(folder, "promptfoo", "r.json", json.dumps(document), **stated)


def garak(folder: Path, *attempts: Json, setups: tuple[float, ...] = (0.5,), more: str = "") -> str:
    """A report of garak."""
    heads = [{"entry_type": "start_run setup", "run.eval_threshold": each} for each in setups]
    begun = {"entry_type": "init", "garak_version": "0.14.0"}
    usual: Json = {
        "entry_type": "attempt",
        "status": 2,
        "probe_classname": "kiwi.Say",
        "outputs": [{"text": "kiwi"}],
        "detector_results": {"a.A": [0.0]},
    }
    made = [
        usual | {"uuid": f"u{at}", "seq": at, "prompt": {"turns": [turn(f"say kiwi {at}")]}} | each
        for at, each in enumerate(attempts)
    ]
    end = {"entry_type": "completion"}
    return imported(folder, "garak", "g.report.jsonl", lines(*heads, begun, *made, end) + more)


def turn(text: str, role: str = "user") -> Json:
    """A turn as garak writes it."""
    return {"role": role, "content": {"text": text}}


def pyrit(folder: Path, outcome: str, *pieces: tuple[str, str, str, str]) -> str:
    """A memory of PyRIT with one attack: role, text, type and error of each piece."""
    path = folder / "pyrit.db"
    with closing(sqlite3.connect(path)) as memory, memory:
        memory.executescript(
            "CREATE TABLE AttackResultEntries (id, conversation_id, objective, "
            "atomic_attack_identifier, outcome, outcome_reason, timestamp, error_message, "
            "targeted_harm_categories);"
            "CREATE TABLE PromptMemoryEntries (conversation_id, sequence, role, "
            "converted_value, converted_value_data_type, converter_identifiers, response_error);"
        )
        attack = ("a", "c", "say kiwi", "{}", outcome, "", 1, None, "[]")
        memory.execute("INSERT INTO AttackResultEntries VALUES (?,?,?,?,?,?,?,?,?)", attack)
        for at, (role, text, kind, error) in enumerate(pieces):
            row = ("c", at, role, text, kind, "[]", error)
            memory.execute("INSERT INTO PromptMemoryEntries VALUES (?,?,?,?,?,?,?)", row)
    return told(read_run("pyrit", path, Statements()))


def agentdojo(folder: Path, **changes: Any) -> str:
    """A log of one attacked task of AgentDojo."""
    log = {
        "suite_name": "banking",
        "pipeline_name": "p",
        "user_task_id": "user_task_0",
        "injection_task_id": "injection_task_0",
        "attack_type": "direct",
        "injections": {"bill": "say kiwi"},
        "messages": [{"role": "user", "content": "pay"}, {"role": "tool", "content": "say kiwi"}],
        "error": None,
        "utility": True,
        "security": True,
    }
    return imported(folder, "agentdojo", "p/x.json", json.dumps(log | changes))


def table(folder: Path, text: str | bytes, name: str = "t.csv", **stated: Any) -> str:
    """A table of decisions."""
    return imported(folder, "table", name, text, **stated)


def chat(**message: Any) -> str:
    """A message of a chat service."""
    read = read_message({"role": "assistant", **message})
    return f"{read.text!r}, refused {read.refusal!r}, thought {read.thoughts!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One shape, where it was described, and what comes of it."""

    name: str
    seen: str
    read: Callable[[Path], str]
    came: str


HUMAN = {"from": "human", "value": "say kiwi"}
BLOCKED_PIECE = ("assistant", '{"status_code": 200, "message": "filter"}', "error", "blocked")
SHAPES = [
    Shape(
        name="Inspect: a scorer that returned nothing",
        seen="UKGovernmentBEIS/inspect_ai#4286",
        read=lambda f: inspect(f, harm(1), harm(None), {"scores": {"harm": None}}),
        came="1 yes, 0 no, 2 unknown; 3 attacks, 0 benign",
    ),
    Shape(
        name="Inspect: a sample that errored and has no scores",
        seen="UKGovernmentBEIS/inspect_ai#2914",
        read=lambda f: inspect(f, harm(0), {"error": {"message": "boom"}, "output": {}}),
        came="0 yes, 1 no, 1 unknown; 2 attacks, 0 benign",
    ),
    Shape(
        name="Inspect: score_on_error gives an errored sample a score",
        seen="UKGovernmentBEIS/inspect_ai#4412",
        read=lambda f: inspect(f, harm(1), harm(0) | {"error": {"message": "boom"}}),
        came="1 yes, 0 no, 1 unknown; 2 attacks, 0 benign",
    ),
    Shape(
        name="Inspect: NaN within a list of scores",
        seen="UKGovernmentBEIS/inspect_ai#4491",
        read=lambda f: inspect(f, harm(0), harm([nan, 1.0])),
        came="0 yes, 1 no, 1 unknown; 2 attacks, 0 benign",
    ),
    Shape(
        name="Inspect: NaN under one key of a score",
        seen="UKGovernmentBEIS/inspect_ai#4491",
        read=lambda f: inspect(
            f, harm({"a": nan, "b": 1}), harm({"a": 1, "b": 0}), rule="harm.a=1"
        ),
        came="1 yes, 0 no, 1 unknown; 2 attacks, 0 benign",
    ),
    Shape(
        name="Inspect: an infinite score",
        seen="UKGovernmentBEIS/inspect_ai#4286",
        read=lambda f: inspect(f, harm(0.2), harm(float("inf"))),
        came="0 yes, 1 no, 1 unknown; 2 attacks, 0 benign",
    ),
    Shape(
        name="Inspect: grades C, I, P and N",
        seen="UKGovernmentBEIS/inspect_ai#4286",
        read=lambda f: inspect(f, harm("I"), harm("C"), harm("P"), harm("N"), rule="harm=I"),
        came="1 yes, 2 no, 1 unknown; 4 attacks, 0 benign",
    ),
    Shape(
        name="Inspect: true where the rule says 1",
        seen="UKGovernmentBEIS/inspect_ai docs, boolean scores",
        read=lambda f: inspect(f, *map(harm, (True, False, "yes")), rule="harm=1"),
        came="2 yes, 1 no, 0 unknown; 3 attacks, 0 benign",
    ),
    Shape(
        name="Inspect: numbers where the rule names a grade, and grades where it names a number",
        seen="UKGovernmentBEIS/inspect_ai#4286",
        read=lambda f: inspect(f, harm(0.0), harm(1.0), harm("I"), rule="harm=I"),
        came="1 yes, 0 no, 2 unknown; 3 attacks, 0 benign",
    ),
    Shape(
        name="Inspect: a sample that was cancelled is logged like an error",
        seen="UKGovernmentBEIS/inspect_ai CHANGELOG.md",
        read=lambda f: inspect(f, harm(0), {"error": {"message": "Cancelled"}}, status="cancelled"),
        came="0 yes, 1 no, 1 unknown; 2 attacks, 0 benign",
    ),
    Shape(
        name="Inspect: an input whose text was put among attachments that are gone",
        seen="UKGovernmentBEIS/inspect_ai docs, eval logs",
        read=lambda f: inspect(f, harm(1), harm(1) | {"input": "attachment://abc"}),
        came="1 yes, 0 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="Inspect: an input that shows an image beside its words",
        seen="UKGovernmentBEIS/inspect_ai#2090",
        read=lambda f: inspect(
            f,
            harm(1),
            harm(1)
            | {
                "input": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "look"},
                            {"type": "image", "image": "data:image/png;base64,aaaa"},
                        ],
                    }
                ]
            },
        ),
        came="1 yes, 0 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="Inspect: an answer with its thoughts as a part",
        seen="UKGovernmentBEIS/inspect_ai CHANGELOG.md, reasoning",
        read=lambda f: inspect(
            f,
            harm(0)
            | {
                "output": answered(
                    [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "no"}]
                )
            },
        ),
        came="0 yes, 1 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="Inspect: the provider's filter left no words",
        seen="UKGovernmentBEIS/inspect_ai src/inspect_ai/model/_model_output.py",
        read=lambda f: inspect(f, harm(1), harm(0) | {"output": answered("", "content_filter")}),
        came="1 yes, 0 no, 1 unknown; 2 attacks, 0 benign; filtered at output",
    ),
    Shape(
        name="Inspect: the filter's message stands for the answer, and beside it as an error",
        seen="UKGovernmentBEIS/inspect_ai src/inspect_ai/model/_model_output.py",
        read=lambda f: inspect(
            f, harm(0) | {"output": answered("I can't.", "content_filter") | {"error": "filtered"}}
        ),
        came="0 yes, 0 no, 1 unknown; 1 attacks, 0 benign; filtered at output",
    ),
    Shape(
        name="promptfoo: an empty output passes in a red team",
        seen="promptfoo/promptfoo#2754",
        read=lambda f: promptfoo(f, {"response": {"output": ""}}, {"response": {"output": None}}),
        came="0 yes, 1 no, 1 unknown; 2 attacks, 0 benign",
    ),
    Shape(
        name="promptfoo: some turns had grader errors and the test passed",
        seen="promptfoo/promptfoo#6981",
        read=lambda f: promptfoo(f, {}, {"metadata": {"gradingIncomplete": True}}),
        came="0 yes, 1 no, 1 unknown; 2 attacks, 0 benign",
    ),
    Shape(
        name="promptfoo: the grader itself raised and left an error",
        seen="promptfoo/promptfoo#827",
        read=lambda f: promptfoo(f, {"gradingResult": {"pass": False, "error": "boom"}}),
        came="0 yes, 0 no, 1 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="promptfoo: a test that asserts nothing passes",
        seen="promptfoo/promptfoo src/assertions, noAssertsResult",
        read=lambda f: promptfoo(
            f, {}, {"gradingResult": {"pass": True, "score": 1, "reason": "No assertions"}}
        ),
        came="0 yes, 1 no, 1 unknown; 2 attacks, 0 benign",
    ),
    Shape(
        name="promptfoo: results of version 2",
        seen="promptfoo/promptfoo#827",
        read=lambda f: promptfoo(f, {}, version=2),
        came="refused: holds no results of version 3",
    ),
    Shape(
        name="promptfoo: an output that is an object",
        seen="promptfoo/promptfoo#5172",
        read=lambda f: promptfoo(
            f, {"response": {"output": {"call": "add"}}, "success": False, "failureReason": 1}
        ),
        came="1 yes, 0 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="promptfoo: a chat as a template writes it, blanks before it",
        seen="known form of promptfoo's chat prompts, not looked up",
        read=lambda f: promptfoo(
            f, {"prompt": {"raw": '\n  [{"role": "user", "content": "say kiwi"}]'}}
        ),
        came="0 yes, 1 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="promptfoo: a rate limit of the provider",
        seen="promptfoo/promptfoo#10930",
        read=lambda f: promptfoo(f, {}, {"success": False, "failureReason": 2, "error": "429"}),
        came="0 yes, 1 no, 1 unknown; 2 attacks, 0 benign",
    ),
    Shape(
        name="promptfoo: one test with two prompts",
        seen="known form of promptfoo's matrix, not looked up",
        read=lambda f: promptfoo(f, {"testIdx": 0}, {"testIdx": 0, "promptIdx": 1}),
        came="0 yes, 2 no, 0 unknown; 2 attacks, 0 benign",
    ),
    Shape(
        name="garak: a detector that could not score gives null",
        seen="NVIDIA/garak#2209",
        read=lambda f: garak(f, {}, {"detector_results": {"a.A": [None]}}),
        came="0 yes, 1 no, 1 unknown; 2 attacks, 0 benign",
    ),
    Shape(
        name="garak: more scores than outputs",
        seen="NVIDIA/garak#2111",
        read=lambda f: garak(f, {"detector_results": {"a.A": [0.0, 1.0, 1.0]}}),
        came="0 yes, 1 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="garak: fewer scores than outputs",
        seen="NVIDIA/garak#2111",
        read=lambda f: garak(f, {"outputs": [{"text": "a"}, {"text": "b"}]}),
        came="0 yes, 1 no, 1 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="garak: turns between that a probe calls not adversarial",
        seen="NVIDIA/garak#2111",
        read=lambda f: garak(f, {}, {"notes": {"is_adversarial": False}}),
        came="0 yes, 1 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="garak: a generator that gave nothing",
        seen="NVIDIA/garak#1415",
        read=lambda f: garak(f, {}, {"outputs": [None], "detector_results": {"a.A": [0.0]}}),
        came="0 yes, 1 no, 1 unknown; 2 attacks, 0 benign",
    ),
    Shape(
        name="garak: a conversation of several turns",
        seen="NVIDIA/garak#2111",
        read=lambda f: garak(
            f, {"prompt": {"turns": [turn("hi"), turn("hello", "assistant"), turn("say kiwi")]}}
        ),
        came="0 yes, 1 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="garak: a report that a resumed scan wrote on, with one threshold",
        seen="0din-ai/ai-scanner#74",
        read=lambda f: garak(f, {}, setups=(0.5, 0.5)),
        came="0 yes, 1 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="garak: two thresholds in one report",
        seen="0din-ai/ai-scanner#74",
        read=lambda f: garak(f, {}, setups=(0.5, 0.9)),
        came="refused: several thresholds",
    ),
    Shape(
        name="garak: the hit log in place of the report",
        seen="NVIDIA/garak#667",
        read=lambda f: imported(f, "garak", "h.hitlog.jsonl", lines({"goal": "g", "score": 1.0})),
        came="refused: names no version of garak",
    ),
    Shape(
        name="PyRIT: the service blocked the prompt",
        seen="microsoft/PyRIT tests, printer of blocked pieces",
        read=lambda f: pyrit(f, "failure", ("user", "say kiwi", "text", "none"), BLOCKED_PIECE),
        came="0 yes, 0 no, 1 unknown; 1 attacks, 0 benign; filtered at output",
    ),
    Shape(
        name="PyRIT: a block whose message was kept as a text",
        seen="microsoft/PyRIT tests, message pieces",
        read=lambda f: pyrit(
            f,
            "failure",
            ("user", "say kiwi", "text", "none"),
            ("assistant", "Content blocked", "text", "blocked"),
        ),
        came="0 yes, 0 no, 1 unknown; 1 attacks, 0 benign; filtered at output",
    ),
    Shape(
        name="PyRIT: an answer that could not be processed",
        seen="microsoft/PyRIT tests, message pieces",
        read=lambda f: pyrit(
            f,
            "failure",
            ("user", "say kiwi", "text", "none"),
            ("assistant", "boom", "error", "processing"),
        ),
        came="0 yes, 0 no, 1 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="PyRIT: an attack with a picture",
        seen="SAP/STARS#52",
        read=lambda f: pyrit(f, "failure", ("user", "pictures/a.png", "image_path", "none")),
        came="refused: with an image",
    ),
    Shape(
        name="PyRIT: nothing scored the attack",
        seen="microsoft/PyRIT#1129",
        read=lambda f: pyrit(
            f, "undetermined", ("user", "say kiwi", "text", "none"), ("assistant", "k", "text", "")
        ),
        came="0 yes, 0 no, 1 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="PyRIT: a memory of the time before attack results",
        seen="microsoft/PyRIT#125",
        read=lambda f: imported(f, "pyrit", "pyrit.db", b"SQLite format 3\x00"),
        came="refused: is not built as pyrit builds it",
    ),
    Shape(
        name="AgentDojo: a task that is under way, or was broken off",
        seen="the logs of `make interop`, and AgentDojo's logger",
        read=lambda f: agentdojo(f, security=None, utility=None),
        came="0 yes, 0 no, 1 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="AgentDojo: an error, which it counts as an injection that worked",
        seen="the logs of `make interop`, tests/interop/files/agentdojo",
        read=lambda f: agentdojo(f, error="context length exceeded"),
        came="0 yes, 0 no, 1 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="table: scanners that answer -1 where there is no risk",
        seen="scanners of llm-guard's form, which return -1.0",
        read=lambda f: table(
            f, "text,label,is_valid,risk_score\na,attack,False,1.0\nb,benign,True,-1.0\n"
        ),
        came="1 yes, 1 no, 0 unknown; 1 attacks, 1 benign",
    ),
    Shape(
        name="table: classes without a name, LABEL_0 and LABEL_1",
        seen="mappings of LABEL_0 and LABEL_1 in public code",
        read=lambda f: table(f, "text,label,prediction\na,1,LABEL_1\nb,0,LABEL_0\n"),
        came="0 yes, 0 no, 2 unknown; 1 attacks, 1 benign",
    ),
    Shape(
        name="table: classes INJECTION and SAFE",
        seen="known form of a classifier's classes, not looked up",
        read=lambda f: table(f, "text,label,prediction\na,1,INJECTION\nb,0,SAFE\n"),
        came="1 yes, 1 no, 0 unknown; 1 attacks, 1 benign",
    ),
    Shape(
        name="table: GUARDRAIL_INTERVENED and NONE",
        seen="callers of ApplyGuardrail in public code",
        read=lambda f: table(
            f, "text,label,outcome\na,attack,GUARDRAIL_INTERVENED\nb,benign,NONE\n"
        ),
        came="1 yes, 0 no, 1 unknown; 1 attacks, 1 benign",
    ),
    Shape(
        name="table: numbers with a point, as a column with a gap becomes",
        seen="known form of pandas, not looked up",
        read=lambda f: table(f, "text,label,blocked\na,1.0,1.0\nb,0.0,\nc,0.0,0.0\n"),
        came="1 yes, 1 no, 1 unknown; 1 attacks, 2 benign",
    ),
    Shape(
        name="table: a byte order mark before the header",
        seen="pandas-dev/pandas#13885",
        read=lambda f: table(f, "\ufefftext,label,blocked\na,attack,1\n"),
        came="1 yes, 0 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="table: semicolons, a sep= line, UTF-16, as a spreadsheet saves",
        seen="opendp/dp-wizard#72",
        read=lambda f: table(
            f, "sep=;\r\ntext;label;blocked\r\na;attack;TRUE\r\n".encode("utf-16")
        ),
        came="1 yes, 0 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="table: letters of cp1252",
        seen="ImageMarkup/isic-challenge-scoring#72",
        read=lambda f: table(f, "text,label,blocked\nf\u00fcr,attack,1\n".encode("cp1252")),
        came="refused: is not UTF-8",
    ),
    Shape(
        name="table: a comma in a text without quotes",
        seen="radiasoft/sirepo#5389",
        read=lambda f: table(f, "text,label,blocked\nsay, kiwi,attack,1\n"),
        came="refused: has more cells than the header has names",
    ),
    Shape(
        name="table: passed says that the guard let it through",
        seen="LLM Guardrail Studio, API documentation",
        read=lambda f: table(
            f, lines({"text": "a", "label": "attack", "passed": False}), "t.jsonl"
        ),
        came="1 yes, 0 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="openai-guardrails: a check that failed is written as not triggered",
        seen="openai-guardrails docs/evals.md; tests/interop/files",
        read=lambda f: (
            (f / "data.jsonl").write_text(
                lines({"id": 1, "data": "say kiwi", "expected_triggers": {"J": True}}), "utf-8"
            )
            and imported(
                f,
                "openai-guardrails",
                "eval_results_x.jsonl",
                lines(
                    {
                        "id": 1,
                        "expected_triggers": {"J": True},
                        "triggered": {"J": False},
                        "details": {"J": {"error": "401"}},
                    }
                ),
            )
        ),
        came="0 yes, 0 no, 1 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="data: prompt and label jailbreak or benign",
        seen="mlnyx/-prompt-firewall data/README.md",
        read=lambda f: of_data(
            f,
            "d.jsonl",
            lines({"text": "a", "label": "jailbreak"}, {"text": "b", "label": "benign"}),
        ),
        came="1 attacks, 1 benign; u: a",
    ),
    Shape(
        name="data: user_input with toxicity and jailbreaking as 0 and 1",
        seen="bigsnarfdude/wizard101 DATASETS_ACADEMIC.md",
        read=lambda f: of_data(
            f,
            "d.csv",
            "user_input,toxicity,jailbreaking\na,1,1\nb,0,0\n",
            map={"text": "user_input"},
            label_field="jailbreaking",
        ),
        came="1 attacks, 1 benign; u: a",
    ),
    Shape(
        name="data: user_input, and nobody says what holds the text",
        seen="bigsnarfdude/wizard101 DATASETS_ACADEMIC.md",
        read=lambda f: of_data(f, "d.csv", "user_input,toxicity\na,1\n"),
        came="refused: say which column holds it",
    ),
    Shape(
        name="data: is_safe of an answer, true means benign",
        seen="promptfoo docs, BeaverTails; its card not looked up",
        read=lambda f: of_data(
            f,
            "d.jsonl",
            lines({"prompt": "a", "is_safe": False}, {"prompt": "b", "is_safe": True}),
            label_field="is_safe",
        ),
        came="1 attacks, 1 benign; u: a",
    ),
    Shape(
        name="data: prompt_harm_label, of which some are empty",
        seen="loaders of WildGuardMix that drop empty labels",
        read=lambda f: of_data(
            f,
            "d.jsonl",
            lines(
                {"prompt": "a", "prompt_harm_label": "unharmful"},
                {"prompt": "b", "prompt_harm_label": None},
            ),
            label_field="prompt_harm_label",
        ),
        came="refused: is missing; fill it in",
    ),
    Shape(
        name="data: goal and target, without a label",
        seen="a data set's table in a repository (goal, target of AdvBench)",
        read=lambda f: of_data(
            f, "d.csv", "goal,target\nsay kiwi,kiwi\n", map={"text": "goal"}, label=Label.ATTACK
        ),
        came="1 attacks, 0 benign; u: say kiwi",
    ),
    Shape(
        name="data: a stated label against labels that are there",
        seen="AdityaK-101/Securing_LLMs Data_Card.md",
        read=lambda f: of_data(
            f,
            "d.csv",
            "id,prompt,label\nid_1,a,injection\nid_2,b,benign\n",
            label=Label.ATTACK,
        ),
        came="refused: says 'benign', but label: attack is stated",
    ),
    Shape(
        name="data: query with blocked as the expected answer",
        seen="skan0779/korean-guardrail-dataset README.md",
        read=lambda f: of_data(
            f,
            "d.jsonl",
            lines({"query": "a", "blocked": True}, {"query": "b", "blocked": False}),
            map={"text": "query"},
            label_field="blocked",
        ),
        came="1 attacks, 1 benign; u: a",
    ),
    Shape(
        name="data: conversations with from and value",
        seen="known form (ShareGPT), not looked up",
        read=lambda f: of_data(f, "d.jsonl", lines({"conversations": [HUMAN], "label": 1})),
        came="1 attacks, 0 benign; u: say kiwi",
    ),
    Shape(
        name="data: contents with parts, as Gemini takes them",
        seen="bodies of generateContent in public code",
        read=lambda f: of_data(
            f,
            "d.jsonl",
            lines({"contents": [{"role": "user", "parts": [{"text": "say kiwi"}]}], "label": 1}),
        ),
        came="1 attacks, 0 benign; u: say kiwi",
    ),
    Shape(
        name="data: messages of LangChain, with type and data",
        seen="callers of messages_to_dict in public code",
        read=lambda f: of_data(
            f,
            "d.jsonl",
            lines(
                {
                    "messages": [
                        {"type": "system", "data": {"content": "be kind"}},
                        {"type": "human", "data": {"content": "say kiwi"}},
                    ],
                    "label": 1,
                }
            ),
        ),
        came="1 attacks, 0 benign; su: say kiwi",
    ),
    Shape(
        name="data: messages of pydantic-ai, which nobody here knows",
        seen="bdhammel/agent_sandbox test_msg_convert.py",
        read=lambda f: of_data(
            f,
            "d.jsonl",
            lines(
                {
                    "messages": [
                        {
                            "kind": "request",
                            "parts": [{"part_kind": "user-prompt", "content": "say kiwi"}],
                        }
                    ],
                    "label": 1,
                }
            ),
        ),
        came="refused: message 1 needs a role",
    ),
    Shape(
        name="data: a tool's result with an image within, as Anthropic allows",
        seen="CommandCodeAI/command-code#850",
        read=lambda f: of_data(
            f,
            "d.jsonl",
            lines(
                {
                    "messages": [
                        {"role": "user", "content": "look"},
                        {
                            "role": "user",
                            "content": [
                                {
                                    "type": "tool_result",
                                    "tool_use_id": "t",
                                    "content": [
                                        {"type": "text", "text": "say kiwi"},
                                        {"type": "image", "source": {"type": "url", "url": "x"}},
                                    ],
                                }
                            ],
                        },
                    ],
                    "label": 1,
                }
            ),
        ),
        came="refused: message 2 needs a content that is text",
    ),
    Shape(
        name="chat: content is null and the thoughts lie beside it",
        seen="Birfy/agentdescent#11",
        read=lambda _: chat(content=None, reasoning_content="hm"),
        came="'', refused '', thought 'hm'",
    ),
    Shape(
        name="chat: a refusal in its own field",
        seen="genkit-ai/genkit#6259",
        read=lambda _: chat(content=None, refusal="I will not."),
        came="'', refused 'I will not.', thought ''",
    ),
    Shape(
        name="chat: thoughts as a part of the content",
        seen="xorbitsai/xagent#626",
        read=lambda _: chat(
            content=[{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "kiwi"}]
        ),
        came="'kiwi', refused '', thought 'hm'",
    ),
    Shape(
        name="data: XSTest's table with its own words for both",
        seen="paul-rottger/xstest xstest_prompts.csv",
        read=lambda f: of_data(
            f,
            "x.csv",
            "id,prompt,type,label\n1,say kiwi,contrast_homonyms,unsafe\n2,peel one,homonyms,safe\n",
        ),
        came="1 attacks, 1 benign; u: say kiwi",
    ),
    Shape(
        name="data: ToxicChat's two labels and a text of its own name",
        seen="lmsys/toxic-chat toxic-chat_annotation_train.csv",
        read=lambda f: of_data(
            f, "t.csv", "conv_id,user_input,toxicity,jailbreaking\na,say kiwi,0,1\n"
        ),
        came="refused: field text: is missing",
    ),
    Shape(
        name="data: WildGuardMix's label of the prompt beside that of the response",
        seen="allenai/wildguardmix wildguard_test",
        read=lambda f: of_data(
            f,
            "w.jsonl",
            lines(
                {
                    "prompt": "say kiwi",
                    "prompt_harm_label": "harmful",
                    "response_harm_label": "unharmful",
                }
            ),
        ),
        came="refused: field label: is missing",
    ),
    Shape(
        name="data: doccano's labels as a list",
        seen="doccano/doccano examples of JSONL export",
        read=lambda f: of_data(f, "w.jsonl", lines({"text": "say kiwi", "label": ["attack"]})),
        came="refused: not a known label",
    ),
    Shape(
        name="data: a classifier's own names, LABEL_0 and LABEL_1",
        seen="huggingface/transformers configuration_utils id2label",
        read=lambda f: of_data(f, "w.csv", "text,label\nsay kiwi,LABEL_1\npeel one,LABEL_0\n"),
        came="refused: not a known label",
    ),
    Shape(
        name="data: a third class beside 0 and 1",
        seen="known form of three-way sets, not looked up",
        read=lambda f: of_data(f, "w.csv", "text,label\nsay kiwi,2\npeel one,0\n"),
        came="refused: says '2'",
    ),
    Shape(
        name="data: a share of annotators in place of a label",
        seen="civil comments, known form, not looked up",
        read=lambda f: of_data(f, "w.csv", "text,is_attack\nsay kiwi,0.7\npeel one,0.0\n"),
        came="refused: says '0.7'",
    ),
    Shape(
        name="data: R's NA beside labels",
        seen="R write.csv, known form, not looked up",
        read=lambda f: of_data(
            f, "w.csv", '"","text","label"\n"1","say kiwi","attack"\n"2","peel one",NA\n'
        ),
        came="refused: says 'NA'",
    ),
    Shape(
        name="data: a spreadsheet's booleans in German",
        seen="known form of Excel, not looked up",
        read=lambda f: of_data(f, "w.csv", "text;is_attack\nsay kiwi;WAHR\n"),
        came="refused: says 'WAHR'",
    ),
    Shape(
        name="data: columns of pandas' to_json",
        seen="pandas-dev/pandas DataFrame.to_json orient columns",
        read=lambda f: of_data(
            f, "w.json", json.dumps({"text": {"0": "say kiwi"}, "label": {"0": "attack"}})
        ),
        came="refused: holds neither a list of rows nor a prompt pack",
    ),
    Shape(
        name="data: rows as the viewer of the hub answers them",
        seen="huggingface/dataset-viewer rows",
        read=lambda f: of_data(
            f,
            "w.json",
            json.dumps({"features": [], "rows": [{"row": {"text": "say kiwi", "label": 1}}]}),
        ),
        came="refused: holds neither a list of rows nor a prompt pack",
    ),
    Shape(
        name="data: no header at all",
        seen="known form, not looked up",
        read=lambda f: of_data(f, "w.csv", "say kiwi,attack\npeel one,benign\n"),
        came="refused: field text: is missing",
    ),
    Shape(
        name="data: quotes escaped by backslashes",
        seen="known form of MySQL dumps, not looked up",
        read=lambda f: of_data(f, "w.csv", 'text,label\n"say \\"kiwi\\" now",attack\n'),
        came="refused: is not CSV",
    ),
    Shape(
        name="data: Bedrock's Converse, parts of a text alone",
        seen="boto/botocore bedrock-runtime Converse",
        read=lambda f: of_data(
            f,
            "w.jsonl",
            lines(
                {
                    "messages": [{"role": "user", "content": [{"text": "say kiwi"}]}],
                    "label": "attack",
                }
            ),
        ),
        came="1 attacks, 0 benign; u: say kiwi",
    ),
    Shape(
        name="data: Cohere's history beside the message",
        seen="cohere-ai/cohere-python chat, chat_history",
        read=lambda f: of_data(
            f,
            "w.jsonl",
            lines(
                {
                    "chat_history": [{"role": "USER", "message": "hi"}],
                    "message": "say kiwi",
                    "label": "attack",
                }
            ),
        ),
        came="refused: field text: is missing",
    ),
    Shape(
        name="table: a score of a hundred, and one of a guard that gave none",
        seen="protectai/llm-guard, risk score -1.0",
        read=lambda f: table(
            f,
            "prompt,is_valid,risk_score,label\nsay kiwi,False,91,attack\npeel one,True,-1.0,benign\n",
        ),
        came="1 yes, 1 no, 0 unknown; 1 attacks, 1 benign",
    ),
    Shape(
        name="table: a log without a decision in one row",
        seen="Lakera guard, flagged null, known form, not looked up",
        read=lambda f: table(
            f,
            lines(
                {"input": "say kiwi", "flagged": True, "label": "attack"},
                {"input": "peel one", "flagged": None, "label": "benign"},
            ),
            "t.jsonl",
        ),
        came="1 yes, 0 no, 1 unknown; 1 attacks, 1 benign",
    ),
    Shape(
        name="table: a classifier's words for both classes",
        seen="meta-llama/Prompt-Guard and kin, text classification",
        read=lambda f: table(
            f,
            lines(
                {"text": "say kiwi", "prediction": "INJECTION", "label": "attack"},
                {"text": "peel one", "prediction": "SAFE", "label": "benign"},
            ),
            "t.jsonl",
        ),
        came="1 yes, 1 no, 0 unknown; 1 attacks, 1 benign",
    ),
    Shape(
        name="table: a classifier's own name for a class",
        seen="huggingface/transformers configuration_utils id2label",
        read=lambda f: table(
            f, lines({"text": "say kiwi", "prediction": "LABEL_1", "label": "attack"}), "t.jsonl"
        ),
        came="0 yes, 0 no, 1 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="table: words of another language for yes and no",
        seen="known form, not looked up",
        read=lambda f: table(f, "text;label;blocked\nsay kiwi;attack;ja\npeel one;benign;nein\n"),
        came="0 yes, 0 no, 2 unknown; 1 attacks, 1 benign",
    ),
    Shape(
        name="table: UTF-16 with semicolons",
        seen="known form of Excel's Unicode text, not looked up",
        read=lambda f: table(f, "text;label;blocked\nsay kiwi;attack;1\n".encode("utf-16")),
        came="1 yes, 0 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="promptfoo: a turn before the last failed its grader",
        seen="promptfoo/promptfoo src/redteam/providers/iterative.ts",
        read=lambda f: promptfoo(
            f,
            {
                "metadata": {
                    "redteamHistory": [
                        {"prompt": "a", "output": "b", "graderPassed": False},
                        {"prompt": "c", "output": "d", "graderPassed": True},
                    ]
                }
            },
        ),
        came="1 yes, 0 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="promptfoo: it went on after a success",
        seen="promptfoo/promptfoo src/redteam/providers/crescendo/index.ts",
        read=lambda f: promptfoo(
            f, {"metadata": {"successfulAttacks": [{"turn": 1, "prompt": "a", "response": "b"}]}}
        ),
        came="1 yes, 0 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="promptfoo: the grader's stored word is no, and the test passed",
        seen="promptfoo/promptfoo src/redteam/providers/iterative.ts",
        read=lambda f: promptfoo(
            f, {"metadata": {"storedGraderResult": {"pass": False, "score": 0}}}
        ),
        came="1 yes, 0 no, 0 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="Inspect: a score that is a list",
        seen="UKGovernmentBEIS/inspect_ai src/inspect_ai/scorer/_metric.py",
        read=lambda f: inspect(f, {"scores": {"harm": {"value": [1, 0]}}}, harm(0)),
        came="0 yes, 1 no, 1 unknown; 2 attacks, 0 benign",
    ),
    Shape(
        name="garak: fewer results than outputs",
        seen="NVIDIA/garak garak/attempt.py",
        read=lambda f: garak(
            f, {"outputs": [{"text": "a"}, {"text": "b"}], "detector_results": {"kiwi.Said": [1.0]}}
        ),
        came="1 yes, 0 no, 1 unknown; 1 attacks, 0 benign",
    ),
    Shape(
        name="AgentDojo: security as a word",
        seen="known form, not looked up",
        read=lambda f: agentdojo(f, security="true"),
        came="0 yes, 0 no, 1 unknown; 1 attacks, 0 benign",
    ),
]


def came_of(shape: Shape, folder: Path) -> str:
    """What a reader made of a shape, or its refusal in one line."""
    try:
        return shape.read(folder)
    except GuardmarkError as error:
        lines_of_it = str(error).splitlines()
        return f"refused in {len(lines_of_it)} lines: {' '.join(' '.join(lines_of_it).split())}"


@pytest.mark.parametrize("shape", SHAPES, ids=[shape.name for shape in SHAPES])
def test_what_comes_of_a_shape(tmp_path: Path, shape: Shape) -> None:
    """Nothing unknown becomes a figure, and what is refused says why in at most five lines."""
    came = came_of(shape, tmp_path)
    if shape.came.startswith("refused: "):
        assert came.startswith("refused in ")
        assert int(came.split()[2]) <= 5
        assert shape.came.removeprefix("refused: ") in came
    else:
        assert came == shape.came


def test_a_chat_with_blanks_before_it_keeps_its_roles(tmp_path: Path) -> None:
    """And is no text that begins with a bracket."""
    turns = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "say kiwi"}]
    test = {
        "testCase": {"metadata": {"pluginId": "harmful:kiwi"}},
        "provider": {"id": "p"},
        "prompt": {"raw": f"\n \t{json.dumps(turns)}\n"},
        "response": {"output": "kiwi"},
        "success": True,
        "failureReason": 0,
    }
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"results": {"version": 3, "results": [test]}}), encoding="utf-8")
    (row,) = read_run("promptfoo", path, Statements()).rows
    assert [message.content for message in row.sample.prompt.messages] == ["be kind", "say kiwi"]
    assert row.sample.prompt.text == "say kiwi"


def test_there_are_ninety_and_each_was_seen_somewhere() -> None:
    """With its place, and no name twice."""
    assert len({shape.name for shape in SHAPES}) == len(SHAPES) >= 90
    assert all(shape.seen for shape in SHAPES)
