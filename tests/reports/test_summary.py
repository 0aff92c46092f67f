"""`summary.json` keeps to its published schema, and says nothing it does not know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.analysis.small_runs import Runs, allow, attack, benign, block, failed
from tests.reports.small_reports import bare_analysis, full_analysis
from tests.schemas import check_document

from guardmark.analysis.run import RunAnalysis
from guardmark.core.manifest import Policy
from guardmark.reports.render.json.documents import summary_json


def valid(analysis: RunAnalysis) -> dict[str, Any]:
    """The summary, checked against its schema."""
    document: dict[str, Any] = json.loads(summary_json(analysis), parse_constant=pytest.fail)
    check_document(document)
    return document


def leaves(value: Any) -> Iterator[Any]:
    """Every value in a document."""
    if isinstance(value, dict):
        for each in value.values():
            yield from leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def test_a_full_run_keeps_to_the_schema(runs: Runs) -> None:
    """Comparison, thresholds, costs, policy rows and all."""
    found = valid(full_analysis(runs, on_error=Policy.BLOCK))
    assert [each["name"] for each in found["defenses"]] == ["nothing", "words", "ngram"]
    assert found["defenses"][1]["rates"]["under_policy"] is not None
    assert found["defenses"][2]["thresholds"]["chosen"]
    assert found["comparison"]["pairs"][0]["verdict"] == "trade-off"
    assert found["defenses"][1]["stability"] is None
    repeated = valid(full_analysis(runs, repeats=2))["defenses"][1]["stability"]
    assert repeated["attacks"]["flip_rate"] == 0.0
    assert found["verdicts"]["words"].startswith("lets ")


def test_bare_runs_keep_to_the_schema(runs: Runs) -> None:
    """Benign alone, attacks alone, nothing answered, one group."""
    for answers, samples in (
        (lambda _p, _s: allow(), [benign(0)]),
        (lambda _p, _s: block(), [attack(n) for n in range(5)]),
        (lambda _p, _s: failed(), [attack(0), benign(0)]),
        (lambda p, _s: block(0.5) if p else allow(0.5), [attack(n, group="g") for n in range(4)]),
    ):
        found = valid(bare_analysis(runs, answers, samples=samples))
        assert found["comparison"] is None


def test_undefined_is_null(runs: Runs) -> None:
    """Not zero, not NaN, not a word."""
    rates = valid(bare_analysis(runs, lambda _p, _s: allow()))["defenses"][0]["rates"]
    assert rates["attack_success_rate"]["value"] is None
    assert rates["attack_success_rate"]["trials"] == 0
    assert rates["false_positive_rate"]["value"] == 0.0


def test_figures_are_given_in_full(runs: Runs) -> None:
    """Rounding belongs to the view."""
    analysis = full_analysis(runs)
    found = valid(analysis)["defenses"][1]["rates"]["attack_success_rate"]
    expected = analysis.defenses[1].card.attack_success_rate
    assert (found["value"], found["low"], found["high"]) == (
        expected.value,
        expected.low,
        expected.high,
    )


def test_equal_runs_give_equal_bytes(runs: Runs) -> None:
    """Two runs of the same records."""
    assert summary_json(full_analysis(runs)) == summary_json(full_analysis(runs))


def test_times_stand_under_timing_alone(runs: Runs) -> None:
    """A second run of the same configuration differs there and nowhere else."""
    one = valid(full_analysis(runs))
    two = valid(full_analysis(runs, created_utc="2027-01-01T00:00:00Z"))
    assert one != two
    del one["timing"], two["timing"]
    assert one == two
    assert not any("_ms" in str(each) or "2026-" in str(each) for each in leaves(one))


def test_recommendations_carry_words_and_figures(runs: Runs) -> None:
    """A machine can check what a person reads."""
    for each in valid(full_analysis(runs))["recommendations"]:
        assert each["text"]
        assert each["figures"] or each["numbers"]
