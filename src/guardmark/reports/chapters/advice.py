"""What to do and what to read first: recommendations and listed samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.analysis.defense.bypasses import Flaw
from guardmark.reports.chapters.comparison import draw_plane
from guardmark.reports.document.blocks import (
    SampleBrowser,
    SampleCount,
    SampleEntry,
    Section,
    muted,
    section,
)
from guardmark.reports.document.cells import figure, table_of, words
from guardmark.reports.document.wording import count_text, counts_text, measure_text, percent_text

if TYPE_CHECKING:
    from guardmark.analysis.compare.recommendations import Advice
    from guardmark.analysis.defense.bypasses import ListedSample
    from guardmark.analysis.run import RunAnalysis

MORE_ADVICE: Final = "more-advice"  # the table of those past the first
_FIRST: Final = 3
_WIDTHS: Final = {
    "attack_success_rate": ("ASR", "attacks"),
    "false_positive_rate": ("FPR", "benign samples"),
}
_DIFFERENCES: Final = (
    "ASR {attack_success_rate_difference_points:+.1f} points, "
    "FPR {false_positive_rate_difference_points:+.1f} points."
)
_SENTENCES: Final = {
    "failures": "{defense}: fix the failures first (mostly {subject}). {malformed:,.0f} malformed "
    "answers and {errors:,.0f} errors leave an answered share of {answered_share}; over all "
    "attacks the ASR is {attack_success_rate_fail_closed_share} if failures block and "
    "{attack_success_rate_fail_open_share} if they allow.",
    "no_separation": "{defense}: do not rely on it for this data. It is not shown to block attacks "
    "(TPR {true_positive_rate}) more often than benign samples (FPR {false_positive_rate}).",
    "mostly_bypassed": "{defense}: not enough on its own. ASR {attack_success_rate}; the whole "
    "interval lies above 50 %.",
    "critical": "{defense}: read the bypasses of severity {subject} first; "
    "{attack_success_rate_counts} such attacks get through, {attack_success_rate}.",
    "worst_category": "{defense}: strengthen it against {subject}. ASR there "
    "{attack_success_rate}, against {overall} over all attacks. As the highest of all categories "
    "it is overstated: allowing for that, {after_choice}.",
    "false_alarms": "{defense}: look at its false alarms before it goes live. FPR "
    "{false_positive_rate}; the whole interval lies above 5 %.",
    "threshold": "{defense}: consider the threshold {threshold:.3f}, chosen for {subject} on the "
    "calibration half. On the other half ASR {attack_success_rate} and FPR "
    "{false_positive_rate}; now ASR {present_attack_success_rate} and FPR "
    "{present_false_positive_rate}.",
    "better": f"Prefer {{defense}} to {{subject}}: {_DIFFERENCES}",
    "trade_off": f"{{defense}} against {{subject}} is a trade-off: {_DIFFERENCES} Decide by "
    "what a missed attack and a false alarm cost you; neither is better as such.",
    "too_wide": "{defense}: collect more {what}. {rate} is known to about "
    "±{half_width_points:.1f} points from {samples:,.0f}; ±{wanted_points:.1f} points would take "
    "about {needed:,.0f} at this rate.",
}
_OPTIONS: Final = {
    Flaw.BYPASS: "--bypasses",
    Flaw.FALSE_ALARM: "--false-alarms",
    Flaw.ERROR: "--errors",
    Flaw.MALFORMED: "--malformed",
    Flaw.DIFFERENT: "--different",
}


def write_advice(analysis: RunAnalysis) -> Section:
    """Write what to do next, the picture it rests on, what to read, and how sure one can be."""
    lines = tuple(advice_sentence(each) for each in analysis.advice)
    front = analysis.comparison.front if analysis.comparison else ()
    further = table_of(
        lines[_FIRST:],
        {"Recommendation": words},
        table_id=MORE_ADVICE,
        title="Further recommendations",
        collapsed=True,
    )
    return section(
        *("recommendations", "What to do next", lines[:_FIRST]),
        None if lines else muted("The data carry no recommendation."),
        further if further.rows else None,
        draw_plane(((each.name, each.card) for each in analysis.candidates), front),
        _to_read(analysis),
        muted(_how_sure(analysis)),
    )


def _to_read(analysis: RunAnalysis) -> SampleBrowser | None:
    """Choose the worst bypass and the worst false alarm."""
    listed, characters = analysis.worst.listed, analysis.settings.excerpt_characters
    first = (
        next((each for each in listed if flaw in each.flaws), None)
        for flaw in (Flaw.BYPASS, Flaw.FALSE_ALARM)
    )
    entries = tuple(_entry(each, characters) for each in first if each)
    browser = SampleBrowser(id="read-first", title="Read these first", entries=entries, counts=())
    return browser if entries else None


def _how_sure(analysis: RunAnalysis) -> str:
    samples, status = analysis.samples, analysis.status
    failed = sum(e.card.confusion.malformed + e.card.confusion.errors for e in analysis.defenses)
    return (
        f"How sure: {count_text(samples.attacks)} attacks and {count_text(samples.benign)} benign "
        f"samples in {count_text(samples.groups)} groups; {count_text(failed)} answers failed, "
        f"{count_text(status.retried)} were asked again. "
        f'"{100 * analysis.settings.confidence:g} %" speaks about samples like these, not '
        "about attacks nobody tried."
    )


def advice_sentence(advice: Advice) -> str:
    """Put one recommendation into words."""
    rate, what = _WIDTHS.get(advice.subject, ("", ""))
    parts = {"defense": advice.defense, "subject": advice.subject, "rate": rate, "what": what}
    for key, estimate in advice.figures:
        measure = figure(estimate)
        parts[key] = measure_text(measure)
        parts[f"{key}_counts"] = counts_text(measure)
        parts[f"{key}_share"] = percent_text(measure.value)
    numbers = dict(advice.numbers)
    points = {f"{key}_points": 100 * number for key, number in numbers.items()}
    return _SENTENCES[advice.rule].format(**parts, **numbers, **points)


def write_worst(analysis: RunAnalysis) -> Section:
    """Write the section on the worst case."""
    worst, settings = analysis.worst, analysis.settings
    browser = SampleBrowser(
        id="samples",
        title="Samples to read, worst first",
        entries=tuple(_entry(each, settings.excerpt_characters) for each in worst.listed),
        counts=tuple(
            SampleCount(
                kind=each.flaw,
                total=each.total,
                listed=each.listed,
                command=f"guardmark show {settings.run_folder} {_OPTIONS[each.flaw]}",
            )
            for each in worst.counts
        ),
    )
    nothing = "No attack got through, no benign sample was blocked, nothing failed."
    return section("worst", "Worst case", browser if worst.counts else None, otherwise=nothing)


def _entry(listed: ListedSample, characters: int) -> SampleEntry:
    sample, text = listed.sample, listed.sample.prompt.text
    facets = {
        "category": sample.category,
        "subcategory": sample.subcategory,
        "severity": sample.severity.value if sample.severity else "",
        "technique": sample.technique,
        "language": sample.language,
        "variant": "" if sample.variant == "original" else sample.variant,
        "group": "" if sample.lineage == sample.id else sample.group,
    }
    return SampleEntry(
        sample_id=sample.id,
        is_attack=sample.is_attack,
        facets=tuple((facet, value) for facet, value in facets.items() if value),
        kinds=listed.flaws,
        answers=listed.answers,
        excerpt=text[:characters],
        characters=len(text),
        cut=len(text) > characters,
        sha256=sample.prompt.digest().hex(),
    )
