"""A comparison in full: which defenses, against which, and everything said about each pair."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

from guardmark.analysis.compare.comparison import RunComparison, compare_arms
from guardmark.analysis.compare.pair_verdict import PairVerdict
from guardmark.analysis.compare.paired_details import Depth, PairDetail, detail_pair
from guardmark.analysis.defense.scorecard import estimate_rates
from guardmark.core.errors import IncomparableRuns, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guardmark.analysis.compare.comparison import PairedComparison
    from guardmark.analysis.compare.runs_compared import ComparedRun, MatchedRuns, Origin
    from guardmark.analysis.defense.frame import Frame
    from guardmark.analysis.defense.scorecard import RatePair
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.store.reader import RecordReader

_DETAILED = 12
"""Most pairs described at length; beyond, one names the pair of interest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which pairs a comparison is about.

    Attributes:
        only: Defenses to compare; all candidates when empty.
        against: The one defense that all others are compared with; empty for every pair.
        listed: Discordant samples to read for each side of a pair, at most.
        latency: Whether to compare latencies.
    """

    only: tuple[str, ...] = ()
    against: str = ""
    listed: int = 5
    latency: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DefenseRates:
    """Where one defense of a comparison stands by itself.

    Attributes:
        name: Its name in the comparison.
        rates: Attack success rate and false positive rate over the common samples it answered.
    """

    name: str = field(metadata={"json": "defense"})
    rates: RatePair = field(metadata={"json": ("attack_success_rate", "false_positive_rate")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Defenses against each other, in one run or across runs.

    Attributes:
        runs: The runs.
        origins: Where each defense comes from.
        attacks: Attacks compared.
        benign: Benign samples compared.
        is_grouped: Whether samples share groups or are run more than once.
        confidence: Nominal coverage of the intervals.
        min_per_category: Categories of fewer pairs are greyed.
        margin: False positive rates higher by no more than this count as not worse; None when
            nothing was fixed before the run.
        comparison: Differences and tests.
        details: What lies behind each pair, in the order of the comparison; the first twelve.
        rates: Both rates of each compared defense over the common samples.
        front: Defenses that no other is shown to beat, fewer bypasses at no more false alarms;
            empty where not every pair was compared.
        remarks: In which respects the runs differ beside their defenses.
    """

    runs: tuple[ComparedRun, ...]
    origins: tuple[Origin, ...] = field(metadata={"json": "defenses"})
    attacks: int
    benign: int
    is_grouped: bool
    confidence: float
    min_per_category: int = field(metadata={"json": False})
    margin: float | None
    comparison: RunComparison = field(
        metadata={
            "json": {
                "lowest_attack_success_rate": "attacks",
                "lowest_false_positive_rate": "benign",
                "left_out": "left_out",
            }
        }
    )
    details: tuple[PairDetail, ...] = field(metadata={"json": False})
    rates: tuple[DefenseRates, ...]
    front: tuple[str, ...]
    remarks: tuple[str, ...] = field(metadata={"json": False})


def compare_matched(
    matched: MatchedRuns, wanted: Wanted, *, reader: RecordReader, settings: AnalysisSettings
) -> Compared:
    """Compare the defenses of matched runs."""
    frame = matched.frame
    comparison = compare_arms(frame, settings, chosen=choose_pairs(matched, wanted))
    if comparison is None or not comparison.pairs:
        raise IncomparableRuns(
            "There is one defense only, so there is nothing to compare it with.\n"
            "Next: name a second run over the same samples, or measure two defenses in one run."
        )
    attacks = int(frame.samples.is_attack.sum())
    depth = Depth(
        reader=reader,
        places=matched.places,
        listed=wanted.listed,
        latency=wanted.latency,
        consumption=matched.consumption,
    )
    return Compared(
        runs=matched.runs,
        origins=matched.origins,
        attacks=attacks,
        benign=frame.sample_count - attacks,
        is_grouped=frame.is_grouped,
        confidence=settings.confidence,
        min_per_category=settings.min_per_category,
        margin=settings.non_inferiority_margin,
        comparison=comparison,
        details=tuple(
            detail_pair(frame, pair, depth=depth, settings=settings)
            for pair in comparison.pairs[:_DETAILED]
        ),
        rates=_compared_rates(frame, comparison, settings),
        front=find_front(comparison),
        remarks=matched.remarks,
    )


def _compared_rates(
    frame: Frame, comparison: RunComparison, settings: AnalysisSettings
) -> tuple[DefenseRates, ...]:
    compared = {name for pair in comparison.pairs for name in _sides(pair)}
    return tuple(
        DefenseRates(name=arm.name, rates=estimate_rates(frame, arm, settings))
        for arm in frame.arms
        if arm.name in compared
    )


def find_front(comparison: RunComparison) -> tuple[str, ...]:
    """Find the defenses worth choosing between."""
    names = list(dict.fromkeys(name for pair in comparison.pairs for name in _sides(pair)))
    if len(comparison.pairs) < len(names) * (len(names) - 1) // 2:
        return ()
    beaten = {pair.second for pair in comparison.pairs if pair.verdict is PairVerdict.FIRST_BETTER}
    beaten |= {pair.first for pair in comparison.pairs if pair.verdict is PairVerdict.SECOND_BETTER}
    return tuple(name for name in names if name not in beaten)


def _sides(pair: PairedComparison) -> tuple[str, str]:
    return pair.first, pair.second


def choose_pairs(matched: MatchedRuns, wanted: Wanted) -> list[tuple[str, str]] | None:
    """Choose which defenses to compare."""
    named = [name for word in wanted.only for name in _find(matched.origins, word)]
    names = named or _candidates(matched)
    if wanted.against:
        base = _find(matched.origins, wanted.against)[0]
        return [(name, base) for name in names if name != base]
    if len(matched.runs) == 1:
        return list(combinations(names, 2)) if named else None
    chosen = [origin for origin in matched.origins if origin.name in set(names)]
    return _successors(chosen, matched.runs[0].label) or _across(chosen)


def _candidates(matched: MatchedRuns) -> list[str]:
    names = [arm.name for arm in matched.frame.arms if not arm.is_baseline]
    return names if len(names) > 1 else [arm.name for arm in matched.frame.arms]


def _find(origins: Sequence[Origin], word: str) -> list[str]:
    """Return the defenses a word names: by the name in the comparison, or in any of the runs."""
    exact = [origin.name for origin in origins if origin.name == word]
    found = exact or [origin.name for origin in origins if origin.defense == word]
    if not found:
        raise UnknownName("defense", word, {origin.name for origin in origins})
    return found


def _successors(chosen: Iterable[Origin], first: str) -> list[tuple[str, str]]:
    rows = list(chosen)
    before = {origin.defense: origin.name for origin in rows if origin.run == first}
    return [
        (origin.name, before[origin.defense])
        for origin in rows
        if origin.run != first and origin.defense in before
    ]


def _across(chosen: Sequence[Origin]) -> list[tuple[str, str]]:
    return [
        (later.name, earlier.name)
        for earlier, later in combinations(chosen, 2)
        if earlier.run != later.run
    ]
