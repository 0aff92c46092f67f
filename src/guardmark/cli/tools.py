"""Commands about this installation and its files: `plugins`, `doctor`, `verify`, `schema`."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from guardmark.cli.terminal import echo, echo_raw, one_line, visible

if TYPE_CHECKING:
    from guardmark.app.verify.verification import Verification


_PATH = click.Path(path_type=Path)


@click.command(help="List every type of defense, model and judge, and where it comes from.")
@click.option(
    "--profiles",
    is_flag=True,
    help="List the profiles instead: services, guard models and classifiers by name, with "
    "licence or terms and the variables that they need.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plugins_command(*, profiles: bool, as_json: bool) -> None:
    """List the types of parts."""
    if profiles:
        _list_profiles(as_json=as_json)
        return
    from guardmark.app.registry import GROUPS, known_types

    table = {kind: dict(known_types(kind)) for kind in GROUPS}
    if as_json:
        echo_raw(json.dumps(table, indent=2))
        return
    for kind, types in table.items():
        echo(f"{kind}s (other packages add theirs under the entry point {GROUPS[kind]})")
        width = max((len(name) for name in types), default=0)
        for name, target in sorted(types.items()):
            echo(f"  {name:<{width}}  {target}")


def _list_profiles(*, as_json: bool) -> None:
    from guardmark.defenses.profile import list_profiles

    listed = list_profiles()
    if as_json:
        echo_raw(json.dumps([asdict(each) for each in listed], indent=2))
        return
    width = max(len(each.name) for each in listed)
    for kind in dict.fromkeys(each.type for each in listed):
        echo(f"type: {kind}")
        for each in listed:
            if each.type == kind:
                echo(f"  {each.name:<{width}}  {each.about}")
                needs = f"; needs {', '.join(each.variables)}" if each.variables else ""
                echo(f"  {'':<{width}}  {each.licence}{needs}")


@click.command(help="Check this installation, extra by extra.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor_command(*, as_json: bool) -> None:
    """Examine this installation."""
    from guardmark.app.run.run_folder import examine

    findings = examine()
    if as_json:
        echo_raw(json.dumps([asdict(finding) for finding in findings], indent=2))
        return
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        mark = "ok  " if finding.is_fine else "--  "
        echo(f"{mark}{finding.subject:<{width}}  {finding.detail}")


_LISTED = 20
_EXIT_DIFFERS = 1
_HEAD = re.compile("[0-9a-fA-F]{16,64}")


def _read_head(_context: click.Context, _option: click.Parameter, value: str | None) -> str:
    if value is not None and not _HEAD.fullmatch(value):
        raise click.BadParameter(
            f"{value[:80]!r} is no head: expected are 16 to 64 hexadecimal digits, as "
            "`guardmark run` prints them."
        )
    return value or ""


@click.command(
    help="Check RUN: its records against their hash chain, its files against their seals, its "
    "data against its hashes; count its headline again and write its reports again. "
    "Exit code 1 when anything differs."
)
@click.argument("run", type=_PATH)
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
    help="Head of the records that was noted elsewhere, in full or its first 16 digits or "
    "more; `run`, the report and junit.xml name it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify_command(run: Path, data: tuple[Path, ...], expect: str, as_json: bool) -> int:
    """Check a run."""
    from guardmark.app.verify.verification import verify as verify_run

    result = verify_run(run, data=data, expect=expect)
    echo_raw(_as_json(result) if as_json else visible(_as_text(result)))
    return 0 if result.holds else _EXIT_DIFFERS


def _as_text(result: Verification) -> str:
    from guardmark.app.verify.verification import UNSHOWN

    wrong = [*result.damage, *([result.outdated] if result.outdated else [])]
    count = len(wrong) + result.total
    wrong += map(str, result.mismatches)
    lines = [one_line(each, 400) for each in wrong[:_LISTED]]
    if count > _LISTED:
        lines.append(f"... and {count - _LISTED:,} more; --json lists them.")
    lines += [f"Note: {one_line(note, 400)}" for note in result.notes]
    if result.head:
        is_expected = result.is_expected and result.holds
        lines.append(f"Head of the records: {result.head}{' (as expected)' * is_expected}")
    if not result.holds:
        lines.append(
            f"Run {result.folder} does not hold: {count:,} "
            f"{'difference' if count == 1 else 'differences'} in {result.compared:,} values."
        )
        return "\n".join(lines)
    lines += [f"Shown: {each}." for each in result.shown]
    if result.not_covered:
        lines.append(one_line(f"Not covered: {', '.join(result.not_covered)}.", 400))
    if not result.is_expected:
        lines.append(f"Not shown: {UNSHOWN}.")
    limit = "" if result.is_expected else ", unless it was made anew as a whole"
    lines.append(
        f"Run {result.folder} holds{limit}: {result.compared:,} values compared, none differs."
    )
    return "\n".join(lines)


def _as_json(result: Verification) -> str:
    from guardmark.app.verify.verification import UNSHOWN

    return json.dumps(
        {
            "run": str(result.folder),
            "holds": result.holds,
            "head": result.head or None,
            "as_expected": result.holds if result.is_expected else None,
            "compared": result.compared,
            "damage": list(result.damage),
            "outdated": result.outdated or None,
            "not_covered": list(result.not_covered),
            "mismatches": [
                {"what": each.what.value}
                | {name: getattr(each, name) for name in ("where", "stated", "counted")}
                for each in result.mismatches
            ],
            "mismatches_in_all": result.total,
            "notes": list(result.notes),
            "shown": list(result.shown),
            "not_shown": [] if result.is_expected and result.holds else [UNSHOWN],
        },
        ensure_ascii=False,
        indent=2,
    )


_CONFIG = "config"


@click.command(
    help="Print the JSON Schema of a configuration, for editors, or of what reports write."
)
@click.option(
    "--of",
    "document",
    type=click.Choice((_CONFIG, "summary", "comparison", "gate", "stability")),
    default=_CONFIG,
    show_default=True,
    help="The configuration, summary.json, comparison.json, gate --json, slice_stability.json.",
)
def schema_command(document: str) -> None:
    """Print a schema."""
    if document == _CONFIG:
        from guardmark.app.parts.loading import config_schema

        echo_raw(json.dumps(config_schema(), indent=2))
    else:
        from guardmark.reports.render.json.documents import document_schema

        echo_raw(json.dumps(document_schema(document), indent=2))


@click.command(help="Print the completion script of SHELL, to be read when it starts.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion_command(shell: str) -> None:
    """Print a completion script."""
    from click.shell_completion import get_completion_class

    from guardmark.cli.commands import build

    of_shell = get_completion_class(shell)
    assert of_shell is not None  # noqa: S101 - click has one for each of the choices
    echo_raw(of_shell(build(), {}, "guardmark", "_GUARDMARK_COMPLETE").source())
