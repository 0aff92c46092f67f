"""Check a file of reference cases against the public functions of guardmark.stats.

Usage: python tests/oracles/check_reference.py FILE

The file holds `cases`, each with `name`, `method`, `inputs`, `expected` and `tolerance`. A method
name is looked up in the tables beside this script (`reference_a`, `reference_b`), each of which
maps names to functions from inputs to a dict of figures. Nothing expected is written here.

A case passes when every expected figure is met: abs(expected - got) <= tolerance * max(1,
abs(expected)); an expected null is met by a missing value only. The last line says how many
passed and failed; the exit code is 1 when any failed, 2 when the file cannot be read.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Method = Callable[[dict[str, Any]], Mapping[str, Any]]

TABLES = ("reference_a", "reference_b")
DEFAULT_TOLERANCE = 1e-8


def load_methods() -> dict[str, Method]:
    """Return method names and their functions from the tables beside this script."""
    folder = Path(__file__).resolve().parent
    for place in (folder, folder.parents[1]):
        if str(place) not in sys.path:
            sys.path.insert(0, str(place))
    methods: dict[str, Method] = {}
    for name in TABLES:
        if not (folder / f"{name}.py").is_file():
            continue
        table = importlib.import_module(name).METHODS
        twice = sorted(methods.keys() & table.keys())
        if twice:
            raise SystemExit(f"methods in two tables: {', '.join(twice)}")
        methods.update(table)
    return methods


def read_cases(path: Path) -> list[dict[str, Any]]:
    """Return the cases of a reference file, whether bare or under the key `cases`."""
    document = json.loads(path.read_text(encoding="utf-8"))
    cases = document["cases"] if isinstance(document, dict) else document
    if not isinstance(cases, list):
        raise TypeError("cases must be a list")
    return cases


def check_case(case: Mapping[str, Any], methods: Mapping[str, Method]) -> list[str]:
    """Return what is wrong with one case; nothing when it passes."""
    method = methods.get(case.get("method", ""))
    if method is None:
        return [f"unknown method {case.get('method')!r}"]
    expected, tolerance = case.get("expected"), case.get("tolerance")
    if not isinstance(expected, dict) or not expected:
        return ["the case expects nothing: `expected` must name figures"]
    try:
        got = method(dict(case.get("inputs") or {}))
    except Exception as error:  # noqa: BLE001 - one broken case must not hide the rest
        return [f"raised {type(error).__name__}: {error}"]
    limit = DEFAULT_TOLERANCE if tolerance is None else float(tolerance)
    faults: list[str] = []
    for key, value in expected.items():
        if key not in got:
            faults.append(f"{key}: expected {value}, the method gives no such figure")
            continue
        faults.extend(compare(key, value, got[key], limit))
    return faults


def compare(place: str, expected: Any, got: Any, tolerance: float) -> Iterator[str]:
    """Yield where a figure, or a list of them, misses what is expected."""
    if isinstance(expected, list):
        found = list(got) if isinstance(got, (list, tuple)) else None
        if found is None or len(found) != len(expected):
            yield f"{place}: expected {len(expected)} values, got {got}"
            return
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from compare(f"{place}[{index}]", one, other, tolerance)
    elif not _agree(expected, got, tolerance):
        yield f"{place}: expected {expected}, got {got}"


def _agree(expected: Any, got: Any, tolerance: float) -> bool:
    if expected is None or got is None:
        return expected is None and got is None
    if isinstance(expected, (bool, str)) or isinstance(got, str):
        return bool(expected == got)
    number = float(got)
    if not math.isfinite(number):
        return False
    return abs(expected - number) <= tolerance * max(1.0, abs(expected))


def main(arguments: list[str] | None = None) -> int:
    """Check one file, print the failing cases and the count, and return the exit code."""
    parser = argparse.ArgumentParser(description="Check reference cases of the statistics.")
    parser.add_argument("file", type=Path)
    path: Path = parser.parse_args(arguments).file
    try:
        cases = read_cases(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"{path}: cannot be read as reference cases: {error}\n")
        return 2
    methods, failed = load_methods(), 0
    for case in cases:
        faults = check_case(case, methods)
        if faults:
            failed += 1
            sys.stdout.write(f"FAILED {case.get('name', '?')} ({case.get('method', '?')})\n")
            sys.stdout.writelines(f"    {fault}\n" for fault in faults)
    sys.stdout.write(f"{len(cases) - failed} passed, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
