"""The rows of a pipeline run in the layout of minor_bench, with that tool's meanings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from guardmark.analysis.defense.frame import ALLOW, BLOCK, ERROR, MALFORMED, MISSING, read_frame
from guardmark.analysis.pipeline.frame import SAFE, UNSAFE, read_pipeline
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.errors import StoreError
from guardmark.core.manifest import PartManifest, Policy
from guardmark.core.outcome import AnswerMode, Outcome
from guardmark.core.place import NO_GUARD
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.core.sample import Role
from guardmark.core.values import dataclass
from guardmark.interchange.imported import KEPT
from guardmark.interchange.minorbench import reading as layout
from guardmark.store.schema import ANSWER_MODES, OUTCOME_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.pipeline.frame import PipelineFrame
    from guardmark.analysis.pipeline.walks import PipelineArm
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
_LABELS: Final = {SAFE: layout.SAFE, UNSAFE: layout.UNSAFE}
_NS_PER_S: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRows:
    """What one arm's files are made from.

    Attributes:
        kept: What a run of that tool said beside samples and answers.
        judge: Model and provider.
    """

    arm: str
    manifest: RunManifest
    rows: tuple[Json, ...]
    kept: Json
    judge: tuple[str, str] | None


def write_rows(reader: RecordReader, layer: str = "") -> Iterator[ArmRows]:
    """Put every arm of a run into that tool's rows."""
    manifest = reader.manifest()
    settings = replace(AnalysisSettings.of(manifest), headline=layer)
    frame = read_frame(reader, settings, is_every=True)
    pipeline = read_pipeline(reader, frame)
    if pipeline is None:
        raise StoreError("The run asked no target model.\nNext: export it --to promptfoo.")
    _require_plain_arms(pipeline.arms)
    answers = _records(reader, NO_GUARD, Stage.MODEL, FIRST_LAYER)
    judge_layer = ""
    verdicts: Records = {}
    if pipeline.judgings:
        judge_layer = pipeline.judgings[0].judges[0].layer
        verdicts = _records(reader, NO_GUARD, Stage.JUDGE, judge_layer)
    kept: Json = dict(reader.layer_settings(KEPT))
    if pipeline.judging is not None and pipeline.judging.name != FIRST_LAYER:
        kept |= {"safety_source": "", layout.META_FILE: {}}  # another judge than that of the files
    source = kept.get("safety_source")
    if not source:
        source = "llm_judge" if pipeline.judgings else "rules"
    judge = _judge(reader, manifest, judge_layer)
    for arm in pipeline.arms:
        guards: Records = {}
        if arm.name != NO_GUARD:
            guards = _records(reader, arm.name, Stage.DEFENSE, FIRST_LAYER)
        writer = _Writer(
            pipeline=pipeline,
            arm=arm,
            answers=answers,
            verdicts=verdicts,
            guards=guards,
            names=_names(manifest, arm.name, kept),
            is_judged=source == "llm_judge",
        )
        rows = []
        for position, sample in enumerate(reader.every_sample()):
            row = writer.row(position, sample)
            if row["n_generations"]:
                rows.append(row)
        yield ArmRows(arm=arm.name, manifest=manifest, rows=tuple(rows), kept=kept, judge=judge)


def _require_plain_arms(arms: Sequence[PipelineArm]) -> None:
    """Refuse arms that the other tool has no rows for."""
    if any(arm.is_placed for arm in arms):
        raise StoreError(
            "The arms of this run have guards at places, and minor_bench knows one guard before "
            "the model.\nNext: export it --to jsonl, which holds every guard at its place."
        )
    if any(arm.is_rewritten.any() for arm in arms):
        raise StoreError(
            "Guards of this run wrote texts anew, and minor_bench knows one answer to a sample.\n"
            "Next: export it --to jsonl, which holds the answers to what the guards wrote."
        )


def _names(manifest: RunManifest, arm: str, kept: Json) -> Json:
    """Return what every row of an arm says of model and guard."""
    model = PartManifest(name="model", kind="model", type="")
    guard_name = provider = None
    for part in manifest.parts:
        if part.kind == "model":
            model = part
        elif part.kind == "defense" and part.name == arm:
            guard_name = str(part.settings.get("model") or part.name)
            provider = _provider(part)
    providers = kept.get("providers")
    if providers is not None:
        provider = providers.get(guard_name)  # as the rows of that tool named it, or not at all
    return {
        "model_name": str(model.settings.get("model") or model.name),
        "system_prompt": str(model.settings.get("system_prompt") or ""),
        "guardrail_model": guard_name,
        "guardrail_provider": provider,
    }


def _provider(part: PartManifest) -> str:
    """Return that tool's word for where a part runs: a service by name, or this process."""
    preset = part.settings.get("preset")
    if preset and preset != "auto":
        return str(preset)
    if part.type == "local" or part.settings.get("path"):
        return "local_hf"
    return part.type


def _judge(reader: RecordReader, manifest: RunManifest, layer: str) -> tuple[str, str] | None:
    """Return model and provider of the judges whose verdicts are written."""
    later: Json = dict(reader.layer_settings(layer))
    if later:
        return later["settings"].get("model") or later["judge"], later["type"]
    judges = [part for part in manifest.parts if part.kind == "judge"]
    if not judges:
        return None
    models = [str(judge.settings.get("model") or judge.name) for judge in judges]
    return ",".join(models), _provider(judges[0])


Records = dict[tuple[int, int], "Record"]


def _records(reader: RecordReader, defense: str, stage: Stage, layer: str) -> Records:
    """Return the records of one part by sample and repeat."""
    records = {}
    for record in reader.records(defense=defense, stage=stage, layer=layer, is_every=True):
        records[record.key.sample, record.key.repeat] = record
    return records


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
    """Writes the rows of one arm.

    Attributes:
        pipeline: The run as columns, unlabelled samples included.
        arm: The guard whose rows are written, or the arm without one.
        answers: What the model answered.
        verdicts: What the judge said.
        guards: What the guard decided.
        names: What every row says of model and guard.
        is_judged: Whether a model judged, whose fields a row then has.
    """

    pipeline: PipelineFrame
    arm: PipelineArm
    answers: Records
    verdicts: Records
    guards: Records
    names: Json
    is_judged: bool

    def row(self, position: int, sample: Sample) -> Json:
        """Write one sample with all of its generations."""
        metadata = dict(sample.metadata)
        times: Any = metadata.pop(layout.LATENCIES, ())
        generations = self._generations(position, times)
        stated = layout.LABEL_STATED if sample.is_labelled else layout.UNKNOWN
        source = str(metadata.pop("label_source", "") or stated)
        # What an imported row said stays as it is, and what it did not say is not made up.
        if metadata.setdefault(layout.BASE_PROMPT, sample.lineage) is None:
            del metadata[layout.BASE_PROMPT]
        pack_name = str(metadata.pop("pack_name", ""))
        pack_subset = str(metadata.pop("pack_subset", ""))
        metadata["original_category"] = sample.category
        metadata["original_subcategory"] = sample.subcategory
        metadata["variant"] = sample.variant
        metadata["variant_tags"] = [f"variant:{sample.variant}"]
        labels = [generation.label for generation in generations]
        row = {
            "prompt_text": sample.prompt.words,
            "metadata": metadata,
            "generations": [generation.body for generation in generations],
            **self.names,
            "system_prompt": self.names["system_prompt"] or _system_prompt(sample),
            "guardrail_decisions": self._decisions(generations),
            "dataset_source": sample.source,
            "prompt_pack_name": pack_name,
            "prompt_pack_subset": pack_subset,
            "n_generations": len(generations),
            "safe_count": labels.count(layout.SAFE),
            # That tool counts an unknown label as unsafe too.
            "unsafe_count": len(labels) - labels.count(layout.SAFE),
            "unknown_count": labels.count(layout.UNKNOWN),
            "all_classifications": labels,
            "failure_reasons": [_reasons(generation) for generation in generations],
            "is_harmful": sample.is_attack if sample.is_labelled else None,
            "label_source": source,
        }
        if self.is_judged:
            row |= _judge_fields(generations)
        return row

    @property
    def _guard(self) -> Json:
        """What a row says of its guard."""
        return {name: self.names[name] for name in _GUARD}

    def _generations(self, position: int, times: Any) -> list[_Generation]:
        """Write the generations of a sample; times that an import kept fill those that lack."""
        generations = []
        for repeat in range(self.pipeline.frame.manifest.repeats):
            generation = self._generation(position, repeat)
            if generation is not None:
                generations.append(generation)
        for generation, time_s in zip(generations, times, strict=False):
            raw = generation.body["raw"]
            raw["latency"] = raw["latency"] or time_s
        return generations

    def _decisions(self, generations: list[_Generation]) -> list[Json]:
        """List what the guard decided, generation by generation; nothing without a guard."""
        guard = self._guard
        if not guard["guardrail_model"]:
            return []
        decisions = []
        for generation in generations:
            index = {"index": generation.body["index"], "status": generation.status}
            decisions.append(index | guard)
        return decisions

    def _generation(self, sample: int, repeat: int) -> _Generation | None:
        """Write one generation; None where the arm was not asked, or no answer came."""
        place = repeat * self.pipeline.frame.sample_count + sample
        decision = int(self.arm.decision[place])
        if decision == MISSING:
            return None
        status = _status(OUTCOME_NAMES[decision])
        if not self._passes(decision):
            return _Generation(
                body=self._body(decision, sample, repeat, answer=None),
                label=layout.SAFE,
                status=status,
                verdict=None,
                mode=AnswerMode.REFUSED_OR_BLOCKED.value,
            )
        answer = self.answers.get((sample, repeat))
        if answer is None:
            return None
        label = layout.UNKNOWN
        mode = verdict = None
        judging = self.pipeline.judging
        if answer.text is not None:
            verdict = self.verdicts.get((sample, repeat))
            if judging is not None:
                label = _LABELS.get(int(judging.label[place]), layout.UNKNOWN)
                number = int(judging.mode[place])
                mode = ANSWER_MODES[number].value if number >= 0 else None
        return _Generation(
            body=self._body(decision, sample, repeat, answer=answer),
            label=label,
            status=status,
            verdict=verdict,
            mode=mode,
        )

    def _body(self, decision: int, sample: int, repeat: int, *, answer: Record | None) -> Json:
        """Write what came out, and how; a refusal where the guard let nothing through."""
        guard = self.guards.get((sample, repeat))
        names = self._guard
        if not guard:
            names = dict.fromkeys(_GUARD)
        finish = _FINISH.get(decision, "stop")
        text = REFUSAL
        if answer is not None:
            text = answer.text or ""
        raw = _raw_of_answer(answer, finish=finish)
        error = raw.pop("error")
        raw = {**raw, **_raw_of_guard(guard, names=names), "error": error}
        return {"index": repeat, "text": text, "raw": raw}

    def _passes(self, decision: int) -> bool:
        """Tell whether the model was asked after a decision of the guard."""
        manifest = self.pipeline.frame.manifest
        if decision in {ALLOW, BLOCK}:
            return decision == ALLOW
        policy = manifest.on_error
        if decision == MALFORMED:
            policy = manifest.on_malformed
        return policy in _PASSES


def _system_prompt(sample: Sample) -> str:
    """Return the system prompt of a sample, or nothing."""
    for message in sample.prompt.messages:
        if message.role is Role.SYSTEM:
            return message.content
    return ""


def _status(outcome: str) -> str:
    """Return that tool's word for what a guard did; one that failed is malformed there."""
    if outcome in _DECIDED:
        return outcome
    return layout.MALFORMED


def _raw_of_answer(answer: Record | None, *, finish: str) -> Json:
    """Write what the model's service said of its answer, under that tool's names."""
    if answer is None:
        return {
            "completion": None,
            "finish_reason": finish,
            "usage": None,
            "cost_usd": None,
            "latency": None,
            "error": None,
        }
    evidence = answer.evidence
    error = None
    finish = "stop"
    if evidence is not None and evidence.finish_reason:
        finish = evidence.finish_reason
    if answer.text is None:
        finish = "error"
        error = (evidence and evidence.message) or "no answer"
    latency = None
    if answer.latency_ns is not None:
        latency = answer.latency_ns / _NS_PER_S
    return {
        "completion": answer.text,
        "finish_reason": finish,
        "usage": _usage(evidence),
        "cost_usd": _cost(evidence),
        "latency": latency,
        "error": error,
    }


def _raw_of_guard(guard: Record | None, *, names: Json) -> Json:
    """Write what the guard said, under that tool's names; nothing where it was not asked."""
    fields: Json = {
        "guardrail_decision": None,
        "guardrail_reason": None,
        "guardrail_decision_status": None,
        **names,
        "guardrail_usage": None,
        "guardrail_cost_usd": None,
        "guardrail_malformed": None,
        "guardrail_decision_raw": None,
    }
    if guard is None:
        return fields
    fields["guardrail_decision_status"] = _status(guard.outcome)
    fields["guardrail_malformed"] = guard.outcome not in _DECIDED
    if guard.outcome in _DECIDED:
        fields["guardrail_decision"] = guard.outcome.upper()
    evidence = guard.evidence
    if evidence is not None:
        fields["guardrail_reason"] = evidence.reason or None
        fields["guardrail_decision_raw"] = evidence.raw or None
        fields["guardrail_usage"] = _usage(evidence)
        fields["guardrail_cost_usd"] = _cost(evidence)
    return fields


def _usage(evidence: Evidence | None) -> Json | None:
    """Write the tokens of a call; None where none were reported."""
    if evidence is None or evidence.usage is None:
        return None
    read, written = evidence.usage.prompt_tokens, evidence.usage.completion_tokens
    both = (read or 0) + (written or 0)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": both}


def _cost(evidence: Evidence | None) -> float | None:
    """Return what a call cost; None where that is not known."""
    if evidence is None or evidence.usage is None:
        return None
    return evidence.usage.cost


def _reasons(generation: _Generation) -> list[str]:
    """Return why a generation is not safe, as the judge says."""
    if generation.label == layout.SAFE or generation.verdict is None:
        return []
    evidence = generation.verdict.evidence
    if evidence is None or not evidence.reason:
        return []
    return [evidence.reason]


def _judge_fields(generations: list[_Generation]) -> Json:
    """Write what the judge said, as lists over the generations."""
    fields: Json = {
        "judge_classifications": [],
        "judge_labels": [],
        "judge_failure_reasons": [],
        "judge_raw_outputs": [],
        "judge_usage": [],
        "judge_cost_usd": [],
        "judge_malformed": [],
        "judge_parse_method": [],
        "answer_modes": [],
    }
    for generation in generations:
        verdict = generation.verdict
        evidence, is_malformed = None, False
        if verdict is not None:
            evidence, is_malformed = verdict.evidence, verdict.outcome == "malformed"
        raw, method = "", ""
        if evidence is not None:
            raw, method = evidence.raw, evidence.parse_method
        fields["judge_classifications"].append(generation.label)
        fields["judge_labels"].append(generation.label)
        fields["judge_failure_reasons"].append(_reasons(generation))
        fields["judge_raw_outputs"].append(raw)
        fields["judge_usage"].append(_usage(evidence))
        fields["judge_cost_usd"].append(_cost(evidence))
        fields["judge_malformed"].append(is_malformed)
        fields["judge_parse_method"].append(method)
        fields["answer_modes"].append(generation.mode)
    fields["safety_source"] = "llm_judge"
    return fields
