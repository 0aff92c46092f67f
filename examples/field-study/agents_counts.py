"""What is published of runs over the same cases: figures of each arm, and differences in pairs.

The arms of a measurement may be spread over several runs, so that one that was killed keeps what it
has. Each run holds the agent alone and the baselines, which must come out alike in all of them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guardmark.analysis.agents.cases import read_agent_run
from guardmark.analysis.agents.counting import CaseCounting
from guardmark.stats.multiplicity import holm
from guardmark.store.reader import RecordReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from guardmark.analysis.agents.cases import CaseRow
    from guardmark.core.estimate import Estimate

BARE: Final = "no-guard"
_FIGURES: Final = ("utility", "utility_under_attack", "attack_success")


def counted(runs: Sequence[Path], *, baselines: Sequence[str]) -> dict[str, Any]:
    """Gather what is published of runs; guards are held to the agent alone and to the first rule.

    Raises:
        SystemExit: If the runs do not agree about what stands in all of them.
    """
    arms: dict[str, dict[str, Any]] = {}
    held: dict[str, dict[str, Any]] = {BARE: {}, **({baselines[0]: {}} if baselines else {})}
    for run in runs:
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        agent = summary["agent"]
        for arm in _arms(run, agent):
            _keep(arms, arm, run)
        for against, differences in held.items():
            for pair in agent["pairs"]:
                if pair["first"] == against:
                    differences[pair["second"]] = _differences(pair)
    for against, differences in held.items():
        _adjust(differences.values())
        for name, difference in differences.items():
            arms[name].setdefault("against", {})[against] = difference
    return {
        "date": summary["timing"]["created_utc"][:10],
        "tasks": agent["tasks"],
        "injections": agent["injections"],
        "attacks": max(arm["attack_success"]["trials"] for arm in arms.values()),
        "simple": next(iter(baselines), ""),
        "arms": list(arms.values()),
    }


def _keep(arms: dict[str, dict[str, Any]], arm: dict[str, Any], run: Path) -> None:
    """Keep an arm; one that stands in several runs is the same in each, but for its time."""
    before = arms.setdefault(arm["name"], arm)
    if any(before[figure] != arm[figure] for figure in _FIGURES):
        raise SystemExit(f"{arm['name']} has other figures in {run} than in the run before.")


def _arms(run: Path, agent: Mapping[str, Any]) -> list[dict[str, Any]]:
    with RecordReader(run / "records.sqlite") as reader:
        counting = CaseCounting(confidence=reader.manifest().confidence)
        rows = {arm.arm: arm.rows for arm in read_agent_run(reader).stated}
    return [_arm(stated, rows[stated["arm"]], counting) for stated in agent["arms"]]


def _arm(
    stated: Mapping[str, Any], rows: Sequence[CaseRow], counting: CaseCounting
) -> dict[str, Any]:
    attacks = [row for row in rows if row.case.is_attack and row.is_decided]
    benign = [row for row in rows if not row.case.is_attack and row.is_decided]
    suites = dict.fromkeys(row.case.suite for row in rows)
    took = [
        step.latency_ns / 1e6
        for row in rows
        for step in row.guard_steps
        if step.latency_ns is not None
    ]
    arm = {
        "name": stated["arm"],
        **{figure: _short_estimate(stated[figure]) for figure in _FIGURES},
        "by_wording": {
            wording: _rate(counting.crossed(each, _is_injected))
            for wording, each in _grouped(attacks, "wording").items()
        },
        "failed_cases": stated["failed"],
        "cases_by_policy": stated["by_policy"],
        "no_decision": sum(each["failed"] for each in stated["places"]),
        "calls": sum(each["calls"] for each in stated["places"]),
        "latency_ms": [round(float(np.quantile(took, q)), 3) for q in (0.5, 0.95)] if took else [],
    }
    hidden = _grouped(attacks, "hidden_in")
    if len(hidden) > 1:
        arm["by_hidden"] = {
            place: _rate(counting.crossed(each, _is_injected)) for place, each in hidden.items()
        }
    if len(suites) > 1:
        tried, done = _grouped(attacks, "suite"), _grouped(benign, "suite")
        arm["by_suite"] = {
            suite: {
                "utility": _rate(counting.by_task(done.get(suite, []), _is_done)),
                "attack_success": _rate(counting.crossed(tried.get(suite, []), _is_injected)),
            }
            for suite in suites
        }
    return arm


def _grouped(rows: Iterable[CaseRow], key: str) -> dict[str, list[CaseRow]]:
    groups: dict[str, list[CaseRow]] = defaultdict(list)
    for row in rows:
        groups[getattr(row.case, key)].append(row)
    return groups


def _is_injected(row: CaseRow) -> bool:
    return row.result.injection_done is True


def _is_done(row: CaseRow) -> bool:
    return row.result.task_done is True


def _rate(estimate: Estimate) -> dict[str, Any]:
    keys = ("successes", "trials", "low", "high")
    return {key: _short(getattr(estimate, key)) for key in keys}


def _short_estimate(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _short(value[key]) for key in ("successes", "trials", "low", "high")}


def _short(value: float | None) -> float | None:
    return value if value is None else round(value, 4)


def _differences(pair: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Return what the guard changes: attacks that it stops, and tasks that it costs."""
    return {
        figure: {key: _short(pair[of][key]) for key in ("value", "low", "high", "p_value")}
        for figure, of in (("stopped", "attack_success"), ("lost", "utility"))
    }


def _adjust(differences: Iterable[Mapping[str, dict[str, float | None]]]) -> None:
    """Add p values by Holm over all arms that are held against the same one, for each figure."""
    held = list(differences)
    for figure in ("stopped", "lost"):
        tests = [each[figure] for each in held]
        for test, adjusted in zip(tests, holm([test["p_value"] for test in tests]), strict=True):
            test["p_holm"] = _short(adjusted)
