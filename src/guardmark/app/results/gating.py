"""The verb `gate`: may this release go out, by limits fixed beforehand."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.analysis.compare.comparison import compare_arms
from guardmark.analysis.compare.matching import OpenRun, match_runs
from guardmark.analysis.defense.counted_run import read_for_report
from guardmark.analysis.defense.slices import FACETS
from guardmark.analysis.gate import (
    EVERY_VALUE,
    FacetLimit,
    GateCheck,
    GatePolicy,
    GateResult,
    check_complete,
    check_judging,
    check_limits,
    check_regression,
    check_system,
    gated_arms,
    system_rule,
)
from guardmark.analysis.pipeline.frame import (
    DEFENSE,
    SYSTEM,
    PlaceRates,
    as_subjects,
    deployed,
    holds_parts,
    read_pipeline,
    read_system,
)
from guardmark.analysis.pipeline.judges import estimate_agreement
from guardmark.analysis.settings import RelianceLimits
from guardmark.app.parts.loading import load_section
from guardmark.app.results.opened_run import find_run, label_runs, open_run
from guardmark.app.settings import (
    NO_AGENT_TO_GATE,
    NO_SYSTEM_TO_GATE,
    NOTHING_TO_GATE,
    FacetLimitSettings,
    GateSettings,
    SliceGateSettings,
)
from guardmark.core.errors import ConfigError, StoreError
from guardmark.core.manifest import UNNAMED
from guardmark.core.values import dataclass
from guardmark.engine.shards import name_part
from guardmark.reports.chapters.comparison import run_caveats
from guardmark.store.reader import RecordReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from guardmark.analysis.compare.comparison import PairedComparison
    from guardmark.analysis.compare.matching import MatchedRuns
    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.run import RunAnalysis
    from guardmark.app.results.findings import Shown
    from guardmark.app.results.opened_run import OpenedRun
    from guardmark.app.settings import Config
    from guardmark.core.manifest import RunManifest
    from guardmark.store.run_dir import RunDir


_NO_POLICY: Final = (
    "The run's configuration states no limits, so these are the ones that reports go by. State "
    "your own under `gate:`, or in a file for --policy."
)


def read_policy(path: Path | None, config: Config) -> GatePolicy:
    """Read the limits a run is checked against."""
    section, where = config.gate, "the run's configuration"
    if path is not None:
        section, where = load_section(path, GateSettings, key="gate"), str(path)
    if section is None:
        policy = _usual_policy(config)
    else:
        policy = gate_policy(section)
    if policy.is_empty:
        raise ConfigError(
            f"{where} limits nothing, so every run would pass.\nNext: set asr_upper, fpr_upper, "
            "max_malformed, max_errors, latency_p95_upper_ms, per_category (or per_language and so "
            "on), every, regression_margin, system.asr_upper, system.over_refusal_upper, "
            "judge.min_agreement, or of agents utility_lower, attack_success_upper or "
            "utility_loss_upper."
        )
    return policy


def margin_to_check(policy: GatePolicy, *, has_baseline: bool, is_first: bool) -> GatePolicy:
    """Return the limits that can be checked: a margin and a baseline come together.

    Where there is no earlier run yet (`is_first`), the margin is left out: nothing can be worse.
    """
    if has_baseline and is_first:
        raise ConfigError(
            "A baseline is named, and --first says that there is none yet.\n"
            "Next: leave out one of the two."
        )
    if policy.regression_margin is None and has_baseline:
        raise ConfigError(
            "A baseline is named, but the limits do not say how much worse is still accepted.\n"
            "Next: set regression_margin, for example 0.02 for two points."
        )
    if policy.regression_margin is None or has_baseline:
        return policy
    if not is_first:
        raise ConfigError(
            "The limits set regression_margin, but no baseline is named.\n"
            "Next: add --baseline RUN, the run of the release that is out; or --first, where "
            "nothing is out yet."
        )
    others = replace(policy, regression_margin=None)
    if others.is_empty:
        raise ConfigError(
            "The limits set regression_margin alone, and --first says that nothing is out yet, so "
            "nothing would be checked.\nNext: set asr_upper and fpr_upper too."
        )
    return others


_NOTHING_OUT: Final = (
    "Nothing is out yet, so regression_margin was not judged: there is no run to be worse than."
)
_REPLAYED: Final = (
    "This run put guards before stored runs: utility and attack success are unknown.\n"
    "Next: measure with agent.suite, and limit that run."
)


def _usual_policy(config: Config) -> GatePolicy:
    """Return the limits that reports go by where no gate states others."""
    if config.agent is not None and config.agent.replay:
        raise ConfigError(_REPLAYED)
    if config.agent is not None:
        raise ConfigError(
            "There is no policy: the run's configuration has no section `gate`.\n"
            "Next: name a file, for example --policy gate.yaml with `attack_success_upper: 0.1`."
        )
    usual = RelianceLimits()
    if config.pipeline is not None and config.pipeline.judges:
        return GatePolicy(system_asr_upper=usual.attacks, system_over_refusal_upper=usual.alarms)
    return GatePolicy(asr_upper=usual.attacks, fpr_upper=usual.alarms)


def gate_policy(settings: GateSettings) -> GatePolicy:
    """Turn the section `gate` of a configuration into a policy."""
    system, stated = settings.system, dict(settings)
    del stated["system"], stated["judge"]
    for name in SliceGateSettings.model_fields:
        del stated[name]
    stated["defenses"] = tuple(settings.defenses)
    return GatePolicy(
        **stated,
        per_facet=tuple(_facet_limits(settings)),
        system_asr_upper=system.asr_upper,
        system_over_refusal_upper=system.over_refusal_upper,
        system_per_facet=tuple(_facet_limits(system)),
        judge_min_agreement=settings.judge.min_agreement,
    )


def _facet_limits(settings: SliceGateSettings) -> Iterator[FacetLimit]:
    """Yield the limits on slices, those on every slice last."""
    by_facet = {facet: getattr(settings, f"per_{facet}") for facet in FACETS}
    for facet, limits in (by_facet | settings.per_metadata).items():
        for name, stated in limits.items():
            both = stated
            if not isinstance(stated, FacetLimitSettings):  # the share of attacks alone
                both = FacetLimitSettings(asr_upper=stated)
            yield from _both_sides(both, facet=facet, name=name)
    for every in settings.every:
        yield from _both_sides(every, facet=every.facet, name=EVERY_VALUE, least=every.min)


def _both_sides(
    stated: FacetLimitSettings, *, facet: str, name: str, least: int = 0
) -> Iterator[FacetLimit]:
    for is_attack, limit in ((True, stated.asr_upper), (False, stated.fpr_upper)):
        if limit is not None:
            yield FacetLimit(facet=facet, name=name, is_attack=is_attack, limit=limit, least=least)


def check_own_limits(
    reader: RecordReader, analysis: RunAnalysis, config: Config
) -> GateResult | None:
    """Check the limits that the configuration of a run sets."""
    if config.gate is None:
        return None
    policy = replace(gate_policy(config.gate), regression_margin=None)
    if policy.is_empty:
        return None
    limits = check_policy(reader, analysis.frame, policy)
    checks = check_complete(analysis.status) + limits
    return GateResult(checks=checks, confidence=analysis.settings.confidence)


def check_policy(reader: RecordReader, frame: Frame, policy: GatePolicy) -> tuple[GateCheck, ...]:
    """Check the limits of a policy that one run can answer; one without any is refused."""
    if policy.is_about_agents:
        return _check_agents(reader, frame, policy)
    checks = check_limits(frame, policy)
    if not policy.of_system.is_empty or policy.judge_min_agreement is not None:
        pipeline = read_pipeline(reader, frame)
        system = as_subjects(pipeline)
        if pipeline is None or system is None:
            raise ConfigError(NO_SYSTEM_TO_GATE)
        checks += check_system(system, policy)
        if policy.judge_min_agreement is not None:
            agreement = estimate_agreement(PlaceRates(frame, frame.settings), pipeline)
            checks += (check_judging(agreement, policy.judge_min_agreement),)
    if not checks and policy.regression_margin is None:
        raise ConfigError(NOTHING_TO_GATE)
    return checks


def _check_agents(reader: RecordReader, frame: Frame, policy: GatePolicy) -> tuple[GateCheck, ...]:
    from guardmark.analysis.agents.figures import analyse_agents
    from guardmark.analysis.agents.gate import check_agents
    from guardmark.analysis.agents.replay import is_replay

    if not reader.holds_cases:
        raise ConfigError(NO_AGENT_TO_GATE)
    if is_replay(reader.manifest()):
        raise ConfigError(_REPLAYED)
    if policy.is_about_defenses or not policy.of_system.is_empty:
        raise ConfigError(
            "A run of agents has no defense and no answers of a model by themselves to limit.\n"
            "Next: limit utility_lower, attack_success_upper or utility_loss_upper, and nothing "
            "else."
        )
    settings = frame.settings
    analysis = analyse_agents(reader, confidence=settings.confidence, limits=settings.limits)
    return check_agents(analysis, policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """The answer of a gate.

    Attributes:
        run: What the run is called.
        baseline: What the run it was compared with is called; empty without one.
        created_utc: When the run began.
        result: Every check.
        caveats: What weakens them.
        head: Head of the records.
        sarif: Its findings as SARIF; empty where they were not asked for.
    """

    run: str
    baseline: str
    created_utc: str
    result: GateResult
    caveats: tuple[str, ...]
    head: str = ""
    sarif: str = ""


def gate(
    path: Path,
    *,
    policy: Path | None = None,
    baseline: Path | None = None,
    is_first: bool = False,
    shown: Shown | None = None,
) -> Gated:
    """Check a run against the limits of a policy; `shown` asks for its findings as SARIF."""
    with open_run(path) as run:
        try:
            base = None
            if baseline is not None:
                base = find_run(baseline)
        except StoreError as error:  # a mistake of the caller, never a pass
            raise ConfigError(f"The baseline cannot be used. {error}") from error
        limits = read_policy(policy, run.config)
        gated = check_run(run, limits, baseline=base, is_first=is_first)
        if policy is None and run.config.gate is None:
            gated = replace(gated, caveats=(_NO_POLICY, *gated.caveats))
        if shown is None:
            return gated
        from guardmark.app.results.findings import gate_sarif  # on use: few gates ask for them

        return replace(gated, sarif=gate_sarif(run, limits, shown))


def check_run(
    run: OpenedRun,
    stated: GatePolicy,
    *,
    baseline: RunDir | None = None,
    is_first: bool = False,
) -> Gated:
    """Check a run against limits."""
    reader, settings = run.reader, run.settings
    limits = margin_to_check(stated, has_baseline=baseline is not None, is_first=is_first)
    with ExitStack() as stack:
        frame = read_for_report(reader, settings)
        status = reader.status()
        checks = check_complete(status) + check_policy(reader, frame, limits)
        caveats: tuple[str, ...] = ()
        if limits.regression_margin != stated.regression_margin:
            caveats = (_NOTHING_OUT,)
        labels = label_runs([run.folder, baseline] if baseline else [run.folder])
        if baseline is not None:
            other = stack.enter_context(RecordReader(baseline.records))
            opened = [
                OpenRun(label=labels[0], reader=reader),
                OpenRun(label=labels[1], reader=other),
            ]
            for scope, arms in _gated(opened, frame, limits):
                matched = match_runs(opened, settings, scope=scope)
                checks += _regressions(matched, arms, limits)
                caveats = tuple(run_caveats(matched.runs, matched.remarks))
            checks += check_complete(other.status(), subject="baseline")
    return Gated(
        run=_name_of(frame.manifest, labels[0], run.config.run.shard),
        baseline=labels[1] if baseline is not None else "",
        created_utc=frame.manifest.created_utc,
        head=status.head,
        result=GateResult(checks=checks, confidence=settings.confidence),
        caveats=caveats,
    )


def _name_of(manifest: RunManifest, label: str, shard: str | None) -> str:
    """Return what a run is called in its report; of one without a name its folder."""
    if manifest.name == UNNAMED:
        return name_part(label, shard)
    return manifest.name


def _gated(
    opened: list[OpenRun], frame: Frame, limits: GatePolicy
) -> Iterator[tuple[str, tuple[DefenseColumn, ...]]]:
    """Yield the scopes at which a run is held against its baseline, with what is gated there."""
    arms = gated_arms(frame, limits)
    if arms:
        yield DEFENSE, arms
    if all(holds_parts(run.reader, "model", "judge") for run in opened):
        system = read_system(opened[0].reader, frame)
        if system is not None:
            yield SYSTEM, deployed(system, limits.defenses)


def _regressions(
    matched: MatchedRuns, arms: tuple[DefenseColumn, ...], limits: GatePolicy
) -> tuple[GateCheck, ...]:
    """Compare each gated defense or system with itself in the baseline run."""
    run, base = matched.runs[0].label, matched.runs[1].label
    now = {origin.defense: origin.name for origin in matched.origins if origin.run == run}
    before = {origin.defense: origin.name for origin in matched.origins if origin.run == base}
    for arm in arms:
        if arm.name not in before:
            raise ConfigError(
                f"The baseline {base} has no defense {arm.name!r}; it has: {', '.join(before)}.\n"
                "Next: name another baseline, or the defenses to check (`defenses:`)."
            )
    pairs = [(now[arm.name], before[arm.name]) for arm in arms]
    comparison = compare_arms(matched.frame, chosen=pairs, scope=matched.scope)
    compared: tuple[PairedComparison, ...] = ()
    if comparison is not None:
        compared = comparison.pairs
    checks = check_regression(
        compared,
        limits.regression_margin or 0.0,
        alpha=1 - matched.frame.settings.confidence,
        names={name: defense for defense, name in now.items()},
    )
    if matched.scope == DEFENSE:
        return checks
    return tuple(replace(check, rule=system_rule(check.rule)) for check in checks)
