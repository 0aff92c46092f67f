"""Defenses against each other on the same samples: what to do, rates, pairs, samples to read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from guardmark.analysis.compare.comparison import PairVerdict
from guardmark.analysis.defense.costs import CostUnit
from guardmark.analysis.pipeline.frame import DEFENSE, SYSTEM
from guardmark.core.errors import counted
from guardmark.reports.chapters.choice import choice_sentence
from guardmark.reports.chapters.subjects import ALARMS, RATES, subject, weak_among
from guardmark.reports.document.blocks import (
    Document,
    FigureCell,
    IntervalChart,
    Line,
    LineChart,
    Section,
    Table,
    Unit,
    muted,
    section,
)
from guardmark.reports.document.cells import (
    figure,
    figure_text,
    mark,
    name,
    p_value,
    table_of,
    with_counts,
)
from guardmark.reports.document.wording import (
    count_text,
    measure_text,
    p_text,
    side_text,
    side_word,
)
from guardmark.stats.paired.significance import mcnemar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from guardmark.analysis.compare.comparison import (
        BestSet,
        PairedComparison,
        PairedSide,
        RunComparison,
    )
    from guardmark.analysis.compare.matching import ComparedRun
    from guardmark.analysis.compare.runs_compared import (
        CategoryDifference,
        Compared,
        DiscordantSample,
        LatencyDifference,
        PairDetail,
        ScopedComparisons,
    )
    from guardmark.analysis.defense.costs import CostDifference
    from guardmark.analysis.defense.scorecard import RatePair, Scorecard
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.estimate import Estimate
    from guardmark.reports.document.blocks import Part

    _Side = tuple[PairedComparison, PairedSide]

_PAIRS: Final = {
    "first better": "{} is better than {}",
    "trade-off": "{} and {} trade bypasses for {alarms}, so neither is better",
    "weak": "{} and {} trade bypasses for {alarms}, but {weak} shown to beat chance",
    "first fewer bypasses": (
        "{} lets fewer attacks through than {}, but its {alarms} are not shown to be no more"
    ),
    "first fewer false alarms": (
        "{} has fewer {alarms} than {}; on attacks the two cannot be told apart"
    ),
    "undecided": "{} and {} cannot be told apart, which does not make them equal",
}

_PAIR_MARGIN: Final = {
    "price": "and its {0} are fewer, or more by no more than {1}",
    "price_free": "and raises fewer {0}",
    "unshown": "that its {0} are more by at most {1} is not shown",
    "unshown_free": (
        "whether its {0} are no more is not shown (no margin was fixed; --margin names one)"
    ),
}

_PAIR_ADVICE: Final = {
    "first better": "Prefer {} to {}: it lets fewer attacks through, {price}.",
    "trade-off": (
        "Neither is better as such: {} lets fewer attacks through, {} raises fewer "
        "{alarms}; decide by what a missed attack and {alarm} cost you."
    ),
    "weak": ("Do not choose {lost}: not shown to block attacks more often than benign samples."),
    "weak both": (
        "Choose neither of {lost}: neither is shown to block attacks more often than "
        "benign samples."
    ),
    "first fewer bypasses": (
        "Prefer {} to {} where attacks weigh most: it lets fewer through, but {unshown}."
    ),
    "first fewer false alarms": (
        "Prefer {} to {} where {alarms} weigh most: it raises fewer, but that it "
        "stops as many attacks is not shown."
    ),
    "undecided": (
        "Choose between {} and {} on other grounds, or measure more samples: these "
        "{pairs} do not tell them apart."
    ),
}

_EXCERPT: Final = 120
_MOST_OPEN: Final = 8  # categories, the surest differences first, that are not folded
_NAMED: Final = 5
_MOST_PAIRED: Final = 2  # defenses of which every pair is told by itself
_MIRRORED: Final = {
    PairVerdict.SECOND_BETTER: PairVerdict.FIRST_BETTER,
    PairVerdict.SECOND_FEWER_BYPASSES: PairVerdict.FIRST_FEWER_BYPASSES,
    PairVerdict.SECOND_FEWER_FALSE_ALARMS: PairVerdict.FIRST_FEWER_FALSE_ALARMS,
}


def write(analysis: RunAnalysis) -> Section:
    """Write the section that compares the defenses."""
    comparison = analysis.comparison
    parts: Iterable[Part] = ()
    systems = []
    if analysis.systems is not None:
        systems = [pair_sentence(pair) for pair in analysis.systems.pairs]
    if comparison is not None:
        rated = [(each.name, each.card) for each in analysis.defenses]
        league = None
        if is_league(comparison):
            league = _rates_table(rated, comparison)
        parts = _parts(comparison, league, weak=weak_among(rated))
    nothing = "The run holds one defense, so there is nothing to compare."
    return section("comparison", "Comparison", systems, *parts, otherwise=nothing)


def is_league(comparison: RunComparison) -> bool:
    """Tell whether there are too many pairs for a sentence each, so that tiers stand for them."""
    return len(comparison.names) > _MOST_PAIRED and bool(comparison.attacks.tiers)


def _parts(comparison: RunComparison, *rates: Part, weak: AbstractSet[str]) -> Iterator[Part]:
    """Yield sentences, what shows each defense by itself, then charts and tables of pairs."""
    has_tiers = is_league(comparison)
    sentences = []
    if not has_tiers:
        sentences = [pair_sentence(pair, weak) for pair in comparison.pairs]
    yield sentences
    yield from rates
    if comparison.attacks.best or comparison.benign.best:  # across runs nobody asks who is best
        on_attacks_best = _best_sentence(comparison.attacks, "attack success")
        yield [on_attacks_best, _best_sentence(comparison.benign, "false positive")]
    on_attacks = [(pair, pair.attacks) for pair in comparison.pairs]
    on_benign = [(pair, pair.benign) for pair in comparison.pairs]
    if not has_tiers:
        yield _differences_chart(on_attacks, is_attack=True)
        yield _differences_chart(on_benign, is_attack=False)
    family = family_words(comparison)
    yield pairs_table(on_attacks, is_attack=True, collapsed=has_tiers, family=family)
    yield pairs_table(on_benign, is_attack=False, collapsed=True, family=family)
    if comparison.left_out:
        names = ", ".join(comparison.left_out)
        yield muted(f"Baselines are no candidates and were left out: {names}.")


def family_words(comparison: RunComparison) -> str:
    """Name the family of tests over which the p values of pairs are adjusted."""
    if not comparison.is_whole_family:
        return "all pairs compared here, on both rates"
    if comparison.pairs and comparison.pairs[0].scope == SYSTEM:
        return "all tests of the run: every pair of systems on both rates"
    return "all tests of the run: every pair on both rates, and areas of scores"


def _better_first(pair: PairedComparison) -> tuple[PairVerdict, str, str]:
    """Return the verdict as one about the first subject, and the two in that order."""
    first, second = subject(pair.first, pair.scope), subject(pair.second, pair.scope)
    if pair.verdict in _MIRRORED:
        return _MIRRORED[pair.verdict], second, first
    return pair.verdict, first, second


def pair_sentence(pair: PairedComparison, weak: AbstractSet[str] = frozenset()) -> str:
    """Say in one sentence what the data show about two defenses."""
    verdict, first, second = _better_first(pair)
    success, refusals = RATES[pair.scope]
    is_mirrored = pair.verdict in _MIRRORED
    on_attacks = _gap(pair.attacks, success, is_mirrored=is_mirrored)
    on_benign = _gap(pair.benign, refusals, is_mirrored=is_mirrored)
    weak_ones = _weak_of(pair, weak)
    words, not_shown = _PAIRS[verdict], ""
    if weak_ones:
        words, not_shown = _PAIRS["weak"], f"{weak_ones[0]} is not"
    if len(weak_ones) > 1:
        not_shown = f"neither {weak_ones[0]} nor {weak_ones[1]} is"
    sentence = words.format(first, second, weak=not_shown, **ALARMS[pair.scope])
    return f"{sentence}: {on_attacks}; {on_benign}."


def _weak_of(pair: PairedComparison, weak: AbstractSet[str]) -> list[str]:
    """Return the weak defenses of a trade-off, which are no choice, or nothing."""
    if pair.verdict is not PairVerdict.TRADE_OFF:
        return []
    return [each for each in (pair.first, pair.second) if each in weak]


def recommendation(
    pair: PairedComparison, *, margin: float | None, weak: AbstractSet[str] = frozenset()
) -> str:
    """Say in one sentence what to choose, and no more than the data show."""
    verdict, first, second = _better_first(pair)
    if verdict is PairVerdict.TRADE_OFF and (pair.attacks.difference.value or 0.0) >= 0:
        first, second = second, first
    alarms = ALARMS[pair.scope]["alarms"]
    if margin is None:
        price = _PAIR_MARGIN["price_free"].format(alarms)
        unshown = _PAIR_MARGIN["unshown_free"].format(alarms)
    else:
        most = f"{100 * margin:g} points"
        price = _PAIR_MARGIN["price"].format(alarms, most)
        unshown = _PAIR_MARGIN["unshown"].format(alarms, most)
    weak_ones = _weak_of(pair, weak)
    rule: str = verdict
    if len(weak_ones) == 1:
        rule = "weak"
    elif weak_ones:
        rule = "weak both"
    pairs = count_text(pair.attacks.difference.pairs + pair.benign.difference.pairs)
    return _PAIR_ADVICE[rule].format(
        first,
        second,
        price=price,
        unshown=unshown,
        pairs=pairs,
        lost=" and ".join(weak_ones),
        **ALARMS[pair.scope],
    )


def significance_sentence(pair: PairedComparison) -> str:
    """Say the same in the words of reports that speak of significance, side by side."""
    first, second = subject(pair.first, pair.scope), subject(pair.second, pair.scope)
    alarms = ALARMS[pair.scope]["alarms"]
    on_attacks = _significance(pair.attacks, first, second)
    on_benign = _significance(pair.benign, first, second)
    return (
        f"In words of significance, {first} against {second}: attacks: {on_attacks}; "
        f"{alarms}: {on_benign}."
    )


def _significance(side: PairedSide, first: str, second: str) -> str:
    """Say who is significantly better, where the adjusted test and the interval both say so."""
    if side.adjusted_p is None:
        return f"no test ({side.difference.reason or 'no pairs'})"
    p = f"(p {p_text(side.adjusted_p)})"
    direction = side.direction(1.0 - side.difference.confidence)
    if direction < 0:
        return f"{first} is significantly better {p}"
    if direction > 0:
        return f"{second} is significantly better {p}"
    return f"no significant difference {p}"


def corrected_sentence(pair: PairedComparison) -> str:
    """Give McNemar's test with continuity correction, to compare with reports that use it."""
    success, refusals = RATES[pair.scope]
    return (
        "McNemar's test with continuity correction (chi-square of pairs that differ, "
        "samples taken as independent, not adjusted; for comparison with reports "
        f"made that way, no verdict rests on it): {success} {_corrected(pair.attacks)}; "
        f"{refusals} {_corrected(pair.benign)}."
    )


def _corrected(side: PairedSide) -> str:
    """Give counts and statistic of the corrected test on one side, or why there is none."""
    first, second = side.difference.first_only or 0, side.difference.second_only or 0
    test = mcnemar(first, second)
    if test.reason:
        return f"no test ({test.reason})"
    statistic = max(0, abs(first - second) - 1) ** 2 / (first + second)
    return (
        f"{count_text(first)} against {count_text(second)} discordant, chi-square "
        f"{statistic:.2f}, p {p_text(test.p_chi2_corrected)}"
    )


def _gap(side: PairedSide, label: str, *, is_mirrored: bool) -> str:
    """Say by how much two rates differ, with the test; mirrored, second minus first."""
    measure = figure(side.difference)
    if measure.value is None:
        return f"{label} difference undefined"
    if is_mirrored:
        measure = replace(
            measure,
            value=_negated(measure.value),
            low=_negated(measure.high),
            high=_negated(measure.low),
        )
    words = f"{label} {measure_text(measure)}"
    if side.adjusted_p is None:
        return f"{words} ({measure.reason})"
    words += f", p {p_text(side.adjusted_p)}"
    crosses = (measure.low or 0.0) <= 0.0 <= (measure.high or 0.0)
    if crosses and side.detectable is not None:
        words += f" (one test finds {100 * side.detectable:.1f} points in 80 % of runs)"
    return words + side.caution


def _negated(value: float | None) -> float | None:
    """Return a number with the other sign, without making a zero negative."""
    if value is None:
        return None
    return 0.0 - value


def _differences_chart(sides: Sequence[_Side], *, is_attack: bool) -> IntervalChart:
    """Draw the difference of each pair on one side, against no difference."""
    rate = _rate(sides, is_attack=is_attack)
    marks = []
    for pair, side in sides:
        marks.append(mark(f"{pair.first} - {pair.second}", side.difference))
    return IntervalChart(
        id=f"difference-{rate.lower().replace(' ', '-')}",
        title=f"Difference in {rate}, first minus second",
        unit=Unit.POINTS,
        axis=f"Difference in {rate}",
        marks=tuple(marks),
        reference=(0.0, "no difference"),
    )


def _rate(sides: Sequence[_Side], *, is_attack: bool) -> str:
    """Name the rate of one side at the scope of some pairs."""
    scope = DEFENSE
    if sides:
        scope = sides[0][0].scope
    success, refusals = RATES[scope]
    if is_attack:
        return success
    return refusals


def pairs_table(
    sides: Sequence[_Side],
    *,
    is_attack: bool,
    collapsed: bool = True,
    family: str = "all pairs shown here, on both rates",
) -> Table:
    """Lay out how pairs differ on attacks, or on benign samples; p adjusted over a family."""
    rate = _rate(sides, is_attack=is_attack)
    return table_of(
        sides,
        {
            "First": lambda row: name(row[0].first),
            "Second": lambda row: name(row[0].second),
            "Difference: first rate minus second; below zero the first is better": lambda row: (
                row[1].difference
            ),
            "p: cluster sign-flip mid-p; McNemar's mid-p without groups": lambda row: figure(
                row[1].difference.p_value, Unit.P_VALUE
            ),
            f"p (Holm): adjusted over {family}": lambda row: figure(
                row[1].adjusted_p, Unit.P_VALUE
            ),
            "Only first: samples on which only the first erred": lambda row: (
                row[1].difference.first_only
            ),
            "Only second: samples on which only the second erred": lambda row: (
                row[1].difference.second_only
            ),
            "Both: samples on which both erred": lambda row: row[1].both,
            "Neither: samples on which neither erred": lambda row: row[1].neither,
            "Left out: samples without a decision on one side": lambda row: row[1].unpaired,
        },
        table_id=f"pairs-{rate.lower().replace(' ', '-')}",
        title=f"Pairs on the same {side_text(is_attack=is_attack)} ({rate})",
        collapsed=collapsed,
        texts=("Second",),
        note=(
            "Samples without a decision on one side are left out and counted, never "
            "taken as allowed."
        ),
    )


_PLANES: Final = {
    DEFENSE: ("plane", "Attacks let through", "false alarms", "Benign samples blocked"),
    SYSTEM: (
        "system-plane",
        "Attacks that succeed",
        "benign samples turned down",
        "Benign turned down",
    ),
}
"""Id of the picture at a scope, its vertical axis, what its title sets it against, the other."""


def draw_plane(
    rated: Sequence[tuple[str, RatePair | Scorecard]],
    front: Sequence[str] = (),
    *,
    scope: str = DEFENSE,
    adapted: Mapping[str, Estimate] | None = None,
    limits: tuple[float, float] | None = None,
) -> LineChart | None:
    """Draw each subject as a mark with both intervals, hollow against rewritten attacks."""
    lines, sentences = [], []
    success, refusals = RATES[scope]
    for defense, pair in rated:
        through, alarms = figure(pair.attack_success_rate), figure(pair.false_positive_rate)
        if through.value is None or alarms.value is None:
            continue
        points, band, reach = ((alarms.value, through.value),), _ends(through), _ends(alarms)
        lines.append(Line(label=defense, points=points, band=band, reach=reach))
        sentences.append(
            f"{defense}: {success} {measure_text(through)}, {refusals} {measure_text(alarms)}."
        )
        rewritten = None
        if adapted is not None:
            rewritten = adapted.get(defense)
        if rewritten is not None and rewritten.value is not None:
            points, band = ((alarms.value, rewritten.value),), _ends(figure(rewritten))
            lines.append(Line(label=defense, points=points, band=band, hollow=", rewritten"))
            sentences.append(f"Rewritten attacks: {figure_text(rewritten)} get through {defense}.")
    if not lines:
        return None
    weak = weak_among(rated, scope)
    worthy = [name for name, _ in rated if name in front and name not in weak]
    if worthy:
        lead = "Worth choosing between (no other is shown to beat them on both sides)"
        sentences.append(f"{lead}: {', '.join(worthy)}.")
    chart_id, y_axis, turned, x_axis = _PLANES[scope]
    return LineChart(
        id=chart_id,
        title=f"{y_axis} against {turned} (lower left is better)",
        x_axis=x_axis,
        y_axis=y_axis,
        lines=tuple(lines),
        diagonal=scope == DEFENSE,
        is_falling=True,
        limits=limits,
        summary=" ".join(sentences),
    )


def _ends(measure: FigureCell) -> tuple[tuple[float, float], ...]:
    low, high = measure.low, measure.high
    if low is None or high is None:
        return ()
    return ((low, high),)


def _best_sentence(best: BestSet, rate: str) -> str:
    """Say who has the lowest rate, who cannot be told apart from that, and the test of all."""
    if not best.best:
        return f"Lowest {rate} rate: undefined."
    alike, omnibus = "every other defense is shown to be worse", ""
    others = [each for each in best.undistinguished if each != best.best]
    if others:
        alike = f"not distinguishable from it: {', '.join(others)}"
    test = best.omnibus
    if test is not None and test.q is not None:
        omnibus = f" All together: Cochran's Q {test.q:.1f}, p {p_text(test.p_value)}."
    return f"Lowest {rate} rate: {best.best}; {alike}.{omnibus}"


def run_caveats(runs: Sequence[ComparedRun], remarks: Sequence[str]) -> Iterator[str]:
    """Say in which respects runs are not whole, or differ beside their defenses."""
    for run in runs:
        if not run.is_complete:
            yield (
                f"{run.label} is {run.state.value}: {run.stored:,} of {run.planned:,} records "
                "are stored."
            )
        if run.unmatched:
            named = ", ".join(run.unmatched[:_NAMED])
            if len(run.unmatched) > _NAMED:
                named += " ..."
            yield (
                f"{count_text(len(run.unmatched))} of {run.samples:,} samples of {run.label} have "
                f"no partner and are left out: {named}."
            )
    yield from remarks


def _cost_sentence(cost: CostDifference, names: tuple[str, str]) -> str:
    """Say how much two defenses consume."""
    first, second = names
    mean, unit = cost.mean, "Cost"
    if cost.unit is CostUnit.TOKENS:
        unit = "Tokens"
    difference = f"difference {1000 * (mean.value or 0.0):+,.6g}"
    if mean.low is not None and mean.high is not None:
        difference += f" [{1000 * mean.low:+,.6g}, {1000 * mean.high:+,.6g}]"
    return (
        f"{unit} for 1,000 {side_text(is_attack=cost.is_attack)}: "
        f"{first} {1000 * cost.first:,.6g}, {second} {1000 * cost.second:,.6g}; "
        f"{difference} over {count_text(mean.pairs)}"
    )


def comparison_document(compared: ScopedComparisons, *, texts: bool = True) -> Document:
    """Tell a comparison: advice first, then rates, pairs, and samples to read; systems first."""
    first = compared.all[0]
    runs = ", ".join(run.label for run in first.runs)
    title, lead = "Defenses compared", ""
    if compared.system:
        title, lead = "Systems compared", "Guards: "
    sections: list[Section] = []
    for one_scope in compared.all:
        sections.extend(_scope_sections(one_scope, lead, texts=texts))
    return Document(
        title=title,
        subtitle=f"In {runs}: the same {counted(first.attacks, 'attack')} and "
        f"{counted(first.benign, 'benign sample')}.",
        caveats=tuple(run_caveats(first.runs, first.remarks)),
        sections=tuple(sections),
    )


_BRIEF: Final = ("advice", "rates", "alike", "system-advice", "system-rates", "system-alike")


def shorten_comparison(compared: ScopedComparisons, document: Document) -> Document:
    """Keep advice and rates of several pairs, and say how to see each pair by itself."""
    pairs = sum(len(each.details) for each in compared.all)
    if pairs < _MOST_PAIRED:
        return document
    kept = [each for each in document.sections if each.id in _BRIEF]
    hint = muted(
        f"Each of {count_text(pairs)} pairs by itself, with categories and samples to read: -v, or "
        "--only A,B for one of them."
    )
    return replace(document, sections=(*kept, section("pairs-hint", "", hint)))


def _scope_sections(compared: Compared, lead: str, *, texts: bool) -> Iterator[Section]:
    """Yield the sections of one scope; those of systems say so in their titles and ids."""
    key = ""
    if compared.scope == SYSTEM:
        lead, key = "System: ", "system-"
    yield section(f"{key}advice", f"{lead}What to do next", _advice(compared))
    rated = [(each.name, each.rates) for each in compared.rates]
    plane = draw_plane(rated, compared.comparison.front, scope=compared.scope)
    table = _rates_table(rated, compared.comparison, scope=compared.scope)
    parts = _parts(compared.comparison, table, plane, weak=weak_among(rated, compared.scope))
    unit = "samples"
    if compared.is_grouped:
        unit = "groups of variants"
    confidence = 100 * compared.confidence
    method = (
        f"First rate minus second; below zero the first is better. {confidence:.0f} % "
        f"Bonett-Price intervals and McNemar's mid-p, by sign flips over {unit}; "
        f"Holm over {family_words(compared.comparison)}. Told apart is what the adjusted test and "
        "the interval both say. Only samples that both answered count."
    )
    yield section(f"{key}rates", f"{lead}Rates", *parts, method)
    yield from _pair_sections(compared, lead, key=key, texts=texts)


def _pair_sections(compared: Compared, lead: str, *, key: str, texts: bool) -> Iterator[Section]:
    """Yield a section for each pair; pairs alike on every sample share one."""
    by_names = {(pair.first, pair.second): pair for pair in compared.comparison.pairs}
    alike = [each for each in compared.details if not each.first_only + each.second_only]
    for number, detail in enumerate(compared.details, start=1):
        if detail not in alike or len(alike) == 1:
            pair = by_names.get((detail.first, detail.second))
            yield _pair(f"{key}{number}", detail, pair, compared.scope, texts=texts)
    if len(alike) > 1:
        pairs = "; ".join(f"{each.first} and {each.second}" for each in alike)
        yield section(f"{key}alike", f"{lead}No difference", f"Alike on every sample: {pairs}.")


def _advice(compared: Compared) -> list[str]:
    """Recommend for each pair; of many, say which one to take."""
    pairs = compared.comparison.pairs
    if is_league(compared.comparison):
        pairs = ()
    rates = {each.name: each.rates for each in compared.rates}
    weak = weak_among(rates.items(), compared.scope)
    lines = []
    for pair in pairs:
        lines.append(recommendation(pair, margin=compared.margin, weak=weak))
        lines.append(significance_sentence(pair))
    if len(pairs) != 1:
        choice = choice_sentence(compared.comparison, rates, compared.scope)
        if choice:
            lines.insert(0, choice)
    left = len(compared.comparison.pairs) - len(compared.details)
    if left:
        lines.append(
            f"{count_text(left)} pairs have no section of their own here: --json lists "
            "them; --only or --against names those of interest."
        )
    return lines


def _rates_table(
    rated: Sequence[tuple[str, RatePair | Scorecard]],
    comparison: RunComparison,
    *,
    scope: str = DEFENSE,
) -> Table:
    """Lay each defense by itself; of many, the fewest attacks through first, with tiers."""
    attacks, benign = RATES[scope]
    table_id = "each-system"
    if scope == DEFENSE:
        table_id = "each"
        attacks, benign = f"{attacks}: attack success rate", f"{benign}: false positive rate"
    worthy = set(comparison.front) - weak_among(rated, scope)
    marks_of_worth = dict.fromkeys(worthy, "yes")
    note = "Worth choosing: no other is shown to beat it on both sides, and it beats chance."
    columns: dict[str, Callable[[tuple[str, RatePair | Scorecard]], Any]] = {
        "Defense": lambda row: name(subject(row[0], scope)),
        f"{attacks}|of attacks": lambda row: with_counts(row[1].attack_success_rate),
        f"{benign}|of benign": lambda row: with_counts(row[1].false_positive_rate),
        "Worth choosing": lambda row: marks_of_worth.get(row[0], ""),
    }
    if is_league(comparison):
        on_attacks = {each.defense: each.letters for each in comparison.attacks.tiers}
        on_benign = {each.defense: each.letters for each in comparison.benign.tiers}
        by_name = dict(rated)
        rated = [(defense, by_name[defense]) for defense in on_attacks if defense in by_name]
        columns[f"Tiers {RATES[scope][0]}, {RATES[scope][1]}"] = lambda row: (
            f"{on_attacks[row[0]]}, {on_benign.get(row[0], '-')}"
        )
        note += (
            " Two that share a letter of a tier are not told apart, which does not make them equal."
        )
    if not worthy:
        note = ""
    return table_of(
        rated,
        columns,
        table_id=table_id,
        title="Each by itself, on the samples both have",
        texts=tuple(columns)[3:],
        note=note,
    )


def _pair(
    number: str, detail: PairDetail, pair: PairedComparison | None, scope: str, *, texts: bool
) -> Section:
    """Write what is known of one pair: times, costs, samples on which they differ, categories."""
    names = (detail.first, detail.second)
    lines = []
    if pair is not None:
        lines.append(corrected_sentence(pair))
    for latency in detail.latency:
        if latency.median.value is not None:
            lines.append(_latency(latency, names))
    for cost in detail.costs:
        lines.append(_cost_sentence(cost, names))
    if detail.discordant:
        total = count_text(detail.first_only + detail.second_only)
        lines.append(f"They differ on {total} samples; to read first:")
        for sample in detail.discordant:
            lines.append(_sample(sample, texts=texts))
    else:
        lines.append("Both agree on every sample.")
    tables: Iterable[Table] = ()
    if detail.categories:
        tables = _categories(number, detail, RATES[scope])
    title = f"{subject(detail.first, scope)} against {subject(detail.second, scope)}"
    return section(f"pair-{number}", title, lines, *tables)


def _categories(number: str, detail: PairDetail, rates: tuple[str, str]) -> Iterator[Table]:
    """Yield the categories, the surest differences in a table that is not folded."""
    ranked = sorted(
        detail.categories,
        key=lambda row: (row.side.adjusted_p or 1.0, -abs(row.side.difference.value or 0.0)),
    )
    table_id, title = f"categories-{number}", "By category"
    yield _category_table(ranked[:_MOST_OPEN], rates, table_id=table_id, title=title)
    more = ranked[_MOST_OPEN:]
    if more:
        others = _category_table(more, rates, table_id=f"{table_id}-more", title="Other categories")
        yield replace(others, collapsed=True)


def _category_table(
    rows: Sequence[CategoryDifference], rates: tuple[str, str], *, table_id: str, title: str
) -> Table:
    on_attacks, on_benign = rates

    def rate_of(row: CategoryDifference) -> str:
        if row.is_attack:
            return on_attacks
        return on_benign

    return table_of(
        rows,
        {
            "Category": lambda each: each.category,
            "Rate": rate_of,
            "Difference: first rate minus second": lambda each: each.side.difference,
            "p (Holm): over the categories of this pair": lambda each: p_value(
                each.side.adjusted_p
            ),
            "Pairs": lambda each: each.side.difference.pairs,
        },
        table_id=table_id,
        title=title,
        texts=("Rate",),
        greyed=lambda each: each.is_greyed,
    )


def _sample(discordant: DiscordantSample, *, texts: bool) -> str:
    """Name a sample on which one of a pair erred, with the beginning of its text or its hash."""
    sample = discordant.sample
    if texts:
        text = sample.prompt.words
    else:
        text = f"sha256 {sample.prompt.digest().hex()}"
    if len(text) > _EXCERPT:
        text = f"{text[: _EXCERPT - 1]}…"
    facets: list[str] = [sample.label.value]
    if sample.severity:
        facets.append(sample.severity.value)
    if sample.category:
        facets.append(sample.category)
    return f"only {discordant.erred} wrong: {sample.id} ({', '.join(facets)}) {text}"


def _latency(latency: LatencyDifference, names: tuple[str, str]) -> str:
    """Say how long two defenses take, and the paired difference."""
    first = figure_text(latency.first, Unit.MILLISECONDS)
    second = figure_text(latency.second, Unit.MILLISECONDS)
    gap = figure_text(latency.median, Unit.MILLISECONDS)
    return (
        f"Latency on {side_word(is_attack=latency.is_attack)}, median: "
        f"{names[0]} {first}, {names[1]} {second}; "
        f"paired difference {gap} over {count_text(latency.median.pairs)}"
    )
