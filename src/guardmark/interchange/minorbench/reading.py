"""Run folders of minor_bench, of both its versions: its words and how they are read."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import DatasetError
from guardmark.core.outcome import (
    AnswerMode,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    Response,
    Verdict,
    VerdictLabel,
)
from guardmark.core.sample import Label, Message, Prompt, Role, Sample
from guardmark.core.usage import Usage
from guardmark.interchange.imported import (
    ImportedAnswer,
    ImportedRow,
    ImportedRun,
    Object,
    bytes_of,
    inner,
    object_of,
    objects_of,
)
from guardmark.interchange.imported import word as text_of

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.interchange.imported import Statements


RESULTS_FILE: Final = "results.jsonl"
META_FILE: Final = "meta.json"
MANIFEST_FILE: Final = "data_manifest.json"
BASE_PROMPT: Final = "base_prompt_id"
"""Field of the metadata that names the prompt a variant was made of; None where a row has none."""
LATENCIES: Final = "latencies_s"
"""Where a sample keeps the times of its generations: batched runs time the batch, not the call."""

ALLOWED, BLOCKED, MALFORMED, FAILED = "allow", "block", "malformed", "runtime_error"
"""Words for what a guard decided; a failed guard is written as malformed."""

FINISH_BLOCKED: Final = "guardrail_blocked"
FINISH_MALFORMED: Final = "guardrail_malformed_error"
FINISH_FAILED: Final = "guardrail_inference_error"
"""Reasons why a generation ended that are the guard's."""

SAFE, UNSAFE, UNKNOWN = "safe", "unsafe", "unknown"
"""Words for what the judge decided."""

LABEL_STATED: Final = "explicit_is_harmful"
LABEL_IN_METADATA: Final = "metadata_label"
LABEL_INFERRED: Final = "inferred_hateful"
"""Where the label of a row came from; the last is only inferred from a name."""

LEGACY_CARDS: Final = ("response_unsafe_v1", "assistant_policy_v2")
"""Definitions of that tool's scorecards: in the first, a positive is an unsafe final answer and
a block a safe one."""

_STATUS: Final = {
    ALLOWED: Outcome.ALLOW,
    BLOCKED: Outcome.BLOCK,
    MALFORMED: Outcome.MALFORMED,
    FAILED: Outcome.ERROR,
}
_GUARD_FAILED: Final = frozenset({"guardrail_init_error", FINISH_FAILED})
_NOT_ASKED: Final = frozenset({FINISH_BLOCKED, FINISH_MALFORMED, *_GUARD_FAILED})
_LABELS: Final = {SAFE: VerdictLabel.SAFE, UNSAFE: VerdictLabel.UNSAFE}
_LABEL_FIELDS: Final = (
    *("response_safety_labels", "judge_labels", "judge_classifications", "all_classifications"),
)
_MODE_FIELDS: Final = ("answer_modes", "judge_answer_modes", "answer_mode")
_MODES: Final = {mode.value: mode for mode in AnswerMode}


def read_answers(row: Object) -> tuple[ImportedAnswer, ...]:
    """Read every generation of a row."""
    generations = [each for each in _list(row, "generations") if isinstance(each, dict)]
    return tuple(_answer(row, generation, repeat) for repeat, generation in enumerate(generations))


def _answer(row: Object, generation: Object, repeat: int) -> ImportedAnswer:
    raw = inner(generation, "raw")
    finish = text_of(raw, "finish_reason")
    decision = _decision(row, raw, repeat) if text_of(row, "guardrail_model") else None
    outcome = None if decision is None else decision.outcome
    is_unread = outcome in {Outcome.MALFORMED, Outcome.ERROR}
    if outcome is Outcome.BLOCK or finish in _NOT_ASKED or (is_unread and not finish):
        return ImportedAnswer(repeat=repeat, decision=decision)
    response = _response(generation, raw, finish)
    verdict = None if response.text is None else _verdict(row, repeat)
    return ImportedAnswer(repeat=repeat, decision=decision, response=response, verdict=verdict)


def _decision(row: Object, raw: Object, repeat: int) -> Decision:
    listed = [each for each in _list(row, "guardrail_decisions") if isinstance(each, dict)]
    mine = next((each for each in listed if each.get("index") == repeat), {})
    status = text_of(raw, "guardrail_decision_status") or text_of(mine, "status")
    finish = text_of(raw, "finish_reason")
    evidence = Evidence(
        reason=text_of(raw, "guardrail_reason"),
        raw=text_of(raw, "guardrail_decision_raw"),
        usage=_usage(raw.get("guardrail_usage"), raw.get("guardrail_cost_usd")),
    )
    outcome = Outcome.ERROR if finish in _GUARD_FAILED else _STATUS.get(status)
    if outcome is None:
        missing = Evidence(message=f"the file says {status[:40]!r}")
        return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.CONTRACT, evidence=missing)
    kind = ErrorKind.CRASH if outcome is Outcome.ERROR else None
    is_said = evidence.reason or evidence.raw or evidence.usage
    return Decision(outcome=outcome, error_kind=kind, evidence=evidence if is_said else None)


def _response(generation: Object, raw: Object, finish: str) -> Response:
    usage = _usage(raw.get("usage"), raw.get("cost_usd"))
    evidence = Evidence(finish_reason=finish, usage=usage, message=text_of(raw, "error"))
    if finish == "error" or raw.get("error") or not isinstance(generation.get("text"), str):
        # That tool judges the printed error, or an empty text: here it is no answer at all.
        return Response(text=None, error_kind=ErrorKind.CRASH, evidence=evidence)
    return Response(text=text_of(generation, "text"), evidence=evidence)


def _usage(counts: object, cost: object) -> Usage | None:
    usage = counts if isinstance(counts, dict) else {}
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if read is None and written is None and cost is None:
        return None
    return Usage(
        prompt_tokens=read if isinstance(read, int) else None,
        completion_tokens=written if isinstance(written, int) else None,
        cost=float(cost) if isinstance(cost, int | float) else None,
    )


def _verdict(row: Object, repeat: int) -> Verdict | None:
    word = _verdict_word(row, repeat)
    if not word:
        return None
    mode = next((text for field in _MODE_FIELDS if (text := _entry(row, field, repeat))), "")
    reasons = _at(row, "judge_failure_reasons", repeat) or _at(row, "failure_reasons", repeat)
    listed = reasons if isinstance(reasons, list) else [reasons or ""]
    evidence = Evidence(
        reason="; ".join(map(str, listed)),
        raw=str(_at(row, "judge_raw_outputs", repeat) or ""),
        parse_method=str(_at(row, "judge_parse_method", repeat) or ""),
        usage=_usage(_at(row, "judge_usage", repeat), _at(row, "judge_cost_usd", repeat)),
    )
    label = _LABELS.get(word, VerdictLabel.MALFORMED)
    return Verdict(label=label, answer_mode=_MODES.get(mode), evidence=evidence)


def _verdict_word(row: Object, repeat: int) -> str:
    return next((text for field in _LABEL_FIELDS if (text := _entry(row, field, repeat))), "")


def _entry(row: Object, field: str, repeat: int) -> str:
    """A word of a list by generation; older rows hold objects with a label."""
    value = _at(row, field, repeat)
    if isinstance(value, dict):
        value = value.get("label")
    return value.strip().lower() if isinstance(value, str) else ""


def _at(row: Object, field: str, repeat: int) -> Any:
    value = row.get(field)
    if not isinstance(value, list):
        return value if repeat == 0 else None
    return value[repeat] if repeat < len(value) else None


def _list(row: Object, field: str) -> list[Any]:
    value = row.get(field)
    return value if isinstance(value, list) else []


_TELLING_WORD: Final = "hateful"
_ORIGIN: Final = ("dataset_source", "prompt_pack_name", "prompt_pack_subset")


def read_minorbench(path: Path, statements: Statements | None = None) -> ImportedRun:
    """Read a run folder: `results.jsonl`, and what says more of the run where it is there."""
    del statements  # the rows state everything
    results = path if path.is_file() else path / RESULTS_FILE
    hint = "Name the folder of a run, the one that holds results.jsonl."
    data = bytes_of(results, hint=hint)
    files = {results.name: sha256(data).hexdigest()}
    kept: Object = {}
    for beside in (results.parent / name for name in (META_FILE, MANIFEST_FILE)):
        if beside.is_file():
            content = bytes_of(beside, hint=hint)
            files[beside.name] = sha256(content).hexdigest()
            kept[beside.name] = object_of(content, str(beside))
    meta = inner(kept, META_FILE)
    warnings: list[str] = []
    rows = [row for _, row in objects_of(data, results, warnings)]
    imported = _imported(rows, str(results))
    unlabelled = sum(not row.sample.is_labelled for row in imported)
    if unlabelled:
        count = f"{unlabelled:,} of {len(rows):,} rows have no label"
        warnings.append(f"{count}: they are kept for coverage, and no rate holds them")
    inferred = sum(row.sample.metadata.get("label_source") == LABEL_INFERRED for row in imported)
    if inferred:
        note = f"the label of {inferred:,} rows was inferred"
        warnings.append(f"{note} from the word {_TELLING_WORD!r} in a name")
    first = rows[0] if rows else {}
    has_judge = any(field in row for row in rows for field in _LABEL_FIELDS[:-1])
    judge = text_of(meta, "safety_judge_model") or ("judge" if has_judge else "rules")
    kept["safety_source"] = "llm_judge" if has_judge else "rules"
    named = {text_of(row, "guardrail_model"): text_of(row, "guardrail_provider") for row in rows}
    passed = (each.decision for row in imported for each in row.answers if each.response)
    kept["providers"] = {name: provider for name, provider in named.items() if name and provider}
    return ImportedRun(
        tool="minor_bench",
        model=text_of(meta, "model_name") or text_of(first, "model_name") or "model",
        judge=judge if any(row.is_judged for row in imported) else "",
        created_utc=text_of(meta, "created_utc"),
        rows=imported,
        files=files,
        legacy_cards=LEGACY_CARDS,
        passes_malformed=any(each and each.outcome is Outcome.MALFORMED for each in passed),
        kept=kept,
        readings=(f"the verdict was read from {_verdict_fields(rows)}",),
        warnings=tuple(warnings),
    )


def _verdict_fields(rows: list[Object]) -> str:
    """Name the first field of each row that holds verdicts."""
    named = (next((f for f in _LABEL_FIELDS if row.get(f)), "") for row in rows)
    return ", ".join(dict.fromkeys(name for name in named if name)) or "no field"


def _imported(rows: list[Object], shown_as: str) -> tuple[ImportedRow, ...]:
    """Read every row, those without a label last, where the records want them."""
    taken: Counter[str] = Counter()
    labelled: list[ImportedRow] = []
    unlabelled: list[ImportedRow] = []
    for row in rows:
        label, source = _label(row)
        imported = ImportedRow(
            sample=_sample(row, label, source, taken),
            answers=read_answers(row),
            guard=text_of(row, "guardrail_model"),
        )
        if label is Label.UNLABELLED:
            unlabelled.append(imported)
        else:
            labelled.append(imported)
    if not labelled:
        raise DatasetError(f"{shown_as} holds no labelled row.\nNext: fill in is_harmful.")
    return (*labelled, *unlabelled)


def _sample(row: Object, label: Label, source: str, taken: Counter[str]) -> Sample:
    metadata = inner(row, "metadata")
    variant = text_of(metadata, "variant") or "original"
    text = text_of(row, "prompt_text") or text_of(row, "prompt")
    stated = metadata.get(BASE_PROMPT)
    base = "" if stated is None or isinstance(stated, bool) else str(stated).strip()
    base = base or sha256(text.encode()).hexdigest()[:12]
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
            BASE_PROMPT: stated,
            "label_source": source,
            "pack_name": text_of(row, "prompt_pack_name"),
            "pack_subset": text_of(row, "prompt_pack_subset"),
            **({LATENCIES: times} if any(times := _latencies(row)) else {}),
        },
    )


def _latencies(row: Object) -> list[float | None]:
    generations = (each for each in _list(row, "generations") if isinstance(each, dict))
    times = [inner(each, "raw").get("latency") for each in generations]
    return [float(each) if isinstance(each, int | float) else None for each in times]


def _label(row: Object) -> tuple[Label, str]:
    """Resolve a label in that tool's order; the last rule only infers, from a name."""
    metadata = inner(row, "metadata")
    for place, source in ((metadata, LABEL_STATED), (row, text_of(row, "label_source"))):
        stated = place.get("is_harmful")
        if isinstance(stated, bool):
            return Label.ATTACK if stated else Label.BENIGN, source or LABEL_STATED
    word = text_of(metadata, "label").lower()
    if word in {SAFE, UNSAFE}:
        return Label.ATTACK if word == UNSAFE else Label.BENIGN, LABEL_IN_METADATA
    category = text_of(metadata, "original_category").strip().lower()
    origin = [text_of(row, name) for name in _ORIGIN]
    if category == _TELLING_WORD or any(_TELLING_WORD in name.lower() for name in origin):
        return Label.ATTACK, LABEL_INFERRED
    return Label.UNLABELLED, UNKNOWN
