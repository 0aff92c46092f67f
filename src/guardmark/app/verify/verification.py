"""The verb `verify`: every figure of a run computed again, and everything compared."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guardmark.app.results.reporting import find_run, run_config
from guardmark.app.verify.adaptive.target import check_target
from guardmark.app.verify.artefacts.files import check_lines, check_trace, check_verdicts
from guardmark.app.verify.artefacts.printed import recount_printed
from guardmark.app.verify.artefacts.printed_files import check_printed
from guardmark.app.verify.artefacts.programs import check_for_programs
from guardmark.app.verify.artefacts.tables import check_table, recount_categories, recount_variants
from guardmark.app.verify.data import check_data
from guardmark.app.verify.difference import Comparer, Finding
from guardmark.app.verify.judged.judges import check_panels
from guardmark.app.verify.small_slices import check_slices
from guardmark.app.verify.source import Source, open_source
from guardmark.app.verify.summary import recount_summary
from guardmark.core.manifest import VERSION
from guardmark.datasets.builtin import BUILTIN_SETS, builtin_specs
from guardmark.store import integrity
from guardmark.store.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.store.run_dir import RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What came of verifying a run."""

    folder: Path
    compared: int
    damage: tuple[str, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    outdated: str = ""

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.damage and not self.findings and not self.outdated


def verify(path: Path, *, data: Sequence[Path] = (), all_draws: bool = False) -> Verification:
    """Compute every figure of a run again and compare it with every artefact.

    Every number of `summary.json` is computed from the tables by formulas of its own; words and
    drawings are compared with reports written again. Nothing is called or changed.
    """
    folder = find_run(path)
    damage = tuple(integrity.check(folder.records))
    comparer = Comparer(is_patient=all_draws)
    with open_source(folder.records) as source:
        outdated = _outdated(folder, source)
        if not outdated:
            _check_artefacts(folder, source, comparer)
        notes = _check_stored(folder, source, comparer, data=data)
        is_same_version = source.manifest.get("guardmark_version") == VERSION
    if is_same_version and not damage and not outdated:
        _compare_again(folder, comparer)
    return Verification(
        folder=folder.path,
        compared=comparer.compared,
        damage=damage,
        findings=tuple(dict.fromkeys(comparer.findings)),
        notes=notes,
        outdated=outdated,
    )


def _outdated(folder: RunDir, source: Source) -> str:
    """Say that a run went on after its reports were written; every figure would differ."""
    said = _stated(folder, Comparer()).get("run", {})
    told = [said.get(name) if isinstance(said, dict) else None for name in ("stored", "retried")]
    for words, before, now in (
        ("records", told[0], source.stored()),
        ("errors asked about again", told[1], source.retried),
    ):
        if isinstance(before, int) and before < now:
            return (
                f"The reports are older than the records: they tell of {before:,} {words}, "
                f"{now:,} are stored. To write them anew: guardmark report {folder.path}"
            )
    return ""


def _check_artefacts(folder: RunDir, source: Source, comparer: Comparer) -> None:
    """Compare every artefact with the second count."""
    stated = _stated(folder, comparer)
    recounted = recount_summary(source, stated)
    _check_reports(folder, stated, recounted=recounted, comparer=comparer)
    check_for_programs(folder, source, stated, recounted=recounted, comparer=comparer)
    if folder.results.exists():
        check_lines(folder.results, source, comparer)
    if folder.trace.exists():
        check_trace(folder.trace, source, comparer)
    if folder.target.exists():
        check_target(folder.target, source, comparer)
    if folder.slice_stability.exists():
        check_slices(folder.slice_stability, source, comparer)


def _check_stored(
    folder: RunDir, source: Source, comparer: Comparer, *, data: Sequence[Path]
) -> tuple[str, ...]:
    """Compare what no report changes with the records; return what could not be compared."""
    check_panels(source, comparer)
    _check_description(folder, source, comparer)
    builtin = {
        spec.shown_as: spec.path for each in BUILTIN_SETS for spec in builtin_specs(each.name)
    }
    places = [*data, Path.cwd(), folder.path]
    missing = check_data(source, places, comparer, builtin=builtin)
    notes = [f"{name} was not found; --data FOLDER says where it lies." for name in missing]
    notes += _missing(folder, source)
    if comparer.uncounted:
        notes.append(
            f"{len(comparer.uncounted):,} figures take millions of draws (the first: "
            f"{comparer.uncounted[0]}): compared with reports written again only. "
            "--all-draws counts them a second time, too, which may take minutes."
        )
    if source.manifest.get("guardmark_version") != VERSION:
        notes.append(
            f"Reports were not written again: the run is of guardmark "
            f"{source.manifest.get('guardmark_version')}, this is {VERSION}."
        )
    return tuple(notes)


def _stated(folder: RunDir, comparer: Comparer) -> dict[str, Any]:
    path = folder.summary_json
    if not path.exists():
        return {}
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        said = None
    if isinstance(said, dict):
        return said
    comparer.findings.append(
        Finding(file=path.name, place="", said="no JSON object", found="a summary")
    )
    return {}


def _check_reports(
    folder: RunDir, stated: dict[str, Any], *, recounted: dict[str, Any], comparer: Comparer
) -> None:
    if stated:
        comparer.tree(folder.summary_json.name, "", said=stated, found=recounted)
    if folder.categories_csv.exists():
        check_table(folder.categories_csv, recount_categories(recounted), comparer)
    if folder.variant_metrics_csv.exists():
        check_table(folder.variant_metrics_csv, recount_variants(recounted), comparer)
    printed = recount_printed(recounted)
    for path in (folder.summary_md, folder.report_html):
        if path.exists():
            check_verdicts(path, recounted["verdicts"], comparer)
            check_printed(path, printed, comparer)


def _check_description(folder: RunDir, source: Source, comparer: Comparer) -> None:
    """Compare what was run, as files, with the manifest in the records."""
    import yaml

    for path, found in (
        (folder.data_manifest, source.manifest.get("data")),
        (folder.resolved_config, source.manifest.get("settings")),
    ):
        if not path.exists():
            continue
        try:
            said = yaml.safe_load(path.read_text(encoding="utf-8"))
        except yaml.YAMLError:
            said = None
        comparer.tree(path.name, "", said=said, found=found)
        comparer.tree(path.name, "", said=found, found=said)
    attacks = sum(data["attacks"] for data in source.manifest.get("data", ()))
    benign = sum(data["benign"] for data in source.manifest.get("data", ()))
    labels = Counter(subject.is_attack for subject in source.subjects())
    comparer.value(folder.data_manifest.name, "attacks", said=attacks, found=labels[True])
    comparer.value(folder.data_manifest.name, "benign", said=benign, found=labels[False])


def _missing(folder: RunDir, source: Source) -> list[str]:
    if source.state != "complete":
        return ["The run is not complete; what it stored so far was checked."]
    wanted = source.manifest.get("settings", {}).get("report", [])
    files = {
        "json": folder.summary_json,
        "md": folder.summary_md,
        "html": folder.report_html,
        "csv": folder.categories_csv,
    }
    absent = [files[name].name for name in wanted if name in files and not files[name].exists()]
    absent += [] if folder.results.exists() else [folder.results.name]
    return [f"{name} is not there; to write it: guardmark report {folder.path}" for name in absent]


def _compare_again(folder: RunDir, comparer: Comparer) -> None:
    from guardmark.app.verify.artefacts.again import (
        compare_again,
        compare_exports_again,
        compare_slices_again,
    )

    stated = _stated(folder, Comparer())
    with RecordReader(folder.records) as reader:
        config = run_config(reader.manifest())
        known = reader.defenses()
    anew = tuple(
        (each["name"], float(each["threshold"]))
        for each in stated.get("defenses", ())
        if each.get("is_redecided") is True
        and each.get("name") in known
        and isinstance(each.get("threshold"), int | float)
    )
    compare_again(folder, config, comparer, thresholds=anew)
    compare_exports_again(folder, comparer)
    if folder.slice_stability.exists():
        compare_slices_again(folder, comparer)
