"""A run beside a framework: what is evidence, what is only relevant, what the run leaves open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.analysis.frameworks.framework import FIGURES
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.frameworks.framework import Framework, FrameworkItem
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class RateEvidence:
    """A measured rate that is evidence for an item.

    Attributes:
        defense: Of which defense, or arm.
        what: Of what: a category of attacks, or a figure in words.
        key: The category, or the key of the figure in `FIGURES`.
        rate: The rate.
    """

    defense: str
    what: str
    key: str
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What a run measured and keeps, by the names that frameworks are mapped to.

    Attributes:
        rates: Category or figure to its rates, one a defense.
        kept: Figures that are no rates and that the run keeps.
    """

    rates: dict[str, list[RateEvidence]]
    kept: frozenset[str]


def measured_run(analysis: RunAnalysis, *, only: str = "") -> MeasuredRun:
    """Return what a run measured, of every defense that is no baseline or of one by name."""
    rates: dict[str, list[RateEvidence]] = {}
    for evidence in _all_rates(analysis):
        if not only or evidence.defense == only:
            rates.setdefault(evidence.key, []).append(evidence)
    kept = {"data", "policy", "blind_spots"}
    if analysis.settings.limits.is_of_gate or analysis.settings.system_limits.is_of_gate:
        kept.add("gate")
    return MeasuredRun(rates=rates, kept=frozenset(kept))


def set_beside(measured: MeasuredRun, framework: Framework) -> tuple[CrosswalkRow, ...]:
    """Set a run beside a framework, item by item."""
    return tuple(_row(measured, item) for item in framework.items)


def _row(measured: MeasuredRun, item: FrameworkItem) -> CrosswalkRow:
    evidence: list[RateEvidence] = []
    recorded: list[str] = []
    left_open: list[str] = []
    for category in item.categories:
        rates = measured.rates.get(category, [])
        evidence += rates
        if not rates:
            left_open.append(f"attacks of category {category}")
    for figure in item.figures:
        if figure in measured.kept:
            recorded.append(FIGURES[figure])
        elif item.categories and figure == "attack_success_rate":
            continue  # the rates of its categories speak of it, not that of all attacks
        elif figure in measured.rates:
            evidence += measured.rates[figure]
        else:
            left_open.append(FIGURES[figure])
    known = [name for name in item.relevant if name in measured.rates or name in measured.kept]
    relevant = [FIGURES.get(name, f"attacks of category {name}") for name in known]
    if not item.categories and not item.figures:
        left_open.append("nothing that guardmark measures is evidence for this")
    return CrosswalkRow(
        item=item,
        evidence=tuple(evidence),
        recorded=tuple(recorded),
        relevant=tuple(relevant),
        left_open=tuple(left_open),
    )


def _all_rates(analysis: RunAnalysis) -> Iterator[RateEvidence]:
    """Yield the rates of a run, of defenses and arms that are no baselines."""
    for subject in analysis.system or analysis.candidates:
        if not subject.is_baseline:
            yield from _rates_of(subject)
    for card in analysis.adaptive:
        yield _of_figure(card.name, "adaptive", card.rounds[-1].full)
    if analysis.agent is None:
        return
    for arm in analysis.agent.arms:
        if arm.guards:
            name = f"{arm.row.arm} ({arm.row.agent})"
            yield _of_figure(name, "agent_attack_success", arm.row.attack_success)
            yield _of_figure(name, "agent_utility", arm.row.utility)


def _rates_of(subject: DefenseAnalysis) -> Iterator[RateEvidence]:
    card = subject.card
    for name, rate in (
        ("attack_success_rate", card.attack_success_rate),
        ("false_positive_rate", card.false_positive_rate),
        ("answered", card.answered),
    ):
        if rate.trials:
            yield _of_figure(subject.name, name, rate)
    for facet in ("category", "subcategory"):
        for entry in subject.slice_table(facet, is_attack=True).rates:
            yield RateEvidence(
                defense=subject.name, what=entry.name, key=entry.name, rate=entry.rate
            )


def _of_figure(defense: str, key: str, rate: Estimate) -> RateEvidence:
    return RateEvidence(defense=defense, what=FIGURES[key], key=key, rate=rate)
