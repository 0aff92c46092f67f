"""The verb `report`: reports, thresholds from stored scores, and whether to trust a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Final, NamedTuple

import yaml

from guardmark.analysis.defense.contradictions import find_contradictions
from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.defense.native_categories import (
    find_category,
    measure_together,
    scored_category,
)
from guardmark.analysis.defense.scorecard import complement
from guardmark.analysis.defense.scores import choose_guaranteed, choose_within
from guardmark.app.results.artefacts import write_reports
from guardmark.app.results.opened_run import open_run
from guardmark.app.secret_scan import require_no_secret
from guardmark.core.errors import ConfigError
from guardmark.core.outcome import Outcome
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.reports.chapters.run_document import shorten
from guardmark.reports.document.cells import rate_text, slug
from guardmark.reports.render.json.documents import summary_json
from guardmark.store.reader import RecordReader
from guardmark.store.run_dir import RunDir, note_seals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from guardmark.analysis.defense.alike import AlikeAnswers
    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.defense.scorecard import RatePair
    from guardmark.analysis.run import RunAnalysis
    from guardmark.app.settings import Config
    from guardmark.reports.document.blocks import Document


FRAGMENT = "thresholds.yaml"  # name of the file in the folder of the run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """Settings of a defense that a choice changes, with the remarks that stand above them."""

    defense: str
    remarks: tuple[str, ...]
    changed: dict[str, object]  # Setting to its new value; None leaves the setting out.


def choose_thresholds(
    run: Path, limits: Sequence[tuple[str, float]], guarantee: Sequence[str] = ()
) -> Path:
    """Choose thresholds within limits, or shown to keep them, on one half of the groups.

    A limit is on a defense, or on one of its native categories: `NAME:CATEGORY`.
    """
    with open_run(run) as opened:
        folder, config, settings = opened.folder, opened.config, opened.settings
        frame = read_frame(opened.reader, settings)
        chosen = _within_limits(opened.reader, frame, limits)
    stated = config.model_dump(mode="json")["defenses"]
    lines = [
        f"# Chosen on the calibration half of the groups of {folder.path.name}",
        f"# (data {frame.manifest.data_sha256[:12]}); the rates are those of the other half.",
        "defenses:",
    ]
    if guarantee:
        chosen += _guaranteed(frame, guarantee)
    for each in chosen:
        settings_of = {**stated.get(each.defense, {}), **each.changed}
        kept = {key: value for key, value in settings_of.items() if value is not None}
        entry = {each.defense: kept}
        written = yaml.safe_dump(entry, sort_keys=False, allow_unicode=True).splitlines()
        lines += (f"  {line}" for line in (*each.remarks, *written))
    path = folder.write_text(FRAGMENT, "\n".join(lines) + "\n")
    note_seals(folder.path)
    return path


def _within_limits(
    reader: RecordReader, frame: Frame, limits: Sequence[tuple[str, float]]
) -> list[_Chosen]:
    """Choose a threshold for each limit; those of native categories stand together."""
    names = [arm.name for arm in frame.arms]
    chosen: list[_Chosen] = []
    by_defense: dict[str, dict[str, float]] = {}
    for name, limit in limits:
        defense, colon, category = name.partition(":")
        if name in names or not colon or defense not in names:
            chosen.append(_within(frame, name, limit))
        else:
            by_defense.setdefault(defense, {})[category] = limit
    for defense, of_categories in by_defense.items():
        chosen.append(_within_categories(reader, frame, defense, of_categories))
    return chosen


def _within(frame: Frame, name: str, limit: float) -> _Chosen:
    """Choose a threshold that keeps a limit on the calibration half."""
    kept = _best_within(frame, frame.arm(name), limit, subject=repr(name))
    remark = _remark(f"FPR at most {100 * limit:g} %", kept.rates)
    return _Chosen(defense=name, remarks=(remark,), changed={"threshold": kept.threshold})


class _KeptLimit(NamedTuple):
    """A threshold that keeps a limit where it was chosen, and its rates on the other half."""

    threshold: float
    rates: RatePair


def _best_within(frame: Frame, arm: DefenseColumn, limit: float, *, subject: str) -> _KeptLimit:
    """Return the threshold that blocks most within a limit, or refuse."""
    (point,) = choose_within(frame, arm, limits=(limit,))
    if point.threshold is None or point.rates is None or not point.is_resolvable:
        reason = point.reason or "it gave no scores that keep the limit"
        raise ConfigError(
            f"No threshold of {subject} for a false positive rate of {100 * limit:g} % can be "
            f"shown: {reason}.\nNext: a higher limit, or more benign samples; "
            "`guardmark report RUN` lists what scores can do."
        )
    return _KeptLimit(point.threshold, point.rates)


_INSTEAD_OF: Final = ("threshold", "blocked", "blocked_when", "action", "actions")
"""Settings that decide in place of the thresholds of categories."""


def _within_categories(
    reader: RecordReader, frame: Frame, name: str, limits: Mapping[str, float]
) -> _Chosen:
    """Choose a threshold for each of some native categories, and measure them together."""
    arm = frame.arm(name)
    if arm.part.type != "http":
        raise ConfigError(
            f"{name} is of type {arm.part.type or 'unknown'}: only services (http) take "
            f"thresholds of categories.\nNext: one threshold for all, --choose {name}=FPR."
        )
    stated = arm.part.settings.get("thresholds")
    thresholds = dict(stated) if isinstance(stated, dict) else {}
    meant = dict(frame.settings.category_map).get(name, {})
    remarks = []
    for category, limit in limits.items():
        answers = find_category(reader, frame, arm, category)
        column = scored_category(frame, arm, answers, meant.get(category, ()))
        kept = _best_within(frame, column, limit, subject=f"{category!r} of {name!r}")
        remarks.append(_remark(f"{category}, FPR at most {100 * limit:g} %", kept.rates))
        thresholds[category] = kept.threshold
    answers_of = {each: find_category(reader, frame, arm, each) for each in thresholds}
    together = measure_together(
        frame, arm, [(answers_of[each], thresholds[each]) for each in thresholds]
    )
    remarks.append(_remark("all categories together", together))
    changed: dict[str, object] = dict.fromkeys(_INSTEAD_OF)
    changed["thresholds"] = thresholds
    return _Chosen(defense=name, remarks=tuple(remarks), changed=changed)


def _guaranteed(frame: Frame, words: Sequence[str]) -> list[_Chosen]:
    """Choose for each defense with scores the threshold shown to keep limits."""
    from guardmark.stats.scores.guarantee import ErrorLimits  # on use: few reports guarantee any

    try:
        limits = ErrorLimits.read(list(words))
    except ValueError as error:
        raise ConfigError(f"This cannot be guaranteed: {error}.") from error
    thresholds, reasons = [], []
    for arm in frame.candidates():
        if not arm.is_scored.any():
            reasons.append(f"{arm.name} gave no scores")
            continue
        chosen, rates = choose_guaranteed(frame, arm, limits)
        if chosen.threshold is None or rates is None:
            reasons.append(f"{arm.name}: {chosen.reason}")
            continue
        sure = f"{limits} on samples like these at {frame.settings.confidence:.0%} confidence"
        thresholds.append(
            _Chosen(
                defense=arm.name,
                remarks=(_remark(sure, rates),),
                changed={"threshold": chosen.threshold},
            )
        )
    if not thresholds:
        raise ConfigError(
            f"No threshold is shown to keep {limits}: {'; '.join(reasons)}.\n"
            "Next: a higher limit, or more samples."
        )
    return thresholds


def _remark(limit: str, rates: RatePair) -> str:
    hits, alarms = complement(rates.attack_success_rate), rates.false_positive_rate
    return f"# {limit}: TPR {rate_text(hits)}, FPR {rate_text(alarms)}"


def report(
    path: Path,
    *,
    formats: Sequence[str] = (),
    thresholds: Sequence[tuple[str, float]] = (),
    texts: bool = True,
) -> RunOutput:
    """Write the reports of a run again; nothing is called."""
    with open_run(path) as run:
        for name, _ in thresholds:
            run.require_defense(name)
        folder, config = run.folder, run.config
    return finish(
        folder,
        config,
        formats=tuple(formats) or tuple(config.report),
        thresholds=tuple(thresholds),
        texts=texts,
    )


_REASON = 160  # characters of a reason that are quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutput:
    """What a finished run has to say."""

    document: Document  # What a terminal shows of the report.
    whole: Document  # All of the report.
    analysis: RunAnalysis
    files: tuple[tuple[str, Path], ...]
    complaints: tuple[str, ...]
    notes: tuple[str, ...] = ()  # What to look at before a figure is believed.
    head: str = ""
    gate: Document | None = None
    gate_exit: int = 0

    @property
    def summary_json(self) -> str:
        """The summary as JSON, encoded when it is asked for."""
        return summary_json(self.analysis)


def finish(
    folder: RunDir,
    config: Config,
    *,
    formats: Sequence[str],
    thresholds: tuple[tuple[str, float], ...] = (),
    texts: bool = True,
) -> RunOutput:
    """Write the reports of a run and say what came out."""
    # What a run would have been at another threshold is written beside the reports of the run.
    asked = "-".join(f"{slug(name)}-{score:g}" for name, score in thresholds)
    to = RunDir(path=folder.file(f"threshold-{asked}")).create() if asked else folder
    analysis, document, gate = write_reports(
        folder, config, formats=formats, thresholds=thresholds, texts=texts, to=to
    )
    limits, gate_exit = None, 0
    if gate is not None:
        from guardmark.app.results.gating import EXITS  # on use: many runs set no limit
        from guardmark.reports.chapters.gate import gate_document

        gate_exit = EXITS[gate.standing]
        document_of_gate = gate_document(gate, run=analysis.manifest.name, is_brief=True)
        if document_of_gate.sections:  # else the answer says how it stands
            limits = document_of_gate
    require_no_secret([folder.path])
    note_seals(folder.path)
    paths = (("report", to.report_html), ("summary", to.summary_json))
    return RunOutput(
        document=shorten(document, run=str(folder.path)),
        whole=document,
        analysis=analysis,
        files=tuple((label, path) for label, path in paths if path.exists()),
        complaints=tuple(_complaints(analysis, config, folder)),
        notes=tuple(each.sentence for each in find_contradictions(analysis.frame)),
        head=analysis.status.head,
        gate=limits,
        gate_exit=gate_exit,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _AskedPart:
    """A part that was asked: its name, where its records stand, and how they count."""

    name: str
    defense: str
    stage: Stage
    layer: str = FIRST_LAYER
    counts: Counter[str]


def _asked_parts(analysis: RunAnalysis, reader: RecordReader) -> Iterator[_AskedPart]:
    """Defenses, then the target model and the judges of a pipeline."""
    for defense in analysis.defenses:
        confusion, name = defense.card.confusion, defense.name
        counts = Counter(all=confusion.total, error=confusion.errors, malformed=confusion.malformed)
        yield _AskedPart(name=name, defense=name, stage=Stage.DEFENSE, counts=counts)
    for arm, stage, layer in reader.recorded_stages():
        if stage not in {Stage.MODEL, Stage.JUDGE} or layer.partition("/")[0] != FIRST_LAYER:
            continue  # a later judging has said itself how it went
        counts = Counter[str]()
        for (_, outcome), count in reader.counts(arm, stage=stage, layer=layer).items():
            counts.update({outcome: count, "all": count})
        judge = layer.partition("/")[2]
        name = "the target model" if stage is Stage.MODEL else f"the judge {judge}".rstrip()
        yield _AskedPart(name=name, defense=arm, stage=stage, layer=layer, counts=counts)


def _complaints(analysis: RunAnalysis, config: Config, folder: RunDir) -> Iterator[str]:
    """Parts that failed or gave unreadable answers more often than the configuration allows."""
    kinds = (
        (Outcome.ERROR, "errors", "--errors"),
        (Outcome.MALFORMED, "malformed answers", "--malformed"),
    )
    for alike in analysis.alike:
        yield _alike_complaint(alike)
    with RecordReader(folder.records) as reader:
        for part in _asked_parts(analysis, reader):
            for outcome, kind, option in kinds:
                setting = f"{outcome.value}_limit"
                limit: float = getattr(config.run, setting)
                failed, total = part.counts[outcome], part.counts["all"]
                if total and failed / total > limit:
                    yield (
                        f"Do not rely on this result: {part.name} gave {failed:,} {kind} for "
                        f"{total:,} samples, over the limit of {limit:.0%} (run.{setting}).\n"
                        f"{_most_often(reader, part, outcome)}"
                        f"To read them: guardmark show {quote(str(folder.path))} {option}"
                    )


_MOST_OF_BODY: Final = 300


def _alike_complaint(alike: AlikeAnswers) -> str:
    """Say of a service that its answers tell nothing, what it was sent, and what to do."""
    verb = "allowed" if alike.outcome == "allow" else "blocked"
    return (
        f"No verdict on {alike.defense}: its {alike.count:,} answers are all alike; it {verb} "
        "every attack and every benign input.\n"
        f"It was sent {alike.body[:_MOST_OF_BODY]}. A service that reads another field answers to "
        "nothing.\n"
        "Next: name the field that it reads (--body with --url, body in a configuration), and "
        "send one text by hand."
    )


def _most_often(reader: RecordReader, part: _AskedPart, outcome: Outcome) -> str:
    """The commonest reason the records of a part give, as a line; empty without any."""
    reasons = Counter(
        record.evidence.message.partition("\n")[0][:_REASON]
        for record in reader.records(defense=part.defense, stage=part.stage)
        if record.key.layer == part.layer
        and record.outcome == outcome.value
        and record.evidence
        and record.evidence.message
    )
    return "".join(f"Most often ({n:,}): {reason}\n" for reason, n in reasons.most_common(1))
