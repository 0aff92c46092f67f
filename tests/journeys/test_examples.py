"""The examples work as they stand: ten kinds of defense in one run, and the template of a plug-in."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.journeys.command_line import guardmark

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.slow
def test_ten_kinds_of_defense_in_one_run(tmp_path: Path) -> None:
    """All of them decide about every sample, and the report is one table with tiers."""
    done = guardmark("run", EXAMPLES / "zoo.yaml", "--out", tmp_path / "zoo", cwd=tmp_path)
    assert done.code == 0
    summary = json.loads((tmp_path / "zoo" / "summary.json").read_text(encoding="utf-8"))
    rates = {each["name"]: each["rates"] for each in summary["defenses"]}
    assert len(rates) == 10
    assert {rate["answered"]["value"] for rate in rates.values()} == {1}
    # One guard, called in two ways.
    for rate in ("attack_success_rate", "false_positive_rate"):
        assert rates["function"][rate] == rates["process"][rate]


@pytest.mark.slow
def test_a_plug_in_is_found_and_passes_the_contract(tmp_path: Path) -> None:
    """Installed is what has its entry points in a folder that Python looks into."""
    source = EXAMPLES / "plugin"
    facts = tmp_path / "site" / "guardmark_long_words-0.1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: guardmark-long-words\nVersion: 0.1.0\n"
    )
    stated = (source / "pyproject.toml").read_text(encoding="utf-8")
    target = stated.partition("long-words = ")[2].partition("\n")[0].strip('"')
    (facts / "entry_points.txt").write_text(f"[guardmark.defenses]\nlong-words = {target}\n")
    folders = [source / "src", tmp_path / "site", os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", source / "tests"]
    passed = subprocess.run(
        tests, env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert passed.returncode == 0, passed.stdout
    (tmp_path / "own.jsonl").write_text('{"text": "%s", "label": "attack"}\n' % ("x" * 50))
    (tmp_path / "bench.yaml").write_text(
        "version: 1\nname: own\ndata: [{path: own.jsonl}]\n"
        "defenses: {mine: {type: long-words, longest: 40}}\nreport: [json]\n"
    )
    done = guardmark("run", "bench.yaml", "--out", "out", cwd=tmp_path, env=env)
    assert done.code == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    assert summary["defenses"][0]["rates"]["true_positive_rate"]["successes"] == 1
    assert summary["defenses"][0]["version"] == "guardmark-long-words 0.1.0"
    examined = guardmark("doctor", "bench.yaml", cwd=tmp_path, env=env)
    assert "installed      long-words, guardmark-long-words 0.1.0" in examined.out
    listed = guardmark("plugins", cwd=tmp_path, env=env).out
    assert re.search(r"long-words +.*\(guardmark-long-words 0\.1\.0\)", listed)
