"""The command `watch`: a stream of decisions as a table, and an exit code for broken limits."""

from __future__ import annotations

import json
import re
import signal
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from guardmark.cli.terminal import echo, echo_json, tell_line, tell_note

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.app.results.watching import LiveView

_LINES: Final = {
    "contradicted": "with another decision about an id (the first counts)",
    "relabelled": "with another label (the last counts)",
    "waiting": "labels without a decision",
}
_UNEVEN: Final = (
    "What is labelled differs between blocked and allowed: fpr and asr are not "
    "those of the traffic, and break no limit."
)

_LONGEST_LINE: Final = 1 << 20  # bytes; of what is longer the start is kept, and cannot be read


def _read_limits(_context: Any, _option: Any, words: Sequence[str]) -> dict[str, float]:
    """Read limits such as `fpr<=0.02`, by the name of the rate."""
    from guardmark.analysis.live import RATES

    limits = {}
    for word in words:
        written = re.fullmatch(r"([a-z]+)<=(0?\.[0-9]+)", "".join(word.split()))
        if written is None or written[1] not in RATES:
            raise click.BadParameter(f"{word!r} is not like 'fpr<=0.02'; of {', '.join(RATES)}.")
        limits[written[1]] = float(written[2])
    return limits


@click.command(
    help=(
        "Count a stream of decisions (FILE, or - for stdin), JSON lines with `id`, "
        "`defense`, `outcome` and, in the same line or in a later one of that id, "
        "`label`. Intervals hold at every look."
    )
)
@click.argument("file", type=click.File("rb"), required=False)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="RATE<=X",
    callback=_read_limits,
    help=(
        "A limit of every defense: fpr, asr, blocked, malformed or errors. May be "
        "given more than once."
    ),
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="A run over earlier traffic, to show drift against.",
)
@click.option(
    "--webhook",
    default="",
    metavar="NAME",
    help=(
        "The environment variable that holds an address to which a broken limit is "
        "posted. Without it a stream ends at the first one."
    ),
)
@click.option(
    "--every",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Of a stream, print a table after so many lines.",
)
@click.option(
    "--otel",
    is_flag=True,
    help=(
        "FILE holds requests of OpenTelemetry (OTLP as JSON, one a line): spans of guards are read."
    ),
)
@click.option(
    "--listen",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help=(
        "Take spans over OTLP/HTTP (JSON; protobuf with the extra otel) at this port "
        "of 127.0.0.1 (0: a free one), until Ctrl-C or a broken limit."
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def watch_command(
    file: IO[bytes] | None,
    *,
    limits: dict[str, float],
    every: int,
    otel: bool,
    listen: int | None,
    as_json: bool,
    **typed: Any,
) -> int:
    """Watch live traffic."""
    from guardmark.app.results.watching import Watch

    if (file is None) == (listen is None):
        raise click.UsageError("Name a FILE (- for stdin), or a port with --listen.")
    watch = Watch(limits, announce=tell_line, **typed)
    is_stream = file is None or file.name == "<stdin>"
    if file is None:
        lines = _collected(listen or 0)
    else:
        lines = _read_lines(file)
    if otel or file is None:
        from guardmark.interchange.otel import decision_lines

        lines = chain.from_iterable(map(decision_lines, lines))
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            for number, line in enumerate(lines, 1):
                watch.take(line)
                if is_stream and watch.broken and not typed["webhook"]:
                    break
                if is_stream and number % every == 0:
                    _tell(watch.look(), as_json=as_json)
    finally:
        signal.signal(signal.SIGTERM, before)
    _tell(watch.look(), as_json=as_json)
    return int(bool(watch.broken))


def _collected(port: int) -> Iterator[bytes]:
    """Listen on loopback, and yield the requests that come."""
    from guardmark.net.otlp import Collector

    collector = Collector(port)
    tell_note(f"Taking spans at {collector.address}")
    try:
        yield from collector
    finally:
        collector.close()


def _read_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield lines that are not empty; of one that is too long its beginning."""
    for line in iter(partial(file.readline, _LONGEST_LINE), b""):
        piece = line
        while len(piece) == _LONGEST_LINE and not piece.endswith(b"\n"):
            piece = file.readline(_LONGEST_LINE)
        if line.strip():
            yield line


def _tell(view: LiveView, *, as_json: bool) -> None:
    from guardmark.reports.render.json.encoder import encode

    if as_json:
        echo_json(json.dumps(encode(view)))
    else:
        echo(*_lines(view), "")


def _lines(view: LiveView) -> Iterator[str]:
    """Tell what was counted by now, and which limits are broken."""
    from guardmark.reports.document.cells import figure_text, rate_text

    for each in view.defenses:
        blocked, allowed = map(rate_text, each.audited.values())
        yield f"{each.defense}: labelled are {blocked} of what it blocked, {allowed} of the rest"
        if not each.is_audit_even:
            yield f"  {_UNEVEN}"
        for rate in each.rates:
            line = f"  {rate.name:<9}  {rate_text(rate.live)}"
            if rate.reference:
                line += f"; {figure_text(rate.reference)} in the run: "
                if not rate.is_drift_shown:
                    line += "no "
                line += "drift shown"
            if rate.limit is not None:
                line += f"; limit {100 * rate.limit:g} %"
            yield line
    for broken in view.broken:
        limit = f"{100 * (broken.limit or 0.0):g} %"
        shown = f"shown after {broken.after_lines:,} lines: {rate_text(broken.live)}"
        yield f"BROKEN {broken.defense}: {broken.name} above {limit}, {shown}"
    counts = [f"{count:,} {_LINES.get(kind, kind)}" for kind, count in view.lines.items() if count]
    yield "; ".join(counts) or "No line was read."
