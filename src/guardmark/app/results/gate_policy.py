"""The limits of a gate, from a file or from a run's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.analysis.gate.limits import GatePolicy, GateStatus
from guardmark.app.parts.loading import load_section
from guardmark.app.settings import GateSettings
from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.app.settings import Config

EXITS: Final = {GateStatus.HELD: 0, GateStatus.BROKEN: 1, GateStatus.OPEN: 5}
"""Exit code of the command line for how a gate stands."""


def read_policy(path: Path | None, config: Config, *, has_baseline: bool) -> GatePolicy:
    """Read the limits a run is checked against."""
    said = config.gate if path is None else load_section(path, GateSettings, key="gate")
    where = path if path is not None else "the run's configuration"
    if said is None:
        raise ConfigError(
            "There is no policy: the run's configuration has no section `gate`.\n"
            "Next: name a file, for example --policy gate.yaml with the line `asr_upper: 0.1`."
        )
    policy = gate_policy(said)
    if policy.is_empty:
        raise ConfigError(
            f"{where} limits nothing, so every run would pass.\nNext: set asr_upper, fpr_upper, "
            "max_malformed, max_errors, latency_p95_upper_ms, per_category or regression_margin."
        )
    if policy.regression_margin is not None and not has_baseline:
        raise ConfigError(
            f"{where} sets regression_margin, but no baseline is named.\n"
            "Next: add --baseline RUN, the run of the release that is out."
        )
    if policy.regression_margin is None and has_baseline:
        raise ConfigError(
            f"A baseline is named, but {where} does not say how much worse is still accepted.\n"
            "Next: set regression_margin, for example 0.02 for two points."
        )
    return policy


def gate_policy(settings: GateSettings) -> GatePolicy:
    """Turn the section `gate` of a configuration into a policy."""
    return GatePolicy(
        asr_upper=settings.asr_upper,
        fpr_upper=settings.fpr_upper,
        max_malformed=settings.max_malformed,
        max_errors=settings.max_errors,
        latency_p95_upper_ms=settings.latency_p95_upper_ms,
        regression_margin=settings.regression_margin,
        per_category=tuple(settings.per_category.items()),
        defenses=tuple(settings.defenses),
    )
