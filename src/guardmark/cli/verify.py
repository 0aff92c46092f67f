"""`guardmark verify`: whether a run and its reports are what the records say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from guardmark.app.verify.verification import Verification

_LISTED = 20
_EXIT_DIFFERS = 1


def verify_command() -> click.Command:
    """Return the command."""

    @click.command(
        help="Compute every figure of RUN again from its records and compare it with every "
        "report; check the records against their seals and the data against its hashes. "
        "Exit code 1 when anything differs."
    )
    @click.argument("run", type=click.Path(path_type=Path))
    @click.option(
        "--data",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Folder in which data files lie; the present one and RUN are searched anyway.",
    )
    @click.option(
        "--all-draws",
        is_flag=True,
        help="Draw those intervals again, too, that take millions of draws; may take minutes.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    def verify(run: Path, data: tuple[Path, ...], all_draws: bool, as_json: bool) -> int:
        from guardmark.app.verify.verification import verify as verify_run

        found = verify_run(run, data=data, all_draws=all_draws)
        click.echo(_as_json(found) if as_json else _as_text(found))
        return 0 if found.holds else _EXIT_DIFFERS

    return verify


def _as_text(found: Verification) -> str:
    from guardmark.cli.terminal import one_line

    said = [*found.damage, *([found.outdated] if found.outdated else []), *map(str, found.findings)]
    lines = [one_line(each, 400) for each in said[:_LISTED]]
    if len(said) > _LISTED:
        lines.append(f"... and {len(said) - _LISTED:,} more; --json lists them all.")
    lines += [f"Note: {one_line(note, 400)}" for note in found.notes]
    if found.holds:
        lines.append(f"{found.folder} holds: {found.compared:,} values compared, none differs.")
    else:
        lines.append(
            f"{found.folder} does not hold: {len(said):,} "
            f"{'difference' if len(said) == 1 else 'differences'} in {found.compared:,} values."
        )
    return "\n".join(lines)


def _as_json(found: Verification) -> str:
    return json.dumps(
        {
            "run": str(found.folder),
            "holds": found.holds,
            "compared": found.compared,
            "damage": list(found.damage),
            "outdated": found.outdated or None,
            "findings": [
                {"file": each.file, "place": each.place, "said": each.said, "found": each.found}
                for each in found.findings
            ],
            "notes": list(found.notes),
        },
        ensure_ascii=False,
        indent=2,
    )
