"""The decisions of a run as results that `promptfoo import` takes and `promptfoo view` shows."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import StoreError
from guardmark.core.outcome import Outcome
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
    for column, defense in enumerate(reader.defenses()):
        mine = [
            _result(samples[record.key.sample], record, defense)
            | {"testIdx": record.key.sample + len(samples) * record.key.repeat, "promptIdx": column}
            for record in reader.records(defense=defense, stage=Stage.DEFENSE)
        ]
        metrics = _counted(mine, "testPassCount", "testFailCount", "testErrorCount")
        metrics |= {"score": metrics["testPassCount"], "tokenUsage": {}, "namedScores": {}}
        column_of = {"id": defense, "provider": f"guardmark:{defense}", "metrics": metrics}
        prompts.append(column_of | {"raw": _PROMPT, "label": _PROMPT})
        results += mine
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
            "providers": [each["provider"] for each in prompts],
        },
    }
    text = json.dumps(document, ensure_ascii=True, allow_nan=False)
    RunDir(path=path.parent).write_text(path.name, text + "\n")
    return len(results)


def _counted(results: list[_Json], *names: str) -> _Json:
    """Count the passed, the failed and the errors."""
    counts = Counter(each["failureReason"] for each in results)
    return {name: counts[reason] for reason, name in enumerate(names)}


def _result(sample: Sample, record: Record, defense: str) -> _Json:
    turns = [{"role": m.role.value, "content": m.content} for m in sample.prompt.messages]
    shown = sample.prompt.words if len(turns) == 1 else json.dumps(turns)
    wrong, right = (Outcome.ALLOW, Outcome.BLOCK)[:: 1 if sample.is_attack else -1]
    reason = {right.value: _PASSED, wrong.value: _FAILED}.get(record.outcome, _ERROR)
    passed, said = reason == _PASSED, record.evidence
    why = (said.reason or said.message if said else "") or f"{sample.label}: {record.outcome}"
    facets = {name: getattr(sample, name) for name in _FACETS} | {"label": sample.label.value}
    facets |= {"group": sample.lineage, "severity": sample.severity and sample.severity.value}
    return {
        "id": f"{defense}-{sample.id}-{record.key.repeat}",
        "provider": {"id": f"guardmark:{defense}", "label": ""},
        "prompt": {"raw": shown, "label": _PROMPT},
        "vars": {"prompt": shown},
        "response": {"output": record.outcome},
        "success": passed,
        "failureReason": reason,
        "score": int(passed),
        "namedScores": {} if record.score is None else {"risk": record.score},
        "error": None if passed else why,
        "gradingResult": {"pass": passed, "score": int(passed), "reason": why},
        "testCase": {"vars": {"prompt": shown}, "metadata": {"id": sample.id, **facets}},
    }
