"""What continuous integration reads: valid, stable, and inert whatever the data say."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import pytest
from tests.analysis.small_runs import Runs
from tests.reports.small_reports import HOSTILE, HOSTILE_NAME, full_analysis

from guardmark.analysis.defense.bypasses import ListedSample
from guardmark.analysis.gate import GateCheck, GateResult, GateStatus, GateUnit
from guardmark.analysis.run import RunAnalysis
from guardmark.interchange.junit import Unlimited, figures_junit, gate_junit
from guardmark.interchange.sarif import (
    FINGERPRINT,
    MOST_RESULTS,
    Analysed,
    DefenseLine,
    KnownFindings,
    Located,
    fingerprints_of,
    sarif_json,
)
from guardmark.reports.chapters.gate import gate_document
from guardmark.reports.render.json.documents import gate_json
from guardmark.reports.render.markdown import render_markdown
from guardmark.reports.render.terminal import render_terminal

SCHEMA = Path(__file__).parent / "sarif" / "sarif-2.1.0-rtm.5.json"
ILLEGAL = "\x00\x08\x1b[31m\ufffe\u202e<b>&\"'"


def check(standing: GateStatus = GateStatus.BROKEN, **changes: Any) -> GateCheck:
    """One check, hostile where data could be."""
    values: dict[str, Any] = {
        "rule": "asr_upper",
        "defense": "words",
        "subject": "attacks",
        "standing": standing,
        "unit": GateUnit.SHARE,
        "limit": 0.1,
        "value": 0.25,
        "low": 0.2,
        "high": 0.31,
        "trials": 240,
    }
    values.update(changes)
    return GateCheck(**values)


EVERY = GateResult(
    checks=(
        check(GateStatus.HELD, value=0.01, low=0.0, high=0.03),
        check(defense=HOSTILE_NAME, rule="per_category.asr_upper", subject=ILLEGAL),
        check(GateStatus.OPEN, needed=811, value=0.08, low=0.05, high=0.12),
    ),
    confidence=0.95,
)


def analysed(analysis: RunAnalysis, *, texts: bool = True) -> Analysed:
    """The run of an analysis."""
    return Analysed(
        run=analysis.manifest.name,
        version=analysis.manifest.guardmark_version,
        baselines=frozenset({"nothing"}),
        texts=texts,
    )


def located(listed: tuple[ListedSample, ...]) -> tuple[Located, ...]:
    """Samples in a file with an awkward name."""
    return tuple(Located(listed=each, place="data/at tacks <1>.jsonl") for each in listed)


def test_sarif_is_valid_whatever_the_texts_say(runs: Runs) -> None:
    """Against the published schema, with hostile texts, names and categories in it."""
    analysis = full_analysis(runs)
    text = sarif_json(located(analysis.worst.listed), analysed(analysis))
    said = json.loads(text)
    jsonschema.Draft4Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(said)
    assert said["version"] == "2.1.0"
    assert text.isascii()
    (run,) = said["runs"]
    for result in run["results"]:
        assert "\x1b" not in result["message"]["text"]
        assert "](" not in result["message"]["text"]
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert uri == "data/at%20tacks%20%3C1%3E.jsonl"
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_sarif_tells_bypasses_by_severity_and_false_alarms_as_notes(runs: Runs) -> None:
    """Baselines let everything through on purpose; nothing of theirs is told."""
    analysis = full_analysis(runs)
    (run,) = json.loads(sarif_json(located(analysis.worst.listed), analysed(analysis)))["runs"]
    levels = {"critical": "error", "high": "error", "medium": "warning", "low": "note"}
    for result in run["results"]:
        if result["ruleId"] == "false-alarm":
            assert result["level"] == "note"
        else:
            assert result["level"] == levels[result["properties"]["severity"]]
    assert {result["properties"]["defense"] for result in run["results"]} == {"words", "ngram"}


def test_fingerprints_are_stable_and_tell_results_apart(runs: Runs) -> None:
    """Another run, another order, other ids: the same finding keeps its fingerprint."""
    analysis = full_analysis(runs)
    listed = analysis.worst.listed

    def fingerprints(found: tuple[ListedSample, ...]) -> list[str]:
        (run,) = json.loads(sarif_json(located(found), analysed(analysis, texts=False)))["runs"]
        return [result["partialFingerprints"][FINGERPRINT] for result in run["results"]]

    renamed = tuple(
        replace(each, sample=replace(each.sample, id=f"x{at}")) for at, each in enumerate(listed)
    )
    there = fingerprints(listed)
    assert len(set(there)) == len(there)
    assert sorted(there) == sorted(fingerprints(renamed[::-1]))


def test_texts_can_be_left_out_of_sarif(runs: Runs) -> None:
    """What is uploaded may be seen by others."""
    analysis = full_analysis(runs)
    found = located(analysis.worst.listed)
    assert "alert(1)" in sarif_json(found, analysed(analysis))
    assert "alert(1)" not in sarif_json(found, analysed(analysis, texts=False))


def test_sarif_is_cut_and_says_so(runs: Runs) -> None:
    """More results than a service shows help nobody."""
    analysis = full_analysis(runs)
    found = located(analysis.worst.listed) * 40
    (run,) = json.loads(sarif_json(found, analysed(analysis)))["runs"]
    assert len(run["results"]) == MOST_RESULTS == run["properties"]["shown"]
    assert run["properties"]["found"] > MOST_RESULTS


def test_junit_is_read_by_another_library(tmp_path: Path) -> None:
    """A held limit passes, a broken one fails, an open one is an error."""
    path = tmp_path / "junit.xml"
    text = gate_junit(EVERY, run=HOSTILE, created_utc="2026-11-21T00:00:00Z")
    path.write_text(text, encoding="utf-8")
    read = junitparser.JUnitXml.fromfile(str(path))
    assert (read.tests, read.failures, read.errors, read.skipped) == (3, 1, 1, 0)
    cases = [case for suite in read for case in suite]
    assert {case.classname for case in cases} >= {"words"}
    messages = [result.message for case in cases for result in case.result]
    assert any("is above the limit of 10.0 %" in message for message in messages)
    assert any("about 811 attacks, looked at once, would" in message for message in messages)


def test_figures_without_limits_are_skipped_tests(tmp_path: Path) -> None:
    """Nothing passes that was never asked to hold."""
    figures = [Unlimited(defense=HOSTILE_NAME, figure="ASR", text="ASR 3 %")]
    path = tmp_path / "junit.xml"
    path.write_text(figures_junit(figures, run="r", created_utc=""), encoding="utf-8")
    read = junitparser.JUnitXml.fromfile(str(path))
    assert (read.tests, read.skipped) == (1, 1)


@pytest.mark.parametrize(
    "render", [render_terminal, lambda document: render_markdown(document, marker="guardmark-gate")]
)
def test_nothing_hostile_gets_out_of_a_rendered_gate(render: Any) -> None:
    """Neither escape sequences nor markup."""
    text = render(gate_document(EVERY, run=HOSTILE))
    assert "\x1b" not in text
    assert "\u202e" not in text
    if "<!-- guardmark-gate -->" in text:
        outside = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text)
        assert "<b>" not in outside
        assert "<script>" not in outside


def test_a_gate_names_what_is_broken_first() -> None:
    """Then what is open, then what holds; the conclusion counts them."""
    document = gate_document(EVERY, run="now")
    assert document.title == "Guard gate: failed"
    assert document.subtitle == ("Run now: Failed: 1 of 3 limits broken; 1 cannot be decided.")
    lines = render_terminal(document).splitlines()
    marks = [
        line.split()[0] for line in lines if line.lstrip().startswith(("FAIL", "UNDECIDED", "PASS"))
    ]
    assert marks[:3] == ["FAIL", "UNDECIDED", "PASS"]  # columns that do not fit follow below


def test_a_gate_as_json_carries_every_figure() -> None:
    """Undefined is null."""
    nothing = check(GateStatus.OPEN, value=None, low=None, high=None, trials=0, reason="no attack")
    result = GateResult(checks=(nothing,), confidence=0.95)
    said = json.loads(gate_json(result, run="now"))
    assert said["standing"] == "open"
    assert said["baseline"] is None
    assert said["checks"][0]["value"] is None
    assert "undefined" in said["checks"][0]["text"]


def test_sarif_against_an_earlier_run_holds_what_that_run_had_not_found(runs: Runs) -> None:
    """Each marked new; what stayed and what went is counted, and the schema still holds."""
    analysis = full_analysis(runs)
    found = located(analysis.worst.listed)
    before, plain = found[::2], analysed(analysis, texts=False)
    known = KnownFindings(
        run="last week",
        guid="5e1717ee-b976-51e4-8a83-2cf669602a36",
        fingerprints=fingerprints_of(before, plain) | {"gone"},
    )
    text = sarif_json(found, replace(plain, known=known, guid=known.guid, most=2))
    jsonschema.Draft4Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(
        json.loads(text)
    )
    (run,) = json.loads(text)["runs"]
    fresh = fingerprints_of(found, plain) - fingerprints_of(before, plain)
    assert {each["partialFingerprints"][FINGERPRINT] for each in run["results"]} < fresh
    assert [each["baselineState"] for each in run["results"]] == ["new", "new"]
    assert run["properties"] == {
        "baseline": "last week",
        "found": len(fingerprints_of(found, plain)),
        "new": len(fresh),
        "unchanged": len(fingerprints_of(before, plain)),
        "absent": 1,
        "shown": 2,
    }


def test_findings_of_one_line_are_alerts_of_their_own(runs: Runs) -> None:
    """Code scanning goes by one name of a fingerprint, or else by the text of the line."""
    analysis = full_analysis(runs)
    lines = {"words": DefenseLine(path="guard bench.yaml", line=7)}
    said = sarif_json(located(analysis.worst.listed), replace(analysed(analysis), lines=lines))
    (run,) = json.loads(said)["runs"]
    mine = [each for each in run["results"] if each["properties"]["defense"] == "words"]
    places = [each["locations"][0]["physicalLocation"] for each in mine]
    assert {(each["artifactLocation"]["uri"], each["region"]["startLine"]) for each in places} == {
        ("guard%20bench.yaml", 7)
    }
    assert len({each["partialFingerprints"]["primaryLocationLineHash"] for each in mine}) == len(
        mine
    )
