"""`guardmark gate`: does a run keep its limits? The exit code says so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from guardmark.cli.run_argument import RunPath
from guardmark.cli.terminal import (
    EXIT_NOT_SHOWN,
    drawn,
    echo,
    echo_drawn,
    echo_json,
    echo_text,
    level,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.gate import GateStatus
    from guardmark.app.results.gating import Gated


_PATH = click.Path(path_type=Path)


@click.command(
    help=(
        "Check RUN against limits. Exit code 0: every limit is held by its whole "
        "interval; 1: a limit is broken; 5: the data cannot decide, and about how "
        "many samples would."
    )
)
@click.argument("run", type=RunPath(), default="last")
@click.option("--policy", type=_PATH, help="YAML with the limits; default: those of the run.")
@click.option("--baseline", type=_PATH, help="Rates must not rise by more than regression_margin.")
@click.option(
    "--first",
    "is_first",
    is_flag=True,
    help="Nothing is out yet: regression_margin is not judged, and the answer says so.",
)
@click.option("--junit", type=_PATH, help="Write the checks as JUnit XML.")
@click.option(
    "--sarif",
    type=_PATH,
    help=(
        "Write the worst 50 bypasses and false alarms of the gated defenses as SARIF, for "
        "code scanning; texts stay in the run."
    ),
)
@click.option(
    "--since",
    metavar="RUN",
    type=_PATH,
    help="With --sarif: only what this run had not found. Default: that of --baseline.",
)
@click.option(
    "--config",
    type=_PATH,
    help="With --sarif: findings point at the line of their defense in this configuration.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--markdown", is_flag=True, help="Print Markdown, for a job summary.")
@click.option(
    "--public-key",
    metavar="FILE",
    type=_PATH,
    help=(
        "Public key of minisign: a run (and a baseline) that its holder did not sign is refused."
    ),
)
def gate_command(
    run: Path,
    policy: Path | None,
    baseline: Path | None,
    is_first: bool,
    junit: Path | None,
    sarif: Path | None,
    since: Path | None,
    config: Path | None,
    as_json: bool,
    markdown: bool,
    public_key: Path | None,
) -> int:
    """Check a run against limits."""
    from guardmark.app.results.findings import Shown
    from guardmark.app.results.gating import gate as check_gate
    from guardmark.reports.chapters.gate import conclusion, gate_document, reading_commands
    from guardmark.reports.render.json.documents import gate_json
    from guardmark.reports.render.markdown import render_markdown

    if public_key is not None:
        from guardmark.app.verify.sealed_files import require_signed

        require_signed(run, public_key)
        if baseline is not None:
            require_signed(baseline, public_key)
    if sarif is None and (since or config):
        raise click.UsageError("--since and --config say what --sarif writes: add --sarif FILE.")
    shown = None
    if sarif is not None:
        shown = Shown(since=since or baseline, config=config)
    gated = check_gate(run, policy=policy, baseline=baseline, is_first=is_first, shown=shown)
    if junit is not None:
        _write(_junit_of(gated), junit)
    if sarif is not None:
        _write(gated.sarif, sarif)
    document = gate_document(
        gated.result,
        run=gated.run,
        caveats=gated.caveats,
        says_method=markdown or level() > 0,
    )
    if as_json:
        output = gate_json(
            gated.result, run=gated.run, baseline=gated.baseline, caveats=gated.caveats
        )
        echo_json(output)
    elif markdown:
        echo_text(render_markdown(document, marker="guardmark-gate"))
    elif level() < 0:
        echo_drawn(conclusion(gated.result))
    else:
        echo_drawn(drawn(document))
        _tell_reading(reading_commands(gated.result, str(run)))
    return exit_code_of(gated.result.standing)


def _tell_reading(commands: Sequence[str]) -> None:
    """Name the commands that show what broke a limit, where one is broken."""
    if not commands:
        return
    echo("To read what broke them:")
    for command in commands:
        echo(f"  {command}")


def exit_code_of(standing: GateStatus) -> int:
    """Return the exit code that says how a gate stands: a gate that is open is not passed."""
    from guardmark.analysis.gate import GateStatus

    codes = {GateStatus.HELD: 0, GateStatus.BROKEN: 1, GateStatus.OPEN: EXIT_NOT_SHOWN}
    return codes[standing]


def _junit_of(gated: Gated) -> str:
    from guardmark.interchange.junit import gate_junit

    return gate_junit(gated.result, run=gated.run, created_utc=gated.created_utc, head=gated.head)


def _write(text: str, path: Path) -> None:
    """Write a file whole or not at all, but for what can only be written through."""
    from guardmark.store.file_errors import errors_of_files
    from guardmark.store.whole_files import whole_file

    # A pipe, a device, or a link such as /dev/stderr whose file was deleted: never to be replaced.
    if path.exists():
        is_written_through = not path.is_file()
    else:
        is_written_through = path.is_symlink()
    if is_written_through:
        with errors_of_files(path):
            path.write_text(text, encoding="utf-8")
        return
    with whole_file(path) as file:
        file.write(text.encode())
