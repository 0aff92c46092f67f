"""The best repair of each attacked defense, written out as a fragment of a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.chapters.adaptive.repair import repair_fragment
from guardmark.store.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.store.run_dir import RunDir

REPAIR = "repair.yaml"
"""Name of the file in the folder of the run."""


def write_repair(folder: RunDir, cards: Sequence[AdaptiveCard]) -> Path | None:
    """Write the fragment into the folder of a run that was attacked."""
    with RecordReader(folder.records) as reader:
        taken = [part.name for part in reader.manifest().parts]
    text = repair_fragment(cards, taken)
    if text is None:
        folder.file(REPAIR).unlink(missing_ok=True)
        return None
    return folder.write_text(REPAIR, text)
