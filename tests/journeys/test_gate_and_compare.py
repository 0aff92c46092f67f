"""From a run to a decision, typed as a person or a pipeline types it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import junitparser
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CI = ROOT / "examples" / "ci"
HERE = Path(sys.executable).parent


def guardmark(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line, as a process of its own."""
    command = [str(HERE / "guardmark"), *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs of the good pattern file, the worse one, and the tiny data."""
    folder = tmp_path_factory.mktemp("ci")
    for name, code in (("bench", 0), ("worse", 1), ("tiny", 5)):
        done = guardmark("run", str(CI / f"{name}.yaml"), "-o", name, cwd=folder)
        assert done.returncode == code, done.stderr
    return folder


@pytest.mark.parametrize(("name", "code"), [("bench", 0), ("worse", 1), ("tiny", 5)])
def test_the_gate_answers_by_its_exit_code(runs: Path, name: str, code: int) -> None:
    """0: held; 1: broken; 5: the data cannot decide."""
    done = guardmark("gate", name, cwd=runs)
    assert done.returncode == code
    assert ("FAIL" in done.stdout) == (code == 1)
    told = " ".join(done.stdout.split())
    if code == 1:
        assert "FAIL asr_upper words attacks 75.0 % [" in told
    if code == 5:
        assert "n that would decide: a new set of about so many, looked at once" in told
        (row,) = (line for line in done.stdout.splitlines() if "asr_upper" in line)
        assert row.split()[-1] == "16"


@pytest.mark.slow
def test_a_missing_baseline_is_no_pass(runs: Path) -> None:
    """Exit code 2, and what to do."""
    policy = str(CI / "regression.yaml")
    done = guardmark("gate", "bench", "--policy", policy, "--baseline", "nowhere", cwd=runs)
    assert done.returncode == 2
    assert "The baseline cannot be used" in done.stderr
    done = guardmark("gate", "bench", "--policy", policy, cwd=runs)
    assert done.returncode == 2
    assert "--baseline RUN" in done.stderr


@pytest.mark.slow
def test_a_regression_is_found_against_the_baseline(runs: Path) -> None:
    """The worse pattern file against the good one, and the good one against itself."""
    policy = str(CI / "regression.yaml")
    shutil.copytree(runs / "bench", runs / "again", dirs_exist_ok=True)
    worse = guardmark("gate", "worse", "--policy", policy, "--baseline", "bench", cwd=runs)
    assert worse.returncode == 1
    assert "FAIL: words: ASR against the baseline +75.0 points" in worse.stdout
    same = guardmark("gate", "again", "--policy", policy, "--baseline", "bench", cwd=runs)
    assert same.returncode == 0, same.stdout


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("asr_uper: 0.1", "Did you mean 'asr_upper'"),
        ("asr_upper: 10", "less than or equal to 1"),
        ("defenses: [words]", "limits nothing"),
        ("- 3", "expected settings"),
        ("asr_upper: [", "is not YAML"),
        ("{asr_upper: 0.1, defenses: [wrods]}", "Did you mean 'words'"),
        ("regression_margin: 0.1", "no baseline is named"),
    ],
)
def test_a_mistake_in_a_policy_is_named(runs: Path, policy: str, said: str) -> None:
    """Exit code 2 in at most five lines; nothing passes by mistake."""
    (runs / "policy.yaml").write_text(policy, encoding="utf-8")
    done = guardmark("gate", "bench", "--policy", "policy.yaml", cwd=runs)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 5


@pytest.mark.slow
def test_a_run_without_a_policy_is_held_against_what_reports_go_by(
    runs: Path, tmp_path: Path
) -> None:
    """A gate that checks nothing must not say yes; it says whose limits these are."""
    text = (CI / "bench.yaml").read_text(encoding="utf-8")
    start, end = text.index("gate:"), text.index("report:")
    config = (text[:start] + text[end:]).replace("data/", f"{CI}/data/")
    config = config.replace("patterns/better.txt", f"{CI}/patterns/better.txt")
    (tmp_path / "plain.yaml").write_text(config, encoding="utf-8")
    assert guardmark("run", "plain.yaml", "-o", "plain", cwd=tmp_path).returncode == 0
    done = guardmark("gate", "plain", cwd=tmp_path)
    assert done.returncode in {0, 1, 5}
    said = " ".join(done.stdout.split())
    assert "states no limits, so these are the ones that reports go by" in said
    checks = json.loads(guardmark("gate", "plain", "--json", cwd=tmp_path).stdout)["checks"]
    limits = {check["rule"]: check["limit"] for check in checks}
    assert limits == {"asr_upper": 0.1, "fpr_upper": 0.05}


def test_gate_and_run_leave_what_a_pipeline_reads(runs: Path) -> None:
    """JSON, Markdown, JUnit; and SARIF from the run."""
    said = json.loads(guardmark("gate", "worse", "--json", "--junit", "j.xml", cwd=runs).stdout)
    assert said["standing"] == "broken"
    assert junitparser.JUnitXml.fromfile(str(runs / "j.xml")).failures == 1
    assert "### Guard gate: failed" in guardmark("gate", "worse", "--markdown", cwd=runs).stdout
    sarif = json.loads((runs / "worse" / "results.sarif").read_text(encoding="utf-8"))
    (run,) = sarif["runs"]
    assert sum(result["ruleId"] != "false-alarm" for result in run["results"]) == 90
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert place.endswith("data/samples.jsonl")


def findings(path: Path) -> dict[str, Any]:
    """The one run of a SARIF file."""
    (run,) = json.loads(path.read_text(encoding="utf-8"))["runs"]
    assert isinstance(run, dict)
    return run


def test_a_code_host_is_shown_what_is_new_at_the_line_of_the_defense(
    runs: Path, tmp_path: Path
) -> None:
    """At most 50, without texts; against itself a run has found nothing new."""
    new, same = tmp_path / "new.sarif", tmp_path / "same.sarif"
    config = str(CI / "worse.yaml")
    told = ("--sarif", str(new), "--config", config, "--since", "bench")
    assert guardmark("gate", "worse", *told, cwd=runs).returncode == 1
    run = findings(new)
    assert run["properties"] | {"baseline": ""} == {
        "baseline": "",
        "found": 96,
        "new": 96,
        "unchanged": 0,
        "absent": 0,
        "shown": 50,
    }
    lines = (CI / "worse.yaml").read_text(encoding="utf-8").splitlines()
    for result in run["results"]:
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"].endswith("worse.yaml")
        assert lines[place["region"]["startLine"] - 1].startswith("  words: ")
    assert "password" not in new.read_text(encoding="utf-8")
    guardmark("gate", "worse", "--sarif", str(same), "--since", "worse", cwd=runs)
    assert findings(same)["results"] == []
    assert findings(same)["properties"]["unchanged"] == 96


def test_a_gate_without_a_file_for_findings_takes_no_options_about_them(runs: Path) -> None:
    """Nothing would be left out or pointed at."""
    done = guardmark("gate", "worse", "--since", "bench", cwd=runs)
    assert done.returncode == 2
    assert "add --sarif FILE" in done.stderr


def test_a_broken_limit_names_the_command_that_shows_why(runs: Path) -> None:
    """The command is one that can be typed; how limits are held is told with -v."""
    done = guardmark("gate", "worse", cwd=runs)
    command = "guardmark show worse --bypasses --defense words"
    assert command in done.stdout
    assert guardmark(*command.split()[1:], cwd=runs).returncode == 0
    assert "Clopper-Pearson" not in done.stdout
    assert "Clopper-Pearson" in guardmark("gate", "worse", "-v", cwd=runs).stdout
    assert "guardmark show" not in guardmark("gate", "bench", cwd=runs).stdout


def test_compare_across_runs_says_what_changed(runs: Path) -> None:
    """Difference, interval, p, discordant counts, the other side, and one sentence."""
    done = guardmark("compare", "bench", "worse", cwd=runs)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "words (worse) against words (bench)" in said
    assert "ASR -75.0 points [" in said
    assert "p < 0.0001" in said
    assert "They differ on 96 samples" in said  # 90 attacks and 6 benign samples
    assert "only words (worse) wrong: " in said
    assert "only words (bench) wrong: " not in said
    assert "- Prefer words (bench) to words (worse)" in said


@pytest.mark.slow
def test_runs_over_other_data_are_refused_or_marked(runs: Path, tmp_path: Path) -> None:
    """Nothing shared: exit code 3. Some shared: what is left out is told."""
    lines = (CI / "data" / "samples.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    for name, chosen in (
        ("half", lines[:60] + lines[120:180]),
        ("other", [line.replace('"text": "', '"text": "x ') for line in lines]),
        ("turned", [line.replace('"label": "benign"', '"label": "attack"') for line in lines]),
    ):
        (tmp_path / f"{name}.jsonl").write_text("".join(chosen), encoding="utf-8")
        config = (
            f"version: 1\ndata: [{{path: {name}.jsonl, open_categories: true}}]\n"
            "defenses: {words: {type: pattern, keywords: [ignore]}}\nreport: [json]\n"
        )
        (tmp_path / f"{name}.yaml").write_text(config, encoding="utf-8")
        done = guardmark("run", f"{name}.yaml", "-o", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    bench = str(runs / "bench")
    half = guardmark("compare", bench, "half", cwd=tmp_path)
    assert half.returncode == 0
    assert "120 of 240 samples of bench have no partner" in " ".join(half.stdout.split())
    other = guardmark("compare", bench, "other", cwd=tmp_path)
    assert (other.returncode, "share no sample" in other.stderr) == (3, True)
    turned = guardmark("compare", bench, "turned", cwd=tmp_path)
    assert (turned.returncode, "label 120 of the same contents" in turned.stderr) == (3, True)


def test_a_run_named_twice_and_a_run_of_one_are_refused(runs: Path) -> None:
    """Each with the next step."""
    twice = guardmark("compare", "bench", "bench", cwd=runs)
    assert (twice.returncode, "named twice" in twice.stderr) == (2, True)
    alone = guardmark("compare", "bench", cwd=runs)
    assert (alone.returncode, "nothing to compare" in alone.stderr) == (3, True)


@pytest.mark.slow
def test_the_defenses_of_one_run_are_compared(tmp_path: Path) -> None:
    """The built-in run: both sides, by category, and the samples to read."""
    config = "version: 1\ndata: [{builtin: core}]\ndefenses: {pattern: {type: pattern, builtin: true}, ngram: {type: ngram}}\nreport: [json]\n"
    (tmp_path / "two.yaml").write_text(config, encoding="utf-8")
    assert guardmark("run", "two.yaml", "-o", "two", cwd=tmp_path).returncode == 0
    said = " ".join(guardmark("compare", "two", cwd=tmp_path).stdout.split())
    for part in ("pattern against ngram", "By category", "They differ on ", "only pattern wrong: "):
        assert part in said
    assert "- Neither is better as such" in said
    data = json.loads(guardmark("compare", "two", "--json", "--no-texts", cwd=tmp_path).stdout)
    (pair,) = data["pairs"]
    side = pair["attack_success_rate"]["difference"]
    assert side["low"] < side["value"] < side["high"]
    assert pair["detail"]["first_only"] > 0
    assert pair["detail"]["discordant"][0]["text"] is None
    kept = json.loads((tmp_path / "two" / "comparison.json").read_text(encoding="utf-8"))
    assert kept["pairs"][0]["attack_success_rate"] == pair["attack_success_rate"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
@pytest.mark.parametrize(("name", "code"), [("bench", 0), ("worse", 1), ("tiny", 5)])
def test_the_example_for_pipelines_runs(tmp_path: Path, name: str, code: int) -> None:
    """The script that the GitHub action and the GitLab job call."""
    summary = tmp_path / "summary.md"
    env = {**os.environ, "PATH": f"{HERE}{os.pathsep}{os.environ['PATH']}"}
    env["GITHUB_STEP_SUMMARY"] = str(summary)
    command = ["sh", str(CI / "gate.sh"), str(CI / f"{name}.yaml"), str(tmp_path / "out")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert summary.read_text(encoding="utf-8").startswith("<!-- guardmark-gate -->")
    assert junitparser.JUnitXml.fromfile(str(tmp_path / "out" / "junit.xml")).tests == 4
    sarif = json.loads((tmp_path / "out" / "guardmark.sarif").read_text(encoding="utf-8"))
    assert "password" not in json.dumps(sarif), "texts stay out of what is uploaded"


@pytest.mark.slow
def test_a_defense_that_a_rule_ended_early_is_judged_by_what_holds_at_every_look(
    tmp_path: Path,
) -> None:
    """Its slices stay open, and across runs the reader is warned."""
    config = (
        "version: 1\ndata: [{builtin: core}]\nreport: [json]\n"
        "defenses: {one: {type: ngram}, two: {type: pattern, builtin: true}}\n"
    )
    (tmp_path / "two.yaml").write_text(config, encoding="utf-8")
    rule = ("--stop-when", "one.asr+-0.15")
    for name, more in (("whole", ()), ("early", rule)):
        done = guardmark("run", "two.yaml", "-o", name, *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    (tmp_path / "policy.yaml").write_text(
        "{asr_upper: 0.01, per_category: {jailbreak: 0.01}}", encoding="utf-8"
    )
    gated = guardmark("gate", "early", "--policy", "policy.yaml", "--json", cwd=tmp_path)
    assert gated.returncode == 1, gated.stderr
    checks = json.loads(gated.stdout)["checks"]
    assert {c["standing"] for c in checks if c["rule"] == "asr_upper"} == {"broken"}
    standing = {c["defense"]: c for c in checks if c["rule"] == "per_category.asr_upper"}
    assert (standing["one"]["standing"], standing["two"]["standing"]) == ("open", "broken")
    assert "ended early" in standing["one"]["reason"]
    said = " ".join(guardmark("compare", "whole", "early", cwd=tmp_path).stdout.split())
    assert "one of early was ended early by a rule" in said
