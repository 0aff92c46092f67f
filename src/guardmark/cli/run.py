"""`guardmark run`: measure defenses, or continue where it stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

_PATH = click.Path(path_type=Path)


_OPTIONS = (
    click.option("-o", "--out", type=_PATH, help="Folder of the run; default: under runs/."),
    click.option("--limit", type=click.IntRange(min=1), help="Take N samples, stratified."),
    click.option("--only", help="Only these defenses, by name, with commas."),
    click.option("--fresh", is_flag=True, help="Start anew instead of continuing."),
    click.option(
        "--retry-errors",
        is_flag=True,
        help="Ask again about what failed before; the earlier errors are kept in the records.",
    ),
    click.option("--offline", is_flag=True, help="Refuse every call to a service."),
    click.option(
        "--max-cost",
        type=click.FloatRange(min=0, min_open=True),
        help="Stop when this command has spent so much; a continued run counts anew.",
    ),
    click.option(
        "--max-errors", type=click.IntRange(min=0), help="Stop after more errors in this command."
    ),
    click.option(
        "--stop-when",
        multiple=True,
        metavar="RULE",
        help='End a defense once RULE is decided: "asr<0.1", "fpr<0.05", "asr+-0.05", '
        '"NAME.asr<0.1", "A!=B". May be given more than once.',
    ),
    click.option("--record", type=_PATH, help="Write all exchanges to this file."),
    click.option("--replay", type=_PATH, help="Answer all calls from this file."),
    click.option("--no-texts", is_flag=True, help="Leave prompt texts out of the reports."),
    click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON."),
)


def _options(function: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def command() -> click.Command:
    """Return the command."""

    @click.command(
        help="Measure the defenses of CONFIG. Without CONFIG: the built-in defenses on the "
        "built-in data, offline. The same command continues a run that was interrupted."
    )
    @click.argument("config", required=False, type=_PATH)
    @_options
    def run(
        config: Path | None,
        out: Path | None,
        limit: int | None,
        only: str | None,
        fresh: bool,
        retry_errors: bool,
        offline: bool,
        max_cost: float | None,
        max_errors: int | None,
        stop_when: tuple[str, ...],
        record: Path | None,
        replay: Path | None,
        no_texts: bool,
        as_json: bool,
    ) -> int:
        from guardmark.app.run.running import RunOptions
        from guardmark.cli.run_output import carry_out

        options = RunOptions(
            out=out,
            limit=limit,
            only=tuple(name.strip() for name in (only or "").split(",") if name.strip()),
            fresh=fresh,
            retry_errors=retry_errors,
            offline=offline,
            max_cost=max_cost,
            max_errors=max_errors,
            stop_when=stop_when,
            record=record,
            replay=replay,
        )
        return carry_out(config, options, texts=not no_texts, as_json=as_json)

    return run
