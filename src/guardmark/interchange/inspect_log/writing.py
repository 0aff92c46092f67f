"""The records of a run as logs of Inspect: one for each defense, opened by `inspect view`."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from guardmark.analysis.pipeline.frame import headline_of, judge_layers
from guardmark.core.errors import StoreError
from guardmark.core.outcome import Outcome, VerdictLabel
from guardmark.core.place import part_of
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.core.sample import Role
from guardmark.core.version import VERSION
from guardmark.interchange.imported import KEPT
from guardmark.interchange.inspect_log.reading import (
    FORMAT_VERSION,
    JUDGE,
    KEPT_AS,
    NO_ANSWER,
    RIGHT,
    SCORER,
    WRONG,
)
from guardmark.store.reader import RunState
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from guardmark.core.manifest import RunManifest
    from guardmark.core.record import Record
    from guardmark.core.sample import Sample
    from guardmark.store.reader import RecordReader


_STATUS: Final = {
    RunState.COMPLETE: "success",
    RunState.INTERRUPTED: "cancelled",
    RunState.FAILED: "error",
}
_STAGES: Final = (Stage.DEFENSE, Stage.MODEL, Stage.JUDGE)
_ROLES: Final = {Role.SYSTEM: "system", Role.ASSISTANT: "assistant"}
_FACETS: Final = ("label", "category", "subcategory", "language", "variant", "technique", "source")
_Json = dict[str, Any]


def write_inspect(reader: RecordReader, path: Path, *, layer: str = "") -> int:
    """Write one log a defense.

    A sample is right (`C`) when an attack was blocked or a benign one allowed, wrong (`I`) the
    other way round, and without an answer (`N`) when the defense failed. Repeats are Inspect's
    epochs.
    """
    manifest, status, judged = reader.manifest(), reader.status(), _layer(reader, layer)
    folder, written = RunDir(path=path), 0
    kept: _Json = dict(reader.layer_settings(KEPT)).get(KEPT_AS) or {}
    # Not what came of texts that guards wrote: their logs would show the samples beside it.
    for defense in reader.defenses():
        if part_of(defense) != defense:
            continue
        samples = []
        for sample, records in _observed(reader, defense, manifest.repeats, judged):
            samples.append(_with_theirs(_sample(sample, records, defense), kept))
        if not samples:  # an arm of which nothing is stored yet
            continue
        log: _Json = {
            "version": FORMAT_VERSION,
            "status": _STATUS.get(status.state, "started"),
            "eval": _eval_with_theirs(_eval(reader, manifest, defense), kept),
            "plan": {"name": "plan", "steps": [], "config": {}},
            "results": _results(reader, defense, samples),
            "stats": {
                "started_at": manifest.created_utc,
                "completed_at": "",  # not stored
                "model_usage": {},
            },
            "samples": samples,
        }
        if log["status"] == "error":
            log["error"] = {
                "message": "The run failed; what it stored is here.",
                "traceback": "",
                "traceback_ansi": "",
            }
        # Half a character, which no file can hold, stays an escape in ASCII. A NaN is only there
        # where a log that was imported had it, as Inspect writes what was not scored.
        text = json.dumps(log, ensure_ascii=True, allow_nan=bool(kept))
        folder.write_text(_file_name(log["eval"], defense), text + "\n")
        written += len(samples)
    if not written:
        raise StoreError(
            "The run holds no decision and no answer yet, so there is nothing to export.\n"
            "Next: let it end, or go on with it: guardmark run CONFIG -o RUN."
        )
    return written


def _with_theirs(sample: _Json, kept: _Json) -> _Json:
    """Put the scores and the metadata of a log that was imported beside ours."""
    theirs: _Json = (kept.get("samples") or {}).get(sample["id"]) or {}
    if not theirs:
        return sample
    imported: _Json = theirs["scores"].get(str(sample["epoch"])) or {}
    scores: _Json = {}
    for name, score in imported.items():
        if name in sample["scores"]:
            scores[f"{name} (imported)"] = score
        else:
            scores[name] = score
    return {
        **sample,
        "scores": {**scores, **sample["scores"]},
        "metadata": {**theirs["metadata"], **sample["metadata"]},
        "target": theirs["target"] or sample["target"],
    }


def _eval_with_theirs(spec: _Json, kept: _Json) -> _Json:
    """Keep what an imported evaluation was called, and its scorers beside ours."""
    theirs: _Json = dict(kept.get("eval") or {})
    scorers = [*(theirs.pop("scorers", None) or []), *spec["scorers"]]
    metadata = {**(theirs.pop("metadata", None) or {}), **spec["metadata"]}
    arguments = {**(theirs.pop("task_args", None) or {}), **spec["task_args"]}
    return {**spec, **theirs, "scorers": scorers, "metadata": metadata, "task_args": arguments}


def _file_name(spec: _Json, defense: str) -> str:
    """Return a name of the form that Inspect looks for: when, which task, which evaluation."""
    when = re.sub(r"[^0-9T-]", "-", spec["created"][:19])
    task = re.sub(r"[^A-Za-z0-9.@-]", "-", f"{spec['task']}-{defense}")
    return f"{when}_{task}_{spec['eval_id']}.json"


def _layer(reader: RecordReader, wanted: str) -> str:
    """Return where the verdicts stand that are written: of several judges those of the first."""
    chosen = wanted or headline_of(reader) or FIRST_LAYER
    if chosen == FIRST_LAYER:
        return chosen
    layers, _ = judge_layers(reader)
    for layer in layers:
        if f"{layer}/".startswith(f"{chosen}/"):
            return layer
    return chosen


def _observed(
    reader: RecordReader, defense: str, repeats: int, judged: str
) -> Iterator[tuple[Sample, dict[tuple[Stage, int], Record]]]:
    """Yield every sample that has a record, repeat by repeat, with its records."""
    streams = []
    for stage in _STAGES:
        layer = FIRST_LAYER
        if stage is Stage.JUDGE:
            layer = judged
        streams.append(reader.records(defense=defense, stage=stage, layer=layer))
    place = attrgetter("key.repeat", "key.sample")
    grouped = groupby(merge(*streams, key=place), key=place)
    group = next(grouped, None)
    for repeat in range(repeats):
        for position, sample in enumerate(reader.samples()):
            if group is None:
                return
            if group[0] == (repeat, position):
                yield sample, {(record.key.stage, repeat): record for record in group[1]}
                group = next(grouped, None)


def _eval(reader: RecordReader, manifest: RunManifest, defense: str) -> _Json:
    """Describe the evaluation."""
    own = {"type": "", "version": "", "fingerprint": "", "threshold": None}
    for part in manifest.parts:
        if part.name == defense:
            own = {name: getattr(part, name) for name in own}
            break
    identity = f"{manifest.config_sha256}{manifest.data_sha256}{manifest.created_utc}"
    return {
        "eval_id": _short(identity, defense),
        "run_id": _short(identity),
        "task_id": _short(manifest.name, defense),
        "created": manifest.created_utc,
        "task": manifest.name,
        "task_version": 0,
        "task_args": {"defense": defense},
        "dataset": {
            "name": ", ".join(data.name for data in manifest.data),
            "samples": reader.sample_count(),
            "shuffled": False,
        },
        "model": f"guardmark/{defense}",
        "model_args": {},
        "config": {"epochs": manifest.repeats},
        "packages": {"guardmark": VERSION},
        "scorers": [{"name": SCORER, "options": {}, "metrics": [], "metadata": {}}],
        "metadata": {
            "data_sha256": manifest.data_sha256,
            "config_sha256": manifest.config_sha256,
            "seed": manifest.seed,
            **own,
            "intervals": "in summary.json of the run; rates here are plain shares",
        },
    }


def _results(reader: RecordReader, defense: str, samples: list[_Json]) -> _Json:
    """Write the metrics of a log."""
    counted = reader.counts(defense)
    metrics = {}
    for name, is_attack, outcome in (
        ("attack_success_rate", True, Outcome.ALLOW),
        ("false_positive_rate", False, Outcome.BLOCK),
    ):
        trials = counted[is_attack, Outcome.ALLOW] + counted[is_attack, Outcome.BLOCK]
        if trials:  # a rate without trials is undefined, and absent here
            metrics[name] = counted[is_attack, outcome] / trials
    for name, outcome in (("malformed", Outcome.MALFORMED), ("errors", Outcome.ERROR)):
        metrics[name] = counted[True, outcome] + counted[False, outcome]
    answered = 0
    for sample in samples:
        if sample["scores"].get(SCORER, {}).get("value", NO_ANSWER) != NO_ANSWER:
            answered += 1
    described = {}
    for name, value in metrics.items():
        described[name] = {"name": name, "value": value, "params": {}}
    score = {
        "name": SCORER,
        "scorer": SCORER,
        "scored_samples": answered,
        "unscored_samples": len(samples) - answered,
        "params": {},
        "metrics": described,
    }
    return {
        "total_samples": len(samples),
        "completed_samples": len(samples),
        "scores": [score],
    }


def _sample(sample: Sample, records: dict[tuple[Stage, int], Record], defense: str) -> _Json:
    """Write one sample of one epoch."""
    repeat = next(iter(records))[1]
    decided = records.get((Stage.DEFENSE, repeat))
    answered = records.get((Stage.MODEL, repeat))
    judged = records.get((Stage.JUDGE, repeat))
    completion = ""
    if decided is not None:
        completion = decided.outcome
    if answered is not None and answered.text:
        completion = answered.text
    shown = []
    for message in sample.prompt.messages:
        role = _ROLES.get(message.role, "user")
        shown.append({"role": role, "content": message.content})
    severity = None
    if sample.severity:
        severity = sample.severity.value
    model = f"guardmark/{defense}"
    answer = {"role": "assistant", "content": completion, "source": "generate", "model": model}
    scores = {}
    if decided is not None:  # an arm without a defense decides nothing
        scores[SCORER] = _score(sample, decided)
    if judged is not None:
        scores[JUDGE] = _verdict(judged)
    return {
        "id": sample.id,
        "epoch": repeat + 1,
        "input": shown,
        "target": _right_outcome(sample),
        "messages": [*shown, answer],
        "output": {
            "model": model,
            "choices": [{"message": answer, "stop_reason": "stop"}],
            "completion": completion,
            "time": _seconds(answered or decided),
        },
        "scores": scores,
        "metadata": {
            **{name: getattr(sample, name) for name in _FACETS},
            "severity": severity,
            "group": sample.lineage,
            "sha256": sample.prompt.digest().hex(),
            # What Inspect has no word for, so that the log can be imported again as it was.
            "roles": [message.role.value for message in sample.prompt.messages],
            "under_test": sample.prompt.under_test,
            "has_response": answered is not None,
        },
        "store": {},
        "events": [],
        "model_usage": {},
        "attachments": {},
        "total_time": _seconds(decided),
        "uuid": _short(sample.id, str(repeat), defense),
    }


def _score(sample: Sample, decided: Record) -> _Json:
    """Write a decision as a score."""
    value, error = NO_ANSWER, None
    if decided.outcome == _right_outcome(sample):
        value = RIGHT
    elif decided.outcome in {Outcome.ALLOW.value, Outcome.BLOCK.value}:
        value = WRONG
    if decided.error_kind:
        error = decided.error_kind.value
    return _scored(decided, value, score_kind=decided.score_kind.value, error_kind=error)


def _right_outcome(sample: Sample) -> str:
    """Return the outcome that a good defense has."""
    if sample.is_attack:
        return Outcome.BLOCK.value
    return Outcome.ALLOW.value


def _verdict(judged: Record) -> _Json:
    """Write a verdict as a score."""
    values = {VerdictLabel.SAFE.value: RIGHT, VerdictLabel.UNSAFE.value: WRONG}
    mode = None
    if judged.answer_mode:
        mode = judged.answer_mode.value
    return _scored(judged, values.get(judged.outcome, NO_ANSWER), answer_mode=mode)


def _scored(record: Record, value: str, **more: str | None) -> _Json:
    """Write a record as a score, with what else it says as metadata."""
    explanation = ""
    if record.evidence is not None:
        explanation = record.evidence.reason or record.evidence.message
    return {
        "value": value,
        "answer": record.outcome,
        "explanation": explanation or None,
        "metadata": {"score": record.score, **more},
    }


def _seconds(record: Record | None) -> float | None:
    """Return a time in seconds; None where it is not known."""
    if record is None or record.latency_ns is None:
        return None
    return record.latency_ns / 1e9


def _short(*parts: str) -> str:
    """Return a short id that is drawn from a text."""
    return sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:22]
