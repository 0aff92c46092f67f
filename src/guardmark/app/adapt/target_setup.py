"""The target model of a run, made ready for what an adaptive measurement asks of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from guardmark.adaptive.target import KnownAnswers, ProtectedTarget
from guardmark.attacks.comprehension import COMPREHENSION_VERSION, LEAST_OVERLAP, WORDS_IN_A_ROW
from guardmark.core.errors import IncomparableRuns
from guardmark.core.outcome import Response, Verdict, VerdictLabel
from guardmark.core.record import Stage
from guardmark.engine.plan import NO_GUARD, layer_of
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.app.parts.building import BuiltPart, Parts
    from guardmark.core.manifest import RunManifest
    from guardmark.core.protocols import Judge
    from guardmark.core.sample import Sample
    from guardmark.store.reader import RecordReader

CANARIES = 20
"""Canaries asked for each operator, where nothing else is said."""


def protected_of(
    parts: Parts,
    reader: RecordReader,
    samples: Sequence[Sample],
    *,
    canaries: int,
    trace: Path | None,
) -> ProtectedTarget | None:
    """Say what the defenses of a run protect."""
    if parts.model is None:
        return None
    _check(reader.manifest(), (parts.model, *parts.judges))
    if trace is not None and not RunDir(path=trace.parent).target.exists():
        return None
    protected = ProtectedTarget(
        model=parts.model.part,
        judges=tuple(judge.part for judge in parts.judges),
        settings=_settings(parts.model, parts.judges),
        canaries=canaries,
    )
    return replace(protected, as_run=_as_run(reader, samples, protected))


def target_name(protected: ProtectedTarget) -> str:
    """Return what a person calls the target model."""
    said = protected.settings.get("model")
    return said["model"] if isinstance(said, dict) else protected.model.name


def _check(manifest: RunManifest, built: Sequence[BuiltPart]) -> None:
    before = {(part.kind, part.name): part.fingerprint for part in manifest.parts}
    for each in built:
        kind, name, now = each.manifest.kind, each.manifest.name, each.manifest.fingerprint
        if before.get((kind, name), now) != now:
            raise IncomparableRuns(
                f"The {kind} {name!r} is not the one the run measured: its settings or files "
                "changed.\nNext: run it anew, then adapt."
            )


def _settings(model: BuiltPart, judges: Sequence[BuiltPart]) -> dict[str, object]:
    return {
        "kind": "adaptive-target",
        "model": _described(model),
        "judges": [_described(judge) for judge in judges],
        "canaries": COMPREHENSION_VERSION,
        "words_in_a_row": WORDS_IN_A_ROW,
        "least_overlap": LEAST_OVERLAP,
    }


def _described(built: BuiltPart) -> dict[str, str]:
    settings, manifest = built.manifest.settings, built.manifest
    said = settings.get("model") or settings.get("path") or manifest.type
    return {"name": manifest.name, "model": str(said), "fingerprint": manifest.fingerprint}


def _as_run(
    reader: RecordReader, samples: Sequence[Sample], protected: ProtectedTarget
) -> Mapping[int, KnownAnswers]:
    """Return what the run got for attacks as they are; failed calls are asked again."""
    judges: tuple[Judge, ...] = protected.judges
    answers = {
        record.key.sample: Response(text=record.text, evidence=record.evidence)
        for record in reader.records(defense=NO_GUARD, stage=Stage.MODEL)
        if record.key.repeat == 0
        and record.outcome == "answered"
        and samples[record.key.sample].is_attack
    }
    verdicts: dict[int, dict[str, Verdict]] = {place: {} for place in answers}
    for layer, judge in protected.judged:
        stored = reader.records(defense=NO_GUARD, stage=Stage.JUDGE, layer=layer_of(judge, judges))
        for record in stored:
            known = verdicts.get(record.key.sample)
            if record.key.repeat == 0 and known is not None and record.outcome != "error":
                known[layer] = Verdict(
                    label=VerdictLabel(record.outcome),
                    answer_mode=record.answer_mode,
                    score=record.score,
                    evidence=record.evidence,
                )
    return {
        place: KnownAnswers(response=response, verdicts=verdicts[place])
        for place, response in answers.items()
    }
