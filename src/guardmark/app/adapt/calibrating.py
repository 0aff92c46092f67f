"""The verb `attacks calibrate`: from which cosine on embeddings may call two texts the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import yaml

from guardmark.analysis.adaptive.sameness_threshold import TauChoice, TextPair, choose_tau
from guardmark.app.adapt.attacker import read_attacker_file
from guardmark.app.parts.building import build_one, close_parts, open_services
from guardmark.app.settings import AdaptiveSettings
from guardmark.core.errors import ConfigError, StorageError, UntrustworthyRun
from guardmark.core.values import dataclass
from guardmark.datasets.formats.pairs import read_pairs
from guardmark.engine.execution.process import run_on_loop
from guardmark.engine.probing import probe_helper
from guardmark.models.similarity import TauSettings
from guardmark.reports.document.cells import rate_text
from guardmark.store.file_errors import errors_of_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.core.outcome import ErrorKind
    from guardmark.datasets.formats.pairs import LabelledPair, PairFile
    from guardmark.engine.plan import BuiltPart


_MOST_MISSING: Final = 0.1  # share of pairs without a cosine, over which a choice would flatter
_PLACE: Final = ("adaptive", "equivalence")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOptions:
    """What a person adds on the command line."""

    config: Path
    out: Path
    bound: float = 0.05
    seed: int = 7
    record: Path | None = None
    replay: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """What a calibration found.

    Attributes:
        choice: The chosen threshold, with the errors it makes.
        pairs: The labelled pairs.
        missing: How many pairs have no cosine, by reason.
        path: File that was written.
        text: What it holds.
    """

    choice: TauChoice
    pairs: PairFile
    missing: Mapping[str, int]
    path: Path
    text: str


def calibrate(path: Path, options: CalibrationOptions) -> Calibrated:
    """Embed labelled pairs and choose a threshold."""
    if options.out.exists():
        raise StorageError(f"{options.out} exists.\nNext: name another file with -o.")
    pairs = read_pairs(path)
    loaded = read_attacker_file(options.config)
    settings = loaded.parts.get(_PLACE)
    if not isinstance(settings, TauSettings):
        raise ConfigError(
            f"{options.config} names no embeddings.\n"
            "Next: adaptive: {equivalence: {type: embedding, base_url: ..., model: ...}}"
        )
    # A tau that was calibrated before is what this is to replace.
    bare = settings.model_copy(update={"calibration": None})
    loaded = replace(loaded, parts={**loaded.parts, _PLACE: bare})
    work = _measure(loaded, pairs, options)
    measured, missing = run_on_loop(work, uvloop=bool(loaded.config.run.uvloop))
    count, total = sum(missing.values()), len(pairs.pairs)
    if count > _MOST_MISSING * total:
        reasons = ", ".join(f"{kind} {times:,}" for kind, times in missing.items())
        raise UntrustworthyRun(
            f"{count:,} of {total:,} pairs have no cosine ({reasons}), more than "
            f"{_MOST_MISSING:.0%}.\nWhat is missing may be what matters: a tau from the "
            "rest would look too good.\nNext: see what the service says, and calibrate again."
        )
    choice = choose_tau(measured, bound=options.bound, seed=options.seed)
    adaptive = loaded.config.adaptive or AdaptiveSettings()
    text = _fragment(adaptive.equivalence or {}, settings.encoder, pairs, choice)
    with errors_of_files(options.out):
        options.out.write_text(text, encoding="utf-8")
    return Calibrated(choice=choice, pairs=pairs, missing=missing, path=options.out, text=text)


async def _measure(
    loaded: LoadedConfig, pairs: PairFile, options: CalibrationOptions
) -> tuple[list[TextPair], dict[str, int]]:
    """Embed every pair; return those with a cosine, and why the others have none."""
    services = open_services(loaded, record=options.record, replay=options.replay)
    built: BuiltPart | None = None
    try:
        built = build_one(loaded, _PLACE, "embedding", name=_PLACE[1], services=services)
        if built.calls_service:
            await probe_helper(built, "The embedding model")
        gate = asyncio.Semaphore(loaded.config.run.concurrency)
        judge = built.part

        async def one(pair: LabelledPair) -> tuple[float | None, ErrorKind | None]:
            async with gate:
                cosine, answer = await judge.similarity(pair.first, pair.second)
                return cosine, answer.error_kind

        cosines = await asyncio.gather(*map(one, pairs.pairs))
    finally:
        await close_parts(() if built is None else (built.part,), services)
    missing = Counter(str(kind) for cosine, kind in cosines if cosine is None)
    measured = [
        TextPair(cosine=cosine, is_same=each.is_same, group=each.group)
        for each, (cosine, _) in zip(pairs.pairs, cosines, strict=True)
        if cosine is not None
    ]
    return measured, dict(sorted(missing.items()))


def _fragment(settings: Mapping[str, Any], encoder: str, pairs: PairFile, choice: TauChoice) -> str:
    """Write the settings as they were, with the threshold and where it comes from."""
    counted = choice.counted
    calibration = {
        "pairs": pairs.name,
        "sha256": pairs.sha256,
        "model": encoder,
        "tau": choice.tau,
        "bound": choice.bound,
        "different": counted.false_same.trials,
        "false_same": counted.false_same.successes,
        "same": counted.true_same.trials,
        "true_same": counted.true_same.successes,
    }
    kept = {name: value for name, value in settings.items() if value is not None}
    chosen = {**kept, "tau": choice.tau, "calibration": calibration}
    entry = yaml.safe_dump(
        {"adaptive": {"equivalence": chosen}}, sort_keys=False, allow_unicode=True
    )
    return (
        "# Chosen on one half of the groups of the pairs, counted on the other half:\n"
        f"# different pairs called the same {rate_text(counted.false_same)},\n"
        f"# equal pairs called the same {rate_text(counted.true_same)}.\n{entry}"
    )
