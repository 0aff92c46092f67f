"""The law of every interval in every JSON that reports write: it holds its own figure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.golden.folders import read_frozen
from tests.golden.runs import RUNS, GoldenRun

LEAST = 20
"""Intervals that even the smallest of the five runs holds."""


def intervals(document: Any, path: str = "") -> Iterator[tuple[str, float, float, float]]:
    """Every value with both limits in a document, with its place."""
    if isinstance(document, dict):
        told = [document.get(key) for key in ("low", "value", "high")]
        if all(isinstance(each, int | float) for each in told):
            yield path, *map(float, told)  # type: ignore[arg-type]
        for key, each in document.items():
            yield from intervals(each, f"{path}.{key}")
    elif isinstance(document, list):
        for at, each in enumerate(document):
            yield from intervals(each, f"{path}[{at}]")


COUNTS = frozenset({"trials", "pairs", "samples", "groups", "seeds", "n"})


def bare(document: Any, path: str = "") -> Iterator[str]:
    """Every figure with places for limits that tells no count, or no limits and no reason why."""
    if isinstance(document, dict):
        if {"low", "value", "high"} <= document.keys():
            has_limits = (document["low"], document["high"]) != (None, None)
            if not COUNTS & document.keys():
                yield f"{path}: no count"
            if not has_limits and not document.get("reason"):
                yield f"{path}: no limits and no reason"
        for key, each in document.items():
            yield from bare(each, f"{path}.{key}")
    elif isinstance(document, list):
        for at, each in enumerate(document):
            yield from bare(each, f"{path}[{at}]")


def test_a_bare_figure_is_noticed() -> None:
    """The law sees what it is about."""
    assert [*bare({"a": [{"low": 0.1, "value": 0.2, "high": 0.3}]})] == [".a[0]: no count"]
    silent = {"low": None, "value": 0.2, "high": None, "trials": 3}
    assert [*bare(silent)] == [": no limits and no reason"]
    assert [*bare({**silent, "reason": "one group"})] == []


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_every_figure_tells_its_count_and_why_it_has_no_limits(run: GoldenRun) -> None:
    """In every file of a run."""
    wrong = [
        f"{name}{place}"
        for name, content in read_frozen(run).items()
        if name.endswith(".json")
        for place in bare(json.loads(content))
    ]
    assert wrong == []


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_every_interval_that_is_written_holds_its_figure(run: GoldenRun) -> None:
    """Low, value and high in this order, in every file of a run."""
    seen, wrong = 0, []
    for name, content in read_frozen(run).items():
        if name.endswith(".json"):
            for place, low, value, high in intervals(json.loads(content)):
                seen += 1
                if not low <= value <= high:
                    wrong.append(f"{name}{place}: {low}, {value}, {high}")
    assert seen > LEAST
    assert wrong == []
