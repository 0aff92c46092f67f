"""Which defenses can be attacked by rewriting inputs, and the target model that they protect."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.target import KnownAnswers, ProtectedTarget
from guardmark.app.parts.loading import load_data
from guardmark.attacks.comprehension import COMPREHENSION_VERSION, LEAST_OVERLAP, WORDS_IN_A_ROW
from guardmark.core.errors import ConfigError
from guardmark.core.outcome import Response, Verdict, VerdictLabel
from guardmark.core.record import Stage
from guardmark.core.sample import View
from guardmark.engine.plan import NO_GUARD, layer_of
from guardmark.reports.chapters.adaptive.chapter import sight_text
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.core.protocols import Judge
    from guardmark.core.sample import Sample
    from guardmark.engine.plan import BuiltPart, Parts
    from guardmark.store.reader import RecordReader


BASELINES: Final = ("allow-all", "block-all", "coin")
"""Types of defenses that nobody attacks."""
_NARROW: Final[tuple[View, ...]] = (View.RESPONSE, View.DOCUMENT)
_MARK: Final = "."  # rewriting a text is seen where adding this to it is


def require_attackable(loaded: LoadedConfig) -> None:
    """Refuse a configuration whose defenses are all shown something else than rewritten texts."""
    views = stated_views(loaded)
    left = {name: view for name, view in views.items() if view in _NARROW}
    if left:
        left = unseen(left, load_data(loaded).samples())
    if len(left) == len(views):
        raise nothing_to_attack(left)


def stated_views(loaded: LoadedConfig) -> dict[str, View]:
    """Return what each defense is shown, as far as its settings say, baselines left out."""
    return {
        name: _stated(loaded, name)
        for name, settings in loaded.config.defenses.items()
        if settings.get("type") not in BASELINES
    }


def unseen(views: Mapping[str, View], samples: Iterable[Sample]) -> dict[str, View]:
    """Return the defenses that see nothing of a rewritten attack, such as a guard of responses."""
    left = {name: view for name, view in views.items() if view in _NARROW}
    for sample in samples:
        if not left:
            break
        if sample.is_attack:
            other = sample.prompt.with_text(sample.prompt.text + _MARK)
            left = {n: v for n, v in left.items() if other.shown(v) == sample.prompt.shown(v)}
    return left


def nothing_to_attack(left: Mapping[str, View]) -> ConfigError:
    """Say that no defense is left, and why."""
    if not left:
        return ConfigError("There is no defense to attack: only baselines are configured.")
    notes = "; ".join(left_out_note(name, view.value) for name, view in left.items())
    return ConfigError(
        f"There is no defense to attack: {notes}.\n"
        "Next: name a defense of inputs too; what a guard of responses lets through is measured "
        "by `guardmark run` with a pipeline."
    )


def left_out_note(name: str, view: str) -> str:
    """Say why a defense is left out."""
    return f"{name} {sight_text(view)}, which no rewriting of an attack of these data changes"


def _stated(loaded: LoadedConfig, name: str, *, above: tuple[str, ...] = ()) -> View:
    """What a defense is shown; one made of others that all look elsewhere looks there too."""
    settings = loaded.parts["defenses", name]
    of = getattr(settings, "of", ())
    known = loaded.config.defenses
    members = [each for each in ((of,) if isinstance(of, str) else of) if each not in above]
    seen = {_stated(loaded, each, above=(*above, name)) for each in members if each in known}
    if len(seen) == 1:
        return seen.pop()
    view = getattr(settings, "view", None)
    return view if isinstance(view, View) else View.TEXT


CANARIES = 20
"""Canaries asked for each operator, where nothing else is said."""


def protected_of(
    parts: Parts, reader: RecordReader, *, canaries: int, trace: Path | None
) -> ProtectedTarget | None:
    """Say what the defenses of a run protect."""
    if parts.model is None:
        return None
    if trace is not None and not RunDir(path=trace.parent).target.exists():
        return None
    settings = {
        "kind": "adaptive-target",
        "model": _described(parts.model),
        "judges": [_described(judge) for judge in parts.judges],
        "canaries": COMPREHENSION_VERSION,
        "words_in_a_row": WORDS_IN_A_ROW,
        "least_overlap": LEAST_OVERLAP,
    }
    protected = ProtectedTarget(
        model=parts.model.part,
        judges=tuple(judge.part for judge in parts.judges),
        settings=settings,
        canaries=canaries,
    )
    return replace(protected, as_run=_as_run(reader, protected))


def target_name(protected: ProtectedTarget) -> str:
    """Return what a person calls the target model."""
    model = protected.settings.get("model")
    return model["model"] if isinstance(model, dict) else protected.model.name


def _described(built: BuiltPart) -> dict[str, str]:
    settings, manifest = built.manifest.settings, built.manifest
    model = settings.get("model") or settings.get("path") or manifest.type
    return {"name": manifest.name, "model": str(model), "fingerprint": manifest.fingerprint}


def _as_run(reader: RecordReader, protected: ProtectedTarget) -> Mapping[int, KnownAnswers]:
    """Return what the run got for attacks as they are; failed calls are asked again."""
    judges: tuple[Judge, ...] = protected.judges
    is_attack = [sample.is_attack for sample in reader.samples()]
    answers = {
        record.key.sample: Response(text=record.text, evidence=record.evidence)
        for record in reader.records(defense=NO_GUARD, stage=Stage.MODEL)
        if record.key.repeat == 0 and record.outcome == "answered" and is_attack[record.key.sample]
    }
    verdicts: dict[int, dict[str, Verdict]] = {position: {} for position in answers}
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
        position: KnownAnswers(response=response, verdicts=verdicts[position])
        for position, response in answers.items()
    }
