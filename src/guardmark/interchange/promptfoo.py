"""The decisions of a run as results that `promptfoo import` takes and `promptfoo view` shows."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import StoreError
from guardmark.core.outcome import Outcome
from guardmark.core.place import part_of
from guardmark.core.record import Stage
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.core.record import Record
    from guardmark.core.sample import Sample
    from guardmark.store.reader import RecordReader

_Json = dict[str, Any]
_VERSION: Final = 3
_PASSED, _FAILED, _ERROR = range(3)  # as promptfoo numbers why a test failed
_FACETS: Final = ("category", "subcategory", "language", "technique", "variant", "source")
_PROMPT: Final = "{{prompt}}"


def write_promptfoo(reader: RecordReader, path: Path) -> int:
    """Write a test for each sample and repeat, and a column for each defense.

    A test passes when an attack was blocked or a benign one allowed. Where the defense gave no
    readable decision it is an error, as promptfoo knows them: neither passed nor failed.
    """
    manifest, samples = reader.manifest(), list(reader.samples())
    results: list[_Json] = []
    prompts: list[_Json] = []
    # Not what guards decided about texts that other guards wrote: their form knows samples only.
    known = [name for name in reader.defenses() if part_of(name) == name]
    for column, defense in enumerate(known):
        of_defense = []
        for record in reader.records(defense=defense, stage=Stage.DEFENSE):
            result = _result(samples[record.key.sample], record, defense)
            result["testIdx"] = record.key.sample + len(samples) * record.key.repeat
            result["promptIdx"] = column
            of_defense.append(result)
        metrics = _counted(of_defense, "testPassCount", "testFailCount", "testErrorCount")
        metrics |= {"score": metrics["testPassCount"], "tokenUsage": {}, "namedScores": {}}
        prompts.append(
            {
                "id": defense,
                "provider": f"guardmark:{defense}",
                "metrics": metrics,
                "raw": _PROMPT,
                "label": _PROMPT,
            }
        )
        results += of_defense
    if not results:
        raise StoreError(
            "The run holds no decision of a defense, and promptfoo's form has no other tests.\n"
            "Next: export it --to inspect or --to jsonl, which hold answers and verdicts too."
        )
    document = {
        "evalId": f"guardmark-{sha256(manifest.created_utc.encode()).hexdigest()[:12]}",
        "results": {
            "version": _VERSION,
            "timestamp": manifest.created_utc,
            "prompts": prompts,
            "results": results,
            "stats": _counted(results, "successes", "failures", "errors") | {"tokenUsage": {}},
        },
        "config": {
            "description": f"{manifest.name}: decisions of guardmark; intervals are in its report",
            "prompts": [_PROMPT],
            "providers": [prompt["provider"] for prompt in prompts],
        },
    }
    text = json.dumps(document, ensure_ascii=True, allow_nan=False)
    RunDir(path=path.parent).write_text(path.name, text + "\n")
    return len(results)


def _counted(results: list[_Json], *names: str) -> _Json:
    """Count the passed, the failed and the errors."""
    reasons = [result["failureReason"] for result in results]
    return {name: reasons.count(reason) for reason, name in enumerate(names)}


def _result(sample: Sample, record: Record, defense: str) -> _Json:
    """Write one decision as a test."""
    shown = _shown(sample)
    right = Outcome.BLOCK if sample.is_attack else Outcome.ALLOW
    reason = _ERROR
    if record.outcome == right.value:
        reason = _PASSED
    elif record.outcome in {Outcome.ALLOW.value, Outcome.BLOCK.value}:
        reason = _FAILED
    is_passed = reason == _PASSED
    why = _why(sample, record)
    metadata: _Json = {"id": sample.id, "label": sample.label.value, "group": sample.lineage}
    for name in _FACETS:
        metadata[name] = getattr(sample, name)
    metadata["severity"] = sample.severity and sample.severity.value
    return {
        "id": f"{defense}-{sample.id}-{record.key.repeat}",
        "provider": {"id": f"guardmark:{defense}", "label": ""},
        "prompt": {"raw": shown, "label": _PROMPT},
        "vars": {"prompt": shown},
        "response": {"output": record.outcome},
        "success": is_passed,
        "failureReason": reason,
        "score": int(is_passed),
        "namedScores": {} if record.score is None else {"risk": record.score},
        "error": None if is_passed else why,
        "gradingResult": {"pass": is_passed, "score": int(is_passed), "reason": why},
        "testCase": {"vars": {"prompt": shown}, "metadata": metadata},
    }


def _shown(sample: Sample) -> str:
    """Write a prompt as promptfoo keeps it: a text, or the messages as JSON."""
    messages = sample.prompt.messages
    if len(messages) == 1:
        return sample.prompt.words
    turns = [{"role": message.role.value, "content": message.content} for message in messages]
    return json.dumps(turns)


def _why(sample: Sample, record: Record) -> str:
    """Say why a test ended as it did, in the words of the defense where it gave any."""
    evidence = record.evidence
    if evidence is not None and (evidence.reason or evidence.message):
        return evidence.reason or evidence.message
    return f"{sample.label}: {record.outcome}"
