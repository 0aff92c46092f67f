"""The verb `export --to mlflow`: what a run of guardmark is as runs of MLflow."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from guardmark.analysis.cards.card import make_card, subjects_of
from guardmark.analysis.run import analyse_run
from guardmark.app.results.cards import card_json, file_name
from guardmark.app.results.opened_run import analysis_settings
from guardmark.interchange.mlflow import (
    HEAD,
    SUBJECT,
    UNDEFINED,
    MlflowExport,
    MlflowRun,
    send_runs,
    tracking_address,
)
from guardmark.store.whole_files import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from guardmark.analysis.cards.card import Card
    from guardmark.analysis.run import RunAnalysis
    from guardmark.store.reader import RecordReader

_ARTEFACTS: Final = ("summary.json", "summary.md", "report.html", "config.resolved.yaml")


def write_mlflow(reader: RecordReader, path: Path) -> int:
    """Write what MLflow gets into a folder, then send it; return how many figures there are.

    Raises:
        ConfigError: The extra is missing, or no address is set.
        ServiceError: MLflow did not answer. What was to be sent stands in the folder.
    """
    analysis = analyse_run(reader, analysis_settings(reader))
    cards = []
    for subject in subjects_of(analysis):
        card = make_card(analysis, subject.name, again="guardmark run config.resolved.yaml")
        file = path / f"{file_name(subject.name)}.card.json"
        with whole_file(file) as opened:
            opened.write(card_json(card).encode())
        cards.append((card, file))
    export = _export_of(analysis, cards, home=reader.path.parent)
    with whole_file(path / "mlflow.json") as opened:
        opened.write(json.dumps(export.as_document(), indent=1).encode())
    send_runs(export, tracking_address(os.environ))
    return sum(len(run.metrics) for run in (export.whole, *export.parts))


def _export_of(
    analysis: RunAnalysis, cards: list[tuple[Card, Path]], *, home: Path
) -> MlflowExport:
    manifest = analysis.manifest
    tags = {HEAD: analysis.status.head, "guardmark.version": manifest.guardmark_version}
    artefacts = tuple(home / name for name in _ARTEFACTS if (home / name).is_file())
    samples = analysis.samples
    whole = MlflowRun(
        name=manifest.name,
        tags={**tags, SUBJECT: "", "guardmark.state": str(analysis.status.state)},
        params=dict(_params_of_run(analysis)),
        metrics={
            "attacks": float(samples.attacks),
            "benign": float(samples.benign),
            "groups": float(samples.groups),
        },
        artefacts=artefacts,
    )
    parts = tuple(_part(card, file, tags) for card, file in cards)
    return MlflowExport(
        experiment=os.environ.get("MLFLOW_EXPERIMENT_NAME", "") or "guardmark",
        time_ms=_milliseconds(manifest.created_utc),
        whole=whole,
        parts=parts,
    )


def _params_of_run(analysis: RunAnalysis) -> Iterator[tuple[str, str]]:
    manifest = analysis.manifest
    for number, data in enumerate(manifest.data):
        yield f"data.{number}", f"{data.name} {data.version}".strip()
        yield f"data.{number}.sha256", data.sha256
    yield "repeats", str(manifest.repeats)
    yield "seed", str(manifest.seed)
    yield "confidence", f"{manifest.confidence:g}"
    yield "on_malformed", str(manifest.on_malformed)
    yield "on_error", str(manifest.on_error)
    yield "config_sha256", manifest.config_sha256


def _part(card: Card, file: Path, tags: Mapping[str, str]) -> MlflowRun:
    """Return the run of one defense: its settings, its figures with limits and counts, its card."""
    metrics: dict[str, float] = {}
    undefined = []
    for figure in card.figures:
        if figure.value is None:
            undefined.append(figure.name)
            continue
        values = {
            "": figure.value,
            "_low": figure.low,
            "_high": figure.high,
            "_successes": figure.successes,
            "_trials": figure.trials,
        }
        for ending, value in values.items():
            if value is not None:
                metrics[f"{figure.name}{ending}"] = float(value)
    subject = card.subject
    params = {
        "type": subject.type or subject.kind,
        "version": subject.version,
        "fingerprint": subject.fingerprint,
    }
    if subject.threshold is not None:
        params["threshold"] = f"{subject.threshold:g}"
    for key, value in subject.settings.items():
        params[f"settings.{key}"] = _text_of(value)
    return MlflowRun(
        name=subject.name,
        tags={
            **tags,
            SUBJECT: subject.name,
            UNDEFINED: ", ".join(undefined),
            "guardmark.answer": card.answer or "baseline",
            "guardmark.cohort": card.cohort.key,
            "guardmark.scope": subject.kind,
        },
        params={key: value for key, value in params.items() if value},
        metrics=metrics,
        artefacts=(file,),
    )


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _milliseconds(when: str) -> int:
    """Return milliseconds since 1970; 0 where a run states no time."""
    try:
        moment = datetime.fromisoformat(when)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
