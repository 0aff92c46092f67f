"""`comparison.json` as the records make it, on the second path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.compared.details import recount_details
from guardmark.app.verify.lines import parsed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.app.verify.difference import Comparer
    from guardmark.app.verify.recount import Recount
    from guardmark.app.verify.source import Source

Json = dict[str, Any]

_RATES: Final = ("attack_success_rate", "false_positive_rate")


def check_compared(path: Path, recounted: Json | None, comparer: Comparer) -> None:
    """Compare the defenses of a run against each other with the second count."""
    said = parsed(path.read_bytes())
    comparer.tree(
        path.name, "", said=said if isinstance(said, dict) else "no JSON object", found=recounted
    )


def recount_compared(source: Source, recounted: Json, recounts: dict[str, Recount]) -> Json | None:
    """Return what `comparison.json` has to say, as far as this path knows it."""
    told = recounted["comparison"]
    if told is None:
        return None
    pairs = told["pairs"]
    compared = list(dict.fromkeys(name for pair in pairs for name in _sides(pair)))
    details = recount_details(recounts, [_sides(pair) for pair in pairs])
    details += [{}] * (len(pairs) - len(details))
    return {
        "schema_version": 1,
        **_told_of_run(source, recounted),
        "pairs": [{**pair, **detail} for pair, detail in zip(pairs, details, strict=True)],
        "rates": [
            {"defense": each["name"]} | {name: each["rates"][name] for name in _RATES}
            for each in recounted["defenses"]
            if each["name"] in compared
        ],
        "best": told["best"],
        "front": _front(pairs, compared),
        "left_out": told["left_out"],
    }


def _told_of_run(source: Source, recounted: Json) -> Json:
    run, name = recounted["run"], source.manifest["name"]
    return {
        "runs": [
            {
                "label": name,
                "data_sha256": run["data_sha256"],
                "state": run["state"],
                "planned": run["planned"],
                "stored": run["stored"],
                "samples": recounted["samples"]["attacks"] + recounted["samples"]["benign"],
                "unmatched": [],
            }
        ],
        "defenses": [
            {"name": each["name"], "defense": each["name"], "run": name}
            for each in recounted["defenses"]
        ],
        **{key: recounted["samples"][key] for key in ("attacks", "benign", "is_grouped")},
        "confidence": run["confidence"],
        "margin": source.manifest.get("settings", {})
        .get("stats", {})
        .get("non_inferiority_margin"),
    }


def _sides(pair: Json) -> tuple[str, str]:
    return pair["first"], pair["second"]


def _front(pairs: Sequence[Json], names: Sequence[str]) -> list[str]:
    """Return those that no other is shown to be better than."""
    beaten = {pair["second"] for pair in pairs if pair["verdict"] == "first better"}
    beaten |= {pair["first"] for pair in pairs if pair["verdict"] == "second better"}
    return [name for name in names if name not in beaten]
