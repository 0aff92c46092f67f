"""Run folders of minor_bench, of both its versions."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import DatasetError
from guardmark.core.sample import Label, Message, Prompt, Role, Sample
from guardmark.importers.imported import ImportedRow, ImportedRun
from guardmark.importers.minorbench_row import read_answers
from guardmark.importers.reading import Object, bytes_of, object_of, objects_of
from guardmark.importers.reading import word as text_of

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.importers.imported import Statements

_TELLING_WORD: Final = "hateful"
_INFERRED: Final = "inferred_hateful"


def read_minorbench(path: Path, said: Statements | None = None) -> ImportedRun:
    """Read a run folder: `results.jsonl`, and `meta.json` where there is one.

    A last line that was cut off is left out with a warning, and so are rows whose label nobody
    states. Latencies are left behind: batched runs of that tool time the batch, not the call.
    """
    del said  # the rows say all of it
    results = path if path.is_file() else path / "results.jsonl"
    hint = "Name the folder of a run, the one that holds results.jsonl."
    data = bytes_of(results, hint=hint)
    files = {results.name: sha256(data).hexdigest()}
    meta: Object = {}
    beside = results.parent / "meta.json"
    if beside.is_file():
        found = bytes_of(beside, hint=hint)
        files[beside.name] = sha256(found).hexdigest()
        meta = object_of(found, str(beside))
    warnings: list[str] = []
    rows = [row for _, row in objects_of(data, results, warnings)]
    imported, unlabelled = _imported(rows, str(results))
    if unlabelled:
        warnings.append(f"{unlabelled:,} rows without a label were left out")
    inferred = sum(row.sample.metadata.get("label_source") == _INFERRED for row in imported)
    if inferred:
        warnings.append(
            f"the label of {inferred:,} rows was inferred from the word {_TELLING_WORD!r} in a name"
        )
    first = rows[0] if rows else {}
    return ImportedRun(
        tool="minor_bench",
        guard=next((name for row in rows if (name := text_of(row, "guardrail_model"))), ""),
        model=text_of(meta, "model_name") or text_of(first, "model_name") or "model",
        judge=_judge(meta, imported),
        created_utc=text_of(meta, "created_utc"),
        rows=imported,
        files=files,
        legacy_cards=("response_unsafe_v1", "assistant_policy_v2"),
        passes_malformed=_passes_malformed(imported),
        warnings=tuple(warnings),
    )


def _imported(rows: list[Object], shown_as: str) -> tuple[tuple[ImportedRow, ...], int]:
    taken: Counter[str] = Counter()
    found: list[ImportedRow] = []
    unlabelled = 0
    for row in rows:
        label, source = _label(row)
        if label is None:
            unlabelled += 1
            continue
        found.append(
            ImportedRow(sample=_sample(row, label, source, taken), answers=read_answers(row))
        )
    if not found:
        raise DatasetError(f"{shown_as} holds no labelled row.")
    return tuple(found), unlabelled


def _sample(row: Object, label: Label, source: str, taken: Counter[str]) -> Sample:
    metadata = _metadata(row)
    variant = text_of(metadata, "variant") or "original"
    text = text_of(row, "prompt_text") or text_of(row, "prompt")
    base = text_of(metadata, "base_prompt_id") or sha256(text.encode()).hexdigest()[:12]
    # The row keeps no id of its own: origin, variant and order make one.
    name = base if variant == "original" else f"{base}-{variant}"
    taken[name] += 1
    before = text_of(row, "system_prompt")
    system = (Message(role=Role.SYSTEM, content=before),) if before else ()
    return Sample(
        id=name if taken[name] == 1 else f"{name}-{taken[name]}",
        prompt=Prompt(
            messages=(*system, Message(role=Role.USER, content=text)), under_test=len(system)
        ),
        label=label,
        category=text_of(metadata, "original_category") or text_of(metadata, "category"),
        subcategory=text_of(metadata, "original_subcategory"),
        variant=variant,
        group=base,
        source=text_of(row, "dataset_source"),
        metadata={
            **metadata,
            "label_source": source,
            "pack_name": text_of(row, "prompt_pack_name"),
            "pack_subset": text_of(row, "prompt_pack_subset"),
        },
    )


def _metadata(row: Object) -> Object:
    found = row.get("metadata")
    return found if isinstance(found, dict) else {}


def _label(row: Object) -> tuple[Label | None, str]:
    """Resolve a label in that tool's order; the last rule only infers, from a name."""
    metadata = _metadata(row)
    for place, source in ((metadata, "explicit_is_harmful"), (row, text_of(row, "label_source"))):
        said = place.get("is_harmful")
        if isinstance(said, bool):
            return Label.ATTACK if said else Label.BENIGN, source or "explicit_is_harmful"
    word = text_of(metadata, "label").lower()
    if word in {"safe", "unsafe"}:
        return Label.ATTACK if word == "unsafe" else Label.BENIGN, "metadata_label"
    names = [text_of(metadata, "original_category").strip().lower()]
    names.append(
        " ".join(
            text_of(row, field)
            for field in ("dataset_source", "prompt_pack_name", "prompt_pack_subset")
        ).lower()
    )
    if names[0] == _TELLING_WORD or _TELLING_WORD in names[1]:
        return Label.ATTACK, _INFERRED
    return None, "unknown"


def _judge(meta: Object, rows: tuple[ImportedRow, ...]) -> str:
    judged = any(answer.verdict is not None for row in rows for answer in row.answers)
    if not judged:
        return ""
    return text_of(meta, "safety_judge_model") or "judge"


def _passes_malformed(rows: tuple[ImportedRow, ...]) -> bool:
    return any(
        answer.decision is not None
        and answer.decision.outcome.value == "malformed"
        and answer.response is not None
        for row in rows
        for answer in row.answers
    )
