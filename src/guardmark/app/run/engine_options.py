"""What a configuration gives the engine beside its parts: stop rules, kept answers, workers."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guardmark.analysis.stopping.rules import parse_stop_rule, statements_for
from guardmark.app.parts.building import build_defenses
from guardmark.core.errors import ConfigError
from guardmark.core.manifest import VERSION, LatencyMode
from guardmark.core.protocols import InlineDefense
from guardmark.engine.plan import CachedParts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.analysis.stopping.early_stop import EarlyStop
    from guardmark.app.parts.building import Parts
    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.settings import Config
    from guardmark.store.run_dir import RunDir


def with_rules(loaded: LoadedConfig, rules: Sequence[str]) -> LoadedConfig:
    """Put the rules of the command line in the place of the configuration's."""
    if not rules:
        return loaded
    texts = [parse_stop_rule(rule).said for rule in rules]
    run = loaded.config.run.model_copy(update={"stop_when": texts})
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
    from guardmark.store.reader import RecordReader

    with RecordReader(folder.records) as reader:
        return open_early_stop(reader, rules)


ANSWERS: Final = Path("runs", "answers.sqlite")
"""Where answers are kept: beside the runs, so that runs of one place share them."""

_KEPT: Final = frozenset({"chat", "guard-model", "http"})
"""Types whose settings name all that an answer depends on, as those of a function do not."""


@contextmanager
def kept_answers(loaded: LoadedConfig, parts: Parts) -> Iterator[CachedParts | None]:
    """Open the kept answers for the time of a run."""
    if not loaded.config.run.cache:
        yield None
        return
    from guardmark.store.cache import AnswerCache
    from guardmark.store.run_dir import RunDir

    RunDir(path=ANSWERS.parent).create()
    with closing(AnswerCache(ANSWERS)) as cache:
        yield CachedParts(cache=cache, identities=identities(parts))


def identities(parts: Parts) -> dict[str, str]:
    """Return what identifies each part whose answers may be kept."""
    names = [each.name for each in parts.manifests]
    return {
        each.name: f"{each.kind} {each.type} {each.fingerprint} {each.version} guardmark {VERSION}"
        for each in parts.manifests
        if each.type in _KEPT and names.count(each.name) == 1
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """Builds one defense from the settings it was built from before; can be sent to a process."""

    loaded: LoadedConfig
    name: str

    def __call__(self) -> InlineDefense:
        """Build it."""
        part = build_defenses(self.loaded, None, only=(self.name,))[0].part
        if not isinstance(part, InlineDefense):
            raise ConfigError(f"{self.name} does not answer at once.")
        return part


def rebuilds(loaded: LoadedConfig, parts: Parts) -> Mapping[str, Rebuild]:
    """Return how processes get the defenses that answer at once."""
    return {
        built.manifest.name: Rebuild(loaded=loaded, name=built.manifest.name)
        for built in parts.defenses
        if isinstance(built.part, InlineDefense)
        and ("defenses", built.manifest.name) in loaded.parts
    }
