"""Categories that a defense names itself: how often it flags each, and what their scores could do.

A service that scores violence, fraud and privacy answers once for all three, so that each of them
can be read as a defense of its own over the same answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guardmark.analysis.defense.counts import estimate_share
from guardmark.analysis.defense.frame import ALLOW, BLOCK, ERROR
from guardmark.analysis.defense.scorecard import complement, estimate_errors
from guardmark.core.errors import UnknownName
from guardmark.core.values import dataclass
from guardmark.store.columns import finding_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.defense.scorecard import RatePair
    from guardmark.analysis.defense.scores import CurvePoint, LimitedPoint
    from guardmark.core.estimate import Estimate
    from guardmark.stats.figures import Ratio
    from guardmark.store.columns import FindingColumns
    from guardmark.store.reader import RecordReader

    Marks = NDArray[np.bool_]

MOST_CATEGORIES: Final = 50
"""Native categories of a defense that are looked at, those that most answers name first."""
_VOTES_OF_MEMBERS: Final = frozenset({"chain"})  # types whose categories are their members


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryConfusion:
    """How the flags of a native category fall on the samples' own categories.

    Attributes:
        own: Categories of samples that it stands for, by `stats.category_map`.
        flagged_own: Flagged, of the attacks of these categories.
        flagged_other: Flagged, of the attacks of all other categories.
        own_among_flagged: Attacks of these categories, of all flagged samples.
    """

    own: tuple[str, ...]
    flagged_own: Estimate
    flagged_other: Estimate
    own_among_flagged: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryCurve:
    """What thresholds of one native category would do.

    The attacks are those of the categories that it stands for, or all where nobody said.

    Attributes:
        area: Area under the ROC curve.
        points: The curve, from "flag nothing" on, thinned.
        limited: The best within limits on false alarms.
        scored_attacks: Attacks with a score of the category.
        scored_benign: Benign samples with one.
    """

    area: Ratio
    points: tuple[CurvePoint, ...]
    limited: tuple[LimitedPoint, ...]
    scored_attacks: int
    scored_benign: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeCategory:
    """One category that a defense names itself.

    Attributes:
        name: As the defense says it.
        threshold: Score from which it is flagged, where the defense states one for it.
        flagged_attacks: Flagged, of the attacks whose answer says whether it was.
        flagged_benign: Flagged, of the benign samples whose answer says so.
        unstated: Decisions that do not say whether it was flagged.
        confusion: None where nobody said what it stands for.
        curve: None without scores on both attacks and benign samples.
    """

    name: str
    threshold: float | None
    flagged_attacks: Estimate
    flagged_benign: Estimate
    unstated: int
    confusion: CategoryConfusion | None
    curve: CategoryCurve | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryAnswers:
    """What the answers of a defense say of one native category, one place a record.

    Attributes:
        is_stated: Whether a decision says if it was flagged.
        score: Nan where a decision has none.
    """

    name: str
    is_flagged: Marks
    is_stated: Marks
    score: NDArray[np.float64]

    def as_defense(self, arm: DefenseColumn) -> DefenseColumn:
        """Return the category as a defense that blocks what it flags, over what it scored."""
        decided = np.where(self.is_flagged, BLOCK, ALLOW)
        outcome = np.where(np.isnan(self.score), ERROR, decided).astype(np.int8)
        records = replace(arm.records, outcome=outcome, score=self.score)
        return replace(arm, records=records, threshold=None)


def read_category_answers(
    reader: RecordReader, frame: Frame, arm: DefenseColumn
) -> tuple[CategoryAnswers, ...]:
    """Read the native categories of a defense, those that most answers name first.

    There are none of a chain, whose categories are its members, of a run that is counted and not
    held, and of decisions that were changed after the run.
    """
    if arm.is_redecided or arm.part.type in _VOTES_OF_MEMBERS or frame.weights is not None:
        return ()
    findings = finding_columns(reader, arm.name)
    # Where no answer ever says of a category that it was not flagged, the defense lists what it
    # flags: what an answer does not name was not.
    is_list = True
    for of_category in findings:
        if not (of_category.flagged == 1).all() or not np.isnan(of_category.score).all():
            is_list = False
    categories = []
    for of_category in findings:
        answers = _aligned(frame, arm, of_category, is_list=is_list)
        if answers.is_stated.any() or not np.isnan(answers.score).all():
            categories.append(answers)
    categories.sort(key=lambda answers: (-int(answers.is_stated.sum()), answers.name))
    return tuple(sorted(categories[:MOST_CATEGORIES], key=lambda answers: answers.name))


def _aligned(
    frame: Frame, arm: DefenseColumn, findings: FindingColumns, *, is_list: bool
) -> CategoryAnswers:
    """Lay what answers say of a category beside the records of their defense."""
    records = arm.records
    keys = records.repeat.astype(np.int64) * frame.sample_count + records.sample
    at = np.searchsorted(keys, findings.repeat * frame.sample_count + findings.sample)
    flagged = np.full(len(keys), -1, dtype=np.int8)
    if is_list:
        flagged[:] = 0
    score = np.full(len(keys), np.nan)
    flagged[at], score[at] = findings.flagged, findings.score
    # What failed was not decided, whatever else its answer says.
    flagged[~arm.is_answered], score[~arm.is_answered] = -1, np.nan
    return CategoryAnswers(
        name=findings.name, is_flagged=flagged == 1, is_stated=flagged >= 0, score=score
    )


def analyse_native_categories(
    reader: RecordReader, frame: Frame, arm: DefenseColumn
) -> tuple[NativeCategory, ...]:
    """Compute what is said about each native category of a defense."""
    own_of = dict(frame.settings.category_map).get(arm.name, {})
    thresholds: Any = arm.part.settings.get("thresholds")
    if not isinstance(thresholds, Mapping):
        thresholds = {}
    categories = []
    for answers in read_category_answers(reader, frame, arm):
        own = own_of.get(answers.name, ())
        categories.append(_analyse(frame, arm, answers, own=own, stated=thresholds))
    return tuple(categories)


def _analyse(
    frame: Frame,
    arm: DefenseColumn,
    answers: CategoryAnswers,
    *,
    own: Sequence[str],
    stated: Mapping[str, float],
) -> NativeCategory:
    """Compute what is said about one category; `own` are those of the data that it stands for."""
    flagged = estimate_errors(frame, arm, blocked=answers.is_flagged, trials=answers.is_stated)
    confusion = None
    if own:
        confusion = _confusion(frame, arm, answers, own)
    return NativeCategory(
        name=answers.name,
        threshold=stated.get(answers.name),
        flagged_attacks=complement(flagged.attack_success_rate),
        flagged_benign=flagged.false_positive_rate,
        unstated=int((arm.is_answered & ~answers.is_stated).sum()),
        confusion=confusion,
        curve=_curve(frame, arm, answers, own),
    )


def _is_own(frame: Frame, arm: DefenseColumn, own: Sequence[str]) -> Marks:
    """Tell which records are of attacks of some categories."""
    category = frame.samples.category
    codes = [code for code, name in enumerate(category.names) if name in own]
    at = arm.records.sample
    is_own: Marks = np.isin(category.codes[at], codes) & frame.samples.is_attack[at]
    return is_own


def _confusion(
    frame: Frame, arm: DefenseColumn, answers: CategoryAnswers, own: Sequence[str]
) -> CategoryConfusion:
    """Count the flags on attacks of the own categories, and on all else."""
    is_own = _is_own(frame, arm, own)
    is_other = ~is_own & frame.samples.is_attack[arm.records.sample]
    flagged, stated = answers.is_flagged, answers.is_stated
    return CategoryConfusion(
        own=tuple(own),
        flagged_own=estimate_share(frame, arm, flagged, stated & is_own),
        flagged_other=estimate_share(frame, arm, flagged, stated & is_other),
        own_among_flagged=estimate_share(frame, arm, is_own, stated & flagged),
    )


def _curve(
    frame: Frame, arm: DefenseColumn, answers: CategoryAnswers, own: Sequence[str]
) -> CategoryCurve | None:
    """Find what thresholds of a category would do, or None without scores."""
    if np.isnan(answers.score).all():
        return None
    # Loaded by runs that need it alone: it is a good part of a short run's start.
    from guardmark.analysis.defense.scores import analyse_thresholds

    found = analyse_thresholds(frame, scored_category(frame, arm, answers, own))
    if found is None:
        return None
    return CategoryCurve(
        area=found.area,
        points=found.points,
        # There is no present decision that a threshold could be held against.
        limited=tuple(replace(each, gain=None) for each in found.limited),
        scored_attacks=found.scored_attacks,
        scored_benign=found.scored_benign,
    )


def scored_category(
    frame: Frame, arm: DefenseColumn, answers: CategoryAnswers, own: Sequence[str]
) -> DefenseColumn:
    """Return a category as a defense over the attacks that it stands for, all where unsaid."""
    if own:
        is_benign = ~frame.samples.is_attack[arm.records.sample]
        counts = _is_own(frame, arm, own) | is_benign
        answers = replace(answers, score=np.where(counts, answers.score, np.nan))
    return answers.as_defense(arm)


def find_category(
    reader: RecordReader, frame: Frame, arm: DefenseColumn, name: str
) -> CategoryAnswers:
    """Return one native category of a defense."""
    by_name = {each.name: each for each in read_category_answers(reader, frame, arm)}
    if name not in by_name:
        raise UnknownName(f"native category of {arm.name}", name, by_name)
    return by_name[name]


def measure_together(
    frame: Frame, arm: DefenseColumn, chosen: Sequence[tuple[CategoryAnswers, float]]
) -> RatePair:
    """Measure thresholds of categories together, on samples that they were not chosen on."""
    measuring = ~frame.is_calibration[arm.records.sample]
    blocked = np.zeros(len(measuring), dtype=np.bool_)
    for answers, threshold in chosen:
        measuring &= ~np.isnan(answers.score)
        blocked |= answers.score >= threshold
    return estimate_errors(frame, arm, blocked=blocked & measuring, trials=measuring)
