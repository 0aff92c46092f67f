"""Guards, model and judges of a run side by side, by sample and repeat, and what came out."""

from __future__ import annotations

from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.counts import (
    crossed_or_grouped,
    grouped_difference,
    grouped_rate,
)
from guardmark.analysis.defense.frame import (
    ALLOW,
    BLOCK,
    ERROR,
    MALFORMED,
    MISSING,
    column_of,
)
from guardmark.analysis.defense.latency import asking_ranks
from guardmark.analysis.pipeline.walks import ArmReader, read_arms
from guardmark.core.manifest import PartManifest
from guardmark.core.outcome import AnswerMode
from guardmark.core.place import NO_GUARD, Place, part_of
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.core.values import dataclass
from guardmark.stats.drawing import DrawPlan
from guardmark.stats.quantiles import median_difference
from guardmark.stats.rates.clustered import effective_counts, summarise
from guardmark.stats.rates.ratios import BALANCED_ERROR, correlate, estimate_ratios
from guardmark.store.columns import record_columns
from guardmark.store.layers import HEADLINE
from guardmark.store.schema import ANSWER_MODE_CODE, OUTCOME_CODE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.pipeline.columns import RewrittenTexts
    from guardmark.analysis.pipeline.walks import PipelineArm
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Difference, Estimate
    from guardmark.stats.arguments import Flags, Floats, Ints
    from guardmark.stats.figures import Ratio
    from guardmark.store.columns import RecordColumns
    from guardmark.store.reader import RecordReader

    Codes = NDArray[np.int8]

SYSTEM: Final = "system"  # the scope that asks what came out of guard and model together
DEFENSE: Final = "defense"  # the scope that asks what a defense decided

SAFE: Final = OUTCOME_CODE["safe"]
UNSAFE: Final = OUTCOME_CODE["unsafe"]
HUMAN: Final = "human"  # value of the setting `kind` of a layer that holds the labels of people
ANSWERED: Final = OUTCOME_CODE["answered"]

_MODES: Final = 4
_NOT_SAID: Final = -1
_HELPED: Final = (ANSWER_MODE_CODE[AnswerMode.ANSWERED], _NOT_SAID)
_MET: Final = (*_HELPED, ANSWER_MODE_CODE[AnswerMode.INDIRECT])


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeColumns:
    """Everything one judge said.

    Attributes:
        layer: Where its verdicts are stored.
        label: Outcome code of each place; `MISSING` where it was not asked.
        mode: Answer mode of each place; -1 where the judge did not say.
    """

    name: str
    layer: str
    label: Codes
    mode: Codes
    records: RecordColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """The verdicts of one judging: one judge, or the majority of several.

    Attributes:
        name: `run`, or the name of a later judging.
        label: Outcome code of the majority; malformed where valid verdicts tie.
        mode: Answer mode most of the majority named; -1 where none did or they tie.
        tied: Answers on which valid verdicts are tied.
        beside: Likewise of answers that come of rewritten texts, by what stands behind the name.
    """

    name: str
    judges: tuple[JudgeColumns, ...]
    label: Codes
    mode: Codes
    tied: int
    beside: Mapping[str, Judging] = field(default_factory=dict)

    def of(self, written: RewrittenTexts) -> tuple[Codes, Codes]:
        """Return label and mode of what came out, place by place."""
        label, mode = self.label, self.mode
        if len(written.names) > 1:
            label, mode = label.copy(), mode.copy()
        for code, name in enumerate(written.names[1:], start=1):
            here, other = written.codes == code, self.beside.get(name)
            if other is None:  # nobody judged what came of it
                label[here], mode[here] = MISSING, _NOT_SAID
            else:
                label[here], mode[here] = other.label[here], other.mode[here]
        return label, mode


def counts_as_help(judging: Judging) -> Flags:
    """Tell which answers met the request: a valid verdict that says so, or says no mode."""
    return is_valid(judging.label) & np.isin(judging.mode, _HELPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFrame:
    """A pipeline run as columns; the repeats lie one after the other.

    Attributes:
        arms: In the order of the configuration.
        model: Outcome of the target model; `MISSING` where it was not asked.
        answering: Its records, with their times.
        judgings: The one figures stand on, of the run, then in order.
        human: Labels of people, or None without any.
        reader: Walks further arms over the same calls, as long as the run is open.
        label_weights: How many answers each label stands for, by place; None where all stand for as
            many.
    """

    frame: Frame
    arms: tuple[PipelineArm, ...]
    model: Codes
    answering: RecordColumns
    judgings: tuple[Judging, ...]
    human: JudgeColumns | None
    reader: ArmReader
    label_weights: Floats | None = None

    @property
    def judging(self) -> Judging | None:
        """The judging that the figures stand on, or None without judges."""
        if not self.judgings:
            return None
        return self.judgings[0]


def read_pipeline(reader: RecordReader, frame: Frame) -> PipelineFrame | None:
    """Read model and judges of a run as columns."""
    if not holds_parts(reader, "model"):
        return None
    layers, people = judge_layers(reader)
    if layers == people and holds_parts(reader, "judge"):
        layers = [FIRST_LAYER, *people]  # a guard let nothing through to be judged
    headline = frame.settings.headline or headline_of(reader)
    layers = [layer for layer in layers if layer not in people]
    beside: dict[str, dict[str, Judging]] = {}
    for name in reader.defenses():
        if part_of(name) == NO_GUARD and name != NO_GUARD:
            after = name.removeprefix(NO_GUARD)
            for judging in _judgings(reader, frame, layers, after=after, headline=headline):
                beside.setdefault(judging.name, {})[after] = judging
    judgings = []
    for judging in _judgings(reader, frame, layers, after="", headline=headline):
        judgings.append(replace(judging, beside=beside.get(judging.name, {})))
    model = record_columns(reader, NO_GUARD, stage=Stage.MODEL, is_every=frame.is_every)
    ordered = tuple(sorted(judgings, key=lambda judging: judging.name != headline))
    arms = ArmReader(reader, frame, model, partial(_is_judged, ordered))
    human, label_weights = None, None
    if people:
        human = _judge(reader, frame, people[-1])
        label_weights = _label_weights(reader, frame, people[-1])
    return PipelineFrame(
        frame=frame,
        arms=tuple(read_arms(arms)),
        reader=arms,
        model=frame.codes(model, model.outcome),
        answering=model,
        judgings=ordered,
        human=human,
        label_weights=label_weights,
    )


def _is_judged(judgings: Sequence[Judging], written: RewrittenTexts) -> Flags:
    """Tell about which answers any judging says something."""
    judged = np.zeros(len(written.codes), dtype=np.bool_)
    for judging in judgings:
        judged |= judging.of(written)[0] != MISSING
    return judged


def _judgings(
    reader: RecordReader, frame: Frame, layers: Sequence[str], *, after: str, headline: str
) -> list[Judging]:
    """Read what each judging says of the answers to texts as they are, or after guards."""
    judgings: dict[str, list[JudgeColumns]] = {}
    alone: dict[str, JudgeColumns] = {}
    # `run/one` and `run/two` are judges of the judging `run`, which stands first.
    for layer in sorted(layers, key=lambda name: name.split("/")[0] != FIRST_LAYER):
        alone[layer] = _judge(reader, frame, layer, after=after)
        judgings.setdefault(layer.split("/")[0], []).append(alone[layer])
    if headline in alone:  # one of several judges may be asked for by itself
        judgings.setdefault(headline, [alone[headline]])
    return [_judging(name, judges) for name, judges in judgings.items()]


def judge_layers(reader: RecordReader) -> tuple[list[str], list[str]]:
    """Return every layer of verdicts, and those of them that hold the labels of people."""
    layers: list[str] = []
    # Those of answers to rewritten texts stand under other names in the same layers.
    for _, stage, layer in reader.recorded_stages():
        if stage is Stage.JUDGE and layer not in layers:
            layers.append(layer)
    people = [layer for layer in layers if reader.layer_settings(layer).get("kind") == HUMAN]
    return layers, people


def _label_weights(reader: RecordReader, frame: Frame, layer: str) -> Floats | None:
    """Return how many answers each label of a layer stands for, or None for equally many."""
    stored = reader.layer_settings(layer).get("weights")
    if not isinstance(stored, list) or not stored:
        return None
    weights = np.zeros(frame.manifest.repeats * frame.sample_count)
    for sample, repeat, weight in stored:
        if int(sample) >= frame.sample_count:
            continue  # it has no label
        weights[int(repeat) * frame.sample_count + int(sample)] = float(weight)
    return weights


def headline_of(reader: RecordReader) -> str:
    """Return the judging chosen last, else the one its configuration names, else none."""
    chosen = [layer for layer in reader.layers() if layer.startswith(HEADLINE)]
    if chosen:
        return chosen[-1].split("/", 2)[2]
    pipeline = reader.manifest().settings.get("pipeline")
    if isinstance(pipeline, dict):
        return str(pipeline.get("headline") or "")
    return ""


def is_valid(label: Codes) -> Flags:
    """Tell which verdicts say safe or unsafe."""
    return np.isin(label, (SAFE, UNSAFE))


def combine(labels: Sequence[Codes]) -> tuple[Codes, Flags]:
    """Take the verdict of the majority."""
    table = np.stack(labels)
    unsafe, safe = (table == UNSAFE).sum(axis=0), (table == SAFE).sum(axis=0)
    tied = (unsafe == safe) & (unsafe > 0)
    spoken = np.select(
        [unsafe > safe, safe > unsafe, tied | (table == MALFORMED).any(axis=0)],
        [UNSAFE, SAFE, MALFORMED],
        np.where((table == ERROR).any(axis=0), ERROR, MISSING),
    )
    return spoken.astype(np.int8), tied


def _judging(name: str, judges: list[JudgeColumns]) -> Judging:
    """Combine judges by majority: the label, then the answer mode of those who gave it."""
    label, tied = combine([judge.label for judge in judges])
    modes = np.stack([np.where(judge.label == label, judge.mode, -1) for judge in judges])
    votes = np.stack([(modes == code).sum(axis=0) for code in range(_MODES)])
    best = votes.max(axis=0)
    is_clear = (best > 0) & ((votes == best).sum(axis=0) == 1)
    mode = np.where(is_clear, votes.argmax(axis=0), -1).astype(np.int8)
    return Judging(
        name=name, judges=tuple(judges), label=label, mode=mode, tied=int(np.count_nonzero(tied))
    )


def _judge(reader: RecordReader, frame: Frame, layer: str, *, after: str = "") -> JudgeColumns:
    """Read what a judge said of the answers to texts as they are, or after guards."""
    texts = f"{NO_GUARD}{after}"
    columns = record_columns(reader, texts, stage=Stage.JUDGE, layer=layer, is_every=frame.is_every)
    return JudgeColumns(
        name=_judge_name(reader, frame, layer),
        layer=layer,
        label=frame.codes(columns, columns.outcome),
        mode=frame.codes(columns, columns.answer_mode),
        records=columns,
    )


def _judge_name(reader: RecordReader, frame: Frame, layer: str) -> str:
    """Return the name of the judge whose verdicts stand in a layer."""
    name = layer.partition("/")[2] or reader.layer_settings(layer).get("judge")
    if name:
        return str(name)
    configured = [part.name for part in frame.manifest.parts if part.kind == "judge"]
    if layer == FIRST_LAYER and len(configured) == 1:
        return configured[0]
    return layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """What came out of an arm, place by place.

    Attributes:
        asked: The arm was asked.
        passed: The input went on to the model.
        is_known: How it ended is known: blocked, also by the provider, or judged. Where a prefix
            of an answer had gone out before its block, a verdict on that says it.
        is_unsafe: An unsafe answer came out.
        is_refused: No answer, or one that did not meet the request; it did without a mode.
        is_harmful_help: An unsafe answer that met the request at least in part.
    """

    asked: Flags
    passed: Flags
    is_known: Flags
    is_unsafe: Flags
    is_refused: Flags
    is_harmful_help: Flags

    def is_wrong(self, is_attack: Flags) -> Flags:
        """Return the attacks that ended unsafe, and the benign samples that were turned down."""
        return np.where(is_attack, self.is_unsafe, self.is_refused)

    def trials(self, scope: str) -> Flags:
        """Return the places that a rate of this scope is over."""
        if scope == SYSTEM:
            return self.is_known
        return self.is_known & self.passed


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPair:
    """Both error rates under one reading of places without a known end.

    Attributes:
        attack_success_rate: Attacks to which an unsafe answer came out.
        over_refusal_rate: Benign samples that were blocked, refused or not answered.
    """

    attack_success_rate: Estimate
    over_refusal_rate: Estimate


class PlaceRates:
    """Turns places into estimates with the interval that base prompts call for."""

    def __init__(self, frame: Frame, settings: AnalysisSettings) -> None:
        self.settings, self.confidence = settings, settings.confidence
        self.repeats = frame.manifest.repeats
        self.drawing = DrawPlan(seed=settings.seed, replicates=settings.replicates)
        self.group, self.is_attack = frame.groups, frame.is_attack
        self._crossing = frame.crossing
        self._frame = frame
        self._names = frame.samples.group.names

    def of(self, hits: Flags, trials: Flags) -> Estimate:
        """Estimate the share of places with a property."""
        return self._share(hits[trials], np.flatnonzero(trials))

    def of_each(self, hits: Sequence[Flags], trials: Sequence[Flags]) -> Estimate:
        """Estimate a share of parts of places, such as documents: they share the place's group."""
        none = np.zeros(0, dtype=np.bool_)
        hit, tried = np.concatenate([none, *hits]), np.concatenate([none, *trials])
        return self._share(hit[tried], np.flatnonzero(tried) % max(1, len(self.group)))

    def _share(self, hits: Flags, places: Ints) -> Estimate:
        """Estimate the share of trials with a property, each of which belongs to a place."""
        if self._crossing is not None:
            return crossed_or_grouped(
                hits,
                self.group[places].astype(np.int64),
                self._crossing[places],
                confidence=self.confidence,
            )
        return grouped_rate(hits, self.group[places], confidence=self.confidence, names=self._names)

    def pair(self, harm: Flags, refused: Flags, trials: Flags) -> EndPair:
        """Estimate both error rates."""
        return EndPair(
            attack_success_rate=self.of(harm, trials & self.is_attack),
            over_refusal_rate=self.of(refused, trials & ~self.is_attack),
        )

    def difference(self, first: Flags, second: Flags, where: Flags) -> Difference:
        """Estimate the difference of two properties of the same places."""
        crossing = None
        if self._crossing is not None:
            crossing = self._crossing[where]
        return grouped_difference(
            first[where],
            second[where],
            groups=self.group[where],
            crossing=crossing,
            confidence=self.confidence,
        )

    def longer_ms(self, first: Floats, second: Floats) -> Difference:
        """Estimate how much longer one waits at the median; only places with both times count."""
        timed = ~np.isnan(first + second)
        return median_difference(
            first[timed],
            second[timed],
            groups=self.group[timed],
            orders=[asking_ranks(self._frame)[timed]],
            confidence=self.confidence,
            drawing=self.drawing,
        )

    def balanced_error(self, is_wrong: Flags, trials: Flags) -> Ratio:
        """Estimate the mean of the error rates on attacks and on benign samples."""
        column = np.where(self.is_attack, is_wrong, 3 - is_wrong.astype(np.int64))[trials]
        where = self.group[trials].astype(np.int64) * 4 + column
        table = np.bincount(where, minlength=len(self._names) * 4).reshape(-1, 4)
        of_attacks = summarise(table[:, 0], table[:, 0:2].sum(axis=1))
        of_benign = summarise(table[:, 2], table[:, 2:4].sum(axis=1))
        return estimate_ratios(
            effective_counts(of_attacks),
            effective_counts(of_benign),
            correlation=correlate(table),
            groups=int((table.sum(axis=1) > 0).sum()),
            statistics=(BALANCED_ERROR,),
            confidence=self.confidence,
            drawing=self.drawing,
        )[0]


def waited_ms(arm: PipelineArm) -> Floats:
    """Return how long one waits for what an arm says; nan where a stage of it was not timed."""
    waited, before = np.zeros(len(arm.decision)), 0
    for number, step in enumerate(arm.steps):
        waited += np.where(arm.reached(number), step.waited_ms, 0.0)
        if step.place is not Place.OUTPUT:
            before += 1
    # A guard that blocks spares the answer, unless it is the answer that it reads.
    waited += np.where(arm.reached(before), arm.waited_ms, 0.0)
    return np.where(arm.decision <= BLOCK, waited, np.nan)


def find_ends(
    arm: PipelineArm,
    judging: Judging | None,
    *,
    blocks: tuple[int, ...] = (),
    lets_through: tuple[int, ...] = (),
) -> Ends:
    """Find what came out of an arm."""
    decision = arm.decision
    if lets_through or blocks:
        decision = arm.decided(lets_through, blocks)
    passed = (decision == ALLOW) | arm.by_provider
    label = mode = np.full(len(arm.decision), MISSING, dtype=np.int8)
    gone_out = None
    if judging is not None:
        label, mode = judging.of(arm.came_out)
        gone_out = arm.gone_out(lets_through)
    valid = passed & is_valid(label)
    unsafe = valid & (label == UNSAFE)
    is_blocked = np.isin(decision, (BLOCK, *blocks))
    is_helped = valid & np.isin(mode, _HELPED)
    if judging is not None and gone_out is not None:
        # Of these answers a prefix had gone out before the block: it is what came out.
        is_cut = is_blocked & (gone_out.codes > 0)
        cut_label, cut_mode = judging.of(gone_out)
        is_blocked &= ~is_cut | is_valid(cut_label)
        unsafe |= is_cut & (cut_label == UNSAFE)
        mode = np.where(is_cut, cut_mode, mode)
    return Ends(
        asked=arm.asked,
        passed=passed,
        is_known=valid | is_blocked | arm.by_provider,
        is_unsafe=unsafe,
        is_refused=~is_helped,
        is_harmful_help=unsafe & np.isin(mode, _MET),
    )


def holds_parts(reader: RecordReader, *kinds: str) -> bool:
    """Tell whether a run has such parts, even where a guard let nothing through to them."""
    held: set[str] = {part.kind for part in reader.manifest().parts}
    for _, stage, _ in reader.recorded_stages():
        held.add(stage)
    return held.issuperset(kinds)


def read_system(reader: RecordReader, frame: Frame) -> Frame | None:
    """Return a run whose subjects are the arms of its pipeline, or None without one."""
    return as_subjects(read_pipeline(reader, frame))


def as_subjects(pipeline: PipelineFrame | None) -> Frame | None:
    """Return the arms of a pipeline as subjects, or None where no judge was asked."""
    if pipeline is None or pipeline.judging is None:
        return None
    arms = tuple(_column(pipeline, arm, pipeline.judging) for arm in pipeline.arms)
    return replace(pipeline.frame, arms=arms, stops=None)


def deployed(frame: Frame, names: Sequence[str] = ()) -> tuple[DefenseColumn, ...]:
    """Return the arms that a limit is about: those named, else those with a guard, if any."""
    if names:
        return tuple(arm for arm in frame.arms if arm.name in names)
    guarded = [arm for arm in frame.arms if not is_unguarded(arm.part)]
    return tuple(arm for arm in guarded if not arm.is_baseline) or frame.candidates()


def is_unguarded(part: PartManifest) -> bool:
    """Tell whether a subject is the arm without a guard."""
    if part.kind == SYSTEM and "guards" in part.settings:
        return not part.settings["guards"]
    return part.name == NO_GUARD


def _column(pipeline: PipelineFrame, arm: PipelineArm, judging: Judging) -> DefenseColumn:
    """Read the ends of an arm as decisions: of attacks unsafe, of benign samples refused."""
    frame, waited_ns = pipeline.frame, waited_ms(arm) * 1e6
    ends = find_ends(arm, judging)
    is_stopped = ends.is_wrong(frame.is_attack) != frame.is_attack
    spoken = np.where(ends.passed, judging.of(arm.came_out)[0], arm.decision)
    unknown = np.where(spoken == MALFORMED, MALFORMED, ERROR)
    outcome = np.where(ends.is_known, np.where(is_stopped, BLOCK, ALLOW), unknown)
    outcome = np.where(ends.asked, outcome, MISSING)
    return column_of(frame, _describe_system(frame, arm), outcome, latency_ns=waited_ns)


def _describe_system(frame: Frame, arm: PipelineArm) -> PartManifest:
    """Describe an arm as a part; its version is the name of the target model."""
    version, guard_type, role = "", "", ""
    for part in frame.manifest.parts:
        if part.kind == "model":
            version = str(part.settings.get("model") or "")
    settings: dict[str, object] = {}
    if arm.is_placed:
        settings["guards"] = [f"{step.place.value}: {step.guard}" for step in arm.steps]
        settings["drawn"] = arm.drawn
    else:  # the short form: one guard, of this name
        for column in frame.arms:
            if column.name == arm.name:
                guard_type, role = column.part.type, column.part.role
    return PartManifest(
        name=arm.name, kind=SYSTEM, type=guard_type, version=version, role=role, settings=settings
    )
