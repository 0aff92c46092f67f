"""Rules that end a run early, from the configuration to the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from guardmark.analysis.stopping.rules import parse_stop_rule, statements_for
from guardmark.core.errors import ConfigError
from guardmark.core.manifest import LatencyMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.stopping.early_stop import EarlyStop
    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.settings import Config
    from guardmark.store.run_dir import RunDir


def with_rules(loaded: LoadedConfig, rules: Sequence[str]) -> LoadedConfig:
    """Put the rules of the command line in the place of the configuration's."""
    if not rules:
        return loaded
    said = [parse_stop_rule(rule).said for rule in rules]
    run = loaded.config.run.model_copy(update={"stop_when": said})
    return replace(loaded, config=loaded.config.model_copy(update={"run": run}))


def check_rules(config: Config, defenses: Sequence[str]) -> None:
    """Refuse rules that this run cannot follow, before anything is called."""
    rules = config.run.stop_when
    if not rules:
        return
    statements_for(rules, defenses)
    if config.run.repeats > 1:
        raise ConfigError(
            "stop_when needs repeats: 1. Answers of one sample are no new evidence.\n"
            "Next: set run.repeats to 1, or leave out the rule."
        )
    if config.pipeline is not None:
        raise ConfigError(
            "stop_when measures defenses alone; a pipeline asks each arm about every sample.\n"
            "Next: leave out the rule, or run the defenses without the pipeline."
        )
    if config.latency.mode is LatencyMode.OPEN:
        raise ConfigError(
            "stop_when and latency mode open do not go together: how many calls are sent would\n"
            "depend on the answers. Next: set latency.mode to isolated or loaded."
        )


def early_stop(folder: RunDir, rules: Sequence[str]) -> EarlyStop | None:
    """Make the rule of a run whose samples and manifest are stored."""
    if not rules:
        return None
    # numpy is needed only where a rule is
    from guardmark.analysis.stopping.early_stop import open_early_stop
    from guardmark.store.records import RecordReader

    with RecordReader(folder.records) as reader:
        return open_early_stop(reader, rules)
