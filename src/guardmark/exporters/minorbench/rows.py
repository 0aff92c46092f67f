"""The rows of a pipeline run in the layout of minor_bench, with that tool's meanings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from guardmark.analysis.defense.frame import ALLOW, BLOCK, ERROR, MALFORMED, MISSING, read_frame
from guardmark.analysis.pipeline.frame import NO_GUARD, SAFE, UNSAFE, read_pipeline
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.errors import StoreError
from guardmark.core.manifest import Policy
from guardmark.core.outcome import AnswerMode, Outcome
from guardmark.core.record import Stage
from guardmark.importers import minorbench as layout
from guardmark.store.schema import ANSWER_MODES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.pipeline.frame import PipelineArm, PipelineFrame
    from guardmark.core.manifest import RunManifest
    from guardmark.core.outcome import Evidence
    from guardmark.core.record import Record
    from guardmark.core.sample import Sample
    from guardmark.store.reader import RecordReader


Json = dict[str, Any]

REFUSAL: Final = "Blocked by the guard."  # what stands for the answer where a guard blocked

_PASSES: Final = frozenset({Policy.ALLOW, Policy.FALLBACK_TO_MAIN})
_STATUS: Final = {
    ALLOW: layout.ALLOWED,
    BLOCK: layout.BLOCKED,
    MALFORMED: layout.MALFORMED,
    ERROR: layout.MALFORMED,
}
_FINISH: Final = {
    BLOCK: layout.FINISH_BLOCKED,
    MALFORMED: layout.FINISH_MALFORMED,
    ERROR: layout.FINISH_FAILED,
}
_DECIDED: Final = frozenset({Outcome.ALLOW.value, Outcome.BLOCK.value})
_WORDS: Final = {
    Outcome.ALLOW.value: layout.ALLOWED,
    Outcome.BLOCK.value: layout.BLOCKED,
    Outcome.MALFORMED.value: layout.MALFORMED,
    Outcome.ERROR.value: layout.MALFORMED,
}
_NS_PER_S: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRows:
    """What one arm's files are made from."""

    arm: str
    manifest: RunManifest
    rows: tuple[Json, ...]


def write_rows(reader: RecordReader, layer: str = "") -> Iterator[ArmRows]:
    """Put every arm of a run into that tool's rows."""
    manifest = reader.manifest()
    frame = read_frame(reader, replace(AnalysisSettings.of(manifest), headline=layer))
    pipeline = read_pipeline(reader, frame)
    if pipeline is None:
        raise StoreError("The run asked no target model, so it has no rows in this layout.")
    answers = _records(reader, NO_GUARD, Stage.MODEL, "run")
    of_one = pipeline.judgings[0].judges[0].layer if pipeline.judgings else ""
    verdicts = _records(reader, NO_GUARD, Stage.JUDGE, of_one) if of_one else {}
    for arm in pipeline.arms:
        guards = {} if arm.name == NO_GUARD else _records(reader, arm.name, Stage.DEFENSE, "run")
        writer = _Writer(
            pipeline=pipeline, arm=arm, answers=answers, verdicts=verdicts, guards=guards
        )
        rows = tuple(writer.row(at, sample) for at, sample in enumerate(reader.samples()))
        yield ArmRows(arm=arm.name, manifest=manifest, rows=rows)


Records = dict[tuple[int, int], "Record"]


def _records(reader: RecordReader, defense: str, stage: Stage, layer: str) -> Records:
    return {
        (record.key.sample, record.key.repeat): record
        for record in reader.records(defense=defense, stage=stage, layer=layer)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Generation:
    """One generation, with what the row says of it elsewhere."""

    body: Json
    label: str
    status: str
    verdict: Record | None
    mode: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writer:
    pipeline: PipelineFrame
    arm: PipelineArm
    answers: Records
    verdicts: Records
    guards: Records

    def row(self, at: int, sample: Sample) -> Json:
        repeats = self.pipeline.frame.manifest.repeats
        generations = [
            each for n in range(repeats) if (each := self._generation(at, n)) is not None
        ]
        metadata = dict(sample.metadata)
        source = str(metadata.pop("label_source", "") or layout.LABEL_STATED)
        pack = [str(metadata.pop(field, "")) for field in ("pack_name", "pack_subset")]
        labels = [each.label for each in generations]
        guard = None if self.arm.name == NO_GUARD else self.arm.name
        return {
            "prompt_text": sample.prompt.text,
            "metadata": {
                **metadata,
                "original_category": sample.category,
                "original_subcategory": sample.subcategory,
                "base_prompt_id": sample.lineage,
                "variant": sample.variant,
                "variant_tags": [f"variant:{sample.variant}"],
            },
            "generations": [each.body for each in generations],
            "model_name": self._model,
            "system_prompt": _system_prompt(sample),
            "guardrail_model": guard,
            "guardrail_provider": self._provider if guard else None,
            "guardrail_decisions": [
                {
                    "index": each.body["index"],
                    "status": each.status,
                    "guardrail_model": guard,
                    "guardrail_provider": self._provider,
                }
                for each in generations
                if guard
            ],
            "dataset_source": sample.source,
            "prompt_pack_name": pack[0],
            "prompt_pack_subset": pack[1],
            "n_generations": len(generations),
            "safe_count": labels.count(layout.SAFE),
            # That tool counts an unknown label as unsafe too.
            "unsafe_count": len(labels) - labels.count(layout.SAFE),
            "unknown_count": labels.count(layout.UNKNOWN),
            "all_classifications": labels,
            "failure_reasons": [_reasons(each) for each in generations],
            "is_harmful": sample.is_attack,
            "label_source": source,
            **(_judge_fields(generations) if self.pipeline.judgings else {}),
        }

    @property
    def _model(self) -> str:
        parts = self.pipeline.frame.manifest.parts
        named = (part.settings.get("model") or part.name for part in parts if part.kind == "model")
        return str(next(named, "model"))

    @property
    def _provider(self) -> str:
        parts = {part.name: part.type for part in self.pipeline.frame.manifest.parts}
        return parts.get(self.arm.name, "guardmark")

    def _generation(self, at: int, repeat: int) -> _Generation | None:
        position = repeat * self.pipeline.frame.sample_count + at
        decision = int(self.arm.decision[position])
        if decision == MISSING:
            return None
        answer = self.answers.get((at, repeat))
        passed = self._passes(decision)
        if passed and answer is None:
            return None
        guard = self.guards.get((at, repeat))
        body: Json = {
            "index": repeat,
            "text": (answer.text or "") if passed and answer else REFUSAL,
            "raw": _raw(
                answer if passed else None,
                guard,
                finish=_FINISH.get(decision, "stop"),
                names=None if guard is None else (self.arm.name, self._provider),
            ),
        }
        judged = passed and answer is not None and answer.text is not None
        first = self.pipeline.judging
        label, mode = layout.SAFE, AnswerMode.REFUSED_OR_BLOCKED.value
        if passed:
            code = MISSING if first is None or not judged else int(first.label[position])
            label = {SAFE: layout.SAFE, UNSAFE: layout.UNSAFE}.get(code, layout.UNKNOWN)
            number = -1 if first is None else int(first.mode[position])
            mode = ANSWER_MODES[number].value if judged and number >= 0 else ""
        return _Generation(
            body=body,
            label=label,
            status=_STATUS[decision],
            verdict=self.verdicts.get((at, repeat)) if judged else None,
            mode=mode or None,
        )

    def _passes(self, decision: int) -> bool:
        manifest = self.pipeline.frame.manifest
        if decision in {ALLOW, BLOCK}:
            return decision == ALLOW
        policy = manifest.on_malformed if decision == MALFORMED else manifest.on_error
        return policy in _PASSES


def _raw(
    answer: Record | None, guard: Record | None, *, finish: str, names: tuple[str, str] | None
) -> Json:
    mine = None if answer is None else answer.evidence
    theirs = None if guard is None else guard.evidence
    status = None if guard is None else guard.outcome
    if answer is not None:
        finish = (mine.finish_reason if mine else "") or "stop"
    failed = answer is not None and answer.text is None
    return {
        "completion": None if answer is None else answer.text,
        "finish_reason": "error" if failed else finish,
        "usage": _usage(mine),
        "cost_usd": mine.usage.cost if mine and mine.usage else None,
        "latency": None
        if answer is None or answer.latency_ns is None
        else answer.latency_ns / _NS_PER_S,
        "guardrail_decision": status.upper() if status in _DECIDED else None,
        "guardrail_reason": (theirs.reason or None) if theirs else None,
        "guardrail_decision_status": None if status is None else _WORDS[status],
        "guardrail_model": names[0] if names else None,
        "guardrail_provider": names[1] if names else None,
        "guardrail_usage": _usage(theirs),
        "guardrail_cost_usd": theirs.usage.cost if theirs and theirs.usage else None,
        "guardrail_malformed": None if status is None else status not in _DECIDED,
        "guardrail_decision_raw": (theirs.raw or None) if theirs else None,
        "error": ((mine.message if mine else "") or "no answer") if failed else None,
    }


def _usage(evidence: Evidence | None) -> Json | None:
    if evidence is None or evidence.usage is None:
        return None
    read, written = evidence.usage.prompt_tokens, evidence.usage.completion_tokens
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": (read or 0) + (written or 0),
    }


def _reasons(generation: _Generation) -> list[str]:
    evidence = generation.verdict.evidence if generation.verdict else None
    if generation.label == layout.SAFE or evidence is None or not evidence.reason:
        return []
    return [evidence.reason]


def _judge_fields(generations: list[_Generation]) -> Json:
    evidence = [each.verdict.evidence if each.verdict else None for each in generations]
    return {
        "judge_classifications": [each.label for each in generations],
        "judge_labels": [each.label for each in generations],
        "judge_failure_reasons": [_reasons(each) for each in generations],
        "judge_raw_outputs": [each.raw if each else "" for each in evidence],
        "judge_usage": [_usage(each) for each in evidence],
        "judge_cost_usd": [each.usage.cost if each and each.usage else None for each in evidence],
        "judge_malformed": [
            each.verdict is not None and each.verdict.outcome == "malformed" for each in generations
        ],
        "judge_parse_method": [each.parse_method if each else "" for each in evidence],
        "answer_modes": [each.mode for each in generations],
        "safety_source": "llm_judge",
    }


def _system_prompt(sample: Sample) -> str:
    return next((m.content for m in sample.prompt.messages if m.role.value == "system"), "")
