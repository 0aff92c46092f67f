"""`guardmark check`: what a configuration will do, before anything is spent."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.app.preflight.checkup import Checkup


def command() -> click.Command:
    """Return the command."""

    @click.command(
        help="Check CONFIG: settings, files, fields, sample sizes against the wanted margin, "
        "calls, time and cost. Nothing is called unless --probe says so."
    )
    @click.argument("config", type=click.Path(path_type=Path))
    @click.option("--probe", type=click.IntRange(min=1), help="Make N live calls to each service.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    def check(config: Path, probe: int | None, as_json: bool) -> None:
        from guardmark.app.preflight.checking import check_config
        from guardmark.reports.document.safe_text import clean

        checkup = check_config(config, probes=probe or 0)
        if as_json:
            click.echo(json.dumps(asdict(checkup), indent=2, ensure_ascii=False))
        else:
            click.echo(clean("\n".join(_lines(checkup))))

    return check


def _lines(checkup: Checkup) -> Iterator[str]:
    yield "Settings: fine."
    yield "Data"
    for manifest in checkup.data:
        taken = ", ".join(f"{k} from {v}" for k, v in manifest.mapping.items() if k != v)
        counts = f"{manifest.attacks:,} attacks, {manifest.benign:,} benign"
        yield f"  {', '.join(manifest.files)}: {counts}{f'  ({taken})' if taken else ''}"
    for warning in checkup.warnings:
        yield f"  Note: {warning}"
    yield (
        f"Sizes against the wanted margin of ±{100 * checkup.margin:g} points "
        f"({checkup.needed:,} independent samples in the worst case)"
    )
    yield from _size_lines(checkup)
    yield "Calls"
    for forecast in checkup.forecasts:
        if not forecast.calls:
            yield f"  {forecast.defense}: in this process, no calls"
            continue
        time = "time unknown (--probe N measures)"
        if forecast.seconds is not None:
            time = f"about {_duration(forecast.seconds)}"
        cost = f", about {forecast.cost:,.2f} at your prices" if forecast.cost is not None else ""
        yield f"  {forecast.defense}: {forecast.calls:,} calls, {time}{cost}"
    for probe in checkup.probes:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in probe.outcomes.items())
        timed = f", median {probe.median_ms:.1f} ms" if probe.median_ms is not None else ""
        yield f"  Probe of {probe.defense}: {outcomes}{timed}"
        yield from (f"    {message}" for message in probe.messages)


def _size_lines(checkup: Checkup) -> Iterator[str]:
    width = max(len(size.subject) for size in checkup.sizes)
    for size in checkup.sizes:
        if size.half_width is None:
            yield f"  {size.subject:<{width}}  none: every rate of this side will be undefined"
            continue
        mark = "ok" if size.enough else "wider than wanted"
        groups = f" in {size.groups:,} groups" if size.groups < size.samples else ""
        yield (
            f"  {size.subject:<{width}}  {size.samples:>7,}{groups}: "
            f"±{100 * size.half_width:.1f} points at a rate of 50 %, {mark}"
        )
    if any(size.groups < size.samples for size in checkup.sizes):
        yield "  Samples of one group are not independent: the true intervals are wider."


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
