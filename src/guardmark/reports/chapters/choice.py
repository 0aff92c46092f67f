"""Which of several defenses to take, which are not told apart from it, and what would tell."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final

from guardmark.analysis.compare.comparison import PairVerdict
from guardmark.analysis.compare.merit import find_dominated
from guardmark.analysis.compare.verdicts import rates_of_chosen
from guardmark.core.values import dataclass
from guardmark.reports.chapters.subjects import ALARMS, RATES, subject, weak_among
from guardmark.reports.document.cells import figure_text
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from guardmark.analysis.compare.comparison import PairedComparison, RunComparison
    from guardmark.analysis.defense.scorecard import RatePair, Scorecard

_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rivals:
    """The other defenses that none beats, by how they compare with the one that is named.

    Attributes:
        alike: Not told apart on attacks.
        fewer: More attacks get through, but it has fewer false alarms.
        more: More attacks get through, and nothing speaks for it.
    """

    pairs: Mapping[str, PairedComparison]
    alike: Sequence[str]
    fewer: Sequence[str]
    more: Sequence[str]


def worth_choosing(
    comparison: RunComparison | None, rates: Mapping[str, RatePair | Scorecard], scope: str
) -> list[str]:
    """Name those that none beats and that beat chance, the lowest rate first.

    None beats them by what the data can tell, and none is better on both sides by the points.
    """
    if comparison is None:
        return []
    weak = weak_among(rates.items(), scope)
    dominated = find_dominated({name: rates[name] for name in rates if name not in weak})
    worthy = []
    for defense in comparison.front:
        if defense in weak or defense in dominated or defense not in rates:
            continue
        rate = rates[defense].attack_success_rate
        if rate.trials:
            worthy.append((rate.value or 0.0, defense))
    return [defense for _, defense in sorted(worthy, key=itemgetter(0))]


def choice_sentence(
    comparison: RunComparison, rates: Mapping[str, RatePair | Scorecard], scope: str
) -> str:
    """Say which of several to take, who is not told apart from it, and what would tell."""
    if len(rates) < 2:
        return ""  # of one there is nothing to choose
    if not any(each.false_positive_rate.trials for each in rates.values()):
        return ""  # what blocks everything would have the lowest rate
    worthy = worth_choosing(comparison, rates, scope)
    if not worthy:
        if not comparison.front or not comparison.attacks.best:
            return ""  # of chosen pairs, or without attacks, nobody can say
        return (
            f"Which one? None of the {len(rates)}: none is shown to block attacks more often "
            "than benign samples."
        )
    best = worthy[0]
    compared: set[str] = set()
    for pair in comparison.pairs:
        compared.update((pair.first, pair.second))
    candidates = {name: each for name, each in rates.items() if name in compared}
    weak = weak_among(rates.items(), scope)
    unbeaten = {name for name in comparison.front if name in rates and name not in weak}
    alpha = 1 - rates[best].attack_success_rate.confidence
    rivals = _rivals_of(best, comparison, among=unbeaten, worthy=worthy, alpha=alpha)
    sentences = [
        _lowest_sentence(best, rates[best], candidates, scope=scope),
        *_rival_sentences(rivals, scope, tests=comparison.tests),
    ]
    undercut = find_dominated(candidates)
    beaten = []
    for loser, by in undercut.items():
        if by in worthy and loser not in rivals.alike and loser not in weak:
            beaten.append(f"{loser} ({by} is)")
    if beaten:
        sentences.append(
            "Not offered, as by the points another is lower on one rate and no higher on the "
            f"other: {_first_few(beaten)}."
        )
    return " ".join(sentences)


def _rivals_of(
    best: str,
    comparison: RunComparison,
    *,
    among: AbstractSet[str],
    worthy: Sequence[str],
    alpha: float,
) -> _Rivals:
    """Sort the others that none beats by what tells them apart from the one that is named."""
    pairs: dict[str, PairedComparison] = {}
    for pair in comparison.pairs:
        if pair.first == best and pair.second in among:
            pairs[pair.second] = pair
        elif pair.second == best and pair.first in among:
            pairs[pair.first] = pair
    alike, fewer, more = [], [], []
    for other, pair in pairs.items():
        if not pair.attacks.direction(alpha):
            alike.append(other)
        elif other not in worthy:
            continue
        elif pair.verdict is PairVerdict.TRADE_OFF:
            fewer.append(other)
        else:
            more.append(other)
    return _Rivals(pairs=pairs, alike=alike, fewer=fewer, more=more)


def _lowest_sentence(
    best: str,
    rates: RatePair | Scorecard,
    candidates: Mapping[str, RatePair | Scorecard],
    *,
    scope: str,
) -> str:
    """Name the one with the lowest rate on attacks, with both of its rates."""
    attacks, benign = RATES[scope]
    asr = figure_text(rates.attack_success_rate) + _after_choice(best, candidates)
    fpr = figure_text(rates.false_positive_rate)
    return f"Which one? Lowest {attacks}: {subject(best, scope)}, {asr}, at {benign} {fpr}."


def _rival_sentences(rivals: _Rivals, scope: str, *, tests: int) -> Iterator[str]:
    """Say how the others that no defense beats stand to the one that is named."""
    alarms, alarm = ALARMS[scope]["alarms"], ALARMS[scope]["alarm"]
    if rivals.alike:
        yield f"Not told apart from it there: {_first_subjects(rivals.alike, scope)}."
        sides = {name: rivals.pairs[name].attacks for name in rivals.alike}
        near = min(sides, key=lambda name: abs(sides[name].difference.value or 0.0))
        needed = sides[near].groups_needed(tests=tests)
        if needed:
            yield (
                f"About {count_text(needed)} groups of attacks would tell {subject(near, scope)} "
                "apart, if the difference stays."
            )
        else:
            yield f"How many groups would tell {subject(near, scope)} apart is unknown."
    if rivals.fewer:
        yield (
            f"With a higher ASR but fewer {alarms}: {_first_subjects(rivals.fewer, scope)}. "
            f"Decide by what a missed attack and {alarm} cost you."
        )
    if rivals.more:
        yield (
            f"Shown to be higher there, and not to have fewer {alarms}: "
            f"{_first_subjects(rivals.more, scope)}."
        )
    if not rivals.pairs:
        yield "Every other one is shown to be worse, or not shown to beat chance."


def _first_subjects(names: Sequence[str], scope: str) -> str:
    """Name the first few subjects, and say how many more there are."""
    return _first_few([subject(each, scope) for each in names])


def _first_few(names: Sequence[str]) -> str:
    """Name the first few, and say how many more there are."""
    shown = ", ".join(names[:_NAMED])
    left = len(names) - _NAMED
    if left > 0:
        return f"{shown} and {left} more"
    return shown


def _after_choice(best: str, rates: Mapping[str, RatePair | Scorecard]) -> str:
    """Say what the lowest rate of four or more is when its having been chosen is allowed for."""
    chosen = rates_of_chosen(rates, best)
    if chosen is None:
        return ""
    asr = figure_text(chosen.attack_success_rate)
    return (
        f" (as the lowest of {chosen.candidates} it is flattered: allowing for the choice, {asr})"
    )
