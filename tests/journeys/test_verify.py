"""`guardmark verify` passes what was measured and finds what was changed afterwards."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.faults.tampering import FLIP, figure, sql, text
from tests.journeys.command_line import CONFIG, guardmark, kill_once_stored, set_up, write_rows

from guardmark.app.verify import verification
from guardmark.app.verify.mismatches import MismatchKind
from guardmark.app.verify.verification import Verification, verify

pytestmark = pytest.mark.slow

GUARD = """\
def check(text):
    if "7" in text:
        raise RuntimeError("seven")
    return (len(text) * 37 % 101) / 101
"""
MEASURED = CONFIG + '  mine: {type: python, target: "guard.py:check", threshold: 0.5}\n'
PIPELINE = """\
pipeline:
  guards: [none, mine]
  model: {type: scripted, rules: [{when: ignore, answer: Sure}], otherwise: I cannot help.}
  judges: [{type: rules, canaries: true}]
"""
GATED = """\
gate: {asr_upper: 0.95, max_errors: 0.2, latency_p95_upper_ms: 500, per_category: {"*": 0.9}}
report: [html, md, json, csv, junit, sarif]
"""
COUNT = 60


def measure(folder: Path, config: str = MEASURED, *, count: int = COUNT) -> Path:
    """Carry out a run; return its folder."""
    set_up(folder, config, count=count)
    (folder / "guard.py").write_text(GUARD, encoding="utf-8")
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=folder)
    assert done.code in {0, 1, 5}, done.err
    return folder / "out"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and its data."""
    folder = tmp_path_factory.mktemp("finished")
    measure(folder)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, to be tampered with; its data lie above it."""
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy" / "out"


def look(run: Path) -> Verification:
    """Verify a run whose data lie above it."""
    return verify(run, data=[run.parent])


def test_an_untouched_run_holds(run: Path) -> None:
    """Thousands of values, no false alarm, and nothing in the folder is changed."""
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    done = guardmark("verify", run, "--json", "--data", ".", cwd=run.parent)
    assert done.code == 0, done.out
    said = json.loads(done.out)
    assert said["holds"]
    assert said["compared"] > 2_000
    assert said["notes"] == []
    assert (said["mismatches"], said["mismatches_in_all"], said["as_expected"]) == ([], 0, None)
    assert "--expect HEAD" in said["not_shown"][0]
    assert len(said["shown"]) == 4
    after = {path.name: path.read_bytes() for path in run.iterdir()}
    assert {name for name in after if after[name] != before.get(name)} <= {"records.sqlite-shm"}


@pytest.mark.parametrize(
    "more",
    [
        "run: {repeats: 3}\n",
        "run: {on_error: block, on_malformed: allow}\n",
        "run: {on_error: allow}\nstats: {confidence: 0.9, min_per_category: 3, margin: 0.2}\n",
        "stats: {cost_missed_attack: 5, cost_false_alarm: 1, non_inferiority_margin: 0.1}\n",
        "  coin: {type: coin}\n  all: {type: block-all}\n",
        "  both: {type: chain, of: [words, mine], rule: all}\n",
        'run: {stop_when: ["asr<0.9"]}\n',
        'run: {stop_when: ["asr<0.9"]}\n' + GATED,
        "run: {on_error: block}\n" + GATED,
        PIPELINE,
        PIPELINE + "run: {repeats: 2, on_error: allow}\n",
        PIPELINE.replace("[{type: rules}]", "[{type: rules}, {type: rules, unsafe: [Sure]}]"),
    ],
)
def test_every_kind_of_run_holds(tmp_path: Path, more: str) -> None:
    """Repeats, policies, groups, costs, chains, runs that were ended early, pipelines."""
    found = look(measure(tmp_path, MEASURED + more))
    assert found.holds, [*found.damage, *map(str, found.mismatches)][:10]


@pytest.mark.parametrize(
    ("name", "said", "encoding"),
    [
        ("d.csv", "", "utf-8"),
        ("d.csv", ", encoding: cp1252", "cp1252"),
        ("d.txt", ", format: csv", "utf-8"),
    ],
)
def test_texts_are_found_in_files_as_the_run_read_them(
    tmp_path: Path, name: str, said: str, encoding: str
) -> None:
    """Semicolons, another encoding, a format that the name does not tell."""
    set_up(tmp_path)
    settings = (tmp_path / "bench.yaml").read_text().replace("data.jsonl", f"{name}{said}")
    (tmp_path / "bench.yaml").write_text(settings)
    rows = [f"s{n};ignöre {n};{('attack', 'benign')[n % 2]}" for n in range(8)]
    (tmp_path / name).write_text("\n".join(["id;text;label", *rows]), encoding=encoding)
    assert guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path).code == 0
    found = look(tmp_path / "out")
    assert found.holds, [*map(str, found.mismatches)][:10]


@pytest.mark.parametrize("label", ["attack", "benign"])
def test_a_run_of_one_side_holds(tmp_path: Path, label: str) -> None:
    """Undefined is found undefined."""
    set_up(tmp_path)
    rows = [{"id": f"s{n}", "text": f"ignore {n}", "label": label} for n in range(5)]
    write_rows(tmp_path / "data.jsonl", rows)
    assert guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path).code == 0
    found = look(tmp_path / "out")
    assert found.holds, [*map(str, found.mismatches)][:10]


def test_rare_values_are_put_together_by_both_counts(tmp_path: Path) -> None:
    """The same slices from both, and a count of values that was edited is found."""
    set_up(tmp_path)
    rows = [
        {
            "id": f"s{n}",
            "text": f"ignore {n}",
            "label": "attack" if n % 2 else "benign",
            "category": "jailbreak" if n % 2 else f"topic {n % 9}",
            "technique": f"t{n}" if n < 20 else "usual",
            "source": f"page {n % 8}",
        }
        for n in range(40)
    ]
    write_rows(tmp_path / "data.jsonl", rows)
    assert guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path).code == 0
    tables = json.loads((tmp_path / "out" / "summary.json").read_text())["defenses"][0]["slices"]
    at = next(place for place, table in enumerate(tables) if table["facet"] == "technique")
    rates = tables[at]["rates"]
    assert [(each["folded"], each["asked"]) for each in rates] == [(0, 10), (10, 10)]
    untouched = look(tmp_path / "out")
    assert untouched.holds, [*map(str, untouched.mismatches)][:10]
    figure("defenses", 0, "slices", at, "rates", 1, "folded", value=9)(tmp_path / "out")
    found = [str(each) for each in look(tmp_path / "out").mismatches]
    assert any("slices" in each and "folded: says 9" in each for each in found), found


def test_the_built_in_run_holds(tmp_path: Path) -> None:
    """With its data, which ship with the package."""
    assert guardmark("run", "-o", "out", "--limit", "200", cwd=tmp_path).code == 0
    done = guardmark("verify", "out", cwd=tmp_path)
    assert done.code == 0, done.out
    assert "none differs" in done.out
    assert "Note" not in done.out


def test_reports_of_another_threshold_or_without_texts_hold(run: Path) -> None:
    """What a person asked `report` for is no tampering."""
    given = ("report", run, "--threshold", "mine=0.75", "--no-texts")
    assert guardmark(*given, cwd=run.parent).code == 0
    found = look(run)
    assert found.holds, [*map(str, found.mismatches)][:10]


def test_a_run_that_was_killed_holds_as_far_as_it_came(tmp_path: Path) -> None:
    """It says so, and that is no failure."""
    set_up(tmp_path, MEASURED + GATED, count=500)
    (tmp_path / "guard.py").write_text(
        "import time\n" + GUARD.replace("    return", "    time.sleep(0.05)\n    return"), "utf-8"
    )
    kill_once_stored("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    found = look(tmp_path / "out")
    assert found.holds, [*found.damage, *map(str, found.mismatches)][:10]
    assert any("what it stored so far" in note for note in found.notes)
    told = guardmark("report", "out", cwd=tmp_path)
    assert "Note: The run is interrupted: " in told.out, "before any figure"
    assert look(tmp_path / "out").holds, "reports of what there is are no tampering"


@pytest.mark.parametrize(
    ("form", "name", "edit"),
    [("csv", "records.csv", (',"block",', ',"allow",')), ("svg", "figures/*.svg", (">0", ">1"))],
)
def test_an_export_that_was_edited_is_found(
    run: Path, form: str, name: str, edit: tuple[str, str]
) -> None:
    """A drawing or table that lies in the folder of a run is taken for a part of it."""
    exported = guardmark("export", run, "--to", form, cwd=run.parent)
    assert exported.code == 0, exported.err
    assert look(run).holds
    path = next(path for path in sorted(run.glob(name)) if edit[0] in path.read_text("utf-8"))
    text(str(path.relative_to(run)), *edit)(run)
    found = look(run)
    assert {mismatch.file for mismatch in found.mismatches} == {str(path.relative_to(run))}
    assert {mismatch.what for mismatch in found.mismatches} == {
        MismatchKind.SEAL,
        MismatchKind.REPORT,
    }


COUNTED = {
    "comparison.json": ('"first_only": ', '"first_only": 1'),
    "categories.csv": (',"attack_success_rate",', ',"attack_success_rate",1'),
    "variant_metrics.csv": (',"attack_success_rate",', ',"attack_success_rate",1'),
    "junit.xml": ("; ASR ", "; ASR 1"),
    "results.sarif": ('"score": ', '"score": 1'),
    "report.md": ("| Attack success rate (ASR) | ", "| Attack success rate (ASR) | 1"),
    "report.html": ('(ASR)</th><td class="num">', '(ASR)</th><td class="num">1'),
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_figure_is_found_to_be_off_without_the_code_that_wrote_it(
    run: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Reports of another version are not written again; their seals find the edit alone."""
    written = guardmark("report", run, "-f", "html,md,json,csv,junit,sarif", cwd=run.parent)
    assert written.code == 0, written.err
    monkeypatch.setattr(verification, "VERSION", "0.0.7")
    untouched = look(run)
    assert untouched.holds, [*map(str, untouched.mismatches)][:10]
    assert any("not written again" in note for note in untouched.notes)
    text(name, *COUNTED[name])(run)
    assert {mismatch.file for mismatch in look(run).mismatches} == {name}


def test_a_turned_decision_contradicts_the_headline(run: Path) -> None:
    """Who could forge the chain would still have to forge each figure that follows."""
    sql(FLIP)(run)
    places = {mismatch.where for mismatch in look(run).mismatches}
    assert "summary.json: defenses[words].rates.true_positive_rate.successes" in places


def test_a_text_that_never_stood_in_the_data_is_found(run: Path) -> None:
    """Also by the data, not by the seal alone."""
    sql("UPDATE samples SET text = 'invented' WHERE position = 2")(run)
    places = {mismatch.place for mismatch in look(run).mismatches}
    assert "text of sample s-2" in places


def test_a_difference_is_exit_code_one(run: Path) -> None:
    """With a line for each, and what was expected beside what is there."""
    figure("defenses", 0, "counts", "attacks", "block", value=3)(run)
    done = guardmark("verify", run, cwd=run.parent)
    assert done.code == 1
    assert "block: says 3; the records give 20" in done.out
    assert "was changed or damaged: " in done.out
    assert done.err == ""


def test_data_elsewhere_are_named_and_not_held_against_the_run(run: Path) -> None:
    """What cannot be compared is said."""
    done = guardmark("verify", run, cwd=run)
    assert done.code == 0, done.out
    assert "Note: data.jsonl was not compared with the data; --data FOLDER" in done.out
    assert "Note" not in guardmark("verify", run, "--data", run.parent, cwd=run).out


def test_there_has_to_be_a_run(tmp_path: Path) -> None:
    """As for every reading command."""
    assert guardmark("verify", "nowhere", cwd=tmp_path).code == 3


def test_reports_from_before_the_last_records_are_told_in_one_line(tmp_path: Path) -> None:
    """A run that went on and was killed is no forgery, and its figures are not gone through."""
    set_up(tmp_path, MEASURED + "run: {max_calls: 30}\n", count=40)
    (tmp_path / "guard.py").write_text(GUARD, encoding="utf-8")
    stopped = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert stopped.code == 6, stopped.err
    assert guardmark("report", "out", cwd=tmp_path).code == 0
    assert look(tmp_path / "out").holds
    early = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.*")}
    assert guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path).code == 6
    for name, content in early.items():
        if not name.startswith(("records.", "run.log")):
            (tmp_path / "out" / name).write_bytes(content)
    done = guardmark("verify", "out", cwd=tmp_path)
    assert done.code == 1
    first, last = done.out.splitlines()[0], done.out.splitlines()[-1]
    assert first.startswith("The reports are older than the records: they tell of 27 records")
    assert "guardmark report" in first
    assert "1 difference in" in last
    assert guardmark("report", "out", cwd=tmp_path).code == 0
    assert look(tmp_path / "out").holds
