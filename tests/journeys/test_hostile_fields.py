"""Any text in any field: what is written holds, parses again, and what is printed is ours."""

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.journeys.command_line import write_rows

from guardmark.canon.visible import cell_of, text_of_cell
from guardmark.cli import main

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.slow

FIELDS: Final = ("text", "id", "category", "subcategory", "language", "technique", "variant")
FIELDS_OF_ROWS: Final = (*FIELDS, "source", "group")
HOSTILE: Final = (
    "ZQ\n::error file=a::ZQ\r\nQZ\rQZ\x1b[31m\x07\u2028ZQ\u202e\x85 ##[error]ZQ ##vso[x]\tZQ"
    "]]></script>\x00\u200b=1+cmd|' /C calc'!A0"
)
SARIF = Path(__file__).parents[1] / "interchange" / "sarif" / "sarif-2.1.0-rtm.5.json"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u200b\u202a-\u202e\u2066-\u2069]")
COMMAND = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)

CONFIG: Final = {
    "version": 1,
    "data": [{"path": "data.jsonl", "open_categories": True}],
    "defenses": {
        "words": {"type": "pattern", "patterns": ["ZQ|1"]},
        "none": {"type": "allow-all"},
        "broken": {"type": "python", "target": "broken.py:check"},
    },
    "pipeline": {
        "model": {
            "type": "scripted",
            "rules": [{"when": "1", "answer": HOSTILE}],
            "otherwise": "plain",
        },
        "judges": [{"type": "rules", "name": "rules", "unsafe": ["ZQ"]}],
    },
    "report": ["html", "md", "json", "csv", "junit", "sarif"],
    "latency": {"warmup": 0},
}
BROKEN: Final = "def check(text):\n    raise ValueError('::error ' + text)\n"


def typed(folder: Path, *words: str) -> tuple[int, str, str]:
    """Type a command in this process; return its exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        try:
            main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()


def lay_out(
    folder: Path, values: Sequence[str], *, defenses: Sequence[str], answer: str = HOSTILE
) -> None:
    """Write rows whose every field holds one of these values, and a configuration."""
    rows = [
        {
            **{field: values[(n + at) % len(values)] for at, field in enumerate(FIELDS_OF_ROWS)},
            "id": f"{values[n % len(values)]}{n}",
            "text": f"{n} {values[n % len(values)]}",
            "label": "attack" if n % 2 else "benign",
        }
        for n in range(12)
    ]
    write_rows(folder / "data.jsonl", rows)
    (folder / "broken.py").write_text(BROKEN, encoding="utf-8")
    parts = {name: part for name, part in CONFIG["defenses"].items() if name in defenses}
    model = {**CONFIG["pipeline"]["model"], "rules": [{"when": "1", "answer": answer}]}
    pipeline = {**CONFIG["pipeline"], "model": model, "guards": ["none", *({"words"} & set(parts))]}
    config = {**CONFIG, "defenses": parts, "pipeline": pipeline if parts else CONFIG["pipeline"]}
    (folder / "bench.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")


def check_junit(root: ET.Element) -> None:
    """Check the structure that readers of JUnit files agree on; no XSD of it is official."""
    assert root.tag == "testsuites"
    for suite in root:
        assert suite.tag == "testsuite"
        assert {"name", "tests", "failures", "errors", "skipped", "time"} <= set(suite.attrib)
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases)
        assert {each.tag for each in suite} <= {"properties", "testcase"}
        for case in cases:
            assert {"name", "classname", "time"} <= set(case.attrib)
            assert {each.tag for each in case} <= {"failure", "error", "skipped", "system-out"}
            assert len(case) <= 1


def check_run(folder: Path, run_name: str = "out") -> None:
    """Check that a finished run holds, and that every file of it parses to what it should."""
    assert typed(folder, "export", run_name, "--to", "csv,jsonl")[0] == 0
    code, out, _ = typed(folder, "verify", run_name, "--data", ".")
    assert code == 0, out
    run = folder / run_name
    lines = (run / "results.jsonl").read_text("utf-8").split("\n")
    exact = [json.loads(line) for line in lines if line]
    with (run / "records.csv").open(encoding="utf-8", newline="") as file:
        table = [*csv.DictReader(file, strict=True)]
    assert len(table) == len(exact)
    for row, record in zip(table, exact, strict=True):
        for field in ("id", "category", "subcategory", "technique", "text"):
            assert row[field] == cell_of(record[field] or "")
            assert text_of_cell(row[field]) == (record[field] or "")
    for name in ("categories.csv", "variant_metrics.csv"):
        with (run / name).open(encoding="utf-8", newline="") as file:
            rows = [*csv.reader(file, strict=True)]
        assert {len(row) for row in rows} == {len(rows[0])}
    check_junit(ET.fromstring((run / "junit.xml").read_bytes()))  # noqa: S314 - we wrote it
    sarif = json.loads((run / "results.sarif").read_bytes())
    jsonschema.Draft4Validator(json.loads(SARIF.read_text("utf-8"))).validate(sarif)


def check_values(values: Sequence[str]) -> None:
    """Measure samples with these values in their fields, and check everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(folder, values, defenses=("words", "none"))
        code, _, err = typed(folder, "run", "bench.yaml", "-o", "out")
        assert code == 0, err
        check_run(folder)


def check_more_verbs(values: Sequence[str]) -> None:
    """Attack, judge, compare and join runs of samples with these values; all of them hold."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        judge = {"type": "rules", "name": "again", "unsafe": ["ZQ|1"]}
        (folder / "judges.yaml").write_text(yaml.safe_dump({"judges": [judge]}), encoding="utf-8")
        lay_out(folder, values, defenses=("words", "none"), answer=values[0])
        for command in (
            "run bench.yaml -o out",
            "run bench.yaml -o one --shard 1/2",
            "run bench.yaml -o two --shard 2/2",
            "adapt out --budget 4 --canaries 0",
            "judge out --config judges.yaml --layer second",
            "judge out --as-headline second",
            "report out",
            "audit out --count 4 -o sheet.csv",
            "merge one two -o joined",
            "compare out joined --html compared.html",
        ):
            code, *printed = typed(folder, *command.split())
            assert code == 0, (command, printed[1])
            assert not [text for text in printed if COMMAND.search(text) or CONTROL.search(text)]
        for run in ("out", "joined"):
            check_run(folder, run)


VALUES = st.lists(
    st.text(
        st.one_of(
            st.characters(exclude_categories=["Cs"]),
            st.sampled_from("=+-@\r\n\t\x00\x1b\u2028\u202e\u200b\x85:#[]<>&\"',"),
        ),
        min_size=1,
        max_size=30,
    ).filter(lambda text: bool(text.strip())),
    min_size=1,
    max_size=6,
)


@example([HOSTILE, "q\r=1+cmd|x", "\r", "a\rb", "x" * 9_990])
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(VALUES)
def test_a_run_holds_whatever_its_fields_say(values: list[str]) -> None:
    """`verify` finds nothing in an untouched run, and all files parse again."""
    check_values(values)


@example([HOSTILE, "q\r=1+cmd|x", "\ud7ff\ufffe\U0001f600\u0301"])
@settings(max_examples=2, suppress_health_check=list(HealthCheck), deadline=None)
@given(VALUES)
def test_all_verbs_hold_whatever_the_fields_say(values: list[str]) -> None:
    """What `adapt`, `judge`, `merge` and `compare` make of such a run is as whole as the run."""
    check_more_verbs(values)


@pytest.mark.soak
@settings(max_examples=50, suppress_health_check=list(HealthCheck), deadline=None)
@given(VALUES)
def test_all_verbs_hold_over_many_more_values(values: list[str]) -> None:
    """As above, over many more values."""
    check_more_verbs(values)


@pytest.mark.soak
@settings(max_examples=200, suppress_health_check=list(HealthCheck), deadline=None)
@given(VALUES)
def test_many_runs_hold_whatever_their_fields_say(values: list[str]) -> None:
    """As above, over many more values."""
    check_values(values)


COMMANDS: Final = (
    "check bench.yaml",
    "doctor bench.yaml",
    "run bench.yaml -o out",
    "run bench.yaml -o out",
    "report out",
    "show out --bypasses --full",
    "show out --bypasses",
    "show out --false-alarms --full",
    "show out --bypasses --json",
    "show out --unsafe --json",
    "show out --errors",
    "show out --different",
    "show out --category nothing",
    "compare out",
    "compare out --markdown",
    "gate out",
    "gate out --markdown",
    "stability out",
    "judge out --quality",
    "export out --to csv,jsonl,minorbench,inspect,svg",
    "verify out --data .",
    "audit out",
    "data check bench.yaml",
    "data stats bench.yaml",
    "data hash bench.yaml",
    "data dedup bench.yaml -o once.csv",
    "data convert bench.yaml -o again.csv",
    "data check data.jsonl",
    "adapt bench.yaml -o adapted --budget 3",
)


NAMES: Final = {
    "name": "QZrun",
    "defenses": {
        "QZwords": {"type": "pattern", "patterns": ["1|3"]},
        "QZnone": {"type": "allow-all"},
        "QZbroken": {"type": "python", "target": "broken.py:check"},
    },
    "pipeline": {
        "model": CONFIG["pipeline"]["model"],
        "judges": [{"type": "rules", "name": "QZjudge", "unsafe": ["ZQ"]}],
    },
    "gate": {"asr_upper": 0.1},
}


def test_no_line_printed_begins_with_a_name(tmp_path: Path) -> None:
    """Of a run, a defense, a judge, a layer, a sample or any field: something of ours goes before."""
    lay_out(tmp_path, ["QZ one", "QZ two"], defenses=())
    (tmp_path / "bench.yaml").write_text(yaml.safe_dump({**CONFIG, **NAMES}), encoding="utf-8")
    judges = {"judges": NAMES["pipeline"]["judges"]}
    (tmp_path / "judges.yaml").write_text(yaml.safe_dump(judges), encoding="utf-8")
    more = ("judge out --config judges.yaml --layer QZlayer", "compare out adapted")
    for command in (*COMMANDS, *more):
        code, *printed = typed(tmp_path, *command.split())
        assert code != 70, command
        lines = [line for text in printed for line in text.split("\n")]
        assert not [line for line in lines if line.startswith("QZ")], command


def test_no_line_printed_begins_with_data(tmp_path: Path) -> None:
    """No command of a CI service, no control character, and no line that a text begins."""
    lay_out(tmp_path, [HOSTILE, f"::error x::{HOSTILE}"], defenses=("words", "none", "broken"))
    for command in COMMANDS:
        code, *printed = typed(tmp_path, *command.split())
        assert code != 70, command
        for text in printed:
            assert not COMMAND.search(text), command
            assert not CONTROL.search(text), command
        # A document wraps its paragraphs; a message has no line but its own.
        assert not [line for line in printed[1].split("\n") if line.startswith("QZ")], command
