"""A comparison in words: one sentence of advice for each pair, and what to beware of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.analysis.compare.pair_verdict import PairVerdict
from guardmark.analysis.defense.costs import CostUnit
from guardmark.reports.document.wording import count_text, p_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.compare.compared import Compared
    from guardmark.analysis.compare.comparison import BestSet, PairedComparison, PairedSide
    from guardmark.analysis.compare.runs_compared import ComparedRun
    from guardmark.analysis.defense.costs import CostDifference

_NAMED = 5


def recommendation(pair: PairedComparison, *, margin: float | None) -> str:
    """Say in one sentence what follows for who has to choose, and no more than the data carry."""
    first, second = pair.first, pair.second
    if pair.verdict in _SECOND_WINS:
        first, second = second, first
    if pair.verdict in {PairVerdict.FIRST_BETTER, PairVerdict.SECOND_BETTER}:
        return f"Prefer {first} to {second}: it lets fewer attacks through, {_price(margin)}."
    if pair.verdict is PairVerdict.TRADE_OFF:
        careful, lenient = (first, second) if _below(pair.attacks) else (second, first)
        return (
            f"Neither is better as such: {careful} lets fewer attacks through, {lenient} raises "
            "fewer false alarms; decide by what a missed attack and a false alarm cost you."
        )
    if pair.verdict in {PairVerdict.FIRST_FEWER_BYPASSES, PairVerdict.SECOND_FEWER_BYPASSES}:
        return (
            f"Prefer {first} to {second} where attacks weigh most: it lets fewer through, but "
            f"{_unshown(margin)}."
        )
    if pair.verdict is PairVerdict.UNDECIDED:
        return (
            f"Choose between {first} and {second} on other grounds, or measure more samples: "
            f"these {count_text(_pairs(pair))} do not tell them apart."
        )
    return (
        f"Prefer {first} to {second} where false alarms weigh most: it raises fewer, but that it "
        "stops as many attacks is not shown."
    )


def best_sentence(best: BestSet, rate: str) -> str:
    """Say who has the lowest rate, who cannot be told apart from that, and the test of all."""
    if not best.best:
        return f"Lowest {rate}: undefined."
    others = [each for each in best.undistinguished if each != best.best]
    alike = (
        f"not distinguishable from it: {', '.join(others)}"
        if others
        else "every other defense is shown to be worse"
    )
    omnibus = ""
    if best.omnibus is not None and best.omnibus.q is not None:
        q, p_value = best.omnibus.q, best.omnibus.p_value
        omnibus = f" All together: Cochran's Q {q:.1f}, p {p_text(p_value)}."
    return f"Lowest {rate}: {best.best}; {alike}.{omnibus}"


def caveats(compared: Compared) -> Iterator[str]:
    """Say what a reader must know before leaning on a comparison."""
    yield from run_caveats(compared.runs, compared.remarks)


def run_caveats(runs: Sequence[ComparedRun], remarks: Sequence[str]) -> Iterator[str]:
    """Say in which respects runs are not whole, or differ beside their defenses."""
    for run in runs:
        if not run.is_complete:
            yield (
                f"{run.label} is {run.state.value}: {count_text(run.stored)} of "
                f"{count_text(run.planned)} records are stored."
            )
        if run.unmatched:
            yield _unmatched_words(run)
    yield from remarks


def _unmatched_words(run: ComparedRun) -> str:
    """Say which samples of a run have no partner."""
    named = ", ".join(run.unmatched[:_NAMED]) + (" ..." if len(run.unmatched) > _NAMED else "")
    return (
        f"{count_text(len(run.unmatched))} of {count_text(run.samples)} samples of {run.label} "
        f"have no partner and are left out: {named}."
    )


def cost_sentence(cost: CostDifference, names: tuple[str, str]) -> str:
    """Say how much two defenses consume."""
    what = "attacks" if cost.is_attack else "benign samples"
    rows = zip(names, (cost.first, cost.second), strict=True)
    means = ", ".join(f"{name} {1000 * mean:,.6g}" for name, mean in rows)
    mean = cost.mean
    interval = (
        ""
        if mean.low is None or mean.high is None
        else f" [{1000 * mean.low:+,.6g}, {1000 * mean.high:+,.6g}]"
    )
    unit = "Tokens" if cost.unit is CostUnit.TOKENS else "Cost"
    return (
        f"{unit} for 1,000 {what}: {means}; difference {1000 * (mean.value or 0.0):+,.6g}"
        f"{interval} over {count_text(mean.pairs)}"
    )


_SECOND_WINS = frozenset(
    {
        PairVerdict.SECOND_BETTER,
        PairVerdict.SECOND_FEWER_BYPASSES,
        PairVerdict.SECOND_FEWER_FALSE_ALARMS,
    }
)


def _below(side: PairedSide) -> bool:
    return (side.difference.value or 0.0) < 0


def _pairs(pair: PairedComparison) -> int:
    return pair.attacks.difference.pairs + pair.benign.difference.pairs


def _price(margin: float | None) -> str:
    if margin is None:
        return "and raises fewer false alarms"
    return f"and its false alarms are fewer, or more by no more than {100 * margin:g} points"


def _unshown(margin: float | None) -> str:
    if margin is None:
        return (
            "whether its false alarms are no more is not shown (no margin was fixed; "
            "--margin names one)"
        )
    return f"that its false alarms are more by at most {100 * margin:g} points is not shown"
