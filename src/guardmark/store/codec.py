"""Manifest and evidence as JSON, and back."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.manifest import DataManifest, LatencyMode, PartManifest, Policy, RunManifest
from guardmark.core.outcome import Attempt, CategoryFinding, Evidence, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

_EVIDENCE_DEFAULTS: Final = Evidence()
_PLAIN: Final = tuple(
    field.name
    for field in fields(Evidence)
    if field.name not in {"categories", "usage", "attempts"}
)

_TYPES: Final = {
    name: float | int if name == "label_mass" else type(getattr(_EVIDENCE_DEFAULTS, name))
    for name in _PLAIN
}


def _values(value: object) -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]  # called with dataclasses only


@lru_cache(maxsize=256)  # a rule says the same of every sample it blocks
def evidence_to_json(evidence: Evidence) -> str:
    """Write evidence as compact JSON, leaving out what is not said."""
    said: dict[str, object] = {
        name: value
        for name in _PLAIN
        if (value := getattr(evidence, name)) != getattr(_EVIDENCE_DEFAULTS, name)
    }
    for name, value in said.items():
        if not isinstance(value, _TYPES[name]):
            raise TypeError(f"{name} is {value!r:.80}")
    if evidence.categories:
        said["categories"] = [[c.name, c.flagged, c.score] for c in evidence.categories]
    if evidence.usage is not None:
        said["usage"] = _usage(evidence.usage)
    if evidence.attempts:
        said["attempts"] = [[a.service_ns, a.status, a.error, a.wait_ns] for a in evidence.attempts]
    return json.dumps(said, separators=(",", ":"))


def _usage(usage: Usage) -> list[int | float | None]:
    """Usage as a list of numbers that can be added up."""
    tokens, cost = (usage.prompt_tokens, usage.completion_tokens), usage.cost
    is_whole = all(count is None or type(count) is int for count in tokens)
    if not is_whole or not (cost is None or (type(cost) in {int, float} and isfinite(cost))):
        raise TypeError(f"usage is {usage!r:.200}")
    return [*tokens, cost]


@lru_cache(maxsize=256)  # for the same reason; nobody can change what is returned
def evidence_from_json(text: str) -> Evidence:
    """Read evidence back."""
    said: dict[str, Any] = json.loads(text)
    if "categories" in said:
        said["categories"] = tuple(
            CategoryFinding(name=name, flagged=flagged, score=score)
            for name, flagged, score in said["categories"]
        )
    if "usage" in said:
        read, written, cost = said["usage"]
        said["usage"] = Usage(prompt_tokens=read, completion_tokens=written, cost=cost)
    if "attempts" in said:
        said["attempts"] = tuple(
            Attempt(service_ns=service, status=status, error=error, wait_ns=wait)
            for service, status, error, wait in said["attempts"]
        )
    return Evidence(**said)


def manifest_to_json(manifest: RunManifest) -> str:
    """Write a manifest as JSON with sorted keys, so that equal manifests give equal bytes."""
    values = _values(manifest)
    values["parts"] = [_values(part) for part in manifest.parts]
    values["data"] = [_values(data) for data in manifest.data]
    return json.dumps(values, ensure_ascii=False, sort_keys=True, default=_mapping)


def _mapping(value: object) -> object:
    from collections.abc import Mapping as AnyMapping

    if isinstance(value, AnyMapping):
        return dict(value)
    raise TypeError(f"{value!r} is not a JSON value")


def manifest_from_json(text: str) -> RunManifest:
    """Read a manifest back."""
    values: dict[str, Any] = json.loads(text)
    values["parts"] = tuple(PartManifest(**part) for part in values["parts"])
    values["data"] = tuple(DataManifest(**data) for data in values["data"])
    values["on_malformed"] = Policy(values["on_malformed"])
    values["on_error"] = Policy(values["on_error"])
    values["latency_mode"] = LatencyMode(values["latency_mode"])
    categories: Mapping[str, list[str]] = values["categories"]
    values["categories"] = {name: tuple(subs) for name, subs in categories.items()}
    values["shared_answers"] = tuple(values.get("shared_answers", ()))
    return RunManifest(**values)
