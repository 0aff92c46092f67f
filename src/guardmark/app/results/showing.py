"""The verb `show`: the samples of a run that are worth reading."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from guardmark.analysis.defense.bypasses import Flaw, find_worst
from guardmark.analysis.defense.frame import read_frame
from guardmark.app.results.opened_run import open_run
from guardmark.core.errors import UnknownName

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
    with open_run(path) as run:
        if selection.defense:
            run.require_defense(selection.defense)
        settings = replace(run.settings, listed_samples=max(1, run.reader.sample_count()))
        listed = find_worst(run.reader, read_frame(run.reader, settings)).listed
    for facet in ("category", "technique"):
        known = {value for each in listed if (value := getattr(each.sample, facet))}
        wanted = getattr(selection, facet)
        if wanted and wanted not in known:
            raise UnknownName(f"{facet} among the listed samples", wanted, known)
    return tuple(each for each in listed if _is_wanted(each, selection))


def _is_wanted(listed: ListedSample, selection: Selection) -> bool:
    sample = listed.sample
    wanted = (selection.category, selection.technique, selection.sample_id)
    values = (sample.category, sample.technique, sample.id)
    if any(each and each != value for each, value in zip(wanted, values, strict=True)):
        return False
    if selection.flaw is Flaw.DIFFERENT:
        return Flaw.DIFFERENT in listed.flaws
    flaws = {each.flaw for each in listed.answers if selection.defense in {"", each.defense}}
    if selection.flaw is None:
        return any(flaws) or bool(selection.sample_id)
    return selection.flaw in flaws
