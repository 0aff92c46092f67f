"""What a run leaves for other programs, against the figures that were counted again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guardmark.app.verify.artefacts.comparison import check_compared, recount_compared
from guardmark.app.verify.artefacts.gate import recount_checks
from guardmark.app.verify.artefacts.junit import check_junit, recount_cases
from guardmark.app.verify.artefacts.sarif import check_sarif, recount_sarif
from guardmark.app.verify.columns import read_samples
from guardmark.app.verify.recount import read_recounts

if TYPE_CHECKING:
    from guardmark.app.verify.difference import Comparer
    from guardmark.app.verify.source import Source
    from guardmark.store.run_dir import RunDir

Json = dict[str, Any]


def check_for_programs(
    folder: RunDir, source: Source, stated: Json, *, recounted: Json, comparer: Comparer
) -> None:
    """Compare the files that other programs read, those that are there."""
    if not any(path.exists() for path in (folder.comparison_json, folder.junit, folder.sarif)):
        return
    recounts = read_recounts(source, read_samples(source), stated)
    if folder.comparison_json.exists():
        compared = recount_compared(source, recounted, recounts)
        check_compared(folder.comparison_json, compared, comparer)
    if folder.junit.exists():
        checks = recount_checks(source, recounted, recounts)
        check_junit(folder.junit, source, recount_cases(recounted, checks), comparer)
    if folder.sarif.exists():
        check_sarif(folder.sarif, recount_sarif(source, recounts), comparer)
