"""Commands up to a run: `init`, `check`, `run`, `merge`, `matrix`."""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from guardmark.cli.terminal import (
    drawn,
    echo,
    echo_drawn,
    echo_json,
    echo_text,
    level,
    same_command,
    tell_interrupted,
    tell_line,
    tell_note,
    tell_output,
)
from guardmark.core.errors import BudgetReached, ConfigError, GuardmarkError, counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.preflight import Checkup, Forecast, Span
    from guardmark.app.results.reporting import RunOutput
    from guardmark.app.run.matrix import MatrixDone
    from guardmark.app.run.running import RunOptions


_PATH = click.Path(path_type=Path)
_OWN = Path("bench.yaml")  # what `guardmark init > bench.yaml` writes


def _read_shard(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    from guardmark.engine.shards import ShardSet

    try:
        return None if value is None else str(ShardSet.parse(value))
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from error


_EXIT_UNTRUSTWORTHY = 5
_TEMPLATE_FOLDER = Path(__file__).parents[1] / "app" / "templates"


@click.command()
@click.argument("config", required=False, type=_PATH)
@click.option("-o", "--out", type=_PATH)
@click.option("--limit", type=click.IntRange(min=1))
@click.option("--defense", "defenses", multiple=True, metavar="NAME")
@click.option("--url", metavar="URL")
@click.option("--body", default="{text: {$input: text}}")
@click.option("--blocked", metavar="JSONPATH")
@click.option("--score", metavar="JSONPATH")
@click.option("--header", "headers", multiple=True, metavar="NAME=VARIABLE")
@click.option("--only")
@click.option("--shard", metavar="K/N", callback=_read_shard)
@click.option("--fresh", is_flag=True)
@click.option("--failed", "--retry-errors", "retry_errors", is_flag=True)
@click.option("--repeat-guards", is_flag=True)
@click.option("--offline", is_flag=True)
@click.option("--max-cost", type=click.FloatRange(min=0, min_open=True))
@click.option("--max-errors", type=click.IntRange(min=0))
@click.option("--stop-when", multiple=True, metavar="RULE")
@click.option("--record", type=_PATH)
@click.option("--replay", type=_PATH)
@click.option("--no-texts", is_flag=True)
@click.option("--open", "is_opened", is_flag=True)
@click.option("--json", "as_json", is_flag=True)
def run_command(
    config: Path | None,
    *,
    defenses: tuple[str, ...],
    only: str | None,
    no_texts: bool,
    is_opened: bool,
    as_json: bool,
    **typed: Any,
) -> int:
    """Measure defenses."""
    from guardmark.app.parts.loading import builtin_config, load_config
    from guardmark.app.run.running import RunOptions

    above = click.get_current_context().parent
    is_demo = above is not None and above.info_name == "demo"
    if config is None and not (is_demo or defenses or typed["url"]) and _OWN.exists():
        config = _OWN
        tell_note(f"Note: measuring {_OWN} of this folder.")
    service = {name: typed.pop(name) for name in ("url", "body", "blocked", "score", "headers")}
    if service["url"] and not (service["blocked"] or service["score"]):
        service["blocked"] = _USUAL_BLOCKED  # where it is not, the answer is quoted with its paths
    if config is not None and (defenses or service["url"]):
        raise click.UsageError(
            f"{config} names its own defenses: leave out --defense and --url, or take some of them "
            "by --only."
        )
    if not service["url"] and (service["blocked"] or service["score"] or service["headers"]):
        raise click.UsageError("--blocked, --score and --header describe a service: add --url.")
    names = tuple(name.strip() for name in (only or "").split(",") if name.strip())
    options = RunOptions(only=names, **typed)
    with _in_options():
        if config is not None:
            loaded = load_config(config)
        else:
            loaded = builtin_config(defenses, service=service if service["url"] else None)
        return _carry_out(loaded, options, texts=not no_texts, as_json=as_json, is_opened=is_opened)


_USUAL_BLOCKED: Final = "$.blocked"
_OPTION_OF: Final = {
    "url": "--url",
    "body": "--body",
    "blocked": "--blocked",
    "score": "--score",
    "headers": "--header",
}
"""Settings of the service that options describe, and those options."""
_OF_SERVICE: Final = re.compile(
    r"the options: defenses\.service(?:\.(?P<setting>\w+))?(?:\.\w+)*:? ?"
)


@contextmanager
def _in_options() -> Iterator[None]:
    """Name options in errors about a service that options describe: no file holds its settings."""
    try:
        yield
    except GuardmarkError as error:
        text = _OF_SERVICE.sub(
            lambda found: f"{_OPTION_OF.get(found['setting'] or '', 'The service')}: ", str(error)
        )
        error.args = (text,)
        raise


def _carry_out(
    loaded: LoadedConfig, options: RunOptions, *, texts: bool, as_json: bool, is_opened: bool
) -> int:
    """Run, write the reports and print what came out."""
    from guardmark.app.measuring import measure
    from guardmark.app.run.progress_line import ProgressLine
    from guardmark.app.run.running import Session
    from guardmark.cli.crash import crash_listener
    from guardmark.cli.interrupts import interruptible
    from guardmark.core.errors import UntrustworthyRun
    from guardmark.engine.runner import Ending

    session = Session(announce=tell_note)
    line = ProgressLine(session.progress, quiet=level() < 0)
    try:
        # Here alone: what a command reads in somebody's folder never starts a process.
        with interruptible(session.stop), crash_listener(), line:
            result = measure(loaded, options, session)
    except (BudgetReached, UntrustworthyRun) as error:
        tell_line(*str(error).split("\n"), f"To continue: {same_command()}")
        return error.exit_code
    for warning in result.warnings:
        tell_note(f"Note: {warning}")
    if result.summary.ending is Ending.INTERRUPTED:
        counts = f"{result.summary.stored:,} of {result.summary.planned:,}"
        return tell_interrupted(f" {counts} records are stored in {result.folder.path}.")
    if result.summary.ending is Ending.EARLY:
        tell_line(f"Stopped early: {result.summary.reason}")
    if not result.summary.planned and (options.shard or loaded.config.run.shard):
        tell_line("No group of the data falls into this shard: there is nothing to report.")
        return 0
    from guardmark.engine.execution.process import load_numpy_for_reports

    load_numpy_for_reports()
    from guardmark.app.results.reporting import finish  # numpy and the report: needed only now

    formats = loaded.config.report
    finished = finish(result.folder, loaded.config, formats=formats, texts=texts)
    code = _tell(finished, as_json=as_json)
    if is_opened:
        click.launch(str(result.folder.report_html))
    return code


def _tell(finished: RunOutput, *, as_json: bool) -> int:
    """Print what a run has to say, and return the exit code."""
    tell_output(finished, as_json=as_json)
    if not as_json and level() >= 0:
        if finished.head:
            echo(f"{'head':<10}{finished.head}")
        echo_drawn(drawn(finished.gate) if finished.gate else "")
    for complaint in finished.complaints:
        tell_line(*complaint.splitlines())
    return _EXIT_UNTRUSTWORTHY if finished.complaints else finished.gate_exit


@click.command()
@click.option("-o", "--out", type=_PATH)
@click.option("--agent", "is_agent", is_flag=True)
@click.option("--open", "is_opened", is_flag=True)
@click.pass_context
def demo_command(context: click.Context, /, *, is_agent: bool, **options: Any) -> int:
    """Show a first measurement."""
    from guardmark.cli.commands import read_words

    if is_agent:
        options["config"] = _TEMPLATE_FOLDER / "agent-demo.yaml"
    code: int = context.invoke(run_command, **options)
    if code == 0 and level() >= 0:
        echo("", *read_words("sentences")["demo_agent" if is_agent else "demo"]["after"])
    return code


@click.command()
@click.argument("runs", nargs=-1, required=True, type=_PATH)
@click.option("-o", "--out", type=_PATH, required=True)
@click.option("--allow-missing", is_flag=True)
@click.option("--json", "as_json", is_flag=True)
def merge_command(runs: tuple[Path, ...], out: Path, *, allow_missing: bool, as_json: bool) -> int:
    """Merge runs."""
    from guardmark.app.run.importing import merge_runs
    from guardmark.app.run.running import Session

    merged = merge_runs(runs, out, now=Session().now, allow_missing=allow_missing)
    stored = merged.analysis.status.stored
    tell_line(f"Merged {counted(len(runs), 'run')} with {counted(stored, 'record')} into {out}")
    return _tell(merged, as_json=as_json)


_TEMPLATES = click.Choice(
    (
        *("http", "openai", "hf", "pipeline", "python", "command-python", "command-node"),
        *("alt-profanity-check", "any-guardrail", "bad-words", "better-profanity", "guardrails-ai"),
        *("llamafirewall", "llm-guard", "nemoguardrails", "obscenity", "openai-guardrails"),
        *("presidio", "vard", "yara"),
    )
)


@click.command()
@click.option("--template", type=_TEMPLATES)
@click.option("-o", "--out", type=_PATH)
def init_command(template: str | None, out: Path | None) -> None:
    """Print a configuration to start from."""
    if template is None:
        template = "python"
        if sys.stdin.isatty() and sys.stdout.isatty():
            template = click.prompt("What is to be measured?", default=template, type=_TEMPLATES)
    folder = Path(__file__).parents[1] / "app" / "templates"
    text = (folder / f"{template}.yaml").read_text(encoding="utf-8")
    if out is not None:
        _write_new(out, text)
    for worker in (folder / template).glob("*.template"):
        beside = (out.parent if out else Path()) / worker.stem
        if template == "python" and beside.exists():
            continue  # The function that is to be measured, written already.
        _write_new(beside, worker.read_text(encoding="utf-8"))
        tell_line(f"Wrote {beside}: ask your guard in its function check.")
    if out is None:
        echo_text(text)
    else:
        tell_line(f"Wrote {out}.", f"Next: edit it, then guardmark check {out}")


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}.\nNext: name another file."
        ) from error


@click.command()
@click.argument("configs", nargs=-1, required=True, type=_PATH, metavar="CONFIG...")
@click.option("--probe", type=click.IntRange(min=1))
@click.option("--json", "as_json", is_flag=True)
def check_command(configs: tuple[Path, ...], probe: int | None, as_json: bool) -> None:
    """Check configurations, each as if it were alone."""
    from guardmark.app.preflight import check_config

    for config in configs:
        lines = _agent_lines(config)
        if lines:
            if as_json:
                echo_json(json.dumps(lines, indent=2, ensure_ascii=False))
            else:
                echo(*lines)
            continue
        checkup = check_config(config, probes=probe or 0)
        if as_json:
            echo_json(json.dumps(asdict(checkup), indent=2, ensure_ascii=False))
            continue
        if len(configs) > 1:
            echo(f"{config}")
        echo(*_check_lines(checkup))


def _agent_lines(config: Path) -> list[str]:
    """Check a configuration of agents, and say what a run of it will do; nothing for others."""
    from guardmark.app.parts.loading import load_config

    loaded = load_config(config)
    if loaded.config.agent is None:
        return []
    from guardmark.app.agents.describing import check_agent_config

    return check_agent_config(loaded)


def _check_lines(checkup: Checkup) -> Iterator[str]:
    yield "Settings: fine."
    yield "Data"
    for manifest in checkup.data:
        taken = ", ".join(f"{k} from {v}" for k, v in manifest.mapping.items() if k != v)
        counts = f"{counted(manifest.attacks, 'attack')}, {manifest.benign:,} benign"
        yield f"  {', '.join(manifest.files)}: {counts}{f'  ({taken})' if taken else ''}"
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
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in probe.outcomes.items())
        timed = f", median {probe.median_ms:.1f} ms" if probe.median_ms is not None else ""
        yield f"  Probe of {probe.defense}: {outcomes or 'odd answers'}{timed}"
        yield from (f"    {message}" for message in probe.messages)
        yield from [f"    It said: {probe.answer}"] if probe.answer else []


def forecast_lines(
    forecasts: Sequence[Forecast], *, hint: str = " (--probe N measures)"
) -> Iterator[str]:
    """Say what parts will take, a line each."""
    from guardmark.app.run.progress_line import duration
    from guardmark.cli.commands import read_words

    for forecast in forecasts:
        if not forecast.calls.at_most:
            yield f"  {forecast.part}: in this process, no calls"
            continue
        time = f"time unknown{hint}"
        if forecast.seconds is not None:
            time = f"about {duration(forecast.seconds)}"
        cost = f", {_span(forecast.cost, ',.2f')} at your prices" if forecast.cost else ""
        yield f"  {forecast.part}: {_span(forecast.calls, ',.0f')} calls, {time}{cost}"
    if any(forecast.cost for forecast in forecasts):
        yield f"  {read_words('sentences')['check']['assumptions']}"


def _span(span: Span, form: str) -> str:
    low = format(span.at_least, form)
    if span.at_most is None:
        return f"at least {low}"
    high = format(span.at_most, form)
    return high if low == high else f"at least {low} and at most {high}"


def _size_lines(checkup: Checkup) -> Iterator[str]:
    width = max(len(size.subject) for size in checkup.sizes)
    for size in checkup.sizes:
        if size.half_width is None:
            why = "block-all looks perfect" if size.subject == "benign" else "nothing is measured"
            yield f"  {size.subject:<{width}}  none: add some, else {why}; no rate of it is known"
            continue
        mark = "ok" if size.enough else "wider than wanted"
        groups = f" in {size.groups:,} groups" if size.groups < size.samples else ""
        points = f"±{100 * size.half_width:.1f} points at a rate of 50 %, {mark}"
        yield f"  {size.subject:<{width}}  {size.samples:>7,}{groups}: {points}"
    if any(size.groups < size.samples for size in checkup.sizes):
        yield "  Samples of one group are not independent: the true intervals are wider."


@click.command()
@click.argument("matrix", type=_PATH)
@click.option("-o", "--out", type=_PATH, required=True)
@click.option("--limit", type=click.IntRange(min=1))
@click.option("--offline", is_flag=True)
@click.option("--json", "as_json", is_flag=True)
def matrix_command(matrix: Path, out: Path, limit: int | None, offline: bool, as_json: bool) -> int:
    """Run several configurations."""
    done = _carry_out_matrix(matrix, out, limit=limit, offline=offline)
    name = "manifest.json" if as_json else "matrix_report.md"
    text = done.folder.file(name).read_text(encoding="utf-8")
    (echo_json if as_json else echo_text)(text)
    if done.is_interrupted:
        return tell_interrupted()
    if done.is_over_budget:
        return BudgetReached.exit_code
    return 0 if all(line.status == "success" for line in done.lines) else _EXIT_UNTRUSTWORTHY


def _carry_out_matrix(path: Path, out: Path, *, limit: int | None, offline: bool) -> MatrixDone:
    from guardmark.app.run.matrix import run_matrix
    from guardmark.app.run.running import RunOptions, Session
    from guardmark.cli.interrupts import interruptible
    from guardmark.engine.supervision import StopSignal

    stop, options = StopSignal(), RunOptions(limit=limit, offline=offline)
    with interruptible(stop):
        # Every row has a clock and counters of its own.
        session = partial(Session, stop=stop, announce=tell_line)
        return run_matrix(path, out, session=session, options=options)
