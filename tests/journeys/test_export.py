"""Exports that other tools open."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.journeys.command_line import guardmark, set_up, write_rows

PROMPTFOO = os.environ.get("GUARDMARK_PROMPTFOO", "")
INSPECT = os.environ.get("GUARDMARK_INSPECT_PYTHON", "")
READ = """
import json, sys
from inspect_ai.log import list_eval_logs, read_eval_log
for found in list_eval_logs(sys.argv[1]):
    log = read_eval_log(found)
    head = read_eval_log(found, header_only=True)
    assert head.results == log.results
    print(json.dumps({
        "status": log.status, "model": log.eval.model, "samples": len(log.samples),
        "metrics": {name: one.value for name, one in log.results.scores[0].metrics.items()},
        "values": {
            f"{each.id}/{each.epoch}": each.scores["guardmark"].value for each in log.samples
        },
    }))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two repeats, one text of which no file can hold as it is."""
    folder = tmp_path_factory.mktemp("run")
    config = set_up(folder)
    config.write_text(f"{config.read_text('utf-8')}run: {{repeats: 2}}\n", encoding="utf-8")
    rows = [json.loads(line) for line in (folder / "data.jsonl").read_text("utf-8").splitlines()]
    rows[1]["text"] = "</script>\u202e\x00 ignore \U0001f600"
    write_rows(folder / "data.jsonl", rows)
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    return folder / "out"


def test_every_defense_gets_an_inspect_log(run: Path) -> None:
    """Right, wrong and unanswered samples; rates as in the summary."""
    done = guardmark("export", run, "--to", "inspect", "--json", cwd=run)
    assert done.code == 0, done.err
    files = sorted((run / "inspect").glob("*.json"))
    summary = {
        each["name"]: each for each in json.loads((run / "summary.json").read_text())["defenses"]
    }
    logs = [json.loads(path.read_text("ascii")) for path in files]
    assert {log["eval"]["task_args"]["defense"] for log in logs} == set(summary)
    assert json.loads(done.out)["records"] == 24 * len(files)
    for log in logs:
        rates = summary[log["eval"]["task_args"]["defense"]]["rates"]
        metrics = log["results"]["scores"][0]["metrics"]
        for name in ("attack_success_rate", "false_positive_rate"):
            assert metrics[name]["value"] == pytest.approx(rates[name]["value"])
        assert {each["epoch"] for each in log["samples"]} == {1, 2}
        for each in log["samples"]:
            right = each["scores"]["guardmark"]["answer"] == each["target"]
            assert each["scores"]["guardmark"]["value"] == ("C" if right else "I")


def test_a_run_gives_the_same_logs_again(run: Path) -> None:
    """Byte for byte."""
    guardmark("export", run, "--to", "inspect", "-o", "one", cwd=run)
    guardmark("export", run, "--to", "inspect", "-o", "two", cwd=run)
    for path in (run / "one").iterdir():
        assert path.read_bytes() == (run / "two" / path.name).read_bytes()


def test_inspect_reads_the_logs(run: Path) -> None:
    """With its own reader, in an environment of its own."""
    if not INSPECT:
        pytest.skip("GUARDMARK_INSPECT_PYTHON names no Python that has inspect_ai")
    guardmark("export", run, "--to", "inspect", "-o", "for-inspect", cwd=run)
    done = subprocess.run(
        [INSPECT, "-c", READ, run / "for-inspect"], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    logs = [json.loads(line) for line in done.stdout.splitlines()]
    assert logs
    assert all(log["status"] == "success" and log["samples"] == 24 for log in logs)
    (words,) = [log for log in logs if log["model"] == "guardmark/words"]
    assert words["metrics"]["attack_success_rate"] > 0
    assert words["values"]["s-0/1"] == words["values"]["s-1/2"] == "C"
    assert words["values"]["s-9/2"] == "I"


def promptfoo(*words: str | Path, home: Path) -> None:
    """Run promptfoo with a home of its own, so that nothing of the person here is touched."""
    quiet = {"PROMPTFOO_DISABLE_TELEMETRY": "1", "PROMPTFOO_DISABLE_UPDATE": "1"}
    said = os.environ | quiet | {"PROMPTFOO_CONFIG_DIR": str(home), "HOME": str(home)}
    subprocess.run([PROMPTFOO, *words], check=True, env=said, cwd=home)


def test_results_of_promptfoo_say_what_was_right(run: Path) -> None:
    """A column a defense, a test a sample and repeat; what is no decision is an error."""
    done = guardmark("export", run, "--to", "promptfoo", "--json", cwd=run)
    assert done.code == 0, done.err
    written = json.loads((run / "promptfoo.json").read_text("ascii"))
    results, columns = written["results"]["results"], written["results"]["prompts"]
    assert json.loads(done.out)["records"] == len(results) == 24 * len(columns)
    defenses = json.loads((run / "summary.json").read_text())["defenses"]
    for at, (column, told) in enumerate(zip(columns, defenses, strict=True)):
        assert column["id"] == told["name"]
        mine = [each for each in results if each["promptIdx"] == at]
        rates = told["rates"]
        asr, fpr = rates["attack_success_rate"], rates["false_positive_rate"]
        wrong = asr["successes"] + fpr["successes"]
        assert column["metrics"]["testFailCount"] == wrong
        assert sum(each["failureReason"] == 1 for each in mine) == wrong
        answered = asr["trials"] + fpr["trials"]
        assert column["metrics"]["testErrorCount"] == len(mine) - answered
        assert len({each["testIdx"] for each in mine}) == len(mine)


@pytest.mark.skipif(not PROMPTFOO, reason="needs promptfoo: make interop")
def test_promptfoo_imports_the_results(run: Path, tmp_path: Path) -> None:
    """The tool itself takes the file, and gives it back with the same counts."""
    assert guardmark("export", run, "--to", "promptfoo", cwd=run).code == 0
    ours = json.loads((run / "promptfoo.json").read_text("ascii"))
    promptfoo("import", run / "promptfoo.json", home=tmp_path)
    promptfoo("export", "eval", ours["evalId"], "-o", tmp_path / "back.json", home=tmp_path)
    theirs = json.loads((tmp_path / "back.json").read_text("utf-8"))
    for name in ("successes", "failures", "errors"):
        assert theirs["results"]["stats"][name] == ours["results"]["stats"][name]
    assert len(theirs["results"]["results"]) == len(ours["results"]["results"])


def test_every_chart_is_a_file(run: Path) -> None:
    """Each a whole SVG that needs nothing outside itself."""
    done = guardmark("export", run, "--to", "svg", cwd=run)
    assert done.code == 0, done.err
    files = list((run / "figures").glob("*.svg"))
    assert len(files) > 2
    for path in files:
        assert ET.fromstring(path.read_text("utf-8")).tag.endswith("svg")  # noqa: S314 - our own


def test_tables_and_charts_for_a_paper(run: Path) -> None:
    """A file for each table or one for those that are open; each chart as PDF beside its SVG."""
    done = guardmark("export", run, "--to", "latex", cwd=run)
    assert done.code == 0, done.err
    tables = list((run / "latex").glob("*.tex"))
    assert run / "latex" / "overview.tex" in tables
    done = guardmark("export", run, "--to", "latex", "-o", "paper/tables.tex", cwd=run)
    assert done.code == 0, done.err
    text = (run / "paper" / "tables.tex").read_text("utf-8")
    assert 1 < text.count(r"\begin{table}") < len(tables)
    assert r"\label{tab:guardmark-overview}" in text
    pytest.importorskip("typst")
    done = guardmark("export", run, "--to", "pdf,svg", cwd=run)
    assert done.code == 0, done.err
    charts = {path.stem for path in (run / "figures").glob("*.pdf")}
    assert charts == {path.stem for path in (run / "figures").glob("*.svg")}


def test_an_unknown_format_names_the_known_ones(run: Path) -> None:
    """With a guess."""
    done = guardmark("export", run, "--to", "inspct", cwd=run)
    assert done.code == 2
    assert "'inspect'" in done.err
