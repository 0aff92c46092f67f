"""The verb `show`: the samples of a run that are worth reading."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from guardmark.analysis.defense.bypasses import Flaw, find_worst
from guardmark.analysis.defense.frame import read_frame
from guardmark.app.results.artefacts import analysis_settings
from guardmark.app.results.reporting import find_run, run_config
from guardmark.core.errors import UnknownName
from guardmark.store.records import RecordReader

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.analysis.defense.bypasses import ListedSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which samples are wanted."""

    flaw: Flaw | None = None
    defense: str = ""
    category: str = ""
    technique: str = ""
    sample_id: str = ""


def show(path: Path, selection: Selection) -> tuple[ListedSample, ...]:
    """List samples of a run, worst first."""
    folder = find_run(path)
    with RecordReader(folder.records) as reader:
        _check_defense(selection, reader)
        settings = replace(
            analysis_settings(run_config(reader.manifest()), reader),
            listed_samples=max(1, reader.sample_count()),
        )
        listed = find_worst(reader, read_frame(reader, settings), settings).listed
    for facet in ("category", "technique"):
        known = {value for each in listed if (value := getattr(each.sample, facet))}
        wanted = getattr(selection, facet)
        if wanted and wanted not in known:
            raise UnknownName(f"{facet} among the listed samples", wanted, known)
    return tuple(each for each in listed if _is_wanted(each, selection))


def _check_defense(selection: Selection, reader: RecordReader) -> None:
    known = reader.defenses()
    if selection.defense and selection.defense not in known:
        raise UnknownName("defense of this run", selection.defense, known)


def _is_wanted(listed: ListedSample, selection: Selection) -> bool:
    if selection.category and listed.sample.category != selection.category:
        return False
    if selection.technique and listed.sample.technique != selection.technique:
        return False
    if selection.sample_id and listed.sample.id != selection.sample_id:
        return False
    if selection.flaw is Flaw.DIFFERENT:
        return Flaw.DIFFERENT in listed.flaws
    flaws = [
        answer.flaw
        for answer in listed.answers
        if not selection.defense or answer.defense == selection.defense
    ]
    if selection.flaw is None:
        return any(flaws) or bool(selection.sample_id)
    return selection.flaw in flaws
