"""`guardmark attacks calibrate`: a threshold of sameness, chosen on labelled pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guardmark.cli.terminal import echo, echo_json

if TYPE_CHECKING:
    from guardmark.app.adapt.calibrating import Calibrated


_PATH = click.Path(path_type=Path)

_NUMBER = click.IntRange(min=0)


@click.command(
    "calibrate",
    help=(
        "Embed the labelled PAIRS (JSONL: a, b, same, group) with "
        "adaptive.equivalence of the configuration, and choose the smallest tau that "
        "can be shown to call few different pairs the same. Chosen on one half of "
        "the groups, counted on the other."
    ),
)
@click.argument("pairs", type=_PATH)
@click.option(
    "--config",
    type=_PATH,
    required=True,
    help="Configuration that names the embeddings, in adaptive.equivalence.",
)
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
    help="Largest share of different pairs that may be called the same.",
)
@click.option(
    "--seed", type=_NUMBER, default=7, show_default=True, help="Seed of the split into two halves."
)
@click.option("--record", type=_PATH, help="Write all exchanges with the service to this file.")
@click.option("--replay", type=_PATH, help="Answer from this file, which --record wrote.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def calibrate_command(pairs: Path, *, as_json: bool, **options: Any) -> None:
    """Calibrate embeddings."""
    from guardmark.app.adapt.calibrating import CalibrationOptions
    from guardmark.app.adapt.calibrating import calibrate as carry_out

    calibrated = carry_out(pairs, CalibrationOptions(**options))
    if as_json:
        echo_json(json.dumps(_calibrated_json(calibrated), ensure_ascii=False))
    else:
        from guardmark.reports.chapters.adaptive.models import calibration_lines

        source, count = calibrated.pairs.name, len(calibrated.pairs.pairs)
        missing = calibrated.missing
        echo(*calibration_lines(calibrated.choice, source, pairs=count, missing=missing))
        echo(f"config    {calibrated.path}")


def _calibrated_json(calibrated: Calibrated) -> dict[str, object]:
    from guardmark.reports.render.json.encoder import encode

    choice = calibrated.choice
    return {
        "pairs": calibrated.pairs.name,
        "sha256": calibrated.pairs.sha256,
        "count": len(calibrated.pairs.pairs),
        "missing": dict(calibrated.missing),
        "bound": choice.bound,
        "tau": choice.tau,
        "chosen_on": encode(choice.chosen_on),
        "is_confirmed": choice.is_confirmed,
        "rows": encode(choice.rows),
        "config": str(calibrated.path),
    }
