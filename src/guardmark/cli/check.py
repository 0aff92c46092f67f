"""`guardmark check`: what a run would do and cost, before it does."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from guardmark.cli.run_argument import OWN_CONFIG
from guardmark.cli.terminal import (
    echo,
    echo_json,
    echo_wrapped,
    level,
    tell_note,
)
from guardmark.core.errors import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.app.preflight import Checkup, Forecast, Probe, Span


_ASSUMPTIONS: Final = (
    "Costs assume 4 characters a token, and answers of 1 token up to max_tokens. "
    "Not counted: templates that a server puts around messages, calls repeated "
    "after a failure, and the few calls by which a run first looks at each "
    "service; the limits of a run count these, too."
)

_PATH = click.Path(path_type=Path)


def _own_config_if_none(
    context: click.Context, parameter: click.Parameter, configs: tuple[Path, ...]
) -> tuple[Path, ...]:
    """Take `bench.yaml` of this folder where no configuration is named."""
    if configs:
        return configs
    if not OWN_CONFIG.exists():
        raise click.MissingParameter(ctx=context, param=parameter)
    tell_note(f"Note: checking {OWN_CONFIG} of this folder.")
    return (OWN_CONFIG,)


@click.command(
    help=(
        "Check each CONFIG: settings, files, fields, sample sizes against the wanted "
        "margin, calls, time and cost. Nothing named: `bench.yaml` of this folder. Nothing is "
        "called unless --probe says so."
    )
)
@click.argument(
    "configs", nargs=-1, callback=_own_config_if_none, type=_PATH, metavar="[CONFIG]..."
)
@click.option("--probe", type=click.IntRange(min=1), help="Make N live calls to each service.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check_command(configs: tuple[Path, ...], probe: int | None, as_json: bool) -> None:
    """Check configurations, each as if it were alone."""
    from guardmark.app.preflight import check_config

    for config in configs:
        lines = _agent_lines(config)
        if lines:
            if as_json:
                echo_json(json.dumps(lines, indent=2, ensure_ascii=False))
            else:
                echo_wrapped(*lines)
            continue
        checkup = check_config(config, probes=probe or 0)
        if as_json:
            echo_json(json.dumps(asdict(checkup), indent=2, ensure_ascii=False))
            continue
        if len(configs) > 1:
            echo(f"{config}")
        if level() < 0:
            echo_wrapped(*_remarks(checkup))
        else:
            echo_wrapped(*_check_lines(checkup))


def _agent_lines(config: Path) -> list[str]:
    """Check a configuration of agents, and say what a run of it will do; nothing for others."""
    from guardmark.app.parts.loading import load_config

    loaded = load_config(config)
    if loaded.config.agent is None:
        return []
    from guardmark.app.agents.describing import check_agent_config

    return check_agent_config(loaded)


def _remarks(checkup: Checkup) -> list[str]:
    """Return what needs attention, or that all is fine."""
    remarks = [f"Note: {warning}" for warning in checkup.warnings]
    for probe in checkup.probes:
        remarks += [f"{probe.defense}: {message}" for message in probe.messages]
    return remarks or ["Settings: fine."]


def _check_lines(checkup: Checkup) -> Iterator[str]:
    """Tell all that was checked: data, sizes, calls and probes."""
    yield "Settings: fine."
    yield "Data"
    for manifest in checkup.data:
        line = f"  {', '.join(manifest.files)}: {counted(manifest.attacks, 'attack')}, "
        line += f"{manifest.benign:,} benign"
        taken = [f"{key} from {name}" for key, name in manifest.mapping.items() if key != name]
        if taken:
            line += f"  ({', '.join(taken)})"
        yield line
    for warning in checkup.warnings:
        yield f"  Note: {warning}"
    yield (
        f"Sizes against the wanted margin of ±{100 * checkup.margin:g} points "
        f"({checkup.needed:,} independent samples in the worst case)"
    )
    yield from _size_lines(checkup)
    yield "Calls"
    yield from forecast_lines(checkup.forecasts)
    for probe in checkup.probes:
        yield from _probe_lines(probe)


def _probe_lines(probe: Probe) -> Iterator[str]:
    """Tell what a defense answered when it was tried."""
    if probe.by_label:
        answers = [f"{label} -> {outcome}" for label, outcome in probe.by_label]
    else:
        answers = [f"{count} {outcome}" for outcome, count in probe.outcomes.items()]
    timed = ""
    if probe.median_ms is not None:
        timed = f", median {probe.median_ms:.1f} ms"
    yield f"  Probe of {probe.defense}: {', '.join(answers) or 'odd answers'}{timed}"
    of_attacks = [outcome for label, outcome in probe.by_label if label == "attack"]
    if of_attacks and set(of_attacks) == {"allow"}:
        yield (
            f"    It let {counted(len(of_attacks), 'known attack')} through: does it read what it "
            "is sent? --probe 20 asks more."
        )
    for message in probe.messages:
        yield f"    {message}"
    if probe.answer:
        yield f"    It said: {probe.answer}"


def forecast_lines(
    forecasts: Sequence[Forecast], *, hint: str = " (--probe N measures)"
) -> Iterator[str]:
    """Say what parts will take, a line each."""
    from guardmark.app.run.progress_line import duration

    for forecast in forecasts:
        if not forecast.calls.at_most:
            yield f"  {forecast.part}: in this process, no calls"
            continue
        time = f"time unknown{hint}"
        if forecast.seconds is not None:
            time = f"about {duration(forecast.seconds)}"
        cost = ""
        if forecast.cost:
            cost = f", {_span(forecast.cost, ',.2f')} at your prices"
        yield f"  {forecast.part}: {_span(forecast.calls, ',.0f')} calls, {time}{cost}"
    if any(forecast.cost for forecast in forecasts):
        yield f"  {_ASSUMPTIONS}"


def _span(span: Span, form: str) -> str:
    low = format(span.at_least, form)
    if span.at_most is None:
        return f"at least {low}"
    high = format(span.at_most, form)
    if low == high:
        return high
    return f"at least {low} and at most {high}"


def _category_lines(checkup: Checkup) -> Iterator[str]:
    """Say in one line how far categories by themselves will be known."""
    count, wide = 0, []
    for size in checkup.sizes:
        if size.subject in {"attacks", "benign"} or size.half_width is None:
            continue
        count += 1
        if size.half_width > checkup.margin:
            wide.append((size.half_width, size.subject))
    if not wide:
        return
    widest, name = max(wide)
    yield (
        f"  By themselves {len(wide)} of {count} categories are known less well, up to "
        f"±{100 * widest:.1f} points ({name}): add samples of them, or accept it (stats.margin)."
    )


def _size_lines(checkup: Checkup) -> Iterator[str]:
    """Tell how well rates will be known by the number of samples."""
    shown = [size for size in checkup.sizes if size.subject in {"attacks", "benign"}]
    width = max(len(size.subject) for size in shown)
    for size in shown:
        if size.half_width is None:
            why = "nothing is measured"
            if size.subject == "benign":
                why = "block-all looks perfect"
            yield f"  {size.subject:<{width}}  none: add some, else {why}; no rate of it is known"
            continue
        mark, groups = "wider than wanted", ""
        if size.enough:
            mark = "ok"
        if size.groups < size.samples:
            groups = f" in {size.groups:,} groups"
        points = f"±{100 * size.half_width:.1f} points at a rate of 50 %, {mark}"
        yield f"  {size.subject:<{width}}  {size.samples:>7,}{groups}: {points}"
    yield from _category_lines(checkup)
    if any(size.groups < size.samples for size in checkup.sizes):
        yield "  Samples of one group are not independent: the true intervals are wider."
