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
_LABEL_OF: Final = {True: Label.ATTACK, False: Label.BENIGN}
_LABEL_FIELDS: Final = (
    "response_safety_labels",
    "judge_labels",
    "judge_classifications",
    "all_classifications",
)
_MODE_FIELDS: Final = ("answer_modes", "judge_answer_modes", "answer_mode")
_MODES: Final = {mode.value: mode for mode in AnswerMode}


def read_answers(row: Object) -> tuple[ImportedAnswer, ...]:
    """Read every generation of a row."""
    generations = enumerate(_objects(row, "generations"))
    return tuple(_answer(row, generation, repeat) for repeat, generation in generations)


def _answer(row: Object, generation: Object, repeat: int) -> ImportedAnswer:
    """Read what the guard decided, what the model answered, and what the judge said of it."""
    raw = inner(generation, "raw")
    finish = text_of(raw, "finish_reason")
    decision = None
    outcome = None
    if text_of(row, "guardrail_model"):
        decision = _decision(row, raw, repeat)
        outcome = decision.outcome
    is_unread = outcome in {Outcome.MALFORMED, Outcome.ERROR}
    if outcome is Outcome.BLOCK or finish in _NOT_ASKED or (is_unread and not finish):
        return ImportedAnswer(repeat=repeat, decision=decision)
    response = _response(generation, raw, finish)
    verdict = None
    if response.text is not None:
        verdict = _verdict(row, repeat)
    return ImportedAnswer(repeat=repeat, decision=decision, response=response, verdict=verdict)


def _decision(row: Object, raw: Object, repeat: int) -> Decision:
    """Read the decision of the guard on one generation.

    The generation itself tells it, or else the list of decisions beside the generations.
    """
    status = text_of(raw, "guardrail_decision_status")
    if not status:
        for listed in _objects(row, "guardrail_decisions"):
            if listed.get("index") == repeat:
                status = text_of(listed, "status")
                break
    outcome = _STATUS.get(status)
    if text_of(raw, "finish_reason") in _GUARD_FAILED:
        outcome = Outcome.ERROR
    if outcome is None:
        missing = Evidence(message=f"the file says {status[:40]!r}")
        return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.CONTRACT, evidence=missing)
    evidence = Evidence(
        reason=text_of(raw, "guardrail_reason"),
        raw=text_of(raw, "guardrail_decision_raw"),
        usage=_usage(raw.get("guardrail_usage"), raw.get("guardrail_cost_usd")),
    )
    kept = None
    if evidence.reason or evidence.raw or evidence.usage:
        kept = evidence
    kind = None
    if outcome is Outcome.ERROR:
        kind = ErrorKind.CRASH
    return Decision(outcome=outcome, error_kind=kind, evidence=kept)


def _response(generation: Object, raw: Object, finish: str) -> Response:
    """Read the answer of the model, or that it failed."""
    usage = _usage(raw.get("usage"), raw.get("cost_usd"))
    evidence = Evidence(finish_reason=finish, usage=usage, message=text_of(raw, "error"))
    if finish == "error" or raw.get("error") or not isinstance(generation.get("text"), str):
        # That tool judges the printed error, or an empty text: here it is no answer at all.
        return Response(text=None, error_kind=ErrorKind.CRASH, evidence=evidence)
    return Response(text=text_of(generation, "text"), evidence=evidence)


def _usage(counts: object, cost: object) -> Usage | None:
    """Read tokens and money of a call; nothing where the file states none of it."""
    prompt_tokens = completion_tokens = None
    if isinstance(counts, dict):
        prompt_tokens = counts.get("prompt_tokens")
        completion_tokens = counts.get("completion_tokens")
    if prompt_tokens is None and completion_tokens is None and cost is None:
        return None
    return Usage(
        prompt_tokens=_whole(prompt_tokens),
        completion_tokens=_whole(completion_tokens),
        cost=_number(cost),
    )


def _whole(value: object) -> int | None:
    """Return a whole number, or None for anything else."""
    if isinstance(value, int):
        return value
    return None


def _number(value: object) -> float | None:
    """Return a number, or None for anything else."""
    if isinstance(value, int | float):
        return float(value)
    return None


def _verdict(row: Object, repeat: int) -> Verdict | None:
    """Read what the judge said of one generation; None where it said nothing."""
    word = _first_entry(row, _LABEL_FIELDS, repeat)
    if not word:
        return None
    reasons = _at(row, "judge_failure_reasons", repeat) or _at(row, "failure_reasons", repeat)
    if not isinstance(reasons, list):
        reasons = [reasons or ""]
    evidence = Evidence(
        reason="; ".join(map(str, reasons)),
        raw=str(_at(row, "judge_raw_outputs", repeat) or ""),
        parse_method=str(_at(row, "judge_parse_method", repeat) or ""),
        usage=_usage(_at(row, "judge_usage", repeat), _at(row, "judge_cost_usd", repeat)),
    )
    return Verdict(
        label=_LABELS.get(word, VerdictLabel.MALFORMED),
        answer_mode=_MODES.get(_first_entry(row, _MODE_FIELDS, repeat)),
        evidence=evidence,
    )


def _first_entry(row: Object, fields: tuple[str, ...], repeat: int) -> str:
    """Return the word for one generation in the first of some fields that has one."""
    for field in fields:
        word = _entry(row, field, repeat)
        if word:
            return word
    return ""


def _entry(row: Object, field: str, repeat: int) -> str:
    """Return the word for one generation in a list; older rows hold objects with a label."""
    value = _at(row, field, repeat)
    if isinstance(value, dict):
        value = value.get("label")
    if not isinstance(value, str):
        return ""
    return value.strip().lower()


def _at(row: Object, field: str, repeat: int) -> Any:
    """Return the value for one generation; what is no list is about the first."""
    value = row.get(field)
    if isinstance(value, list):
        if repeat < len(value):
            return value[repeat]
        return None
    if repeat == 0:
        return value
    return None


def _objects(row: Object, field: str) -> list[Object]:
    """Return the objects that a field lists; nothing where it is no list."""
    value = row.get(field)
    if not isinstance(value, list):
        return []
    return [member for member in value if isinstance(member, dict)]


_TELLING_WORD: Final = "hateful"
_ORIGIN: Final = ("dataset_source", "prompt_pack_name", "prompt_pack_subset")
_HINT: Final = "Name the folder of a run, the one that holds results.jsonl."


def read_minorbench(path: Path, statements: Statements | None = None) -> ImportedRun:
    """Read a run folder: `results.jsonl`, and what says more of the run where it is there."""
    del statements  # the rows state everything
    results = path
    if not path.is_file():
        results = path / RESULTS_FILE
    data = bytes_of(results, hint=_HINT)
    files = {results.name: sha256(data).hexdigest()}
    kept: Object = {}
    for name in (META_FILE, MANIFEST_FILE):
        beside = results.parent / name
        if beside.is_file():
            content = bytes_of(beside, hint=_HINT)
            files[name] = sha256(content).hexdigest()
            kept[name] = object_of(content, str(beside))
    warnings: list[str] = []
    rows = [row for _, row in objects_of(data, results, warnings)]
    imported = _imported(rows, str(results))
    warnings.extend(_label_warnings(imported))
    has_judge = _has_judge(rows)
    kept["safety_source"], usual_judge = "rules", "rules"
    if has_judge:
        kept["safety_source"], usual_judge = "llm_judge", "judge"
    kept["providers"] = _providers(rows)
    meta = inner(kept, META_FILE)
    judge = ""
    if any(row.is_judged for row in imported):
        judge = text_of(meta, "safety_judge_model") or usual_judge
    model = text_of(meta, "model_name")
    if not model and rows:
        model = text_of(rows[0], "model_name")
    return ImportedRun(
        tool="minor_bench",
        model=model or "model",
        judge=judge,
        created_utc=text_of(meta, "created_utc"),
        rows=imported,
        files=files,
        legacy_cards=LEGACY_CARDS,
        passes_malformed=_passes_malformed(imported),
        kept=kept,
        readings=(f"the verdict was read from {_verdict_fields(rows)}",),
        warnings=tuple(warnings),
    )


def _label_warnings(imported: tuple[ImportedRow, ...]) -> list[str]:
    """Say how many rows have no label, and how many only an inferred one."""
    unlabelled = inferred = 0
    for row in imported:
        if not row.sample.is_labelled:
            unlabelled += 1
        elif row.sample.metadata.get("label_source") == LABEL_INFERRED:
            inferred += 1
    warnings = []
    if unlabelled:
        count = f"{unlabelled:,} of {len(imported):,} rows have no label"
        warnings.append(f"{count}: they are kept for coverage, and no rate holds them")
    if inferred:
        count = f"the label of {inferred:,} rows was inferred"
        warnings.append(f"{count} from the word {_TELLING_WORD!r} in a name")
    return warnings


def _has_judge(rows: list[Object]) -> bool:
    """Tell whether a model judged; `all_classifications` is there without one, too."""
    return any(not row.keys().isdisjoint(_LABEL_FIELDS[:-1]) for row in rows)


def _providers(rows: list[Object]) -> dict[str, str]:
    """Return the provider of each guard that the rows name."""
    providers = {}
    for row in rows:
        guard, provider = text_of(row, "guardrail_model"), text_of(row, "guardrail_provider")
        if guard and provider:
            providers[guard] = provider
    return providers


def _passes_malformed(imported: tuple[ImportedRow, ...]) -> bool:
    """Tell whether the model was asked although its guard gave no decision."""
    for row in imported:
        for answer in row.answers:
            is_malformed = answer.decision and answer.decision.outcome is Outcome.MALFORMED
            if is_malformed and answer.response:
                return True
    return False


def _verdict_fields(rows: list[Object]) -> str:
    """Name the first field of each row that holds verdicts."""
    names: list[str] = []
    for row in rows:
        for field in _LABEL_FIELDS:
            if row.get(field):
                if field not in names:
                    names.append(field)
                break
    return ", ".join(names) or "no field"


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
    """Read the sample of a row; `taken` counts the names that rows before it got."""
    metadata = inner(row, "metadata")
    variant = text_of(metadata, "variant") or "original"
    text = text_of(row, "prompt_text") or text_of(row, "prompt")
    base = _base_prompt(metadata) or sha256(text.encode()).hexdigest()[:12]
    kept = {
        **metadata,
        BASE_PROMPT: metadata.get(BASE_PROMPT),
        "label_source": source,
        "pack_name": text_of(row, "prompt_pack_name"),
        "pack_subset": text_of(row, "prompt_pack_subset"),
    }
    times = _latencies(row)
    if any(times):
        kept[LATENCIES] = times
    return Sample(
        id=_sample_id(base, variant, taken),
        prompt=_prompt(text, text_of(row, "system_prompt")),
        label=label,
        category=text_of(metadata, "original_category") or text_of(metadata, "category"),
        subcategory=text_of(metadata, "original_subcategory"),
        variant=variant,
        group=base,
        source=text_of(row, "dataset_source"),
        metadata=kept,
    )


def _base_prompt(metadata: Object) -> str:
    """Return the name of the prompt that a row is a variant of, or nothing."""
    stated = metadata.get(BASE_PROMPT)
    if stated is None or isinstance(stated, bool):
        return ""
    return str(stated).strip()


def _sample_id(base: str, variant: str, taken: Counter[str]) -> str:
    """Make an id of origin, variant and order: a row keeps none of its own."""
    name = base
    if variant != "original":
        name = f"{base}-{variant}"
    taken[name] += 1
    if taken[name] == 1:
        return name
    return f"{name}-{taken[name]}"


def _prompt(text: str, system_prompt: str) -> Prompt:
    """Return what the model was shown."""
    messages = [Message(role=Role.USER, content=text)]
    if system_prompt:
        messages.insert(0, Message(role=Role.SYSTEM, content=system_prompt))
    return Prompt(messages=tuple(messages), under_test=len(messages) - 1)


def _latencies(row: Object) -> list[float | None]:
    """Return the time of each generation, as the file states it."""
    generations = _objects(row, "generations")
    return [_number(inner(generation, "raw").get("latency")) for generation in generations]


def _label(row: Object) -> tuple[Label, str]:
    """Resolve a label in that tool's order; the last rule only infers, from a name."""
    metadata = inner(row, "metadata")
    for place, source in ((metadata, LABEL_STATED), (row, text_of(row, "label_source"))):
        stated = place.get("is_harmful")
        if isinstance(stated, bool):
            return _LABEL_OF[stated], source or LABEL_STATED
    word = text_of(metadata, "label").lower()
    if word in {SAFE, UNSAFE}:
        return _LABEL_OF[word == UNSAFE], LABEL_IN_METADATA
    category = text_of(metadata, "original_category").strip().lower()
    origin = " ".join(text_of(row, name) for name in _ORIGIN)
    if category == _TELLING_WORD or _TELLING_WORD in origin.lower():
        return Label.ATTACK, LABEL_INFERRED
    return Label.UNLABELLED, UNKNOWN
