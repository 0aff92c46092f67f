"""The rows of a pipeline run in the layout of minor_bench, with that tool's meanings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from guardmark.analysis.defense.frame import ALLOW, BLOCK, ERROR, MALFORMED, MISSING, read_frame
from guardmark.analysis.pipeline.frame import NO_GUARD, SAFE, UNSAFE, read_pipeline
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.errors import StoreError
from guardmark.core.manifest import PartManifest, Policy
from guardmark.core.outcome import AnswerMode, Outcome
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.core.sample import Role
from guardmark.interchange.imported import KEPT
from guardmark.interchange.minorbench import reading as layout
from guardmark.store.schema import ANSWER_MODES, OUTCOME_NAMES

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
_FINISH: Final = {
    BLOCK: layout.FINISH_BLOCKED,
    MALFORMED: layout.FINISH_MALFORMED,
    ERROR: layout.FINISH_FAILED,
}
_DECIDED: Final = frozenset({Outcome.ALLOW.value, Outcome.BLOCK.value})
_GUARD: Final = ("guardrail_model", "guardrail_provider")
_NS_PER_S: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRows:
    """What one arm's files are made from."""

    arm: str
    manifest: RunManifest
    rows: tuple[Json, ...]
    kept: Json  # what a run of that tool said beside samples and answers
    judge: tuple[str, str] | None  # model and provider


def write_rows(reader: RecordReader, layer: str = "") -> Iterator[ArmRows]:
    """Put every arm of a run into that tool's rows."""
    manifest = reader.manifest()
    settings = replace(AnalysisSettings.of(manifest), headline=layer)
    frame = read_frame(reader, settings, is_every=True)
    pipeline = read_pipeline(reader, frame)
    if pipeline is None:
        raise StoreError("The run asked no target model.\nNext: export it --to promptfoo.")
    answers = _records(reader, NO_GUARD, Stage.MODEL, "run")
    of_one = pipeline.judgings[0].judges[0].layer if pipeline.judgings else ""
    verdicts = _records(reader, NO_GUARD, Stage.JUDGE, of_one) if of_one else {}
    kept: Json = dict(reader.layer_settings(KEPT))
    judge = _judge(reader, manifest, of_one)
    if pipeline.judging is not None and pipeline.judging.name != FIRST_LAYER:
        kept |= {"safety_source": "", layout.META_FILE: {}}  # another judge than that of the files
    source = kept.get("safety_source") or ("llm_judge" if pipeline.judgings else "rules")
    for arm in pipeline.arms:
        guards = {} if arm.name == NO_GUARD else _records(reader, arm.name, Stage.DEFENSE, "run")
        names = _names(manifest, arm.name, kept)
        writer = _Writer(
            pipeline=pipeline,
            arm=arm,
            answers=answers,
            verdicts=verdicts,
            guards=guards,
            names=names,
            is_judged=source == "llm_judge",
        )
        rows = [writer.row(at, sample) for at, sample in enumerate(reader.every_sample())]
        rows = [row for row in rows if row["n_generations"]]
        yield ArmRows(arm=arm.name, manifest=manifest, rows=tuple(rows), kept=kept, judge=judge)


def _names(manifest: RunManifest, arm: str, kept: Json) -> Json:
    """Return what every row of an arm says of model and guard."""
    parts = {
        (part.kind, part.name if part.kind == "defense" else ""): part for part in manifest.parts
    }
    missing = PartManifest(name="model", kind="model", type="")
    model, guard = parts.get(("model", ""), missing), parts.get(("defense", arm))
    named = None if guard is None else str(guard.settings.get("model") or guard.name)
    providers = kept.get("providers")
    provider = None if guard is None else _provider(guard)
    if providers is not None:
        provider = providers.get(named)  # as the rows of that tool named it, or not at all
    return {
        "model_name": str(model.settings.get("model") or model.name),
        "system_prompt": str(model.settings.get("system_prompt") or ""),
        "guardrail_model": named,
        "guardrail_provider": provider,
    }


def _provider(part: PartManifest) -> str:
    """Return that tool's word for where a part runs: a service by name, or this process."""
    preset = part.settings.get("preset")
    if preset and preset != "auto":
        return str(preset)
    return "local_hf" if part.type == "local" or part.settings.get("path") else part.type


def _judge(reader: RecordReader, manifest: RunManifest, layer: str) -> tuple[str, str] | None:
    """Return model and provider of the judges whose verdicts are written."""
    later: Json = dict(reader.layer_settings(layer))
    if later:
        return later["settings"].get("model") or later["judge"], later["type"]
    judges = [part for part in manifest.parts if part.kind == "judge"]
    models = ",".join(str(judge.settings.get("model") or judge.name) for judge in judges)
    return (models, _provider(judges[0])) if judges else None


Records = dict[tuple[int, int], "Record"]


def _records(reader: RecordReader, defense: str, stage: Stage, layer: str) -> Records:
    return {
        (record.key.sample, record.key.repeat): record
        for record in reader.records(defense=defense, stage=stage, layer=layer, is_every=True)
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
    names: Json
    is_judged: bool

    def row(self, at: int, sample: Sample) -> Json:
        repeats = self.pipeline.frame.manifest.repeats
        metadata = dict(sample.metadata)
        times: Any = metadata.pop(layout.LATENCIES, ())
        drawn = (self._generation(at, repeat) for repeat in range(repeats))
        generations = [each for each in drawn if each is not None]
        for each, time_s in zip(generations, times, strict=False):
            each.body["raw"]["latency"] = each.body["raw"]["latency"] or time_s
        stated = layout.LABEL_STATED if sample.is_labelled else layout.UNKNOWN
        source = str(metadata.pop("label_source", "") or stated)
        # What an imported row said stays as it is, and what it did not say is not made up.
        if metadata.setdefault(layout.BASE_PROMPT, sample.lineage) is None:
            del metadata[layout.BASE_PROMPT]
        pack = [str(metadata.pop(field, "")) for field in ("pack_name", "pack_subset")]
        labels = [each.label for each in generations]
        guard = self._guard
        system = next((m.content for m in sample.prompt.messages if m.role is Role.SYSTEM), "")
        return {
            "prompt_text": sample.prompt.words,
            "metadata": {
                **metadata,
                "original_category": sample.category,
                "original_subcategory": sample.subcategory,
                "variant": sample.variant,
                "variant_tags": [f"variant:{sample.variant}"],
            },
            "generations": [each.body for each in generations],
            **self.names,
            "system_prompt": self.names["system_prompt"] or system,
            "guardrail_decisions": [
                {"index": each.body["index"], "status": each.status, **guard}
                for each in generations
                if guard[_GUARD[0]]
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
            "is_harmful": sample.is_attack if sample.is_labelled else None,
            "label_source": source,
            **(_judge_fields(generations) if self.is_judged else {}),
        }

    @property
    def _guard(self) -> Json:
        return {name: self.names[name] for name in _GUARD}

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
                names=self._guard if guard else dict.fromkeys(_GUARD),
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
            status=_status(OUTCOME_NAMES[decision]),
            verdict=self.verdicts.get((at, repeat)) if judged else None,
            mode=mode or None,
        )

    def _passes(self, decision: int) -> bool:
        manifest = self.pipeline.frame.manifest
        if decision in {ALLOW, BLOCK}:
            return decision == ALLOW
        policy = manifest.on_malformed if decision == MALFORMED else manifest.on_error
        return policy in _PASSES


def _status(outcome: str) -> str:
    """Return that tool's word for what a guard did; one that failed is malformed there."""
    return outcome if outcome in _DECIDED else layout.MALFORMED


def _raw(answer: Record | None, guard: Record | None, *, finish: str, names: Json) -> Json:
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
        "guardrail_decision_status": None if status is None else _status(status),
        **names,
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
    both = (read or 0) + (written or 0)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": both}


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
