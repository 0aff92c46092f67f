"""Run folders as a stranger would send them: whole by every hash, naming what they like."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import yaml
from tests.journeys.command_line import few_rows, write_rows

from guardmark.app.parts.building import build_parts, open_services
from guardmark.app.parts.loading import LoadedConfig, parse_config
from guardmark.app.run.running import RunOptions, Session, run_parts
from guardmark.engine.plan import Parts
from guardmark.engine.run_monitor import Progress
from guardmark.engine.supervision import StopSignal

if TYPE_CHECKING:
    from pathlib import Path

Document = dict[str, Any]


def session() -> Session:
    """Return what a verb is given by whoever calls it."""
    return Session(
        now=datetime(2026, 1, 2, tzinfo=UTC),
        progress=Progress(),
        stop=StopSignal(),
        announce=lambda _line: None,
    )


def loaded_from(document: Document, folder: Path) -> LoadedConfig:
    """Check a configuration whose data lie in a folder."""
    whole = {"version": 1, "data": [{"path": "data.jsonl"}], **document}
    return parse_config(
        yaml.safe_dump(whole, sort_keys=False), folder=folder, shown_as="theirs.yaml"
    )


def send(folder: Path, document: Document, *, texts: str = "", name: str = "out") -> Path:
    """Make a run folder over decoys whose manifest names the parts of a configuration.

    Fingerprints are those the parts have on this machine, so no comparison with them finds anything.
    """
    rows = [
        {**row, "text": f"{texts} {n}" if texts else row["text"]}
        for n, row in enumerate(few_rows(8))
    ]
    write_rows(folder / "data.jsonl", rows)
    theirs = loaded_from(document, folder)
    decoys: Document = {
        "defenses": {
            each: {"type": "pattern", "patterns": ["ignore"]} for each in theirs.config.defenses
        }
    }
    if theirs.config.pipeline is not None:
        judges = [
            {"type": "rules", "name": j["name"], "canaries": True}
            for j in theirs.config.pipeline.judges
        ]
        decoys["pipeline"] = {"model": {"type": "scripted"}, "judges": judges}
    ours = loaded_from(decoys, folder)
    built, named = build_parts(ours, None), build_parts(theirs, open_services(theirs))
    parts = Parts(
        defenses=_as(built.defenses, named.defenses),
        model=None if built.model is None else _as((built.model,), (named.model,))[0],
        judges=_as(built.judges, named.judges),
        arms=built.arms,
    )
    options = RunOptions(out=folder / name)
    loaded = replace(ours, config=theirs.config)
    run_parts(loaded, parts, services=None, options=options, session=session())
    return folder / name


def _as(decoys: Any, named: Any) -> Any:
    pairs = zip(decoys, named, strict=True)
    return tuple(replace(decoy, manifest=other.manifest) for decoy, other in pairs)
