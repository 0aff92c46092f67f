"""Defenses in the plane of their two errors: which are worth choosing between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.analysis.defense.scorecard import complement
from guardmark.reports.document.blocks import Line, LineChart
from guardmark.reports.document.cells import of_estimate
from guardmark.reports.document.wording import measure_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guardmark.analysis.defense.scorecard import RatePair, Scorecard

    _Rated = RatePair | Scorecard


def draw_plane(rated: Iterable[tuple[str, _Rated]], front: Sequence[str]) -> LineChart | None:
    """Draw each defense as a mark with the intervals of both its rates."""
    lines: list[Line] = []
    words: list[str] = []
    for name, pair in rated:
        hits = of_estimate(complement(pair.attack_success_rate))
        alarms = of_estimate(pair.false_positive_rate)
        if hits.value is None or alarms.value is None:
            continue
        lines.append(
            Line(
                label=name,
                points=((alarms.value, hits.value),),
                band=_ends(hits.low, hits.high),
                reach=_ends(alarms.low, alarms.high),
            )
        )
        words.append(f"{name}: TPR {measure_text(hits)}, FPR {measure_text(alarms)}.")
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
