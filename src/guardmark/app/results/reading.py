"""Verbs that read finished runs: `show`, `compare` and `stability`."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from guardmark.analysis.compare.matching import OpenRun
from guardmark.analysis.compare.runs_compared import ScopedComparisons, Wanted, compare_scopes
from guardmark.analysis.defense.bypasses import Flaw, find_worst, rank_samples
from guardmark.analysis.defense.frame import LENGTH_EDGES, LENGTH_NAMES, Frame, read_frame
from guardmark.analysis.defense.slices import FACETS
from guardmark.analysis.frameworks.framework import code_of, is_framework, sliced_by
from guardmark.analysis.pipeline.frame import read_system
from guardmark.analysis.pipeline.small_slices import (
    SliceRequest,
    SliceStability,
    measure_small_slices,
)
from guardmark.app.results.highlights import read_exchanges
from guardmark.app.results.opened_run import analysis_settings, find_run, label_runs, open_run
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.record import Stage
from guardmark.core.values import dataclass
from guardmark.reports.chapters.small_slices import stability_document
from guardmark.reports.render.json.documents import stability_json
from guardmark.reports.render.markdown import render_markdown
from guardmark.store.columns import word_of
from guardmark.store.reader import RecordReader
from guardmark.store.seals import note_seals
from guardmark.store.turns import asked_turns, read_talks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.analysis.defense.bypasses import ListedSample
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.sample import Sample
    from guardmark.reports.chapters.samples import SampleStory
    from guardmark.store.run_dir import RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which samples are wanted.

    Attributes:
        is_system: What came out of a pipeline, in place of what its guards did.
        where: Facet and value, all of which hold.
    """

    flaw: Flaw | None = None
    is_system: bool = False
    defense: str = ""
    category: str = ""
    technique: str = ""
    sample_id: str = ""
    where: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSamples:
    """The samples that were wanted, and what became of them in a pipeline, by id.

    Attributes:
        among: Defenses of which one is enough for a sample to be listed.
        is_system: What came out of arms, in place of what defenses did.
    """

    listed: tuple[ListedSample, ...]
    among: int
    exchanges: Mapping[str, SampleStory]
    is_system: bool = False


def show(path: Path, selection: Selection, *, most: int) -> ShownSamples:
    """List samples of a run, worst first, with the exchanges of the first."""
    with open_run(path) as run:
        if selection.defense:
            run.require_defense(selection.defense)
        settings = replace(run.settings, listed_samples=max(1, run.reader.sample_count()))
        frame = read_frame(run.reader, settings)
        # Guards that stand behind the model only are no defenses by themselves: their arms are.
        is_system = selection.is_system or not frame.arms
        if is_system:
            system = read_system(run.reader, frame)
            if system is None and selection.is_system:
                raise ConfigError(
                    f"{path} holds no judged answers of a target model.\n"
                    "Next: --bypasses and --false-alarms list what its defenses did."
                )
            frame = system or frame
        _require_facets(frame, selection.where)
        worst = find_worst(run.reader, frame)
        conversation: tuple[ListedSample, ...] = ()
        if not is_system:
            conversation = _conversation(run.reader, settings, selection)
        listed = conversation or _wanted(worst.listed, selection)
        ids: set[str] = set()
        if not conversation and _has_story(run.reader, selection):
            ids = {shown.sample.id for shown in listed[:most]}
        stories = read_exchanges(run.reader, ids, is_timed=bool(selection.sample_id))
        among = worst.among
        if selection.defense:
            among = 1
        return ShownSamples(listed=listed, among=among, exchanges=stories, is_system=is_system)


def _has_story(reader: RecordReader, selection: Selection) -> bool:
    """Tell whether there is more to show of samples than what defenses decided."""
    if selection.sample_id or selection.flaw in {Flaw.ERROR, Flaw.MALFORMED}:
        return True
    return any(stage is Stage.MODEL for _, stage, _ in reader.recorded_stages())


def _conversation(
    reader: RecordReader, settings: AnalysisSettings, selection: Selection
) -> tuple[ListedSample, ...]:
    """Return every turn of a conversation that is named in place of a sample, in order.

    Turns without a label are among them: nothing is wrong with what was answered to these.
    """
    name = selection.sample_id
    if not name or reader.position_of(name) is not None or not asked_turns(reader):
        return ()
    talks = read_talks(reader.connection)
    turns = [turn for turn in talks.turns if turn.conversation == name]
    turns.sort(key=lambda turn: (turn.turn, turn.position))
    positions = [turn.position for turn in turns]
    if name in talks.joined:
        positions.append(talks.joined[name])
    ranked = rank_samples(read_frame(reader, settings, is_every=True))
    listed = []
    for shown in ranked.read(reader, positions):
        if shown.sample.is_labelled:
            listed.append(shown)
        else:
            listed.append(_without_flaws(shown))
    return tuple(listed)


def _without_flaws(listed: ListedSample) -> ListedSample:
    answers = tuple(replace(answer, flaw=None) for answer in listed.answers)
    return replace(listed, flaws=(), answers=answers)


def _wanted(listed: Sequence[ListedSample], selection: Selection) -> tuple[ListedSample, ...]:
    """Return the samples that are selected; a category or technique of none is refused."""
    for facet in ("category", "technique"):
        known = {getattr(shown.sample, facet) for shown in listed} - {""}
        wanted = getattr(selection, facet)
        if wanted and wanted not in known:
            raise UnknownName(f"{facet} among the listed samples", wanted, known)
    return tuple(shown for shown in listed if _is_wanted(shown, selection))


def _require_facets(frame: Frame, where: Sequence[tuple[str, str]]) -> None:
    """Refuse a facet, or a value of it, that the run does not have."""
    for facet, value in where:
        known = (*FACETS, *frame.settings.slices)
        if facet not in known:
            raise UnknownName("facet of this run", facet, known)
        values = [name for name in frame.facet(facet).names if name]
        if value not in values:
            raise UnknownName(f"{facet} of this run", value, values)


def _facet_value(sample: Sample, facet: str) -> str:
    """Return the value of a sample by which it is sliced."""
    if facet == "length":
        return LENGTH_NAMES[bisect_left(LENGTH_EDGES, len(sample.prompt.text))]
    if facet == "subcategory":
        if sample.subcategory:
            return f"{sample.category}/{sample.subcategory}"
        return ""
    if facet in FACETS:
        return str(getattr(sample, facet) or "")
    stated = word_of(sample.metadata.get(facet))
    if not stated and sample.is_attack and is_framework(facet):
        return code_of(sliced_by(facet), sample.category, sample.subcategory)
    return stated


def _is_wanted(listed: ListedSample, selection: Selection) -> bool:
    """Tell whether a sample is selected, and is flawed in the way that is wanted."""
    if not _is_selected(listed.sample, selection):
        return False
    if selection.flaw is Flaw.DIFFERENT:
        return Flaw.DIFFERENT in listed.flaws
    flaws: set[Flaw | None] = set(listed.flaws)
    if selection.defense:
        flaws.clear()
        for answer in listed.answers:
            if answer.defense == selection.defense:
                flaws.add(answer.flaw)
    if selection.flaw is None:
        return any(flaws) or bool(selection.sample_id)
    return selection.flaw in flaws


def _is_selected(sample: Sample, selection: Selection) -> bool:
    """Tell whether a sample is the one that is named, or has the values that are."""
    if selection.category and sample.category != selection.category:
        return False
    if selection.technique and sample.technique != selection.technique:
        return False
    if selection.sample_id and sample.id != selection.sample_id:
        return False
    return all(_facet_value(sample, facet) == value for facet, value in selection.where)


def compare_runs(
    paths: Sequence[Path], wanted: Wanted | None = None, *, margin: float | None = None
) -> ScopedComparisons:
    """Compare the defenses of one run, or of several over the same samples, and the systems."""
    if wanted and wanted.chains and (wanted.against or margin is not None):
        raise ConfigError("--chains compares with the best defense: leave out --against, --margin.")
    folders = [find_run(path) for path in paths]
    if len({folder.path.resolve() for folder in folders}) < len(folders):
        raise ConfigError("A run is named twice; a comparison across runs needs different ones.")
    with ExitStack() as stack:
        readers = [stack.enter_context(RecordReader(folder.records)) for folder in folders]
        settings = analysis_settings(readers[0])
        if margin is not None:
            settings = replace(settings, non_inferiority_margin=margin)
        opened = []
        for label, reader in zip(label_runs(folders), readers, strict=True):
            opened.append(OpenRun(label=label, reader=reader))
        return compare_scopes(opened, settings, wanted or Wanted())


def slice_run(run: Path, request: SliceRequest) -> tuple[RunDir, SliceStability]:
    """Draw small slices of a run and write what they would have said; nothing is called."""
    folder = find_run(run)
    stability = write_slices(folder, folder.records, request)
    note_seals(folder.path)
    return folder, stability


def write_slices(folder: RunDir, records: Path, request: SliceRequest) -> SliceStability:
    """Draw small slices from records and write what they would have said into a folder."""
    with RecordReader(records) as reader:
        stability = measure_small_slices(reader, analysis_settings(reader), request)
    folder.write_text(folder.slice_stability.name, stability_json(stability))
    document = stability_document(stability)
    folder.write_text(folder.slice_stability_md.name, render_markdown(document))
    return stability
