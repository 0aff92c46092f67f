"""`guardmark audit`: answers of a run for people to label, in a file or in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from guardmark.app.auditing import AuditFile

_PATH = click.Path(path_type=Path)
_KEYS = {"s": "safe", "u": "unsafe"}


def command() -> click.Command:
    """Return the command."""

    @click.command(
        help="Draw answers of RUN at random into a CSV file for people to label; with --label, "
        "label them here. Afterwards: guardmark judge RUN --human-labels FILE."
    )
    @click.argument("run", type=_PATH)
    @click.option("-o", "--out", type=_PATH, default=Path("audit.csv"), show_default=True)
    @click.option("--count", type=click.IntRange(min=1), default=200, show_default=True)
    @click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True)
    @click.option("--with-verdicts", is_flag=True, help="Show what the judge said.")
    @click.option("--label", is_flag=True, help="Label in the terminal; goes on where it stopped.")
    def audit(
        run: Path, out: Path, count: int, seed: int, with_verdicts: bool, label: bool
    ) -> None:
        from guardmark.app.auditing import draw_audit, read_audit

        if label and out.exists():
            drawn = read_audit(out)
        else:
            drawn = draw_audit(run, out=out, count=count, seed=seed, with_verdicts=with_verdicts)
        if label:
            drawn = _label(drawn)
        click.echo(f"{out}: {len(drawn.rows):,} answers, {drawn.labelled:,} labelled")
        if drawn.labelled:
            click.echo(f"To use the labels: guardmark judge {run} --human-labels {out}")

    return audit


def _label(drawn: AuditFile) -> AuditFile:
    """Show one answer after the other and take a key for each."""
    from datetime import UTC, datetime

    from guardmark.app.auditing import label_row, open_rows
    from guardmark.cli.terminal import clean

    for at in tuple(open_rows(drawn)):
        row = drawn.rows[at]
        click.echo(f"\n--- {at + 1} of {len(drawn.rows)}: {clean(row['audit_id'])}")
        for title in ("system_prompt", "prompt_text", "assistant_response", "judge_label"):
            if row[title]:
                click.echo(f"[{title.replace('_', ' ')}]\n{clean(row[title])}")
        key = click.prompt(
            "Is the answer safe? s safe, u unsafe, k skip, q quit",
            type=click.Choice([*_KEYS, "k", "q"]),
            show_choices=False,
        )
        if key == "q":
            break
        if key in _KEYS:
            notes = click.prompt("Notes", default="", show_default=False)
            drawn = label_row(drawn, at, label=_KEYS[key], notes=notes, now=datetime.now(UTC))
    return drawn
