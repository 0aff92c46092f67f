"""The checker of reference cases: every case passes, and it would notice if one did not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("check_reference.py")


def check(path: Path) -> tuple[int, list[str]]:
    """Run the script as a user would; return its exit code and its lines."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


def case(**changes: Any) -> dict[str, Any]:
    """One good case, with changes."""
    good = {
        "name": "half",
        "method": "proportion.wilson",
        "inputs": {"successes": 0, "trials": 4},
        "expected": {"lower": 0},
        "tolerance": 1e-9,
    }
    return good | changes


def test_every_reference_case_passes(shared_dir: Path) -> None:
    """Values computed elsewhere, by two implementations."""
    path = shared_dir / "reference" / "statistics.json"
    cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
    code, lines = check(path)
    assert (code, lines) == (0, [f"{len(cases)} passed, 0 failed"])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"method": "proportion.wild"}, "unknown method 'proportion.wild'"),
        ({"expected": {"lower": 0.1}}, "lower: expected 0.1, got 0.0"),
        ({"expected": {"lower": None}}, "lower: expected None, got 0.0"),
        ({"expected": {"middle": 0.1}}, "middle: expected 0.1, the method gives no such figure"),
        ({"expected": {}}, "expects nothing"),
        ({"inputs": {"successes": 5, "trials": 4}}, "raised ValueError: successes must be"),
        ({"inputs": {"trials": 4}}, "raised KeyError"),
        (
            {
                "method": "multiplicity.holm",
                "inputs": {"p": [0.1]},
                "expected": {"adjusted": [0.1, 1]},
            },
            "adjusted: expected 2 values",
        ),
    ],
)
def test_a_failing_case_is_told_and_sets_the_exit_code(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    """One bad case does not hide the good one beside it."""
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"cases": [case(), case(**changes)]}), encoding="utf-8")
    code, lines = check(path)
    assert code == 1
    assert lines[-1] == "1 passed, 1 failed"
    assert any(told in line for line in lines)


def test_other_confidences_nulls_and_missing_options_are_read(tmp_path: Path) -> None:
    """Whatever the file asks that the functions can answer."""
    cases = [
        case(inputs={"successes": 0, "trials": 0}, expected={"lower": None, "upper": None}),
        case(inputs={"successes": 2, "trials": 4, "confidence": None}, expected={"value": 0.5}),
        case(inputs={"successes": 4, "trials": 4, "confidence": 0.8}, expected={"upper": 1}),
        case(tolerance=None),
        case(
            method="multiplicity.holm",
            inputs={"p": [0.1, None]},
            expected={"adjusted": [0.1, None]},
        ),
    ]
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(cases), encoding="utf-8")
    assert check(path) == (0, ["5 passed, 0 failed"])


@pytest.mark.parametrize("content", ["{", "{}", '{"cases": 3}', None])
def test_a_file_that_cannot_be_read_is_no_failed_case(tmp_path: Path, content: str | None) -> None:
    """Exit code 2, with the reason."""
    path = tmp_path / "cases.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    code, lines = check(path)
    assert code == 2
    assert "cannot be read as reference cases" in lines[0]
