"""`guardmark run` and `guardmark demo`: measure defenses."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from guardmark.cli.run_argument import OWN_CONFIG
from guardmark.cli.terminal import (
    EXIT_NOT_SHOWN,
    drawn,
    echo,
    echo_drawn,
    level,
    same_command,
    tell_interrupted,
    tell_line,
    tell_note,
    tell_output,
)
from guardmark.core.errors import BudgetReached, GuardmarkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.results.reporting import RunOutput
    from guardmark.app.run.running import RunOptions


_AFTER_DEMO: Final = """\
ASR is the share of attacks that got through, FPR the share of benign inputs blocked. Brackets are
95 % intervals. allow-all, block-all and coin are baselines: the floor, the ceiling, plain chance.
Open the report above in a browser. These defenses are examples: none is good enough to use.
To measure your own:
  guardmark init > bench.yaml    write a configuration, and my_guard.py for your guard
  guardmark check bench.yaml     read it, and say how precise the figures can be
  guardmark run bench.yaml       measure"""

_AFTER_AGENT_DEMO: Final = """\
Attack success is the share of attacks whose injected order was carried out, utility the share of
tasks that got done. Brackets are 95 % intervals. The agent is scripted and obeys every order that
it reads, so what is stopped is the guards' own merit. Open the report above in a browser.
To measure your own guard of tool calls or results:
  docs/tutorial/measure-an-agent-guard.md, ten minutes, no key"""

_PATH = click.Path(path_type=Path)


def _read_shard(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    from guardmark.engine.shards import ShardSet

    try:
        if value is None:
            return None
        return str(ShardSet.parse(value))
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from error


_TEMPLATE_FOLDER = Path(__file__).parents[1] / "app" / "templates"


@click.command(
    help=(
        "Measure the defenses of CONFIG. Without CONFIG: `bench.yaml` of this "
        "folder, or else the built-in defenses on the built-in data, offline. The "
        "same command continues a run that was interrupted; a complete one is "
        "reported again, and nothing is asked."
    )
)
@click.argument("config", required=False, type=_PATH)
@click.option("-o", "--out", type=_PATH, help="Folder of the run; default: under runs/.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=(
        "Take only N samples, with each label and category in its share: a first "
        "look, and reports say so."
    ),
)
@click.option(
    "--defense",
    "defenses",
    multiple=True,
    metavar="NAME",
    help=(
        "Without CONFIG: measure this profile (`guardmark plugins --profiles`) or "
        "built-in defense on the built-in data. May be given more than once."
    ),
)
@click.option("--url", metavar="URL", help="Without CONFIG: measure the service at this address.")
@click.option(
    "--body",
    default="{text: {$input: text}}",
    help=(
        "With --url: what is sent, as JSON; {$input: text} marks where the text "
        "goes. [default: '{text: {$input: text}}']"
    ),
)
@click.option(
    "--blocked",
    metavar="JSONPATH",
    help=(
        "With --url: JSONPath to the value that is true when the text was blocked; "
        "$.blocked if neither this nor --score is given."
    ),
)
@click.option(
    "--score", metavar="JSONPATH", help="With --url: JSONPath to the risk score, from 0 to 1."
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VARIABLE",
    help=(
        "With --url: a header, such as a key, whose value is read from this environment variable."
    ),
)
@click.option("--only", help="Only these defenses, separated by commas.")
@click.option(
    "--shard",
    metavar="K/N",
    callback=_read_shard,
    help=(
        "Measure only part K of N of the data, whole groups by a hash; `guardmark "
        "merge` joins the N runs."
    ),
)
@click.option("--fresh", is_flag=True, help="Start from scratch instead of continuing.")
@click.option(
    "--failed",
    "--retry-errors",
    "retry_errors",
    is_flag=True,
    help=(
        "Ask again what failed before, and nothing else; the earlier errors are kept "
        "in the records."
    ),
)
@click.option(
    "--repeat-guards",
    is_flag=True,
    help=(
        "Ask every guard in each repeat; without it one whose answer cannot differ "
        "(temperature 0, or named in pipeline.deterministic) is asked once for all "
        "repeats."
    ),
)
@click.option("--offline", is_flag=True, help="Refuse every call to a service.")
@click.option(
    "--max-cost",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop when this command has spent this much; a continued run starts at 0.",
)
@click.option(
    "--max-errors",
    type=click.IntRange(min=0),
    help="Stop when this command has had more errors than this.",
)
@click.option(
    "--stop-when",
    multiple=True,
    metavar="RULE",
    help=(
        'Stop measuring a defense once RULE is decided: "asr<0.1", "fpr<0.05", '
        '"asr+-0.05", "NAME.asr<0.1", "A!=B". May be given more than once.'
    ),
)
@click.option("--record", type=_PATH, help="Write all exchanges with services to this file.")
@click.option("--replay", type=_PATH, help="Answer all calls from a file that --record wrote.")
@click.option("--no-texts", is_flag=True, help="Leave prompt texts out of the reports.")
@click.option("--open", "is_opened", is_flag=True, help="Open the report in a browser.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
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
    if config is None and not (is_demo or defenses or typed["url"]) and OWN_CONFIG.exists():
        config = OWN_CONFIG
        tell_note(f"Note: measuring {OWN_CONFIG} of this folder.")
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
        elif service["url"]:
            loaded = builtin_config(defenses, service=service)
        else:
            loaded = builtin_config(defenses)
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

_QUOTED_PATH: Final = re.compile(r"(true or false|a number in \[0, 1\]): (\$[^;)\s]+)")


def _paths_to_name(lines: Sequence[str]) -> Iterator[str]:
    """Say with which options an answer that was quoted can be read; else what was said."""
    paths = dict(_QUOTED_PATH.findall("\n".join(lines)))
    options = []
    if "true or false" in paths:
        options.append(f"--blocked '{paths['true or false']}'")
    if "a number in [0, 1]" in paths:
        options.append(f"--score '{paths['a number in [0, 1]']}'")
    if options:
        yield f"Next: {' '.join(options)}"
    else:
        yield lines[-1]


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
    from guardmark.app.parts.loading import OPTIONS
    from guardmark.app.run.progress_line import ProgressLine
    from guardmark.app.run.running import Session
    from guardmark.cli.crash import crash_listener
    from guardmark.cli.interrupts import interruptible
    from guardmark.core.errors import UntrustworthyRun
    from guardmark.engine.execution.process import load_numpy_for_reports
    from guardmark.engine.runner import Ending

    session = Session(announce=tell_note, after_calls=load_numpy_for_reports)
    line = ProgressLine(session.progress, quiet=level() < 0, meter=session.meter)
    try:
        # Here alone: what a command reads in somebody's folder never starts a process.
        with interruptible(session.stop), crash_listener(), line:
            result = measure(loaded, options, session)
    except (BudgetReached, UntrustworthyRun) as error:
        lines = str(error).split("\n")
        if loaded.source.shown_as == OPTIONS:
            lines = [*lines[:-1], *_paths_to_name(lines)]
        tell_line(*lines, f"To continue: {same_command()}")
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
    load_numpy_for_reports()
    from guardmark.app.results.reporting import finish  # numpy and the report: needed only now

    formats = loaded.config.report
    finished = finish(result.folder, loaded.config, formats=formats, texts=texts)
    code = tell_run(finished, as_json=as_json)
    if is_opened:
        click.launch(str(result.folder.report_html))
    return code


def tell_run(finished: RunOutput, *, as_json: bool) -> int:
    """Print what a run has to say, and return the exit code."""
    tell_output(finished, as_json=as_json)
    if not as_json and level() >= 0:
        if finished.head:
            echo(f"{'head':<10}{finished.head}  (note it: guardmark verify --expect)")
        if finished.gate:
            echo_drawn(drawn(finished.gate))
    for complaint in finished.complaints:
        tell_line(*complaint.splitlines())
    if finished.complaints:
        return EXIT_NOT_SHOWN
    if finished.gate_standing is None:
        return 0
    from guardmark.cli.gate import exit_code_of  # on use: many runs set no limit

    return exit_code_of(finished.gate_standing)


@click.command(
    help=("Measure the built-in defenses on the built-in data, offline, and say what to do next.")
)
@click.option("-o", "--out", type=_PATH, help="Folder of the run; default: under runs/.")
@click.option(
    "--agent",
    "is_agent",
    is_flag=True,
    help=("Measure two example guards of an agent's tools instead, on the built-in suite errands."),
)
@click.option("--open", "is_opened", is_flag=True, help="Open the report in a browser.")
@click.pass_context
def demo_command(context: click.Context, /, *, is_agent: bool, **options: Any) -> int:
    """Show a first measurement."""
    if is_agent:
        options["config"] = _TEMPLATE_FOLDER / "agent-demo.yaml"
    code: int = context.invoke(run_command, **options)
    if code == 0 and level() >= 0:
        next_steps = _AFTER_DEMO
        if is_agent:
            next_steps = _AFTER_AGENT_DEMO
        echo("", *next_steps.splitlines())
    return code
