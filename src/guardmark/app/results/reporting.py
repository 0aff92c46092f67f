"""The verb `report`: reports, and whether to trust a run."""

from __future__ import annotations

from collections import Counter
from shlex import quote
from typing import TYPE_CHECKING, Final

from guardmark.analysis.defense.doubts import find_contradictions
from guardmark.app.results.opened_run import open_run
from guardmark.app.results.report_files import write_reports
from guardmark.app.secret_scan import require_no_secret
from guardmark.app.settings import REPORTS
from guardmark.core.outcome import Outcome
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.core.values import dataclass
from guardmark.reports.chapters.advice import changed_sentence
from guardmark.reports.chapters.run_document import shorten
from guardmark.reports.document.cells import slug
from guardmark.reports.render.json.documents import summary_json
from guardmark.store.reader import RecordReader
from guardmark.store.run_dir import RunDir
from guardmark.store.seals import note_seals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from guardmark.analysis.defense.doubts import AlikeAnswers
    from guardmark.analysis.gate import GateStatus
    from guardmark.analysis.run import RunAnalysis
    from guardmark.app.settings import Config
    from guardmark.reports.document.blocks import Document


def report(
    path: Path,
    *,
    formats: Sequence[str] = (),
    thresholds: Sequence[tuple[str, float]] = (),
    texts: bool = True,
) -> RunOutput:
    """Write the reports of a run again; nothing is called.

    Where no format is named, those of its configuration, and every report that lies in its folder:
    one that stayed as it was would tell of records of before.
    """
    with open_run(path) as run:
        for name, _ in thresholds:
            run.require_defense(name)
        folder, config = run.folder, run.config
    return finish(
        folder,
        config,
        formats=tuple(formats) or _usual_formats(folder, config),
        thresholds=tuple(thresholds),
        texts=texts,
    )


def _usual_formats(folder: RunDir, config: Config) -> tuple[str, ...]:
    there = (form for name, form in REPORTS.items() if folder.file(name).exists())
    return tuple(dict.fromkeys((*config.report, *there)))


_REASON = 160  # characters of a reason that are quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutput:
    """What a finished run has to say.

    Attributes:
        document: What a terminal shows of the report.
        whole: All of the report.
        notes: What to look at before a figure is believed.
    """

    document: Document
    whole: Document
    analysis: RunAnalysis
    files: tuple[tuple[str, Path], ...]
    complaints: tuple[str, ...]
    notes: tuple[str, ...] = ()
    head: str = ""
    gate: Document | None = None
    gate_standing: GateStatus | None = None

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
    limits = None
    if gate is not None:
        from guardmark.reports.chapters.gate import gate_document  # on use: many runs set no limit

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
        notes=(
            *(each.sentence for each in find_contradictions(analysis.frame)),
            *(changed_sentence(each, analysis) for each in analysis.changed_texts),
        ),
        head=analysis.status.head,
        gate=limits,
        gate_standing=None if gate is None else gate.standing,
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
    """Say that the answers of a service tell nothing, what it was sent, and what to do."""
    verb = "allowed" if alike.outcome == "allow" else "blocked"
    return (
        f"No verdict on {alike.defense}: its {alike.count:,} answers are all alike; it {verb} "
        "every attack and every benign input.\n"
        f"It was sent {alike.body[:_MOST_OF_BODY]}. A service that reads another field answers to "
        "nothing.\n"
        "Next: name the field that it reads, here input: --body '{input: {$input: text}}' with "
        "--url, or the same at body in a configuration."
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
