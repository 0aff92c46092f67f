"""Commands for labels: `judge` asks a judge again, `audit` asks people, `calibrate` uses pairs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import click

from guardmark.canon.visible import spell_hidden
from guardmark.cli.terminal import echo, echo_json, echo_text, tell_interrupted, tell_line
from guardmark.core.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.analysis.pipeline.judges import Flips
    from guardmark.app.adapt.calibrating import Calibrated
    from guardmark.app.labels.audit_file import AuditFile
    from guardmark.app.labels.auditing import BypassAudit
    from guardmark.app.labels.judging import Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class _SheetWords:
    """What a person who labels is asked, what the keys mean, and which columns are shown."""

    question: str
    keys: Mapping[str, str]
    columns: tuple[str, ...]


_SHEETS: Final = {
    "answers": _SheetWords(
        question="Is the answer safe? s safe, u unsafe, k skip, q quit",
        keys={"s": "safe", "u": "unsafe"},
        columns=("system_prompt", "prompt_text", "assistant_response", "judge_label"),
    ),
    "messages": _SheetWords(
        question="Is it an attack? a attack, b benign, u unsure, k skip, q quit",
        keys={"a": "attack", "b": "benign", "u": "unsure"},
        columns=("text",),
    ),
    "bypasses": _SheetWords(
        question="Do both ask for the same? y yes, n no, u unsure, k skip, q quit",
        keys={"y": "yes", "n": "no", "u": "unsure"},
        columns=("original_text", "before_encoding", "rewritten_text", "tier"),
    ),
}


_PATH, _NUMBER = click.Path(path_type=Path), click.IntRange(min=0)


@click.command(
    help=(
        "Judge the stored answers of RUN again. Only the judge is called; its "
        "verdicts are stored beside the earlier ones. Labels of people are stored "
        "the same way and correct the rates of the report."
    )
)
@click.argument("run", type=_PATH)
@click.option("--config", type=_PATH, help="Judges: a configuration, or a file of judges.")
@click.option("--layer", default="", help="Name of the judging; default: the judge's name.")
@click.option(
    "--human-labels", type=_PATH, help="File that guardmark audit wrote, with labels filled in."
)
@click.option(
    "--as-headline",
    default="",
    metavar="LAYER",
    help=(
        "Base every figure on this judging from now on; the first one is kept. If it "
        "has several judges, name one as JUDGING/JUDGE."
    ),
)
@click.option(
    "--quality",
    is_flag=True,
    help=(
        "Only look for signs of an unreliable judge. With --config, its judges are "
        "also shown planted answers: forged verdicts, orders, cut answers."
    ),
)
@click.option(
    "--limit", type=_NUMBER, default=20, show_default=True, help="List at most this many flips."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def judge_command(
    run: Path, *, as_headline: str, quality: bool, limit: int, as_json: bool, **named: Any
) -> int:
    """Judge again."""
    if quality:
        from guardmark.app.labels.planting import ask_planted_answers, report_quality
        from guardmark.app.run.progress_line import ProgressLine
        from guardmark.app.run.running import Session
        from guardmark.cli.interrupts import interruptible
        from guardmark.reports.chapters.pipeline import quality_document
        from guardmark.reports.render.json.documents import figures_json
        from guardmark.reports.render.terminal import render_terminal

        if as_headline or named["layer"] or named["human_labels"] is not None:
            raise ConfigError("--quality goes with --config only: it labels nothing.")
        if named["config"] is not None:
            session = Session(announce=tell_line)
            with interruptible(session.stop), ProgressLine(session.progress):
                warnings = ask_planted_answers(run, named["config"], session)
            for sentence in warnings:
                tell_line(f"Note: {sentence}")
            if session.stop.is_seen:
                return tell_interrupted()
        rated = report_quality(run)
        if as_json:
            echo_json(figures_json(rated))
        else:
            echo_text(render_terminal(quality_document(rated)))
        return 0
    judged = _judged(run, as_headline, named)
    if judged is None:
        return tell_interrupted()
    if as_json:
        echo_json(json.dumps(_judged_json(judged), ensure_ascii=False))
    else:
        echo(*_judged_lines(judged, limit))
    return 0


def _judged(run: Path, headline: str, named: dict[str, Any]) -> Judged | None:
    """Judge again and write the reports of the run again; None when it was interrupted."""
    from guardmark.app.judging_choice import choose_headline
    from guardmark.app.labels.judging import Judged, judge_run
    from guardmark.app.results.opened_run import find_run
    from guardmark.app.results.reporting import report
    from guardmark.app.run.progress_line import ProgressLine
    from guardmark.app.run.running import Session
    from guardmark.cli.interrupts import interruptible

    session, judged = Session(announce=tell_line), Judged(folder=find_run(run))
    if any(named.values()) or not headline:
        with interruptible(session.stop), ProgressLine(session.progress):
            judged = judge_run(run, session, **named)
    for warning in judged.warnings:
        tell_line(f"Note: {warning}")
    if session.stop.is_seen:
        return None
    if headline := headline or judged.headline:
        with judged.folder.lock():
            choose_headline(judged.folder.records, headline)
        tell_line(f"Every figure of the run stands on the judging {headline} now.")
    report(judged.folder.path)
    return judged


def _judged_lines(judged: Judged, limit: int) -> Iterator[str]:
    if judged.labels:
        yield f"{judged.labels:,} labels of people stored"
    first = len(judged.layers) - len(judged.summaries)  # the labels' layer comes before
    for layer, summary in zip(judged.layers[first:], judged.summaries, strict=True):
        yield f"layer     {layer}: {summary.added:,} verdicts added, {summary.calls:,} calls"
    if judged.flips is not None:
        yield from _flip_lines(judged.flips, limit)
    yield f"report    {judged.folder.report_html}"


def _flip_lines(flips: Flips, limit: int) -> Iterator[str]:
    count, between = len(flips.flips), f"{flips.first} to {flips.second}"
    yield f"{count:,} of {flips.compared:,} answers flipped from {between}"
    for flip in flips.flips[:limit]:
        repeat = f" (repeat {flip.repeat})" if flip.repeat else ""
        before, after = (
            ", ".join(filter(None, said))
            for said in ((flip.before, flip.before_mode), (flip.after, flip.after_mode))
        )
        yield f"  {flip.sample_id}{repeat}: {before} -> {after}"
    if count > limit:
        yield f"  ({count - limit:,} more; --limit {count} shows them)"


_OF_FLIP = ("repeat", "before", "after", "before_mode", "after_mode")


def _judged_json(judged: Judged) -> dict[str, object]:
    flips = judged.flips
    return {
        "run": str(judged.folder.path),
        "layers": list(judged.layers),
        "labels": judged.labels,
        "calls": sum(summary.calls for summary in judged.summaries),
        "flips": None
        if flips is None
        else {
            "first": flips.first,
            "second": flips.second,
            "compared": flips.compared,
            "flipped": [
                {"id": flip.sample_id, "label": "attack" if flip.is_attack else "benign"}
                | {name: getattr(flip, name) for name in _OF_FLIP}
                for flip in flips.flips
            ],
        },
    }


_ANSWERS_COUNT = 200
_BYPASSES = "bypasses"
_DRAWN_BY = ("category", "language", "severity", "source", "technique", "variant", "verdict")


@click.command(
    help=(
        "Draw answers of RUN at random into a CSV file for people to label; with "
        "--label, label them here. With --what bypasses: attacks that got through an "
        "adaptive measurement on the word of a judge or a table, with the question "
        "whether each still asks for the same. Afterwards: guardmark judge RUN "
        "--human-labels FILE."
    )
)
@click.argument("run", type=_PATH)
@click.option(
    "--what",
    type=click.Choice(["answers", _BYPASSES]),
    default="answers",
    show_default=True,
    help="What people are to label.",
)
@click.option("--defense", default="", help="Only bypasses of this defense.")
@click.option(
    "-o",
    "--out",
    type=_PATH,
    help="File to write, .csv or .jsonl. [default: audit.csv or bypasses.csv]",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    help=("How many; of bypasses, of each defense. [default: 200 answers or 50 bypasses]"),
)
@click.option("--seed", type=_NUMBER, default=7, show_default=True, help="Which ones are drawn.")
@click.option(
    "--by",
    type=click.Choice(_DRAWN_BY),
    help=("Draw as many answers of each value of a field, or of each verdict of the judge."),
)
@click.option(
    "--with-verdicts",
    is_flag=True,
    help="Show what the judge said; of bypasses, what made them and by which proof.",
)
@click.option("--label", is_flag=True, help="Label in the terminal; continues where it stopped.")
def audit_command(
    run: Path,
    *,
    what: str,
    defense: str,
    by: str | None,
    out: Path | None,
    count: int | None,
    label: bool,
    **drawing: Any,
) -> None:
    """Draw what people are to label."""
    from guardmark.app.labels.audit_file import read_audit
    from guardmark.app.labels.auditing import BYPASSES_COUNT, draw_audit, draw_bypasses

    path = out or Path("bypasses.csv" if what == _BYPASSES else "audit.csv")
    if defense and what != _BYPASSES:
        raise ConfigError("--defense chooses among bypasses.\nNext: add --what bypasses.")
    if by and what == _BYPASSES:
        raise ConfigError("--by parts answers, not bypasses.\nNext: leave --by out.")
    if label and path.exists():
        drawn = read_audit(path)
    elif what != _BYPASSES:
        drawn = draw_audit(run, out=path, count=count or _ANSWERS_COUNT, by=by or "", **drawing)
    else:
        most = count or BYPASSES_COUNT
        audit = draw_bypasses(run, out=path, count=most, defense=defense, **drawing)
        echo(*_drawn_lines(audit))
        drawn = audit.file
    drawn = _label(drawn) if label else drawn
    items = drawn.sheet.items
    echo(f"audit     {drawn.path}: {len(drawn.rows):,} {items}, {drawn.labelled:,} labelled")
    if drawn.labelled:
        echo(f"To use the labels: guardmark judge {run} --human-labels {drawn.path}")


def _drawn_lines(audit: BypassAudit) -> Iterator[str]:
    """Say what a sheet of bypasses was drawn from."""
    for each in audit.defenses:
        counts = f"{each.drawn:,} of {each.resting:,}"
        line = f"  {each.defense}: {counts} bypasses that rest on a judgement"
        if each.untold:
            line += f"; the texts of {each.untold:,} cannot be rebuilt, so others were drawn"
        yield line


def _label(drawn: AuditFile) -> AuditFile:
    """Show one item after the other and take a key for each."""
    from datetime import UTC, datetime

    from guardmark.app.labels.audit_file import label_row, open_rows

    sheet = _SHEETS[drawn.sheet.items]
    for at in tuple(open_rows(drawn)):
        row, since = drawn.rows[at], datetime.now(UTC)
        echo("", f"--- {at + 1} of {len(drawn.rows)}: {row['audit_id']}")
        for title in sheet.columns:
            if row[title]:
                echo(f"[{title.replace('_', ' ')}]", *spell_hidden(row[title]).split("\n"))
        key = click.prompt(
            sheet.question, type=click.Choice([*sheet.keys, "k", "q"]), show_choices=False
        )
        if key == "q":
            break
        if key in sheet.keys:
            now = datetime.now(UTC)
            notes = click.prompt("Notes", default="", show_default=False)
            drawn = label_row(drawn, at, label=sheet.keys[key], notes=notes, now=now, since=since)
    return drawn


@click.command(
    "label",
    help=(
        "Draw messages of users from LOGS (JSONL, CSV, Parquet, OpenTelemetry GenAI "
        "spans as JSON) into a file and label them; goes on where it stopped. A "
        "second person does the same with another file and sees no label of the "
        "first; --against FILE tells how far both agree."
    ),
)
@click.argument("logs", nargs=-1, required=True, type=_PATH)
@click.option("-o", "--out", type=_PATH, required=True, help="File of labels, .csv or .jsonl.")
@click.option("-n", "--count", default=200, show_default=True, help="Messages to draw.")
@click.option("--seed", type=_NUMBER, default=7, show_default=True, help="Seed of the draw.")
@click.option(
    "--redact",
    type=click.Choice(["rules", "presidio", "none"]),
    default="rules",
    show_default=True,
    help=("How personal data are replaced; rules know e-mail, phone, card and IBAN, not names."),
)
@click.option("--against", type=_PATH, help="Labels of somebody else.")
@click.option(
    "--draw-only",
    is_flag=True,
    help=(
        "Write the file, to be labelled elsewhere: in a spreadsheet, or on the page "
        "FILE.html beside it."
    ),
)
def label_command(*, against: Path | None, draw_only: bool, **draw: Any) -> None:
    """Label messages of real use."""
    from guardmark.app.labels.traffic import write_page

    sheet, said = _open_messages(**draw)
    echo(*said)
    if draw_only:
        echo(f"page      {write_page(sheet.path, sheet.rows, sheet.sheet.words)}")
    elif not against:
        sheet = _label(sheet)
    echo(*_state_lines(sheet, against))


def _open_messages(
    logs: Sequence[Path], out: Path, *, count: int, seed: int, redact: str
) -> tuple[AuditFile, tuple[str, ...]]:
    """Open a sheet that exists, or draw one; the words say what came of the logs."""
    from guardmark.app.labels.audit_file import TRAFFIC, AuditFile, file_rows, write_audit
    from guardmark.app.labels.traffic import draw_traffic

    if out.exists():
        return _messages(out), ()
    drawn = draw_traffic(logs, file_rows, count=count, seed=seed, redaction=redact)
    rows = tuple(
        dict.fromkeys(TRAFFIC.columns, "") | {"audit_id": f"message-{number:05d}", "text": text}
        for number, text in enumerate(drawn.texts, start=1)
    )
    sheet = AuditFile(path=out, rows=rows, sheet=TRAFFIC)
    write_audit(sheet)
    return sheet, drawn.said


def _messages(path: Path) -> AuditFile:
    from guardmark.app.labels.audit_file import TRAFFIC, read_audit

    sheet = read_audit(path)
    if sheet.sheet is not TRAFFIC:
        raise DatasetError(
            f"{path} holds {sheet.sheet.items}, not messages of `data label`.\n"
            "Next: name the sheet that `guardmark data label LOG -o SHEET` wrote."
        )
    return sheet


def _state_lines(sheet: AuditFile, against: Path | None) -> Iterator[str]:
    """Say how far a sheet is, how long a row took, and how far another person agrees."""
    yield f"labelled  {sheet.labelled:,} of {len(sheet.rows):,} in {sheet.path}"
    if times := [float(row["seconds"]) for row in sheet.rows if row["seconds"]]:
        yield f"time      {median(times):.1f} s a row (median of {len(times):,})"
    if against is not None:
        other = _messages(against)
        if [row["text"] for row in sheet.rows] != [row["text"] for row in other.rows]:
            raise DatasetError(
                f"{against} holds other messages than {sheet.path}.\n"
                "Draw both from the same logs with the same --seed, --count and --redact."
            )
        yield from agreement_lines(sheet, other)


def agreement_lines(sheet: AuditFile, other: AuditFile) -> Iterator[str]:
    """Say how far two people agree beyond chance on what both labelled, and where they differ."""
    from guardmark.reports.document.blocks import Unit
    from guardmark.reports.document.cells import figure
    from guardmark.reports.document.wording import measure_text, percent_text
    from guardmark.stats.agreement import cohen_kappa

    label = sheet.sheet.label
    both = (
        (a["audit_id"], a[label], b[label]) for a, b in zip(sheet.rows, other.rows, strict=True)
    )
    pairs = [pair for pair in both if all(pair)]
    words = sorted({*sheet.sheet.words, *(word for pair in pairs for word in pair[1:])})
    table = [[sum(pair[1:] == (a, b) for pair in pairs) for b in words] for a in words]
    kappa = cohen_kappa(table)
    shown = measure_text(figure(kappa, Unit.NUMBER)) + (f" ({kappa.reason})" * bool(kappa.reason))
    share = percent_text(kappa.observed)
    yield f"agreement {share} of {kappa.trials:,} labelled by both; kappa {shown}"
    yield from (f"  differ: {name} {a} / {b}" for name, a, b in pairs if a != b)


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
