"""What a person adds to `guardmark adapt`: budget, attacker model, what to record and replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guardmark.adaptive.state import BUDGETS
from guardmark.app.adapt.target_setup import CANARIES
from guardmark.app.run.running import RunOptions
from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LEAST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptOptions:
    """What a person adds on the command line."""

    budget: int
    config: Path | None = None
    trace: Path | None = None
    record: Path | None = None
    replay: Path | None = None
    canaries: int = CANARIES
    shared_memory: bool = True
    seeds: int | None = None
    run: RunOptions = field(default_factory=RunOptions)


def parse_budget(said: str) -> int:
    """Read a budget."""
    if said in BUDGETS:
        return BUDGETS[said]
    if not said.isdecimal() or int(said) < _LEAST:
        raise ConfigError(
            f"--budget {said!r} is no budget. Known: {', '.join(BUDGETS)}, or a number of search "
            f"calls for each attack, at least {_LEAST}."
        )
    return int(said)


def sort_replays(paths: Sequence[Path]) -> tuple[Path | None, Path | None]:
    """Tell a trace from a cassette."""
    cassettes = [path for path in paths if _is_cassette(path)]
    traces = [path for path in paths if path not in cassettes]
    for kind, found in (("traces", traces), ("cassettes", cassettes)):
        if len(found) > 1:
            shown = " and ".join(map(str, found[:2]))
            raise ConfigError(f"--replay names two {kind}: {shown}.\nNext: name one of each.")
    return next(iter(traces), None), next(iter(cassettes), None)


def _is_cassette(path: Path) -> bool:
    """Look at the first line; what cannot be read is left to the reader of traces."""
    try:
        with path.open("rb") as stream:
            return b'"guardmark_cassette"' in stream.readline(200)
    except OSError:
        return False
