"""Defenses against each other on the same samples: what follows, rates, pairs, samples to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.analysis.compare.comparison import PairVerdict
from guardmark.analysis.defense.costs import CostUnit
from guardmark.analysis.defense.scorecard import complement
from guardmark.reports.document.blocks import (
    Bullets,
    Document,
    FigureCell,
    IntervalChart,
    IntervalMark,
    Line,
    LineChart,
    Paragraph,
    Section,
    Table,
    Tone,
    Unit,
    empty_section,
)
from guardmark.reports.document.cells import (
    columns,
    counts,
    figure,
    name,
    of_difference,
    of_estimate,
    row,
)
from guardmark.reports.document.wording import (
    count_text,
    measure_text,
    p_text,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from guardmark.analysis.compare.comparison import (
        BestSet,
        PairedComparison,
        PairedSide,
        RunComparison,
    )
    from guardmark.analysis.compare.paired_details import (
        CategoryDifference,
        DiscordantSample,
        LatencyDifference,
        PairDetail,
    )
    from guardmark.analysis.compare.runs_compared import Compared, ComparedRun
    from guardmark.analysis.defense.costs import CostDifference
    from guardmark.analysis.defense.scorecard import RatePair, Scorecard
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import Block


_EXCERPT: Final = 120
_MOST_CATEGORIES: Final = 6
_MEANINGS = {
    "Difference": "first rate minus second; below zero the first is better",
    "p": "cluster sign-flip mid-p; McNemar's mid-p without groups",
    "p (Holm)": "adjusted for all pairs of this table",
    "Only first": "samples on which only the first erred",
    "Only second": "samples on which only the second erred",
    "Both": "samples on which both erred",
    "Neither": "samples on which neither erred",
    "Left out": "samples without a decision on one side",
}


def write(analysis: RunAnalysis) -> Section:
    """Write the section that compares the defenses."""
    comparison = analysis.comparison
    if comparison is None:
        text = "The run holds one defense, so there is nothing to compare."
        return empty_section("comparison", "Comparison", text)
    from guardmark.analysis.compare.runs_compared import (
        find_front,  # only where there is a comparison
    )

    rated = ((each.name, each.card) for each in analysis.candidates)
    plane = draw_plane(rated, find_front(comparison))
    blocks = comparison_blocks(comparison)
    if plane is not None:
        blocks = (*blocks[:1], plane, *blocks[1:])
    return Section(id="comparison", title="Comparison", blocks=blocks)


def comparison_blocks(comparison: RunComparison) -> tuple[Block, ...]:
    """Tell defenses against each other: sentences, charts, tables."""
    blocks: list[Block] = [
        Bullets(lines=tuple(pair_sentence(pair) for pair in comparison.pairs)),
    ]
    if comparison.attacks.best or comparison.benign.best:  # across runs nobody asks who is best
        lines = (
            best_sentence(comparison.attacks, "attack success rate"),
            best_sentence(comparison.benign, "false positive rate"),
        )
        blocks.append(Bullets(lines=lines))
    blocks += [
        _differences_chart(comparison, is_attack=True),
        _differences_chart(comparison, is_attack=False),
        _pairs_table(comparison, is_attack=True),
        _pairs_table(comparison, is_attack=False),
    ]
    if comparison.left_out:
        text = f"Baselines are no candidates and were left out: {', '.join(comparison.left_out)}."
        blocks.append(Paragraph(text=text, tone=Tone.MUTED))
    return tuple(blocks)


def pair_sentence(pair: PairedComparison) -> str:
    """Say in one sentence what the data carry about two defenses."""
    asr, fpr = _gap(pair.attacks, "ASR"), _gap(pair.benign, "FPR")
    first, second = pair.first, pair.second
    sentences = {
        PairVerdict.FIRST_BETTER: f"{first} is better than {second}: {asr}; {fpr}.",
        PairVerdict.SECOND_BETTER: f"{second} is better than {first}: {asr}; {fpr}.",
        PairVerdict.TRADE_OFF: f"{first} and {second} trade bypasses for false alarms, so neither "
        f"is better: {asr}; {fpr}.",
        PairVerdict.FIRST_FEWER_BYPASSES: f"{first} lets fewer attacks through than {second}, but "
        f"its false alarms are not shown to be no more: {asr}; {fpr}.",
        PairVerdict.SECOND_FEWER_BYPASSES: f"{second} lets fewer attacks through than {first}, "
        f"but its false alarms are not shown to be no more: {asr}; {fpr}.",
        PairVerdict.FIRST_FEWER_FALSE_ALARMS: f"{first} has fewer false alarms than {second}; on "
        f"attacks the two cannot be told apart: {asr}; {fpr}.",
        PairVerdict.SECOND_FEWER_FALSE_ALARMS: f"{second} has fewer false alarms than {first}; "
        f"on attacks the two cannot be told apart: {asr}; {fpr}.",
        PairVerdict.UNDECIDED: f"{first} and {second} cannot be told apart, which does not make "
        f"them equal: {asr}; {fpr}.",
    }
    return sentences[pair.verdict]


def _gap(side: PairedSide, label: str) -> str:
    measure = of_difference(side.difference)
    if measure.value is None:
        return f"{label} difference undefined"
    words_ = f"{label} {measure_text(measure)}"
    if side.adjusted_p is None:
        return f"{words_} ({measure.reason})"
    words_ += f", p {p_text(side.adjusted_p)}"
    crosses = (measure.low or 0.0) <= 0.0 <= (measure.high or 0.0)
    if crosses and side.detectable is not None:
        words_ += f" (a difference of {100 * side.detectable:.1f} points would have been found)"
    return words_


def _side_of(pair: PairedComparison, *, is_attack: bool) -> PairedSide:
    return pair.attacks if is_attack else pair.benign


def _differences_chart(comparison: RunComparison, *, is_attack: bool) -> IntervalChart:
    label = "ASR" if is_attack else "FPR"
    marks = []
    for pair in comparison.pairs:
        measure = of_difference(_side_of(pair, is_attack=is_attack).difference)
        note = f"{count_text(measure.trials or 0)} pairs"
        marks.append(
            IntervalMark(label=f"{pair.first} - {pair.second}", measure=measure, note=note)
        )
    return IntervalChart(
        id=f"difference-{label.lower()}",
        title=f"Difference in {label}, first minus second",
        unit=Unit.POINTS,
        axis=f"Difference in {label}",
        marks=tuple(marks),
        reference=(0.0, "no difference"),
    )


def _pairs_table(comparison: RunComparison, *, is_attack: bool) -> Table:
    rows = []
    for pair in comparison.pairs:
        side = _side_of(pair, is_attack=is_attack)
        difference = side.difference
        rows.append(
            row(
                name(pair.first),
                name(pair.second),
                difference,
                _p_cell(difference.p_value),
                _p_cell(side.adjusted_p),
                difference.first_only or 0,
                difference.second_only or 0,
                side.both,
                side.neither,
                side.unpaired,
            )
        )
    label = "attacks (ASR)" if is_attack else "benign samples (FPR)"
    return Table(
        id=f"pairs-{'asr' if is_attack else 'fpr'}",
        title=f"Pairs on the same {label}",
        columns=columns("First", "Second", *_MEANINGS, texts=("Second",), meanings=_MEANINGS),
        rows=tuple(rows),
        note="Samples without a decision on one side are left out and counted, never taken as "
        "allowed.",
        collapsed=not is_attack,
    )


def _p_cell(p_value: float | None) -> FigureCell:
    return figure(p_value, Unit.P_VALUE)


def draw_plane(
    rated: Iterable[tuple[str, RatePair | Scorecard]], front: Sequence[str]
) -> LineChart | None:
    """Draw each defense as a mark with the intervals of both its rates."""
    lines: list[Line] = []
    words: list[str] = []
    for defense, pair in rated:
        hits = of_estimate(complement(pair.attack_success_rate))
        alarms = of_estimate(pair.false_positive_rate)
        if hits.value is None or alarms.value is None:
            continue
        lines.append(
            Line(
                label=defense,
                points=((alarms.value, hits.value),),
                band=_ends(hits.low, hits.high),
                reach=_ends(alarms.low, alarms.high),
            )
        )
        words.append(f"{defense}: TPR {measure_text(hits)}, FPR {measure_text(alarms)}.")
    if not lines:
        return None
    if front:
        words.append(
            f"Worth choosing between (no other is shown to beat them on both sides): "
            f"{', '.join(front)}."
        )
    return LineChart(
        id="plane",
        title="Attacks blocked against false alarms, with intervals",
        x_axis="False positive rate",
        y_axis="True positive rate",
        lines=tuple(lines),
        diagonal=True,
        summary=" ".join(words),
    )


def _ends(low: float | None, high: float | None) -> tuple[tuple[float, float], ...]:
    return () if low is None or high is None else ((low, high),)


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


def comparison_document(compared: Compared, *, texts: bool = True) -> Document:
    """Tell a comparison: advice first, then rates, pairs, and samples to read."""
    runs = ", ".join(run.label for run in compared.runs)
    return Document(
        title="Defenses compared",
        subtitle=f"{runs}: the same {count_text(compared.attacks)} attacks and "
        f"{count_text(compared.benign)} benign samples.",
        caveats=tuple(caveats(compared)),
        sections=(
            Section(id="advice", title="What follows", blocks=(_advice(compared),)),
            Section(id="rates", title="Rates", blocks=_rates(compared)),
            *(
                _pair(number, detail, compared, texts=texts)
                for number, detail in enumerate(compared.details, start=1)
            ),
        ),
    )


def _advice(compared: Compared) -> Bullets:
    lines = [recommendation(pair, margin=compared.margin) for pair in compared.comparison.pairs]
    if left := len(lines) - len(compared.details):
        lines.append(
            f"{count_text(left)} pairs have no section of their own here: --json lists them; "
            "--only or --against names those of interest."
        )
    return Bullets(lines=tuple(lines))


def _rates(compared: Compared) -> tuple[Block, ...]:
    sentences, *differences = comparison_blocks(compared.comparison)
    plane = draw_plane(((each.name, each.rates) for each in compared.rates), compared.front)
    drawn = () if plane is None else (plane,)
    return (
        *(sentences, _rates_table(compared), *drawn, *differences),
        Paragraph(text=_method(compared)),
    )


def _rates_table(compared: Compared) -> Table:
    rows = []
    for each in compared.rates:
        asr = of_estimate(each.rates.attack_success_rate)
        fpr = of_estimate(each.rates.false_positive_rate)
        chosen = "yes" if each.name in compared.front else ""
        rows.append(row(name(each.name), asr, counts(asr), fpr, counts(fpr), chosen))
    note = "Worth choosing: no other is shown to beat it on both sides." if compared.front else ""
    return Table(
        id="each",
        title="Each by itself, on the samples both have",
        columns=columns(
            *("Defense", "ASR", "of attacks", "FPR", "of benign", "Worth choosing"),
            texts=("Worth choosing",),
            meanings={"ASR": "attack success rate", "FPR": "false positive rate"},
        ),
        rows=tuple(rows),
        note=note,
    )


def _pair(number: int, detail: PairDetail, compared: Compared, *, texts: bool) -> Section:
    names = (detail.first, detail.second)
    lines = [_latency(each, names) for each in detail.latency if each.median.value is not None]
    lines += [cost_sentence(cost, names) for cost in detail.costs]
    told = [each for each in detail.categories if _is_telling(each, compared.confidence)]
    lines += [_category(each) for each in sorted(told, key=_telling)[:_MOST_CATEGORIES]]
    if detail.discordant:
        total = count_text(detail.first_only + detail.second_only)
        lines.append(f"They differ on {total} samples; to read first:")
    lines += [_sample(each, texts=texts) for each in detail.discordant]
    blocks = [Bullets(lines=tuple(lines or ("Both agree on every sample.",)))]
    title = f"{detail.first} against {detail.second}"
    if detail.categories:
        return Section(
            id=f"pair-{number}", title=title, blocks=(*blocks, _categories(number, detail))
        )
    return Section(id=f"pair-{number}", title=title, blocks=tuple(blocks))


def _category(each: CategoryDifference) -> str:
    label = "ASR" if each.is_attack else "FPR"
    p_value = "" if each.side.adjusted_p is None else f", p {p_text(each.side.adjusted_p)}"
    few = " (few samples)" if each.is_greyed else ""
    gap = measure_text(of_difference(each.side.difference))
    return f"{label} in {each.category}: {gap}{p_value}{few}"


def _categories(number: int, detail: PairDetail) -> Table:
    return Table(
        id=f"categories-{number}",
        title="By category",
        columns=columns(
            *("Category", "Rate", "Difference", "p (Holm)", "Pairs"),
            texts=("Rate",),
            meanings={"Difference": "first rate minus second"},
        ),
        rows=tuple(
            row(
                each.category,
                "ASR" if each.is_attack else "FPR",
                each.side.difference,
                _p_cell(each.side.adjusted_p),
                each.side.difference.pairs,
                greyed=each.is_greyed,
            )
            for each in detail.categories
        ),
        collapsed=True,
    )


def _sample(each: DiscordantSample, *, texts: bool) -> str:
    sample = each.sample
    text = sample.prompt.text if texts else f"sha256 {sample.prompt.digest().hex()}"
    cut = text if len(text) <= _EXCERPT else f"{text[: _EXCERPT - 1]}…"
    severity = sample.severity.value if sample.severity else ""
    facets = ", ".join(filter(None, (sample.label.value, severity, sample.category)))
    return f"only {each.erred} wrong: {sample.id} ({facets}) {cut}"


def _latency(latency: LatencyDifference, names: tuple[str, str]) -> str:
    what = "attacks" if latency.is_attack else "benign"
    median = of_difference(latency.median, Unit.MILLISECONDS)
    medians = ", ".join(
        f"{defense} {value_text(value, Unit.MILLISECONDS)}"
        for defense, value in zip(names, (latency.first_ms, latency.second_ms), strict=True)
    )
    return (
        f"Latency on {what}, median: {medians}; paired difference {measure_text(median)} over "
        f"{count_text(latency.median.pairs)}"
    )


def _is_telling(each: CategoryDifference, confidence: float) -> bool:
    """Tell whether a category differs, and is large or sure enough to say so."""
    p_value = each.side.adjusted_p
    is_sure = p_value is not None and p_value < 1 - confidence
    return bool(each.side.difference.value) and (is_sure or not each.is_greyed)


def _telling(each: CategoryDifference) -> tuple[float, float]:
    p_value = 1.0 if each.side.adjusted_p is None else each.side.adjusted_p
    return (p_value, -abs(each.side.difference.value or 0.0))


def _method(compared: Compared) -> str:
    unit = "groups of variants" if compared.is_grouped else "samples"
    return (
        f"First rate minus second; below zero the first is better. {compared.confidence:.0%} "
        f"Bonett-Price intervals and McNemar's mid-p, by sign flips over {unit}; Holm over all "
        "pairs of a rate. Only samples that both answered count."
    ).replace("%", " %", 1)
