"""What is told of finished runs: limits, margins and places, down to runs that lack a part."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.analysis.small_runs import Planned, allow, attack, benign, write_run
from tests.journeys.command_line import few_rows, write_rows

import guardmark
from guardmark.analysis.run import analyse_run
from guardmark.app.parts.loading import parse_config
from guardmark.app.results.findings import run_sarif
from guardmark.app.results.gating import gate
from guardmark.app.results.opened_run import find_run, run_config
from guardmark.app.results.reading import compare_runs
from guardmark.app.results.reporting import finish
from guardmark.app.run.running import RunOptions, Session, run
from guardmark.core.errors import ConfigError, StoreError
from guardmark.store.reader import RecordReader

NOW = datetime(2026, 1, 2, tzinfo=UTC)
HEAD = "version: 1\nname: mine\ndata: [{path: data.jsonl}]\n"
WORDS = "defenses: {words: {type: pattern, patterns: [ignore], flags: [I]}}\n"
PIPELINE = """\
pipeline:
  guards: [%s]
  model: {type: scripted, otherwise: "%s"}
  judges: [{type: rules, name: rules, unsafe: ['I will']}]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, with data."""
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "data.jsonl", few_rows(24))
    return tmp_path


def measured(text: str, name: str, **options: object) -> Path:
    """A finished run with the reports that its configuration asks for."""
    loaded = parse_config(text, folder=Path.cwd(), shown_as="bench.yaml")
    given = RunOptions(out=Path(name), **options)  # type: ignore[arg-type]
    home = run(loaded, given, Session(now=NOW)).folder
    finish(home, loaded.config, formats=loaded.config.report)
    return home.path


def policy(text: str) -> Path:
    """A file of limits."""
    path = Path("policy.yaml")
    path.write_text(text, encoding="utf-8")
    return path


def test_a_baseline_without_a_margin_is_refused() -> None:
    """It would be named and change nothing."""
    out = measured(HEAD + WORDS, "one")
    with pytest.raises(ConfigError, match="do not say how much worse is still accepted"):
        gate(out, policy=policy("asr_upper: 0.9"), baseline=out)


def test_a_run_whose_gate_needs_a_baseline_checks_nothing_by_itself() -> None:
    """Its reports come without a gate; with a limit of its own there is one."""
    alone = measured(HEAD + WORDS + "gate: {regression_margin: 0.1}\n", "alone")
    assert not (alone / "gate.json").exists()
    more = "gate: {regression_margin: 0.1, asr_upper: 0.9}\n"
    limited = measured(HEAD + WORDS + more, "limited")
    checks = json.loads((limited / "gate.json").read_text(encoding="utf-8"))["checks"]
    assert {"asr_upper"} <= {each["rule"] for each in checks}
    assert not any("regression" in each["rule"] for each in checks)


def test_before_the_first_release_a_margin_is_left_out_and_said() -> None:
    """There is no run to be worse than; a margin alone would check nothing, so it is refused."""
    out = measured(HEAD + WORDS, "one")
    limits = policy("asr_upper: 0.9\nregression_margin: 0.1")
    first = gate(out, policy=limits, is_first=True)
    assert not any("regression" in each.rule for each in first.result.checks)
    assert any("regression_margin was not judged" in each for each in first.caveats)
    again = gate(out, policy=limits, baseline=out)
    assert not any("was not judged" in each for each in again.caveats)
    with pytest.raises(ConfigError, match="leave out one of the two"):
        gate(out, policy=limits, baseline=out, is_first=True)
    with pytest.raises(ConfigError, match="nothing would be checked"):
        gate(out, policy=policy("regression_margin: 0.1"), is_first=True)


def test_python_refuses_a_margin_that_nothing_is_held_against() -> None:
    """Without a baseline it checks nothing, so it is no pass there either."""
    out = measured(HEAD + WORDS, "one")
    with pytest.raises(ConfigError, match="no baseline is named") as caught:
        guardmark.gate(out, regression_margin=0.1)
    assert "baseline=RUN" in str(caught.value)
    assert "first=True" in str(caught.value)
    with pytest.raises(ConfigError, match="do not say how much worse"):
        guardmark.gate(out, baseline=out, asr_upper=0.9)


def test_a_system_without_a_guard_is_held_against_its_baseline() -> None:
    """There is no defense to compare, and the model alone can become worse all the same."""
    good = measured(HEAD + PIPELINE % ("none", "No."), "good")
    bad = measured(HEAD + PIPELINE % ("none", "Yes, I will."), "bad")
    limits = policy("regression_margin: 0.1")
    worse = gate(bad, policy=limits, baseline=good).result
    assert "broken" in {each.standing.value for each in worse.checks}
    assert {(each.rule, each.defense, each.standing.value) for each in worse.checks} >= {
        ("system.regression_asr", "none", "broken"),
    }
    assert not any(each.rule == "regression_asr" for each in worse.checks)
    same = gate(good, policy=limits, baseline=good).result
    assert "broken" not in {each.standing.value for each in same.checks}


def test_a_margin_of_one_s_own_decides_what_is_not_worse() -> None:
    """The figures stay; only what is said of them changes."""
    paths = [measured(HEAD + WORDS, name) for name in ("one", "two")]
    usual = compare_runs(paths).comparison
    wide = compare_runs(paths, margin=0.5).comparison
    (pair,), (other,) = usual.pairs, wide.pairs
    assert pair.attacks.difference == other.attacks.difference
    assert usual.pairs[0].attacks.not_worse is None
    assert other.attacks.not_worse is not None
    assert all(test.margin == 0.5 for test in other.attacks.not_worse)


def test_settings_of_a_run_that_nobody_understands_name_the_guardmark_that_wrote_them() -> None:
    """A data section that is no list is left as it is, and told with its place."""
    out = measured(HEAD + WORDS, "one")
    with RecordReader(out / "records.sqlite") as reader:
        manifest = reader.manifest()
    strange = replace(manifest, settings={**manifest.settings, "data": "core"})
    with pytest.raises(StoreError, match=r"'mine' are not those of this guardmark: data: ") as told:
        run_config(strange)
    assert f"read it with the guardmark that wrote it, {manifest.guardmark_version}" in str(
        told.value
    )


def places(out: Path) -> set[str]:
    """The files that the results of a run point at."""
    results = json.loads((out / "results.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
    assert results
    found = [each["locations"][0]["physicalLocation"]["artifactLocation"] for each in results]
    return {unquote(each["uri"]) for each in found}


def test_a_finding_points_at_the_file_its_sample_was_read_from() -> None:
    """Of two files each to its own; a shard numbers its samples otherwise, and names the run."""
    later = [
        {**row, "id": f"t-{n}", "text": f"Later {n}: {row['text']}"}
        for n, row in enumerate(few_rows(24))
    ]
    write_rows(Path("later.jsonl"), later)
    text = HEAD.replace("}]", "}, {path: later.jsonl}]") + WORDS + "report: [sarif]\n"
    assert places(measured(text, "whole")) == {"data.jsonl", "later.jsonl"}
    assert places(measured(text, "part", shard="1/2")) == {"mine (shard 1 of 2)"}


def test_a_finding_of_a_run_that_does_not_say_how_long_its_data_are_names_the_run() -> None:
    """Rather than a file that may be the wrong one."""
    samples = [*(attack(n) for n in range(6)), benign(0)]
    planned = [Planned(name="words", answers=lambda *_: allow())]
    home = Path("old")
    home.mkdir()
    write_run(home / "records.sqlite", samples, planned, data=())
    with RecordReader(home / "records.sqlite") as reader:
        text = run_sarif(reader, analyse_run(reader), texts=False)
    (home / "results.sarif").write_text(text, encoding="utf-8")
    assert places(home) == {"small"}


def test_a_file_that_is_of_no_run_means_no_run_that_lies_elsewhere() -> None:
    """Neither the only one below its folder nor the newest."""
    measured(HEAD + WORDS, "one")
    Path("huge.card.json").write_text("[" * 1000, encoding="utf-8")
    with pytest.raises(StoreError, match=r"no run in huge\.card\.json"):
        find_run(Path("huge.card.json"))
    assert find_run(Path("one/summary.json")).path == Path("one")
