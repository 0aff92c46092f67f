"""The verb `report --crosswalk`: a run beside a framework that buyers ask about."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from guardmark.analysis.crosswalk.crosswalk import measured_run, set_beside
from guardmark.analysis.frameworks.framework import read_framework
from guardmark.analysis.run import analyse_run
from guardmark.app.results.opened_run import open_run
from guardmark.reports.chapters.crosswalk import NO_CONFORMITY, crosswalk_document

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.analysis.crosswalk.crosswalk import CrosswalkRow
    from guardmark.reports.document.blocks import Document


def crosswalk_of_run(run: Path, framework: str) -> Document:
    """Set a run beside a framework, as a document.

    Raises:
        UnknownName: There is no framework of that name.
        StoreError: There is no run in the folder.
    """
    rows, name = _rows(run, framework)
    return crosswalk_document(rows, read_framework(framework), run=name)


def crosswalk_rows(run: Path, framework: str) -> dict[str, Any]:
    """Set a run beside a framework, as JSON values."""
    rows, name = _rows(run, framework)
    known = read_framework(framework)
    return {
        "run": name,
        "framework": known.name,
        "version": known.version,
        "date": known.date,
        "source": known.source,
        "withdrawn": known.withdrawn or None,
        "replaced_by": known.replaced_by or None,
        "note": NO_CONFORMITY,
        "items": [_item(row) for row in rows],
    }


def _item(row: CrosswalkRow) -> dict[str, Any]:
    """Return one item of a framework as JSON values."""
    evidence = []
    for found in row.evidence:
        evidence.append(
            {
                "defense": found.defense,
                "what": found.what,
                "value": found.rate.value,
                "low": found.rate.low,
                "high": found.rate.high,
                "successes": found.rate.successes,
                "trials": found.rate.trials,
            }
        )
    told = asdict(row)
    return {
        "code": row.item.code,
        "title": row.item.title,
        "evidence": evidence,
        "recorded": list(told["recorded"]),
        "relevant": list(told["relevant"]),
        "left_open": list(told["left_open"]),
    }


def _rows(run: Path, framework: str) -> tuple[tuple[CrosswalkRow, ...], str]:
    known = read_framework(framework)
    with open_run(run) as opened:
        analysis = analyse_run(opened.reader, opened.settings)
    return set_beside(measured_run(analysis), known), analysis.manifest.name
