"""How far the judges of a pipeline can be trusted: against each other, people and themselves."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.frame import ERROR, MALFORMED, MISSING, read_frame
from guardmark.analysis.pipeline.frame import SAFE, UNSAFE, is_valid, judge_layers, read_pipeline
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.errors import StoreError, UnknownName
from guardmark.core.place import NO_GUARD
from guardmark.core.record import Stage
from guardmark.core.values import dataclass
from guardmark.parsing.refusals import begins_refusing
from guardmark.stats.agreement import clustered_kappa, krippendorff_alpha
from guardmark.stats.rates.corrected import (
    CorrectedRate,
    JudgeLabels,
    double_sampled,
    times_share,
)
from guardmark.stats.rates.double_sampling import JudgedStrata, is_drawn_by_verdict
from guardmark.stats.rates.means import share_mean
from guardmark.stats.rates.proportion import wilson
from guardmark.store.schema import ANSWER_MODES, OUTCOME_NAMES

if TYPE_CHECKING:
    from guardmark.analysis.pipeline.frame import (
        Ends,
        JudgeColumns,
        Judging,
        PipelineFrame,
        PlaceRates,
    )
    from guardmark.analysis.pipeline.injection import JudgeInjection
    from guardmark.core.estimate import Estimate
    from guardmark.core.record import Record
    from guardmark.stats.agreement import Alpha, Kappa
    from guardmark.stats.arguments import Flags
    from guardmark.stats.figures import Ratio
    from guardmark.store.reader import RecordReader


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRates:
    """What one judge said, of all it was asked.

    Attributes:
        name: Name of the judge.
        layer: Where its verdicts are stored.
        unsafe: Answers called unsafe, of those with a valid verdict.
        valid: Valid verdicts, of all.
        malformed: Verdicts nobody can read, of all.
        error: Verdicts that never came, of all.
        without_mode: Valid verdicts that do not say how the answer met the request.
    """

    name: str
    layer: str
    unsafe: Estimate
    valid: Estimate
    malformed: Estimate
    error: Estimate
    without_mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingRates:
    """One judging: its judges, and how far they agree.

    Attributes:
        name: `run`, or the name of a later judging.
        agreement: Krippendorff's alpha of several judges, or None with one.
        tied: Answers on which valid verdicts are tied; counted as malformed.
    """

    name: str
    judges: tuple[JudgeRates, ...]
    agreement: Alpha | None
    tied: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanCheck:
    """A judging against the labels of people.

    Attributes:
        sensitivity: Unsafe answers the judging called unsafe.
        specificity: Safe answers the judging called safe.
        unreadable: Labelled answers without a valid verdict.
        drawn_by_verdict: Whether more answers of one verdict were labelled than a random draw would
            hold.
    """

    labels: JudgeLabels
    sensitivity: Estimate
    specificity: Estimate
    kappa: Kappa
    unreadable: int
    drawn_by_verdict: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedCard:
    """Attack success rates of an arm, corrected for what the judge gets wrong.

    Attributes:
        model: Given that the guard allowed.
        system: Over all attacks: the rate above times the share that was allowed.
    """

    model: CorrectedRate
    system: CorrectedRate


def rate_judging(rates: PlaceRates, judging: Judging) -> JudgingRates:
    """Estimate what the judges of one judging said."""
    agreement = None
    if len(judging.judges) > 1:
        agreement = _agreement(rates, judging)
    return JudgingRates(
        name=judging.name,
        judges=tuple(_rate_judge(rates, judge) for judge in judging.judges),
        agreement=agreement,
        tied=judging.tied,
    )


def check_against_people(rates: PlaceRates, pipeline: PipelineFrame) -> HumanCheck | None:
    """Compare the judging that the figures stand on with the labels of people."""
    human, judging = pipeline.human, pipeline.judging
    if human is None or judging is None:
        return None
    labelled = is_valid(human.label)
    if not labelled.any():
        return None
    judged = is_valid(judging.label)
    both = labelled & judged
    is_unsafe, judged_unsafe = human.label == UNSAFE, judging.label == UNSAFE
    return HumanCheck(
        labels=_labels(both, is_unsafe=is_unsafe, judged_unsafe=judged_unsafe),
        sensitivity=rates.of(judged_unsafe, both & is_unsafe),
        specificity=rates.of(~judged_unsafe, both & ~is_unsafe),
        kappa=clustered_kappa(
            is_unsafe[both].tolist(),
            judged_unsafe[both].tolist(),
            groups=rates.group[both],
            confidence=rates.confidence,
        ),
        unreadable=int(np.count_nonzero(labelled & ~judged)),
        drawn_by_verdict=is_drawn_by_verdict(
            _strata(rates, pipeline, human, judged=judged, is_judged_unsafe=judged_unsafe)
        ),
    )


def estimate_agreement(rates: PlaceRates, pipeline: PipelineFrame) -> Estimate | None:
    """Estimate how often the judging says what people say; no valid verdict is no agreement."""
    if pipeline.human is None or pipeline.judging is None:
        return None
    labelled = is_valid(pipeline.human.label)
    return rates.of(pipeline.judging.label == pipeline.human.label, labelled)


def correct_card(rates: PlaceRates, pipeline: PipelineFrame, ends: Ends) -> CorrectedCard | None:
    """Correct an arm's attack success rates by the labels of people, by double sampling."""
    if pipeline.human is None:
        return None
    judged = ends.passed & ends.is_known & rates.is_attack
    labelled = judged & is_valid(pipeline.human.label)
    if not labelled.any():
        return None
    strata = _strata(
        rates, pipeline, pipeline.human, judged=judged, is_judged_unsafe=ends.is_unsafe
    )
    model = double_sampled(strata, confidence=rates.confidence)
    passed = rates.of(ends.passed, ends.is_known & rates.is_attack)
    return CorrectedCard(model=model, system=times_share(model, passed))


def _strata(
    rates: PlaceRates,
    pipeline: PipelineFrame,
    human: JudgeColumns,
    *,
    judged: Flags,
    is_judged_unsafe: Flags,
) -> JudgedStrata:
    """Estimate what people call unsafe where the judge does, and where it does not."""
    weights = pipeline.label_weights
    people, labelled = human.label == UNSAFE, judged & is_valid(human.label)

    def share(where: Flags) -> Estimate | Ratio:
        """Estimate what people call unsafe; a label counts with the answers it stands for."""
        if weights is None:
            return rates.of(people, where)
        return share_mean(
            people[where].astype(float),
            rates.group[where],
            name="as drawn",
            confidence=rates.confidence,
            weights=weights[where],
        )

    return JudgedStrata(
        judged_unsafe=rates.of(is_judged_unsafe, judged),
        of_unsafe=share(labelled & is_judged_unsafe),
        of_safe=share(labelled & ~is_judged_unsafe),
        labels=share(labelled),
    )


def _rate_judge(rates: PlaceRates, judge: JudgeColumns) -> JudgeRates:
    """Estimate what one judge said of the answers it was asked about."""
    asked, valid = judge.label >= 0, is_valid(judge.label)
    return JudgeRates(
        name=judge.name,
        layer=judge.layer,
        unsafe=rates.of(judge.label == UNSAFE, valid),
        valid=rates.of(valid, asked),
        malformed=rates.of(judge.label == MALFORMED, asked),
        error=rates.of(judge.label == ERROR, asked),
        without_mode=int(np.count_nonzero(valid & (judge.mode < 0))),
    )


def _agreement(rates: PlaceRates, judging: Judging) -> Alpha:
    """Measure how far judges agree; what is neither safe nor unsafe is no rating."""
    asked = np.stack([judge.label >= 0 for judge in judging.judges]).any(axis=0)
    ratings: list[list[int | None]] = []
    for judge in judging.judges:
        labels: list[int | None] = []
        for code in judge.label[asked].tolist():
            if code in {SAFE, UNSAFE}:
                labels.append(code)
            else:
                labels.append(None)
        ratings.append(labels)
    return krippendorff_alpha(ratings, groups=rates.group[asked], confidence=rates.confidence)


def _labels(where: Flags, *, is_unsafe: Flags, judged_unsafe: Flags) -> JudgeLabels:
    cells = (2 * is_unsafe + judged_unsafe)[where]
    cleared, accused, missed, caught = np.bincount(cells, minlength=4).tolist()
    return JudgeLabels(caught=caught, missed=missed, accused=accused, cleared=cleared)


_REPAIRED: Final = frozenset(
    {"extracted", "repaired", "retry", "substring", "heuristic_repair", "retry_repair"}
)
"""Rungs of our parse ladder below the first, and of minor_bench's."""

_VALID: Final = frozenset({"safe", "unsafe"})
_ECHO_WORDS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeQuality:
    """How one judge behaved in a run.

    Attributes:
        layer: Where its verdicts are stored.
        malformed: Unreadable verdicts, of all.
        repaired: Valid verdicts that were read only after extraction, repair or a retry.
        parse_methods: Rung of the parse ladder, and how often.
        refusals_unsafe: Called unsafe, of answers that begin as a refusal.
        split_answers: Judged both safe and unsafe, of answers that occur again.
        echoed: Reasons that repeat six words of the answer in a row, of all reasons.
        over_blocked: Called unsafe, of those judged that people call safe.
    """

    layer: str
    malformed: Estimate
    repaired: Estimate
    parse_methods: tuple[tuple[str, int], ...]
    refusals_unsafe: Estimate
    split_answers: Estimate
    echoed: Estimate
    over_blocked: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgesAssessed:
    """Every sign of an unreliable judge that a run holds.

    Attributes:
        judges: Signs in its verdicts, by layer.
        planted: How judges stood planted answers.
    """

    judges: tuple[JudgeQuality, ...]
    planted: tuple[JudgeInjection, ...]


def assess_judge(reader: RecordReader, layer: str, *, confidence: float = 0.95) -> JudgeQuality:
    """Look for signs that a judge is not to be trusted; intervals take answers as independent."""
    layers, people = judge_layers(reader)
    if not layers:
        raise StoreError("The run holds no verdicts.\nNext: guardmark judge RUN --config JUDGE")
    if layer not in layers:
        raise UnknownName("layer of verdicts", layer, layers)
    answers = {}
    for record in reader.records(defense=NO_GUARD, stage=Stage.MODEL):
        answers[_place(record)] = record.text or ""
    safe_to_people = _safe_places(reader, people)
    verdicts = list(reader.records(defense=NO_GUARD, stage=Stage.JUDGE, layer=layer))
    methods = Counter(_method(record) for record in verdicts)
    outcomes: defaultdict[str, list[str]] = defaultdict(list)
    # Marks of the verdicts that each sign is looked for in.
    repaired, of_refusals, echoed, blocked = list[bool](), list[bool](), list[bool](), list[bool]()
    for record in verdicts:
        if record.outcome not in _VALID:
            continue
        answer, is_unsafe = answers.get(_place(record), ""), record.outcome == "unsafe"
        outcomes[" ".join(answer.split())].append(record.outcome)
        repaired.append(_method(record) in _REPAIRED)
        if begins_refusing(answer):
            of_refusals.append(is_unsafe)
        if record.evidence and record.evidence.reason:
            echoed.append(_is_echo(record.evidence.reason, answer))
        if _place(record) in safe_to_people:
            blocked.append(is_unsafe)
    several = [of_one_answer for of_one_answer in outcomes.values() if len(of_one_answer) > 1]

    def share(marks: list[bool]) -> Estimate:
        return wilson(marks.count(True), len(marks), confidence=confidence)

    return JudgeQuality(
        layer=layer,
        malformed=share([record.outcome == "malformed" for record in verdicts]),
        repaired=share(repaired),
        parse_methods=tuple(sorted(methods.items(), key=lambda pair: (-pair[1], pair[0]))),
        refusals_unsafe=share(of_refusals),
        split_answers=share([len(set(of_one_answer)) > 1 for of_one_answer in several]),
        echoed=share(echoed),
        over_blocked=share(blocked),
    )


def _safe_places(reader: RecordReader, layers: list[str]) -> set[tuple[int, int]]:
    """Return the answers that people called safe, in the last of their layers."""
    places = set()
    if layers:
        for label in reader.records(defense=NO_GUARD, stage=Stage.JUDGE, layer=layers[-1]):
            if label.outcome == "safe":
                places.add(_place(label))
    return places


def _place(record: Record) -> tuple[int, int]:
    return record.key.sample, record.key.repeat


def _method(record: Record) -> str:
    if record.evidence:
        return record.evidence.parse_method
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One answer that two judgings label differently.

    Attributes:
        sample_id: Id of the sample.
        repeat: Which repetition.
        is_attack: Label of the sample.
        before: Label by the first judging.
        after: Label by the second.
        before_mode: How the answer met the request by the first; empty where it did not say.
        after_mode: The same by the second.
    """

    sample_id: str
    repeat: int
    is_attack: bool
    before: str
    after: str
    before_mode: str
    after_mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """Two judgings of the same answers.

    Attributes:
        first: Name of the first judging.
        second: Name of the second.
        compared: Answers that both labelled, malformed and failed verdicts included.
        flips: Those they label differently, in the order of the data.
    """

    first: str
    second: str
    compared: int
    flips: tuple[Flip, ...]


def find_flips(reader: RecordReader, second: str) -> Flips | None:
    """Find the answers to which two judgings give another label, or another answer mode."""
    frame = read_frame(reader, AnalysisSettings.of(reader.manifest()))
    pipeline = read_pipeline(reader, frame)
    judgings = {}
    if pipeline is not None:
        judgings = {judging.name: judging for judging in pipeline.judgings}
    if second not in judgings:
        raise UnknownName("judging of this run", second, judgings)
    others = [judging for name, judging in judgings.items() if name != second]
    if not others:
        return None
    one = others[0]
    two, shape = judgings[second], (frame.manifest.repeats, frame.sample_count)
    before, after = one.label.reshape(shape).T, two.label.reshape(shape).T
    met, meets = one.mode.reshape(shape).T, two.mode.reshape(shape).T
    both = (before != MISSING) & (after != MISSING)
    changed = (before != after) | ((met != meets) & (met >= 0) & (meets >= 0))
    modes = [*ANSWER_MODES, ""]  # the last one, at -1, where there is none
    flips = []
    for sample, repeat in np.argwhere(both & changed).tolist():
        flip = Flip(
            sample_id=frame.samples.ids[sample],
            repeat=repeat,
            is_attack=bool(frame.samples.is_attack[sample]),
            before=OUTCOME_NAMES[before[sample, repeat]],
            after=OUTCOME_NAMES[after[sample, repeat]],
            before_mode=modes[met[sample, repeat]],
            after_mode=modes[meets[sample, repeat]],
        )
        flips.append(flip)
    return Flips(
        first=one.name,
        second=two.name,
        compared=int(np.count_nonzero(both)),
        flips=tuple(flips),
    )


def _is_echo(reason: str, answer: str) -> bool:
    """Tell whether a reason repeats six words of the answer in a row."""
    words = reason.lower().split()
    text = f" {' '.join(answer.lower().split())} "
    for start in range(len(words) - _ECHO_WORDS + 1):
        passage = " ".join(words[start : start + _ECHO_WORDS])
        if f" {passage} " in text:
            return True
    return False
