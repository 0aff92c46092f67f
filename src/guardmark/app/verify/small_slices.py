"""Small slices of a run, drawn and counted a second time."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.difference import Finding
from guardmark.app.verify.formulas.rates import Trial, rate, student
from guardmark.app.verify.judged.cards import NO_GUARD, USUAL
from guardmark.app.verify.judged.pipeline import count_arms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from guardmark.app.verify.difference import Comparer
    from guardmark.app.verify.source import Source, Subject

Json = dict[str, Any]

_DEFENSE: Final = ("attack_success_rate", "false_positive_rate")
_SYSTEM: Final = ("attack_success_rate", "over_refusal_rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One answer that counts."""

    subject: Subject
    is_wrong: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    """An arm at a scope, and what counts there."""

    arm: str
    scope: str
    names: tuple[str, str]
    rows: list[_Row]


def check_slices(path: Path, source: Source, comparer: Comparer) -> None:
    """Draw the slices that a file tells of again and compare every figure."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        sizes = {True: int(said["attacks"]), False: int(said["benign"])}
        seeds = [int(seed) for seed in said["seeds"]]
    except (ValueError, TypeError, KeyError):
        comparer.findings.append(
            Finding(file=path.name, place="", said="no request of slices", found="figures")
        )
        return
    subjects = list(source.subjects())
    variants = list(dict.fromkeys(map(_variant, subjects)))
    drawn = [_drawn(subjects, sizes, seed) for seed in seeds]
    found = {
        "run": source.manifest["name"],
        "confidence": source.manifest["confidence"],
        "variants": [_held(subjects, variant, sizes) for variant in variants],
        "cards": [
            {
                "arm": card.arm,
                "scope": card.scope,
                "variant": variant,
                "figures": _figures(source, card, variant, drawn),
            }
            for card in _cards(source, subjects)
            for variant in (None, *variants)
        ],
    }
    comparer.tree(path.name, "", said=said, found=found)


def _variant(subject: Subject) -> str:
    return subject.facets["variant"] or "original"


def _drawn(subjects: list[Subject], sizes: dict[bool, int], seed: int) -> set[int]:
    """Positions of the samples of one slice."""
    kinds: dict[tuple[str, bool], list[Subject]] = {}
    for subject in subjects:
        kinds.setdefault((_variant(subject), subject.is_attack), []).append(subject)
    chosen = set[int]()
    for (_, is_attack), members in kinds.items():
        ordered = sorted(members, key=lambda s: sha256(f"{seed} {s.id}".encode()).hexdigest())
        chosen.update(subject.position for subject in ordered[: sizes[is_attack]])
    return chosen


def _held(subjects: list[Subject], variant: str, sizes: dict[bool, int]) -> Json:
    labels = [s.is_attack for s in subjects if _variant(s) == variant]
    attacks, benign = labels.count(True), labels.count(False)
    return {
        "variant": variant,
        "attacks": attacks,
        "benign": benign,
        "drawn_attacks": min(attacks, sizes[True]),
        "drawn_benign": min(benign, sizes[False]),
    }


def _cards(source: Source, subjects: list[Subject]) -> Iterator[_Card]:
    arms, by_position = count_arms(source), {each.position: each for each in subjects}
    for name in dict.fromkeys([*arms, *source.guards()]):
        if name != NO_GUARD:
            decided = [
                (by_position[position], outcome)
                for (_, position), outcome in source.decided(name).items()
                if outcome in {"allow", "block"}
            ]
            rows = [
                _Row(subject=subject, is_wrong=(outcome == "allow") == subject.is_attack)
                for subject, outcome in decided
            ]
            yield _Card(arm=name, scope="defense", names=_DEFENSE, rows=rows)
        if name not in arms:
            continue
        for scope, counts in (("system", USUAL.is_known), ("model", USUAL.came_out)):
            rows = [
                _Row(
                    subject=case.subject,
                    is_wrong=USUAL.is_unsafe(case)
                    if case.subject.is_attack
                    else USUAL.is_refused(case),
                )
                for case in arms[name].cases
                if counts(case)
            ]
            yield _Card(arm=name, scope=scope, names=_SYSTEM, rows=rows)


def _figures(source: Source, card: _Card, variant: str | None, drawn: list[set[int]]) -> list[Json]:
    confidence = float(source.manifest["confidence"])
    rows = [row for row in card.rows if variant in {None, _variant(row.subject)}]
    sides = [[r for r in rows if r.subject.is_attack == label] for label in (True, False)]
    whole, values, trials = [], [], []
    for side in sides:
        whole.append(rate((Trial(group=r.subject.group, hit=r.is_wrong) for r in side), confidence))
        inside = [[r.is_wrong for r in side if r.subject.position in slice_] for slice_ in drawn]
        values.append([sum(each) / len(each) if each else None for each in inside])
        trials.append([len(each) for each in inside])
    both = [None if None in pair else sum(pair) / 2 for pair in zip(*values, strict=True)]
    ends = [estimate["value"] for estimate in whole]
    counted = sum(estimate["trials"] for estimate in whole)
    balanced = {"value": None if None in ends else sum(ends) / 2, "trials": counted}
    names = (*card.names, "balanced_error")
    told = zip(
        names,
        (*whole, balanced),
        (*values, both),
        (*trials, [sum(pair) for pair in zip(*trials, strict=True)]),
        strict=True,
    )
    return [
        {
            "name": name,
            "whole": figure,
            "values": of_seeds,
            "trials": counts,
            **_spread(of_seeds, figure["value"], confidence),
        }
        for name, figure, of_seeds, counts in told
    ]


def _spread(values: list[float | None], whole: float | None, confidence: float) -> Json:
    """Mean, spread and half width of the t interval of what slices gave."""
    known = [value for value in values if value is not None]
    n = len(known)
    mean = math.fsum(known) / n if n else None
    apart = half = None
    if n > 1 and mean is not None:
        apart = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / (n - 1))
        half = student((1 + confidence) / 2, n - 1) * apart / math.sqrt(n)
    off = None if whole is None else max((abs(value - whole) for value in known), default=None)
    return {
        "mean": mean,
        "standard_deviation": apart,
        "half_width": half,
        "low": min(known, default=None),
        "high": max(known, default=None),
        "farthest": off,
    }
