"""Run folders of minor_bench, of both its versions."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import DatasetError
from guardmark.core.sample import Label, Message, Prompt, Role, Sample
from guardmark.importers.imported import ImportedRow, ImportedRun
from guardmark.importers.minorbench_row import Object, read_answers, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST_FAULTS: Final = 20
_TELLING_WORD: Final = "hateful"
_INFERRED: Final = "inferred_hateful"


def read_minorbench(path: Path) -> ImportedRun:
    """Read a run folder: `results.jsonl`, and `meta.json` where there is one.

    A last line that was cut off is left out with a warning, and so are rows whose label nobody
    states. Latencies are left behind: batched runs of that tool time the batch, not the call.

    Args:
        path: The folder, or its `results.jsonl`.

    Returns:
        Samples with decisions, answers and verdicts. Text that stands where a guard blocked is
        the guard's refusal, so it is no answer of the model.

    Raises:
        DatasetError: If a file is missing or a row cannot be read; every one is named.
    """
    results = path if path.is_file() else path / "results.jsonl"
    data = _bytes_of(results)
    files = {results.name: sha256(data).hexdigest()}
    meta: Object = {}
    beside = results.parent / "meta.json"
    if beside.is_file():
        found = _bytes_of(beside)
        files[beside.name] = sha256(found).hexdigest()
        meta = _object(found.decode("utf-8", "replace"), str(beside))
    warnings: list[str] = []
    rows = list(_rows(data, results, warnings))
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
        passes_malformed=_passes_malformed(imported),
        warnings=tuple(warnings),
    )


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetError(
            f"{path} cannot be read: {error.strerror}.\n"
            "Name the folder of a run, the one that holds results.jsonl."
        ) from error


def _object(text: str, shown_as: str) -> Object:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DatasetError(f"{shown_as} is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise DatasetError(f"{shown_as} holds no JSON object.")
    return found


def _rows(data: bytes, path: Path, warnings: list[str]) -> Iterator[Object]:
    lines = data.decode("utf-8-sig", "replace").split("\n")
    filled = [number for number, line in enumerate(lines, start=1) if line.strip()]
    faults: list[str] = []
    for number in filled:
        try:
            yield _object(lines[number - 1], f"{path}:{number}")
        except DatasetError as error:
            if number == filled[-1] and not data.endswith(b"\n"):
                warnings.append(f"the last line of {path.name} is cut off and was left out")
            else:
                faults.append(str(error))
    if faults:
        more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        raise DatasetError("\n".join([*faults[:_MOST_FAULTS], *more]))


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
