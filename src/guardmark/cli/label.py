"""`guardmark data label`: messages of users, drawn and labelled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from guardmark.cli.terminal import echo
from guardmark.core.errors import DatasetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.app.labels.audit_file import AuditFile
from guardmark.cli.audit import ask_labels

_PATH = click.Path(path_type=Path)

_NUMBER = click.IntRange(min=0)


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

    sheet, remarks = _open_messages(**draw)
    echo(*remarks)
    if draw_only:
        echo(f"page      {write_page(sheet.path, sheet.rows, sheet.sheet.words)}")
    elif not against:
        sheet = ask_labels(sheet)
    echo(*_state_lines(sheet, against))


def _open_messages(
    logs: Sequence[Path], out: Path, *, count: int, seed: int, redact: str
) -> tuple[AuditFile, tuple[str, ...]]:
    """Open a sheet that exists, or draw one; also return remarks on what came of the logs."""
    from guardmark.app.labels.audit_file import TRAFFIC, AuditFile, file_rows, write_audit
    from guardmark.app.labels.traffic import draw_traffic

    if out.exists():
        return _messages(out), ()
    drawn = draw_traffic(logs, file_rows, count=count, seed=seed, redaction=redact)
    rows = []
    for number, text in enumerate(drawn.texts, start=1):
        row = dict.fromkeys(TRAFFIC.columns, "")
        row["audit_id"], row["text"] = f"message-{number:05d}", text
        rows.append(row)
    sheet = AuditFile(path=out, rows=tuple(rows), sheet=TRAFFIC)
    write_audit(sheet)
    return sheet, drawn.said


def _messages(path: Path) -> AuditFile:
    """Read a sheet of messages; one of another kind is refused."""
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
    times = [float(row["seconds"]) for row in sheet.rows if row["seconds"]]
    if times:
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
    words = set(sheet.sheet.words)
    counts: Counter[tuple[str, str]] = Counter()
    differing = []
    for row, other_row in zip(sheet.rows, other.rows, strict=True):
        name, one, two = row["audit_id"], row[label], other_row[label]
        if not (name and one and two):
            continue
        words.update((one, two))
        counts[one, two] += 1
        if one != two:
            differing.append(f"  differ: {name} {one} / {two}")
    in_order, table = sorted(words), []
    for one in in_order:
        table.append([counts[one, two] for two in in_order])
    kappa = cohen_kappa(table)
    shown = measure_text(figure(kappa, Unit.NUMBER))
    if kappa.reason:
        shown += f" ({kappa.reason})"
    share = percent_text(kappa.observed)
    yield f"agreement {share} of {kappa.trials:,} labelled by both; kappa {shown}"
    yield from differing
