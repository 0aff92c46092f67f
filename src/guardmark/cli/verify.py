"""`guardmark verify`: is a run, or a card, what it says it is?"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from guardmark.cli.run_argument import RunPath
from guardmark.cli.terminal import echo_json, echo_raw, one_line, visible
from guardmark.core.errors import counted

if TYPE_CHECKING:
    from guardmark.app.verify.verification import Verification


_PATH = click.Path(path_type=Path)

_LISTED = 20

_EXIT_DIFFERS = 1

_HEAD = re.compile("[0-9a-fA-F]{16,64}")


def _read_head(_context: click.Context, _option: click.Parameter, value: str | None) -> str:
    if value is not None and not _HEAD.fullmatch(value):
        raise click.BadParameter(
            f"{value[:80]!r} is not a head: expected 16 to 64 hexadecimal digits, as "
            "`guardmark run` prints them."
        )
    return value or ""


@click.command(
    help=(
        "Check RUN: its records against their hash chain, its files against their "
        "seals, its data against its hashes; count its headline again and write its "
        "reports again. Or check a card: whether its figures follow from its counts, "
        "and with --run whether its run makes it again. Exit code 1 when anything "
        "differs."
    )
)
@click.argument("run", type=RunPath(), default="last")
@click.option(
    "--data",
    multiple=True,
    type=_PATH,
    help="Folder in which data files lie; the present one and RUN are searched anyway.",
)
@click.option(
    "--expect",
    metavar="HEAD",
    callback=_read_head,
    help=(
        "Head of the records that was noted elsewhere, in full or its first 16 "
        "digits or more; `run`, the report and junit.xml name it."
    ),
)
@click.option(
    "--public-key",
    metavar="FILE",
    type=_PATH,
    help="Public key of minisign that should have signed seals.jsonl.",
)
@click.option(
    "--signature",
    metavar="FILE",
    type=_PATH,
    help="That signature; default: seals.jsonl.minisig in RUN, or CARD.minisig.",
)
@click.option(
    "--run",
    "of_run",
    metavar="RUN",
    type=_PATH,
    help="The run that a card was made from: its figures are made again and compared.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify_command(
    run: Path,
    data: tuple[Path, ...],
    expect: str,
    public_key: Path | None,
    signature: Path | None,
    of_run: Path | None,
    as_json: bool,
) -> int:
    """Check a run, or a card."""
    from guardmark.app.verify.verification import SealSignature
    from guardmark.app.verify.verification import verify as verify_run

    if signature is not None and public_key is None:
        raise click.UsageError(
            "--signature needs --public-key FILE: the key that should have made it."
        )
    from guardmark.app.verify.cards import is_card

    if is_card(run):
        return _verify_card(run, of_run, public_key, signature, as_json=as_json)
    if of_run is not None:
        raise click.UsageError(f"--run goes with a card, and {run} is none.")
    signed = None
    if public_key:
        signed = SealSignature(public_key=public_key, path=signature)
    result = verify_run(run, data=data, expect=expect, signature=signed)
    if as_json:
        echo_json(json.dumps(result.as_document(), ensure_ascii=False, indent=2))
    else:
        echo_raw(visible(_as_text(result)))
    if result.holds:
        return 0
    return _EXIT_DIFFERS


def _verify_card(
    path: Path,
    run: Path | None,
    public_key: Path | None,
    signature: Path | None,
    *,
    as_json: bool,
) -> int:
    """Check a card, by itself or beside its run."""
    from guardmark.app.verify.cards import verify_card

    result = verify_card(path, run=run, public_key=public_key, signature=signature)
    if as_json:
        echo_json(json.dumps(result.as_document(), ensure_ascii=False, indent=2))
    else:
        echo_raw(visible("\n".join(result.lines())))
    if result.holds:
        return 0
    return _EXIT_DIFFERS


def _as_text(result: Verification) -> str:
    """Tell the verdict on a run, with the first differences where there are any."""
    from guardmark.app.verify.verification import UNSHOWN

    wrong = list(result.damage)
    if result.outdated:
        wrong.append(result.outdated)
    count = len(wrong) + result.total
    wrong += map(str, result.mismatches)
    lines = [one_line(each, 400) for each in wrong[:_LISTED]]
    if count > _LISTED:
        lines.append(f"... and {count - _LISTED:,} more; --json lists them.")
    lines += [f"Note: {one_line(note, 400)}" for note in result.notes]
    if result.head:
        expected = ""
        if result.is_expected and result.holds:
            expected = " (as expected)"
        lines.append(f"Head of the records: {result.head}{expected}")
    if not result.holds:
        lines.append(
            f"Run {result.folder} was changed or damaged: {counted(count, 'difference')} in "
            f"{result.compared:,} values."
        )
        return "\n".join(lines)
    lines += [f"Shown: {each}." for each in result.shown]
    if result.not_covered:
        names = [one_line(name, 120) for name in result.not_covered[:_LISTED]]
        rest = len(result.not_covered) - len(names)
        more = ""
        if rest:
            more = f" and {rest:,} more; --json lists them"
        lines.append(f"Not covered by a seal that the records noted: {', '.join(names)}{more}.")
    if not result.is_anchored:
        lines.append(f"Not shown: {UNSHOWN}.")
    limit = ", unless it was made anew as a whole"
    if result.is_anchored:
        limit = ""
    lines.append(
        f"Run {result.folder} is {result.verdict}{limit}: {result.compared:,} values compared, "
        "none differs."
    )
    return "\n".join(lines)
