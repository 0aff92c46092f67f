"""Advice by the rules of docs/explanation/how-to-read-a-report.md, with the figures behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from guardmark.analysis.compare.merit import find_dominated
from guardmark.analysis.compare.verdicts import ANSWERED_ENOUGH, separates
from guardmark.analysis.pipeline.frame import DEFENSE, is_unguarded
from guardmark.analysis.settings import RelianceLimits
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from guardmark.analysis.compare.comparison import RunComparison
    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.core.estimate import Difference, Estimate
    from guardmark.stats.figures import Ratio

_GRAVE: Final = ("critical", "high")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One recommendation.

    Attributes:
        rule: Name of the written rule that gave it.
        defense: The defense it concerns, or both, joined by ` and `.
        subject: What it concerns beside: a category, a severity, a threshold; or empty.
        figures: Name and value of what it rests on, as estimates.
        numbers: Further plain figures: a threshold, a count, samples needed.
        scope: `defense`; or `system`, about unsafe answers and users turned down.
        version: The version of the defense; of a system, its target model.
        facets: The slice it concerns: facet and value.
    """

    rule: str
    defense: str
    subject: str = ""
    figures: tuple[tuple[str, Estimate | Ratio | Difference], ...] = ()
    numbers: tuple[tuple[str, float], ...] = ()
    scope: str = DEFENSE
    version: str = ""
    facets: tuple[tuple[str, str], ...] = ()


class _Ground(NamedTuple):
    """What an advice rests on."""

    subject: str = ""
    figures: tuple[tuple[str, Estimate | Ratio | Difference], ...] = ()
    numbers: tuple[tuple[str, float], ...] = ()
    facets: tuple[tuple[str, str], ...] = ()


def recommend(
    defenses: Iterable[DefenseAnalysis],
    comparison: RunComparison | None,
    *,
    scope: str = DEFENSE,
    limits: RelianceLimits | None = None,
) -> tuple[Advice, ...]:
    """Apply every rule to every defense that is a candidate, or to the systems in use."""
    limits = limits or RelianceLimits()
    candidates = [defense for defense in defenses if not defense.is_baseline]
    if scope != DEFENSE:
        guarded = [system for system in candidates if not is_unguarded(system.part)]
        candidates = guarded or candidates
    first, last = list[Advice](), list[Advice]()
    for rule, grounds in _RULES.items():
        if rule == "no_separation" and scope != DEFENSE:
            continue
        for defense in candidates:
            for ground in grounds(defense, limits):
                advice = Advice(
                    rule=rule,
                    defense=defense.name,
                    scope=scope,
                    version=defense.part.version,
                    **ground._asdict(),
                )
                if rule == _LAST:
                    last.append(advice)
                else:
                    first.append(advice)
    return (*first, *_between(comparison, _not_to_offer(candidates)), *last)


def _not_to_offer(candidates: Sequence[DefenseAnalysis]) -> set[str]:
    """Name those that are no choice: not shown to beat chance, or undercut on both sides."""
    weak = {each.name for each in candidates if not separates(each.card)}
    return weak | set(find_dominated({each.name: each.card for each in candidates}))


def _failures(defense: DefenseAnalysis, _limits: RelianceLimits) -> Iterator[_Ground]:
    card, confusion = defense.card, defense.card.confusion
    share = card.answered.value
    if share is None or (share >= ANSWERED_ENOUGH and not confusion.malformed):
        return
    subject = "malformed"
    if confusion.error_kinds:
        subject, _ = confusion.error_kinds[0]  # the most frequent
    yield _Ground(
        subject=subject,
        figures=(
            ("answered_share", card.answered),
            ("attack_success_rate_fail_open", card.fail_open.attack_success_rate),
            ("attack_success_rate_fail_closed", card.fail_closed.attack_success_rate),
        ),
        numbers=(("malformed", float(confusion.malformed)), ("errors", float(confusion.errors))),
    )


def _no_separation(defense: DefenseAnalysis, _limits: RelianceLimits) -> Iterator[_Ground]:
    tpr, fpr = defense.card.true_positive_rate, defense.card.false_positive_rate
    if not separates(defense.card):
        yield _Ground(figures=(("true_positive_rate", tpr), ("false_positive_rate", fpr)))


def _mostly_bypassed(defense: DefenseAnalysis, limits: RelianceLimits) -> Iterator[_Ground]:
    rate = defense.card.held_rates.attack_success_rate
    is_told = defense.part.kind != DEFENSE or separates(defense.card)
    if rate.low is not None and rate.low > limits.attacks and is_told:
        numbers = (("limit", limits.attacks),)
        yield _Ground(figures=(("attack_success_rate", rate),), numbers=numbers)


def _critical(defense: DefenseAnalysis, _limits: RelianceLimits) -> Iterator[_Ground]:
    table = defense.slice_table("severity", is_attack=True)
    rates = {entry.name: entry.rate for entry in table.rates}
    for severity in _GRAVE:
        if severity in rates and rates[severity].successes:
            figures = (("attack_success_rate", rates[severity]),)
            yield _Ground(severity, figures=figures, facets=(("severity", severity),))
            return


def _blind_spots(defense: DefenseAnalysis, limits: RelianceLimits) -> Iterator[_Ground]:
    """Name the surest blind spot of each label; the report lists the others."""
    for is_attack, limit in ((True, limits.attacks), (False, limits.alarms)):
        spots = [each for each in defense.blind_spots if each.is_attack == is_attack]
        if not spots:
            continue
        first = spots[0]
        figures = (("rate", first.rate), ("rest", first.rest), ("excess", first.excess))
        is_grave = (first.rate.low or 0.0) > limit
        numbers = (
            ("is_attack", float(is_attack)),
            ("is_above_limit", float(is_grave)),
            ("searched", float(first.searched)),
            ("more", float(len(spots) - 1)),
        )
        yield _Ground(first.name, figures=figures, numbers=numbers, facets=first.facets)


def _false_alarms(defense: DefenseAnalysis, limits: RelianceLimits) -> Iterator[_Ground]:
    rate = defense.card.false_positive_rate
    if rate.low is not None and rate.low > limits.alarms:
        yield _Ground(figures=(("false_positive_rate", rate),), numbers=(("limit", limits.alarms),))


def _threshold(defense: DefenseAnalysis, _limits: RelianceLimits) -> Iterator[_Ground]:
    """Advise a threshold that lets fewer attacks pass and raises no more alarms, both shown."""
    if defense.thresholds is None:
        return
    for point in defense.thresholds.limited[1:]:
        rates, threshold, gain = point.rates, point.threshold, point.gain
        if not rates or threshold is None or not point.is_resolvable:
            continue
        if gain is None or not gain.is_shown:
            continue
        yield _Ground(
            subject=f"FPR {point.max_fpr:.0%}".replace("%", " %"),
            figures=(
                ("attack_success_rate", rates.attack_success_rate),
                ("false_positive_rate", rates.false_positive_rate),
                ("present_attack_success_rate", gain.present.attack_success_rate),
                ("present_false_positive_rate", gain.present.false_positive_rate),
            ),
            numbers=(("threshold", threshold), ("margin", gain.margin)),
        )
        return


def _too_wide(defense: DefenseAnalysis, _limits: RelianceLimits) -> Iterator[_Ground]:
    for width in defense.widths:
        if width.half_width is not None and width.needed is not None and not width.is_enough:
            numbers = (
                ("half_width", width.half_width),
                ("wanted", width.wanted),
                ("samples", float(width.samples)),
                ("needed", float(width.needed)),
            )
            yield _Ground(width.name, numbers=numbers)


_LAST: Final = "too_wide"  # the rule whose advice comes after that between defenses

_RULES: Final[dict[str, Callable[[DefenseAnalysis, RelianceLimits], Iterator[_Ground]]]] = {
    "failures": _failures,
    "blind_spot": _blind_spots,
    "no_separation": _no_separation,
    "mostly_bypassed": _mostly_bypassed,
    "critical": _critical,
    "false_alarms": _false_alarms,
    "threshold": _threshold,
    _LAST: _too_wide,
}


def _between(comparison: RunComparison | None, weak: set[str]) -> Iterator[Advice]:
    """Advise on pairs that are told apart; a trade-off with a weak defense is none."""
    if comparison is None:
        return
    for pair in comparison.pairs:
        rule = _RULES_BETWEEN.get(pair.verdict)
        if rule is None or (rule == "trade_off" and weak & {pair.first, pair.second}):
            continue
        attacks, benign = pair.attacks.difference.value or 0.0, pair.benign.difference.value or 0.0
        winner, loser = pair.first, pair.second
        if attacks >= 0:
            winner, loser, benign = pair.second, pair.first, benign * -1
        numbers = (
            ("attack_success_rate_difference", -abs(attacks)),
            ("false_positive_rate_difference", benign),
        )
        yield Advice(rule=rule, defense=winner, subject=loser, numbers=numbers, scope=pair.scope)


_RULES_BETWEEN: Final[dict[str, str]] = {
    "first better": "better",
    "second better": "better",
    "trade-off": "trade_off",
}
"""What a `PairVerdict` gives rise to; comparisons are loaded by those that make them."""
