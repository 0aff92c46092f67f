"""Every JSON document that guardmark writes about figures, with its schema.

Times stand in the block `timing` of a summary and nowhere else, so equal records give equal bytes.
"""

from __future__ import annotations

import json
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.values import dataclass
from guardmark.reports.chapters.advice import advice_sentence
from guardmark.reports.chapters.comparison import pair_sentence
from guardmark.reports.chapters.pipeline import legacy_note
from guardmark.reports.chapters.pipeline_warnings import warnings_of
from guardmark.reports.chapters.small_slices import stability_warnings
from guardmark.reports.render.json.encoder import encode, lay_out

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.adaptive.rows import CostPerBypass
    from guardmark.analysis.agents.figures import ArmPair
    from guardmark.analysis.compare.chains import ChainRanking
    from guardmark.analysis.compare.comparison import PairedComparison
    from guardmark.analysis.compare.runs_compared import Compared, PairDetail, ScopedComparisons
    from guardmark.analysis.defense.costs import PartRetries
    from guardmark.analysis.defense.latency import Latency
    from guardmark.analysis.defense.slices import SliceTable
    from guardmark.analysis.gate import GateCheck, GateResult
    from guardmark.analysis.pipeline.judges import JudgesAssessed
    from guardmark.analysis.pipeline.small_slices import SliceStability
    from guardmark.analysis.run import RunAnalysis
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Difference
    from guardmark.core.manifest import DataManifest, RunManifest
    from guardmark.reports.document.blocks import Headline
    from guardmark.reports.render.json.encoder import Sentences, Tree
    from guardmark.stats.figures import Quantile
    from guardmark.store.reader import RunStatus

SCHEMA_VERSION: Final = 2
"""Of `summary.json` and `comparison.json`: raised when a field goes or changes its meaning."""

_FIRST_VERSION: Final = 1  # of the documents whose fields never changed


def _adaptive_text(card: AdaptiveCard) -> str:
    """Say what was broken, under which conditions, and what getting through amounts to."""
    from guardmark.reports.chapters.adaptive.attack_success import holding_sentence  # loads attacks

    return holding_sentence(card)


def _threat_model(card: AdaptiveCard) -> tuple[tuple[str, str], ...]:
    """Return who attacks, with what: what every figure of the section is conditional on."""
    from guardmark.reports.chapters.adaptive.chapter import threat_card  # loads attacks

    return threat_card(card)


def _check_sentence(check: GateCheck) -> str:
    """Say how one limit stands."""
    from guardmark.reports.chapters.gate import check_sentence  # on use: many runs set no limit

    return check_sentence(check)


def _conclusion(result: GateResult) -> str:
    """Say how a gate stands."""
    from guardmark.reports.chapters.gate import conclusion

    return conclusion(result)


SENTENCES: Final[Sentences] = {
    "AdaptiveCard": {"text": _adaptive_text, "threat_model": _threat_model},
    "Advice": {"text": advice_sentence},
    "GateCheck": {"text": _check_sentence},
    "GateResult": {"text": _conclusion},
    "LegacyCard": {"note": legacy_note},
    "PairedComparison": {"text": pair_sentence},
    "PipelineAnalysis": {"warnings": warnings_of},
    "SliceStability": {"warnings": stability_warnings},
}
"""Words that stand beside figures: class, key, and the function that writes them."""

_OF_MANIFEST: Final = (
    "name",
    "guardmark_version",
    "config_sha256",
    "data_sha256",
    "evaluator",
    "seed",
    "repeats",
    "on_malformed",
    "on_error",
    "parts",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRun:
    """What was run, and how far it came.

    Attributes:
        manifest: What was run.
        status: How far the run is.
        settings: What the reader decided beforehand.
    """

    manifest: RunManifest = field(metadata={"json": _OF_MANIFEST})
    status: RunStatus = field(
        metadata={"json": ("state", "planned", "stored", "retried", "remarks")}
    )
    settings: AnalysisSettings = field(
        metadata={"json": ("confidence", "min_per_category", "margin")}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceTimes:
    """Median latency of the slices of one facet.

    Attributes:
        facet: Name of the facet.
        is_attack: Whether these are attacks or benign samples.
        median_ms: Of all timed answers of each slice, or None.
    """

    facet: str
    is_attack: bool
    median_ms: Mapping[str, Quantile | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTiming:
    """Everything that comes from a clock.

    Attributes:
        created_utc: Start of the run.
        defenses: Latencies of each defense.
        stages: Of target model and judges; of a model that streams also to its first text and to
            its last one.
        systems: Of each arm of a pipeline, end to end without its judges.
        overhead_ms: How much longer one waits behind each guard, paired.
        slice_medians: Of the slices of each defense.
        adaptive: Service time in seconds of what attacked each defense.
        retries: Parts whose requests had to be sent again.
    """

    created_utc: str
    defenses: Mapping[str, Latency]
    stages: Mapping[str, Latency]
    systems: Mapping[str, Latency]
    overhead_ms: Mapping[str, Difference]
    slice_medians: Mapping[str, tuple[SliceTimes, ...]]
    adaptive: Mapping[str, CostPerBypass]
    retries: tuple[PartRetries, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of a run.

    Attributes:
        schema_version: Raised when a field goes or changes its meaning.
        run: What was run, and how far it came.
        data: Each data set with version, hash and counts.
        verdicts: The verdict line of each system and each defense.
        analysis: Everything a report says.
        timing: Everything that comes from a clock.
    """

    schema_version: int
    run: SummaryRun
    data: tuple[DataManifest, ...]
    verdicts: Mapping[str, str]
    analysis: RunAnalysis = field(metadata={"json": "*"})
    timing: RunTiming


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPair:
    """Two defenses side by side.

    Attributes:
        pair: Both rates against each other.
        recommendation: A sentence on the choice between the two.
        detail: What lies behind, or None beyond the first twelve pairs.
    """

    pair: PairedComparison = field(metadata={"json": "*"})
    recommendation: str
    detail: PairDetail | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedScope:
    """Subjects against each other at one scope.

    Attributes:
        compared: The comparison.
        pairs: Every compared pair.
        caveats: What weakens it.
    """

    compared: Compared = field(metadata={"json": "*"})
    pairs: tuple[ComparedPair, ...]
    caveats: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonDocument:
    """Defenses against each other, in one run or across runs.

    Attributes:
        schema_version: Raised when a field goes or changes its meaning.
        first: The defenses; the systems where the runs hold no two defenses.
        system: What came out of guard and model; null without a pipeline.
    """

    schema_version: int
    first: ComparedScope = field(metadata={"json": "*"})
    system: ComparedScope | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDocument:
    """A gate and how each limit stands.

    Attributes:
        schema_version: Raised when a field goes or changes its meaning.
        run: The run that was checked.
        baseline: The run it was checked against, or None.
        result: Every check.
        caveats: What weakens them.
    """

    schema_version: int
    run: str
    baseline: str | None
    result: GateResult = field(metadata={"json": "*"})
    caveats: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StabilityDocument:
    """How far small slices of a run lie from the whole.

    Attributes:
        schema_version: Raised when a field goes or changes its meaning.
        stability: The figures.
    """

    schema_version: int
    stability: SliceStability = field(metadata={"json": "*"})


DOCUMENTS: Final = ("summary", "comparison", "gate", "stability", "chains")
"""Names of the documents that have a schema."""


def document_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document, as scripts/write_schemas.py made it."""
    text = Path(__file__).with_name(f"{name}.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def summary_json(analysis: RunAnalysis) -> str:
    """Write the figures of a run as JSON."""
    summary = Summary(
        schema_version=SCHEMA_VERSION,
        run=SummaryRun(
            manifest=analysis.manifest, status=analysis.status, settings=analysis.settings
        ),
        data=analysis.manifest.data,
        verdicts={each.key: each.sentence for each in _headlines(analysis)},
        analysis=analysis,
        timing=_timing(analysis),
    )
    return lay_out(encode(summary, SENTENCES))


def _headlines(analysis: RunAnalysis) -> Sequence[Headline]:
    """Return the verdicts of a run, of arms where it is one of agents."""
    if analysis.agent is not None:
        from guardmark.reports.chapters.agents import write_headlines

        return write_headlines(analysis.agent)
    if analysis.replay is not None:
        from guardmark.reports.chapters.replay import write_replay_headlines

        return write_replay_headlines(analysis.replay)
    from guardmark.reports.chapters.verdicts import write_verdicts

    return write_verdicts(analysis)


def _slice_times(tables: Sequence[SliceTable]) -> tuple[SliceTimes, ...]:
    times = []
    for table in tables:
        medians = {rate.name: rate.median_latency_ms for rate in table.rates}
        times.append(SliceTimes(facet=table.facet, is_attack=table.is_attack, median_ms=medians))
    return tuple(times)


def _timing(analysis: RunAnalysis) -> RunTiming:
    """Return what differs between two runs of the same: moments, times and retries."""
    stages: Mapping[str, Latency] = {}
    overhead_ms: dict[str, Difference] = {}
    if analysis.pipeline is not None:
        stages = analysis.pipeline.stages
        for arm in analysis.pipeline.arms:
            if arm.gain is not None:
                overhead_ms[arm.name] = arm.gain.overhead_ms
    return RunTiming(
        created_utc=analysis.manifest.created_utc,
        defenses={each.name: each.latency for each in analysis.defenses},
        stages=stages,
        systems={each.name: each.latency for each in analysis.system},
        overhead_ms=overhead_ms,
        slice_medians={each.name: _slice_times(each.slices) for each in analysis.defenses},
        adaptive={card.name: card.costs.seconds for card in analysis.adaptive},
        retries=analysis.retries,
    )


def comparison_json(compared: ScopedComparisons, *, texts: bool = True, timing: bool = True) -> str:
    """Write a comparison as JSON."""
    *systems, first = compared.all
    system = None
    if systems:
        system = _compared_scope(systems[0])
    comparison = ComparisonDocument(
        schema_version=SCHEMA_VERSION, first=_compared_scope(first), system=system
    )
    document: Any = encode(comparison, SENTENCES)
    for scope in filter(None, (document, document["system"])):
        if not timing:
            for run in scope["runs"]:
                run["created_utc"] = ""
        for pair in scope["pairs"]:
            if pair["detail"]:
                _leave_out(pair["detail"], texts=texts, timing=timing)
    return lay_out(document)


def _leave_out(detail: Any, *, texts: bool, timing: bool) -> None:
    """Take texts and times out of what is told of a pair, where they are not wanted."""
    if not texts:
        for sample in detail["discordant"]:
            sample["text"] = None
    if not timing:
        detail["timing"] = []


def _compared_scope(compared: Compared) -> ComparedScope:
    """Return one scope of a comparison, each pair with its recommendation."""
    from guardmark.reports.chapters.comparison import recommendation, run_caveats
    from guardmark.reports.chapters.subjects import weak_among

    details = {(each.first, each.second): each for each in compared.details}
    weak = weak_among([(each.name, each.rates) for each in compared.rates], compared.scope)
    pairs = []
    for pair in compared.comparison.pairs:
        compared_pair = ComparedPair(
            pair=pair,
            recommendation=recommendation(pair, margin=compared.margin, weak=weak),
            detail=details.get((pair.first, pair.second)),
        )
        pairs.append(compared_pair)
    return ComparedScope(
        compared=compared,
        caveats=tuple(run_caveats(compared.runs, compared.remarks)),
        pairs=tuple(pairs),
    )


def gate_json(
    result: GateResult, *, run: str, baseline: str = "", caveats: Sequence[str] = ()
) -> str:
    """Write a gate as JSON."""
    document = GateDocument(
        schema_version=_FIRST_VERSION,
        run=run,
        baseline=baseline or None,
        result=result,
        caveats=tuple(caveats),
    )
    return lay_out(encode(document, SENTENCES))


def stability_json(stability: SliceStability) -> str:
    """Write `slice_stability.json`."""
    document = StabilityDocument(schema_version=_FIRST_VERSION, stability=stability)
    return lay_out(encode(document, SENTENCES))


def figures_json(figures: ChainRanking | JudgesAssessed | Sequence[ArmPair]) -> str:
    """Write figures as they are: of chains, or of judges."""
    return lay_out(encode(figures, SENTENCES))


def adaptive_json(cards: Sequence[AdaptiveCard]) -> Tree:
    """Encode what adaptive measurements say."""
    return encode(tuple(cards), SENTENCES)
