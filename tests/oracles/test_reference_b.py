"""The reference values of scores, judges, latency and attackers."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent


def _methods() -> Mapping[str, Any]:
    spec = importlib.util.spec_from_file_location("reference_b", FOLDER / "reference_b.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    table: Mapping[str, Any] = module.METHODS
    return table


METHODS = _methods()


def _misses(expected: object, got: object, tolerance: float) -> bool:
    if isinstance(expected, list) and isinstance(got, list):
        pairs = zip(expected, got, strict=True)
        return any(_misses(one, other, tolerance) for one, other in pairs)
    if not isinstance(expected, (int, float)) or not isinstance(got, (int, float)):
        return expected is not got
    return not abs(expected - got) <= tolerance * max(1, abs(expected))


def test_every_reference_case_is_met(shared_dir: Path) -> None:
    """Within the tolerance each case states; a null is met by a missing figure alone."""
    document = json.loads((shared_dir / "reference" / "statistics.json").read_text("utf-8"))
    cases = [case for case in document["cases"] if case["method"] in METHODS]
    assert {case["method"] for case in cases} == set(METHODS)
    for case in cases:
        got = METHODS[case["method"]](case["inputs"])
        for key, expected in case["expected"].items():
            assert not _misses(expected, got[key], case["tolerance"]), (case["name"], key, got[key])


@pytest.mark.parametrize(
    ("method", "inputs", "expected"),
    [
        ("roc.summary", {"y": [1, 1], "score": [0.1, 0.9]}, {"auc": None, "average_precision": None}),
        ("roc.summary", {"y": [1, 0], "score": [0.1, float("nan")]}, {"auc": None, "brier": None}),
        ("roc.summary", {"y": [1, 0], "score": [2.0, -1.0]}, {"auc": 1.0, "brier": None}),
        ("roc.tpr_at_fpr", {"y": [1, 0], "score": [0.1, 0.9], "max_fpr": 0}, {"tpr": 0.0, "threshold": None}),
        ("roc.delong_paired", {"y": [1, 1, 0, 0], "score_a": [1, 2, 1, 2], "score_b": [1, 2, 1, 2]}, {"z": 0.0, "p": 1.0}),
        ("calibration.ece_equal_width", {"y": [], "score": []}, {"ece": None}),
        ("judge.rogan_gladen", {"judged_positive": 1, "n": 9, "se_successes": 0, "se_n": 0, "sp_successes": 1, "sp_n": 2}, {"estimate": None, "raw_estimate": None}),
        ("agreement.cohen_kappa", {"both_yes": 4, "yes_no": 0, "no_yes": 0, "both_no": 0}, {"kappa": None, "se": None, "pabak": 1.0}),
        ("agreement.krippendorff_nominal", {"ratings": [[1, 1], [1, 1]]}, {"alpha": None}),
        ("sequential.beta_mixture_cs", {"successes": 0, "trials": 0, "alpha": None}, {"lower": None, "upper": None}),
        ("sequential.mcnemar_evalue", {"first_only": 0, "second_only": 0, "prior_a": None}, {"e_value": 1.0}),
        ("latency.quantile_ci_ranks", {"n": 0, "quantile": 0.5, "confidence": None}, {"lower_rank": None, "upper_rank": None}),
        ("latency.harrell_davis", {"values": [], "quantiles": [0.5]}, {"estimates": [None]}),
        ("adaptive.asr_at_k", {"n": 3, "successes": 1, "k": 4}, {"value": None}),
        ("adaptive.kaplan_meier", {"queries": [3, 3], "bypassed": [0, 0]}, {"survival": [1.0], "lower": [None], "upper": [None]}),
        ("repeats.variance_decomposition", {"successes": [1, 0], "repeats": 1}, {"within_var": None, "between_var": None, "mean": 0.5}),
        ("prevalence.ppv_npv", {"tp": 1, "attacks": 2, "fp": 0, "benign": 5, "prevalence": 0}, {"ppv": None, "npv_upper": None}),
    ],
)  # fmt: skip
def test_degenerate_cases_are_missing_and_never_raise(
    method: str, inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    """A reference file says null where a figure cannot be given; so do we."""
    got = METHODS[method](inputs)
    assert {key: got[key] for key in expected} == expected
