"""A run beside a framework: what is evidence, what is only relevant, what the run leaves open."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import UnknownName

if TYPE_CHECKING:
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.estimate import Estimate

_FOLDER: Final = Path(__file__).with_name("frameworks")

FIGURES: Final = {
    "attack_success_rate": "attack success rate",
    "false_positive_rate": "false positive rate",
    "answered": "share of inputs that got a decision",
    "adaptive": "attack success of an adaptive attacker",
    "agent_attack_success": "attack success in an agent",
    "agent_utility": "tasks of an agent that get done",
    "blind_spots": "slices that are worse than the rest",
    "gate": "limits that were set beforehand, and how they stand",
    "data": "data sets with versions, hashes and counts",
    "policy": "what happens to malformed answers and errors",
}
"""What can be evidence, or relevant, and what each is."""

CATEGORIES: Final = (
    *("direct_injection", "indirect_injection", "jailbreak", "extraction", "output_manipulation"),
)
"""Categories of the built-in taxonomy that frameworks are mapped to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkItem:
    """One item of a framework.

    Attributes:
        code: As the framework numbers it.
        title: What it is about.
        categories: Categories of attacks whose rates are evidence for it.
        figures: Figures that are evidence for it: keys of `FIGURES`.
        relevant: Figures or categories that bear on it and prove nothing about it.
    """

    code: str
    title: str
    categories: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    relevant: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A list of items that buyers ask about, as its source publishes it.

    Attributes:
        key: What it is called on the command line.
        name: Its name.
        version: Its version.
        date: When that was published, as YYYY-MM-DD.
        source: Where.
        items: Its items, in its order.
    """

    key: str
    name: str
    version: str
    date: str
    source: str
    items: tuple[FrameworkItem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateEvidence:
    """A measured rate that is evidence for an item.

    Attributes:
        defense: Of which defense, or arm.
        what: Of what: a category of attacks, or a figure.
        rate: The rate.
    """

    defense: str
    what: str
    rate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class CrosswalkRow:
    """An item beside a run.

    Attributes:
        item: The item.
        evidence: What the run measured that is evidence for it.
        recorded: What the run keeps that is evidence and no rate, in words.
        relevant: What the run measured that only bears on it, in words.
        left_open: What would be evidence for it and was not measured, in words.
    """

    item: FrameworkItem
    evidence: tuple[RateEvidence, ...]
    recorded: tuple[str, ...]
    relevant: tuple[str, ...]
    left_open: tuple[str, ...]


@cache
def framework_names() -> tuple[str, ...]:
    """Name the frameworks that are known."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@cache
def read_framework(key: str) -> Framework:
    """Read a framework.

    Raises:
        UnknownName: There is none of that name.
    """
    if key not in framework_names():
        raise UnknownName("framework", key, framework_names())
    told = tomllib.loads((_FOLDER / f"{key}.toml").read_text(encoding="utf-8"))
    items = tuple(
        FrameworkItem(
            code=each["code"],
            title=each["title"],
            categories=tuple(each.get("categories", ())),
            figures=tuple(each.get("figures", ())),
            relevant=tuple(each.get("relevant", ())),
        )
        for each in told["items"]
    )
    return Framework(
        key=key,
        name=told["name"],
        version=told["version"],
        date=told["date"],
        source=told["source"],
        items=items,
    )


def set_beside(analysis: RunAnalysis, framework: Framework) -> tuple[CrosswalkRow, ...]:
    """Set a run beside a framework, item by item."""
    measured = _measured(analysis)
    kept = _kept(analysis)
    rows = []
    for item in framework.items:
        evidence: list[RateEvidence] = []
        missing: list[str] = []
        for category in item.categories:
            found = measured.get(category, [])
            evidence += found
            missing += [] if found else [f"attacks of category {category}"]
        recorded = []
        for figure in item.figures:
            if figure in kept:
                recorded.append(FIGURES[figure])
            elif item.categories and figure == "attack_success_rate":
                continue  # the rates of its categories speak of it, not that of all attacks
            elif measured.get(figure):
                evidence += measured[figure]
            else:
                missing.append(FIGURES[figure])
        relevant = [
            FIGURES.get(each, f"attacks of category {each}")
            for each in item.relevant
            if measured.get(each) or each in kept
        ]
        if not item.categories and not item.figures:
            missing.append("nothing that guardmark measures is evidence for this")
        rows.append(
            CrosswalkRow(
                item=item,
                evidence=tuple(evidence),
                recorded=tuple(recorded),
                relevant=tuple(relevant),
                left_open=tuple(missing),
            )
        )
    return tuple(rows)


def _measured(analysis: RunAnalysis) -> dict[str, list[RateEvidence]]:
    """Return the rates of a run by category and by figure, of defenses that are no baselines."""
    found: dict[str, list[RateEvidence]] = {}
    subjects = analysis.system or analysis.candidates
    for subject in subjects:
        if subject.is_baseline:
            continue
        rates = {
            "attack_success_rate": subject.card.attack_success_rate,
            "false_positive_rate": subject.card.false_positive_rate,
            "answered": subject.card.answered,
        }
        for name, rate in rates.items():
            if rate.trials:
                told = RateEvidence(defense=subject.name, what=FIGURES[name], rate=rate)
                found.setdefault(name, []).append(told)
        for entry in subject.slice_table("category", is_attack=True).rates:
            told = RateEvidence(defense=subject.name, what=entry.name, rate=entry.rate)
            found.setdefault(entry.name, []).append(told)
    for card in analysis.adaptive:
        told = RateEvidence(defense=card.name, what=FIGURES["adaptive"], rate=card.rounds[-1].full)
        found.setdefault("adaptive", []).append(told)
    for arm in analysis.agent.arms if analysis.agent is not None else ():
        if not arm.guards:
            continue
        name = f"{arm.row.arm} ({arm.row.agent})"
        for key, rate in (
            ("agent_attack_success", arm.row.attack_success),
            ("agent_utility", arm.row.utility),
        ):
            told = RateEvidence(defense=name, what=FIGURES[key], rate=rate)
            found.setdefault(key, []).append(told)
    return found


def _kept(analysis: RunAnalysis) -> frozenset[str]:
    """Name what a run keeps that is no rate."""
    kept = {"data", "policy", "blind_spots"}
    if analysis.settings.limits.is_of_gate or analysis.settings.system_limits.is_of_gate:
        kept.add("gate")
    return frozenset(kept)
