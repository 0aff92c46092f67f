"""`guardmark adapt`: does the defense hold against someone who watches it?"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from guardmark.cli.run_argument import OWN_CONFIG
from guardmark.cli.terminal import (
    EXIT_INTERRUPTED,
    INTERRUPTED,
    drawn,
    echo,
    echo_drawn,
    echo_json,
    level,
    same_command,
    tell_line,
    tell_note,
)
from guardmark.core.errors import ConfigError
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.run import RunAnalysis
    from guardmark.app.adapt.adapting import Adapted, AdaptOptions
    from guardmark.app.adapt.forecast import AttackForecast
    from guardmark.app.adapt.subject import TrustList
    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.core.sample import Sample
    from guardmark.engine.plan import BuiltPart
    from guardmark.reports.chapters.adaptive.summary import TrickExample
    from guardmark.store.run_dir import RunDir

_REPAIR = "repair.yaml"  # in the folder of the run
_Files = tuple[tuple[str, Path], ...]
_PATH = click.Path(path_type=Path)
_WHOLE_LINES = 10_000  # columns of what is searched line by line


@click.command(
    help=(
        "Attack the defenses of a finished RUN, or of a CONFIG (which is run first), "
        "by rewriting its attacks and watching the answers. Nothing named: "
        "bench.yaml of this folder, else the built-in run. A CONFIG with a section agent has the "
        "guards at tool_result of each arm attacked: their injected texts are rewritten. "
        "Only attack a defense "
        "that is yours or that you may test. The same command on the same RUN continues it."
    )
)
@click.argument("subject", required=False, type=_PATH, metavar="[RUN|CONFIG]")
@click.option(
    "--budget",
    default="standard",
    show_default=True,
    help=("Search calls for each attack: quick (16), standard (64), thorough (512), or N."),
)
@click.option("--only", help="Attack only these defenses, separated by commas.")
@click.option(
    "--no-controls",
    is_flag=True,
    help=(
        "Leave out control arms and benign texts: fewer calls, and what learning added stays "
        "unknown."
    ),
)
@click.option(
    "--no-repair", is_flag=True, help="Leave out the search for a repair, and the attack on it."
)
@click.option("-o", "--out", type=_PATH, help="Folder of the run that is measured first.")
@click.option(
    "--config",
    type=_PATH,
    help=(
        "Configuration from which the parts of RUN are built; or a file that names "
        "only an attacker model, in a section adaptive."
    ),
)
@click.option(
    "--trust",
    is_flag=True,
    help=(
        "Build the parts as the folder of RUN names them: every import, address, "
        "file and variable is listed first, and you are asked. For folders of your "
        "own."
    ),
)
@click.option(
    "--trust-list",
    metavar="sha256:...",
    help="Agree to the list that has this hash, without a question.",
)
@click.option("--record", type=_PATH, help="Write all exchanges with services to this file.")
@click.option(
    "--replay",
    "replays",
    type=_PATH,
    multiple=True,
    help=("Answer from this file: a trace.jsonl, or what --record wrote. May be given twice."),
)
@click.option(
    "--canaries",
    type=click.IntRange(0, 20),
    default=20,
    show_default=True,
    help=(
        "Number of harmless sentences that a target model reads through each operator; 0 for none."
    ),
)
@click.option(
    "--no-shared-memory",
    "alone",
    is_flag=True,
    help=("Let each attack learn from its own answers only, so that attacks stay independent."),
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 100),
    help=(
        "Repeat the search N times, each with its own seed and memory (default: "
        "adaptive.seeds of the configuration, else 1). Use 5 for figures that others "
        "will read."
    ),
)
@click.option(
    "--yes",
    "is_agreed",
    is_flag=True,
    help=(
        "Do not ask before more than 10,000 calls of services that run.max_calls and "
        "run.max_cost do not limit."
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def adapt_command(subject: Path | None, *, as_json: bool, **options: Any) -> int:
    """Attack the defenses of a run."""
    finished = _carry_out(subject, options)
    if finished is None:
        return EXIT_INTERRUPTED
    if as_json:
        from guardmark.reports.render.json.documents import adaptive_json

        tell_note(finished.calls)
        echo_json(json.dumps(adaptive_json(finished.analysis.adaptive), ensure_ascii=False))
        return 0
    echo_drawn(f"{_drawn(finished)}\n")
    if level() < 0:
        return 0
    for label, path in finished.files:
        echo(f"{label:<10}{path}")
    run = quote(str(finished.folder.path))
    echo("", f"To read the tries:            guardmark show {run} --adaptive")
    echo(f"To keep what got through:     guardmark export {run} --to dataset")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finished:
    """An attack that came to its end."""

    folder: RunDir
    analysis: RunAnalysis
    files: _Files
    calls: str


def _carry_out(subject: Path | None, typed: dict[str, Any]) -> _Finished | None:
    """Attack, write the reports again and read what came out; None when it was interrupted."""
    from guardmark.app.adapt.arms import adapt_any
    from guardmark.app.results.reporting import report
    from guardmark.app.run.progress_line import ProgressLine
    from guardmark.app.run.running import Session
    from guardmark.cli.interrupts import interruptible

    what, options = _request(subject, **typed)
    session = Session(announce=tell_note)
    line = ProgressLine(session.progress, quiet=level() < 0, is_attack=True, meter=session.meter)
    with interruptible(session.stop), line:
        done = adapt_any(what, session, options)
    if done.trace is None:
        tell_line(f"{INTERRUPTED} To continue: {_again(subject, done, typed['out'])}")
        return None
    analysis = report(done.folder.path).analysis
    paths = (
        ("report", done.folder.report_html),
        ("repair", _write_repair(done.folder, analysis.adaptive)),
        ("trace", done.trace),
        ("target", done.folder.target),
    )
    files = []
    for label, path in paths:
        if path is not None and path.exists():
            files.append((label, path))
    return _Finished(folder=done.folder, analysis=analysis, files=tuple(files), calls=done.calls)


def _write_repair(folder: RunDir, cards: Sequence[AdaptiveCard]) -> Path | None:
    """Write the fragment into the folder of a run that was attacked."""
    from guardmark.reports.chapters.adaptive.operators import repair_fragment
    from guardmark.store.reader import RecordReader
    from guardmark.store.seals import note_seals

    with RecordReader(folder.records) as reader:
        taken = [part.name for part in reader.manifest().parts]
    text = repair_fragment(cards, taken)
    if text is None:
        folder.file(_REPAIR).unlink(missing_ok=True)
        return None
    path = folder.write_text(_REPAIR, text)
    note_seals(folder.path)
    return path


def _request(
    subject: Path | None,
    *,
    budget: str,
    out: Path | None,
    record: Path | None,
    replays: tuple[Path, ...],
    trust: bool,
    trust_list: str | None,
    alone: bool,
    is_agreed: bool,
    only: str | None,
    no_controls: bool,
    no_repair: bool,
    **same: Any,
) -> tuple[LoadedConfig | Path | None, AdaptOptions]:
    """Return what is attacked and how, as the verb takes it."""
    from guardmark.app.adapt.adapting import AdaptOptions, parse_budget
    from guardmark.app.parts.loading import load_config
    from guardmark.app.run.running import RunOptions

    if subject is None and same["config"] is None and OWN_CONFIG.exists():
        subject = OWN_CONFIG
        tell_note(f"Note: attacking {OWN_CONFIG} of this folder.")
    trace, cassette = _sort_replays(replays)
    names = tuple(name.strip() for name in (only or "").split(",") if name.strip())
    agree = None
    if trust or trust_list:
        agree = partial(_agree, trust_list)
    options = AdaptOptions(
        budget=parse_budget(budget),
        trust=agree,
        trace=trace,
        shared_memory=not alone,
        only=names,
        has_controls=not no_controls,
        has_repair=not no_repair,
        forecast=partial(_tell_forecast, is_agreed=is_agreed),
        run=RunOptions(out=out, only=names, record=record, replay=cassette),
        **same,
    )
    if subject is not None and subject.suffix in {".yaml", ".yml"}:
        return load_config(subject), options
    if subject is not None and out is not None:
        raise ConfigError(
            f"-o names the folder of a run that is made first, and {subject} is one already.\n"
            "Next: leave out -o, or name a configuration."
        )
    return subject, options


def _sort_replays(paths: Sequence[Path]) -> tuple[Path | None, Path | None]:
    """Return the trace and the cassette among what is to be replayed; None for each that is not."""
    cassettes = [path for path in paths if _is_cassette(path)]
    traces = [path for path in paths if path not in cassettes]
    return _at_most_one("traces", traces), _at_most_one("cassettes", cassettes)


def _at_most_one(kind: str, paths: Sequence[Path]) -> Path | None:
    if not paths:
        return None
    if len(paths) > 1:
        raise ConfigError(
            f"--replay names two {kind}: {paths[0]} and {paths[1]}.\nNext: name one of each."
        )
    return paths[0]


def _is_cassette(path: Path) -> bool:
    """Look at the first line; what cannot be read is left to the reader of traces."""
    if not path.is_file():
        return False  # a pipe would be waited for
    try:
        with path.open("rb") as stream:
            return b'"guardmark_cassette"' in stream.readline(200)
    except OSError:
        return False


def _tell_forecast(
    loaded: LoadedConfig, forecast: AttackForecast, samples: Sequence[Sample], *, is_agreed: bool
) -> None:
    """Say what an attack asks at most, and ask before many calls of services."""
    from guardmark.app.adapt.forecast import ASKS_ABOVE, purposes_text
    from guardmark.app.preflight import Span, forecast_attack
    from guardmark.cli.check import forecast_lines

    most = sum(forecast.by_purpose.values())
    tell_note(f"Will ask at most about {most:,} times: {purposes_text(forecast.by_purpose)}")
    defenses = []
    for built in forecast.at_service:
        if _is_stated(loaded, built):
            calls = Span(at_least=len(samples), at_most=forecast.planned[built.manifest.name])
            defenses.append(forecast_attack(loaded, built, samples, calls))
    for number, line in enumerate(forecast_lines(defenses, hint="")):
        if number < len(defenses):
            tell_note(f"The attack on {line.strip()}")
        else:
            tell_note(line)
    if is_agreed or not forecast.needs_consent:
        return
    question = f"At most about {forecast.outside:,} calls of services, without a limit."
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(
            f"{question} Above {ASKS_ABOVE:,} guardmark asks at a terminal, and there is none.\n"
            "Next: state run.max_calls or run.max_cost, take a smaller --budget, or give --yes."
        )
    if not click.confirm(f"{question} Make them?", err=True):
        raise ConfigError(
            "Nothing was attacked.\n"
            "Next: state run.max_calls or run.max_cost, or take a smaller --budget."
        )


def _is_stated(loaded: LoadedConfig, built: BuiltPart) -> bool:
    """Tell whether settings are those of a defense; those of an arm hold one entry a guard."""
    return ("defenses", built.manifest.name) in loaded.parts


def _agree(known: str | None, listed: TrustList) -> bool:
    """Show what a folder names, and ask; without a terminal, take a hash of the list."""
    for line in (f"{listed.folder} names, and its parts would reach:", *listed.lines):
        tell_line(f"  {line}")
    if known == listed.digest:
        return True
    if known is not None:
        raise ConfigError(
            "This list is not the one that --trust-list names.\n"
            f"Next: read it above; to agree to it: --trust-list {listed.digest}"
        )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(
            "--trust asks at a terminal, and there is none.\n"
            f"Next: read the list above; to agree to it: --trust-list {listed.digest}"
        )
    return click.confirm("Import, call and read all of this?", err=True)


def _again(subject: Path | None, done: Adapted, out: Path | None) -> str:
    """Return the same command, with the folder of the run that it made."""
    if out is not None or (subject is not None and subject.is_dir()):
        return same_command()
    folder = done.folder
    if done.within is not None:
        folder = done.within
    if subject is None:
        return f"{same_command()} {quote(str(folder.path))}"
    return f"{same_command()} -o {quote(str(folder.path))}"


def _drawn(finished: _Finished) -> str:
    """Draw one screen of an attack, or with -v all that its chapter tells."""
    from guardmark.reports.chapters.adaptive.chapter import adaptive_document
    from guardmark.reports.chapters.adaptive.summary import adaptive_summary

    analysis = finished.analysis
    if level() > 0:
        document = adaptive_document(
            analysis.adaptive,
            pairs=analysis.adaptive_pairs,
            left_out=analysis.adaptive_left_out,
            taken=[part.name for part in analysis.manifest.parts],
        )
        return drawn(document, piped=_WHOLE_LINES)
    summary = adaptive_summary(
        analysis.adaptive,
        examples=_examples(finished),
        calls=finished.calls,
        left_out=analysis.adaptive_left_out,
    )
    return drawn(summary)


def _examples(finished: _Finished) -> dict[str, TrickExample]:
    """Return for each defense what its cheapest trick made of an attack."""
    from guardmark.app.results.transcripts import example_of
    from guardmark.reports.chapters.adaptive.summary import TrickExample, cheapest_trick
    from guardmark.store.reader import RecordReader

    examples = {}
    with RecordReader(finished.folder.records) as reader:
        for card in finished.analysis.adaptive:
            best = cheapest_trick(card)
            if best is None:
                continue
            made = example_of(reader, defense=card.name, chain=best.chain)
            if made is not None:
                examples[card.name] = TrickExample(original=made[0], rewritten=made[1])
    return examples
