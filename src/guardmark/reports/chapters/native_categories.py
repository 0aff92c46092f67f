"""Categories that defenses name themselves: how often each is flagged, and other thresholds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from guardmark.analysis.defense.scorecard import complement
from guardmark.reports.document.blocks import Line, LineChart, Section, Table, Tone, Unit, section
from guardmark.reports.document.cells import (
    figure_text,
    known,
    name,
    number,
    slug,
    table_of,
    with_counts,
    words,
)
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.defense.native_categories import CategoryConfusion, NativeCategory
    from guardmark.analysis.defense.scores import LimitedPoint
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.cells import Value

CURVES_SHOWN = 8
"""Most categories of a defense whose curves stand in one picture, the best told apart first."""


class _Row(NamedTuple):
    """A native category of a defense."""

    defense: DefenseAnalysis
    category: NativeCategory


def write_native_categories(analysis: RunAnalysis) -> Section | None:
    """Write the section on categories that defenses name themselves; None where none does."""
    rows: list[_Row] = []
    for defense in analysis.candidates:
        rows.extend(_Row(defense, category) for category in defense.native_categories)
    if not rows:
        return None
    written = section(
        "native-categories",
        "Native categories",
        (
            "Categories as the defenses name them, each read from the same one answer a "
            "sample. Flagged: its score reaches the threshold given for it; without one, "
            "the threshold of the defense where the highest of several scores decides; "
            "else the service says so itself. An answer that says nothing of a category "
            "is counted apart, never as not flagged, unless the defense lists what it flags and "
            "nothing else."
        ),
        _flagged(rows),
        _confusion(rows),
        _limits(rows),
        *(_curves(defense) for defense in analysis.candidates),
    )
    return replace(written, folded=True)


def _flagged(rows: list[_Row]) -> Table:
    return table_of(
        rows,
        {
            "Defense": lambda row: name(row.defense.name),
            "Native category": lambda row: name(row.category.name),
            "Flagged from": lambda row: known(row.category.threshold, Unit.NUMBER),
            "Attacks flagged|of attacks": lambda row: with_counts(row.category.flagged_attacks),
            "Benign flagged|of benign": lambda row: with_counts(row.category.flagged_benign),
            "Not said: decisions that do not say whether it was flagged": lambda row: (
                row.category.unstated
            ),
        },
        table_id="native-flagged",
        texts=("Native category",),
        greyed=_is_exploratory,
        title="How often each native category is flagged",
        note=(
            "Of the decisions that say whether it was; one answer may flag several "
            "categories, or none."
        ),
    )


def _is_exploratory(row: _Row) -> bool:
    """Tell whether a rule ended the defense early, so that no part of it has a sure interval."""
    return bool(row.defense.stopped)


def _confusion(rows: list[_Row]) -> Table | None:
    """Lay the flags against the samples' own categories, where these were mapped."""
    mapped = [row for row in rows if row.category.confusion is not None]
    if not mapped:
        return None
    return table_of(
        mapped,
        {
            "Defense": lambda row: name(row.defense.name),
            "Native category": lambda row: name(row.category.name),
            "Stands for": _own_names,
            "Of these attacks flagged|of these": lambda row: _shares(row)[0:2],
            "Of other attacks flagged|of others": lambda row: _shares(row)[2:4],
            "Of benign flagged|of benign": lambda row: with_counts(row.category.flagged_benign),
            "These among what is flagged|of flagged": lambda row: _shares(row)[4:6],
        },
        table_id="native-confusion",
        texts=("Native category", "Stands for"),
        greyed=_is_exploratory,
        title="Native categories against the samples' own",
        note=("Stands for: as stats.category_map says. The last share holds for this data's mix."),
    )


def _own_names(row: _Row) -> Value:
    confusion = row.category.confusion
    if confusion is None:
        return ""
    return ", ".join(confusion.own)


def _shares(row: _Row) -> tuple[Value, ...]:
    """Return the cells of the three shares of a confusion."""
    confusion: CategoryConfusion | None = row.category.confusion
    if confusion is None:
        return ()
    return (
        *with_counts(confusion.flagged_own),
        *with_counts(confusion.flagged_other),
        *with_counts(confusion.own_among_flagged),
    )


class _LimitRow(NamedTuple):
    """What a native category could do within one limit on false alarms."""

    row: _Row
    point: LimitedPoint


def _limits(rows: list[_Row]) -> Table | None:
    """Tell of each category the threshold that flags most within a limit on false alarms."""
    limited: list[_LimitRow] = []
    for row in rows:
        if row.category.curve is not None:
            for point in row.category.curve.limited:
                limited.append(_LimitRow(row, point))
    if not limited:
        return None
    return table_of(
        limited,
        {
            "Defense": lambda each: name(each.row.defense.name),
            "Native category": lambda each: name(each.row.category.name),
            "FPR at most": lambda each: f"{100 * each.point.max_fpr:g} %",
            "Threshold|Attacks flagged|of attacks|Benign flagged|of benign|Remark": lambda each: (
                _limit_cells(each.point)
            ),
        },
        table_id="native-limits",
        texts=("Native category", "Remark"),
        greyed=lambda each: not each.point.is_resolvable,
        collapsed=True,
        title="Thresholds of native categories within a limit on false alarms",
        note=(
            "Attacks are those of the categories that it stands for, or all where nobody "
            "said. Chosen on the calibration half of the groups, measured on the other. "
            "guardmark report RUN --choose DEFENSE:CATEGORY=FPR writes the setting."
        ),
    )


def _limit_cells(point: LimitedPoint) -> tuple[Value, ...]:
    if point.rates is None or not point.is_resolvable:
        remark = point.reason or "no threshold keeps the limit"
        return "", "", "", "", "", words(remark, Tone.MUTED)
    hits, alarms = complement(point.rates.attack_success_rate), point.rates.false_positive_rate
    return number(point.threshold), *with_counts(hits), *with_counts(alarms), ""


def _curves(defense: DefenseAnalysis) -> LineChart | None:
    """Draw the ROC curves of the native categories of a defense."""
    scored = []
    for category in defense.native_categories:
        if category.curve is not None:
            scored.append((category.name, category.curve))
    if not scored:
        return None
    scored.sort(key=lambda each: -(each[1].area.value or 0.0))
    lines, sentences = [], []
    for title, curve in scored[:CURVES_SHOWN]:
        points = []
        for point in curve.points:
            points.append((point.false_positive_rate, point.true_positive_rate))
        lines.append(Line(label=title, points=((0.0, 0.0), *points, (1.0, 1.0))))
        sentences.append(
            f"{title}: area under the ROC curve {figure_text(curve.area, Unit.NUMBER)}; scores "
            f"on {count_text(curve.scored_attacks)} attacks and "
            f"{count_text(curve.scored_benign)} benign samples."
        )
    if len(scored) > len(lines):
        left = len(scored) - len(lines)
        sentences.append(f"The curves of {left} more stand in summary.json.")
    return LineChart(
        id=f"native-roc-{slug(defense.name)}",
        title=f"{defense.name}: attacks flagged against false alarms, by native category (ROC)",
        x_axis="Benign samples flagged",
        y_axis="Attacks flagged",
        lines=tuple(lines),
        diagonal=True,
        summary=" ".join(sentences),
    )
