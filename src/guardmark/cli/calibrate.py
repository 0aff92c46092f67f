"""`guardmark attacks calibrate`: from which cosine on two texts count as the same request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.app.adapt.calibrating import Calibrated

_PATH = click.Path(path_type=Path)


def calibrate_command() -> click.Command:
    """Return the command."""

    @click.command(
        "calibrate",
        help="Embed the labelled PAIRS (JSONL: a, b, same, group) with adaptive.equivalence of "
        "the configuration, and choose the smallest tau that can be shown to call few different "
        "pairs the same. Chosen on one half of the groups, counted on the other.",
    )
    @click.argument("pairs", type=_PATH)
    @click.option("--config", type=_PATH, required=True, help="File that names them.")
    @click.option(
        "-o",
        "--out",
        type=_PATH,
        default=Path("equivalence.yaml"),
        show_default=True,
        help="File to write: a fragment of a configuration.",
    )
    @click.option(
        "--bound",
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        default=0.05,
        show_default=True,
        help="Upper limit of the share of different pairs called the same.",
    )
    @click.option(
        "--seed",
        type=click.IntRange(min=0),
        default=7,
        show_default=True,
        help="Which groups go to which half.",
    )
    @click.option("--record", type=_PATH, help="Write all exchanges with the service to this file.")
    @click.option("--replay", type=_PATH, help="Answer from this file, which --record wrote.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    def calibrate(pairs: Path, *, as_json: bool, **said: Any) -> None:
        from guardmark.app.adapt.calibrating import CalibrationOptions
        from guardmark.app.adapt.calibrating import calibrate as carry_out

        found = carry_out(pairs, CalibrationOptions(**said))
        if as_json:
            click.echo(json.dumps(_as_json(found), ensure_ascii=False))
        else:
            click.echo("\n".join(_lines(found)))

    return calibrate


def _lines(found: Calibrated) -> Iterator[str]:
    from guardmark.reports.document.cells import rate_text
    from guardmark.reports.document.safe_text import clean

    choice, pairs = found.choice, found.pairs
    measured = len(pairs.pairs) - sum(found.missing.values())
    yield clean(f"{pairs.name}: {measured:,} of {len(pairs.pairs):,} pairs have a cosine")
    for kind, count in found.missing.items():
        yield f"  without one: {count:,} ({kind}); they count for nothing"
    yield f"  {'tau':<9}{'different, called the same':<34}equal, called the same"
    for row in choice.rows:
        mark = "  <- chosen" if row.is_chosen else ""
        false, true = rate_text(row.false_same), rate_text(row.true_same)
        yield f"  {row.tau:<9.4f}{false:<34}{true}{mark}"
    yield (
        f"tau {choice.tau:g}: on the choosing half {rate_text(choice.chosen_on)} of the different "
        f"pairs are called the same, its upper limit within {100 * choice.bound:g} %"
    )
    yield (
        "The counting half, of which the table tells, confirms it."
        if choice.is_confirmed
        else "Note: the upper limit of the counting half is above the bound; more pairs would tell."
    )
    yield clean(f"config    {found.path}")


def _as_json(found: Calibrated) -> dict[str, object]:
    from guardmark.reports.render.json.encoder import encode

    choice = found.choice
    return {
        "pairs": found.pairs.name,
        "sha256": found.pairs.sha256,
        "count": len(found.pairs.pairs),
        "missing": dict(found.missing),
        "bound": choice.bound,
        "tau": choice.tau,
        "chosen_on": encode(choice.chosen_on),
        "is_confirmed": choice.is_confirmed,
        "rows": encode(choice.rows),
        "config": str(found.path),
    }
