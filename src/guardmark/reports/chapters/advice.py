"""Recommendations in words; each sentence names the figure it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.document.blocks import (
    Bullets,
    FigureCell,
    Paragraph,
    Section,
    Tone,
    Unit,
    empty_section,
)
from guardmark.reports.document.cells import of_estimate
from guardmark.reports.document.wording import count_text, counts_text, measure_text, percent_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.analysis.compare.recommendations import Advice
    from guardmark.analysis.run import RunAnalysis

_WIDTHS = {
    "attack_success_rate": ("ASR", "attacks"),
    "false_positive_rate": ("FPR", "benign samples"),
}


def write(analysis: RunAnalysis) -> Section:
    """Write the section with the recommendations."""
    if not analysis.advice:
        text = "The data carry no recommendation."
        return empty_section("recommendations", "Recommendations", text)
    lines = tuple(advice_sentence(each) for each in analysis.advice)
    note = "Every line follows a written rule and names the figure it rests on."
    blocks = (Bullets(lines=lines), Paragraph(text=note, tone=Tone.MUTED))
    return Section(id="recommendations", title="Recommendations", blocks=blocks)


def advice_sentence(advice: Advice) -> str:
    """Put one recommendation into words."""
    return _WRITERS[advice.rule](advice)


def _shown(advice: Advice, figure: str) -> str:
    return measure_text(_measure(advice, figure))


def _measure(advice: Advice, figure: str) -> FigureCell:
    return of_estimate(dict(advice.figures)[figure])


def _number(advice: Advice, key: str) -> float:
    return dict(advice.numbers)[key]


def _failures(advice: Advice) -> str:
    malformed, errors = (round(_number(advice, key)) for key in ("malformed", "errors"))
    low, high = (
        percent_text(_measure(advice, f"attack_success_rate_{side}").value)
        for side in ("fail_closed", "fail_open")
    )
    return (
        f"{advice.defense}: mend the failures first (mostly {advice.subject}). "
        f"{count_text(malformed)} malformed answers and {count_text(errors)} errors leave an "
        f"answered share of {_shown(advice, 'answered_share')}; over all attacks the ASR is "
        f"{low} if failures block and {high} if they allow."
    )


def _no_separation(advice: Advice) -> str:
    return (
        f"{advice.defense}: do not rely on it for this data. It is not shown to block attacks "
        f"(TPR {_shown(advice, 'true_positive_rate')}) more often than benign samples "
        f"(FPR {_shown(advice, 'false_positive_rate')})."
    )


def _mostly_bypassed(advice: Advice) -> str:
    return (
        f"{advice.defense}: not enough on its own. ASR {_shown(advice, 'attack_success_rate')}; "
        "the whole interval lies above 50 %."
    )


def _critical(advice: Advice) -> str:
    measure = _measure(advice, "attack_success_rate")
    return (
        f"{advice.defense}: read the bypasses of severity {advice.subject} first; "
        f"{counts_text(measure)} such attacks get through, {measure_text(measure)}."
    )


def _worst_category(advice: Advice) -> str:
    return (
        f"{advice.defense}: strengthen it against {advice.subject}. ASR there "
        f"{_shown(advice, 'attack_success_rate')}, against {_shown(advice, 'overall')} over all "
        "attacks."
    )


def _false_alarms(advice: Advice) -> str:
    return (
        f"{advice.defense}: look at its false alarms before it goes live. FPR "
        f"{_shown(advice, 'false_positive_rate')}; the whole interval lies above 5 %."
    )


def _threshold(advice: Advice) -> str:
    return (
        f"{advice.defense}: consider the threshold {_number(advice, 'threshold'):.3f}, chosen for "
        f"{advice.subject} on the calibration half. On the other half ASR "
        f"{_shown(advice, 'attack_success_rate')} and FPR "
        f"{_shown(advice, 'false_positive_rate')}; now ASR "
        f"{_shown(advice, 'present_attack_success_rate')} and FPR "
        f"{_shown(advice, 'present_false_positive_rate')}."
    )


def _differences(advice: Advice) -> str:
    asr, fpr = (
        measure_text(FigureCell(value=_number(advice, f"{rate}_difference"), unit=Unit.POINTS))
        for rate in ("attack_success_rate", "false_positive_rate")
    )
    return f"ASR {asr}, FPR {fpr}"


def _better(advice: Advice) -> str:
    return f"Prefer {advice.defense} to {advice.subject}: {_differences(advice)}."


def _trade_off(advice: Advice) -> str:
    return (
        f"{advice.defense} against {advice.subject} is a matter of price: {_differences(advice)}. "
        "Decide by what a missed attack and a false alarm cost you; neither is better as such."
    )


def _too_wide(advice: Advice) -> str:
    rate, what = _WIDTHS[advice.subject]
    half, wanted = (100 * _number(advice, key) for key in ("half_width", "wanted"))
    samples, needed = (count_text(round(_number(advice, key))) for key in ("samples", "needed"))
    return (
        f"{advice.defense}: collect more {what}. {rate} is known to about ±{half:.1f} points from "
        f"{samples}; ±{wanted:.1f} points would take about {needed} at this rate."
    )


_WRITERS: dict[str, Callable[[Advice], str]] = {
    "failures": _failures,
    "no_separation": _no_separation,
    "mostly_bypassed": _mostly_bypassed,
    "critical": _critical,
    "worst_category": _worst_category,
    "false_alarms": _false_alarms,
    "threshold": _threshold,
    "better": _better,
    "trade_off": _trade_off,
    "too_wide": _too_wide,
}
