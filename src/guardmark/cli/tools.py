"""Commands about this installation and its files: `plugins`, `doctor`, `verify`, `schema`."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from guardmark.cli.run_argument import RunPath
from guardmark.cli.terminal import echo, echo_json, echo_raw, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.app.verify.verification import Verification
    from guardmark.config.installation import Check


_PATH = click.Path(path_type=Path)
_LIST_PATIENCE_S = 5.0
"""Time that a package of a part has to be imported for the list; a run gives it a minute."""


@click.command(help="List every type of defense, model and judge, and where it comes from.")
@click.option(
    "--profiles",
    is_flag=True,
    help=(
        "List the profiles instead: services, guard models and classifiers by name, "
        "with licence or terms and the variables that they need."
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plugins_command(*, profiles: bool, as_json: bool) -> None:
    """List the types of parts."""
    if profiles:
        _list_profiles(as_json=as_json)
        return
    from guardmark.app.registry import GROUPS, known_types, package_of

    table = {kind: dict(known_types(kind)) for kind in GROUPS}
    if as_json:
        echo_json(json.dumps(table, indent=2))
        return
    for kind, types in table.items():
        echo(f"{kind}s (other packages add theirs under the entry point {GROUPS[kind]})")
        width = max((len(name) for name in types), default=0)
        for name in sorted(types):
            package = f" ({owner})" if (owner := package_of(kind, name)) else ""
            echo(f"  {name:<{width}}  {_sentence(kind, name)}{package}")


def _sentence(kind: str, name: str) -> str:
    """Return what a type says of itself; one that cannot be imported says why."""
    from guardmark.app.registry import settings_model
    from guardmark.core.errors import ConfigError

    try:
        model = settings_model(kind, name, patience_s=_LIST_PATIENCE_S)
    except ConfigError as error:
        return " ".join(str(error).split())
    return (model.__doc__ or "").partition("\n")[0]


def _list_profiles(*, as_json: bool) -> None:
    from guardmark.defenses.profile import list_profiles

    listed = list_profiles()
    if as_json:
        echo_json(json.dumps([asdict(each) for each in listed], indent=2))
        return
    width = max(len(each.name) for each in listed)
    for kind, entries in groupby(listed, key=attrgetter("type")):
        echo(f"type: {kind}")
        for each in entries:
            needs = f"; needs {', '.join(each.variables)}" if each.variables else ""
            echo(f"  {each.name:<{width}}  {each.about}", f"  {'':<{width}}  {each.licence}{needs}")


@click.command(
    help=(
        "Check this installation, extra by extra; with CONFIG, each of its defenses "
        "instead: installed, reachable, answers that fit its profile, deterministic, "
        "stateless, telling attacks from benign texts, kind of score, limits. Each "
        "is asked a few known texts three times. Exit code 1 when one cannot be "
        "built or reached."
    )
)
@click.argument("config", type=_PATH, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor_command(*, config: Path | None, as_json: bool) -> int:
    """Examine this installation, or the defenses of a configuration."""
    from guardmark.config.installation import examine_installation

    found: dict[str, Sequence[Check]] = {"": examine_installation()}
    if config is not None:
        from guardmark.app.preflight import examine_config

        found = examine_config(config)
    if as_json:
        rows = {name: [asdict(check) for check in checks] for name, checks in found.items()}
        echo_json(json.dumps(rows if config else rows[""], indent=2, ensure_ascii=False))
    else:
        echo(*_check_lines(found))
    return int(any(c.is_fine is False and c.is_needed for each in found.values() for c in each))


def _check_lines(found: Mapping[str, Sequence[Check]]) -> Iterator[str]:
    """Return the lines in which a person reads checks, under what they are about."""
    for about, checks in found.items():
        if about:
            yield f"defense {about}"
        width = max(len(check.subject) for check in checks)
        for check in checks:
            mark = {True: "ok", False: "--", None: "?"}[check.is_fine]
            detail = " ".join(check.detail.split())[:400]
            yield f"{mark:<2}  {check.subject:<{width}}  {detail}"


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
    signed = SealSignature(public_key=public_key, path=signature) if public_key else None
    result = verify_run(run, data=data, expect=expect, signature=signed)
    if as_json:
        echo_json(json.dumps(result.as_document(), ensure_ascii=False, indent=2))
    else:
        echo_raw(visible(_as_text(result)))
    return 0 if result.holds else _EXIT_DIFFERS


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
            f"Run {result.folder} was changed or damaged: {count:,} "
            f"{'difference' if count == 1 else 'differences'} in {result.compared:,} values."
        )
        return "\n".join(lines)
    lines += [f"Shown: {each}." for each in result.shown]
    if result.not_covered:
        names = [one_line(name, 120) for name in result.not_covered[:_LISTED]]
        rest = len(result.not_covered) - len(names)
        more = f" and {rest:,} more; --json lists them" if rest else ""
        lines.append(f"Not covered by a seal that the records noted: {', '.join(names)}{more}.")
    if not result.is_anchored:
        lines.append(f"Not shown: {UNSHOWN}.")
    limit = "" if result.is_anchored else ", unless it was made anew as a whole"
    lines.append(
        f"Run {result.folder} is {result.verdict}{limit}: {result.compared:,} values compared, "
        "none differs."
    )
    return "\n".join(lines)


_CONFIG = "config"


@click.command(
    help=("Print the JSON Schema of a configuration, for editors, or of what reports write.")
)
@click.option(
    "--of",
    "document",
    type=click.Choice((_CONFIG, "summary", "comparison", "gate", "stability", "card")),
    default=_CONFIG,
    show_default=True,
    help=(
        "The configuration, summary.json, comparison.json, gate --json, "
        "slice_stability.json, a guard card."
    ),
)
def schema_command(document: str) -> None:
    """Print a schema."""
    if document == _CONFIG:
        from guardmark.app.parts.loading import config_schema

        echo_json(json.dumps(config_schema(), indent=2))
    elif document == "card":
        from guardmark.app.results.cards import card_schema

        echo_json(json.dumps(card_schema(), indent=2))
    else:
        from guardmark.reports.render.json.documents import document_schema

        echo_json(json.dumps(document_schema(document), indent=2))


@click.command(help="Print the completion script of SHELL, to be read when it starts.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion_command(shell: str) -> None:
    """Print a completion script."""
    from click.shell_completion import get_completion_class

    from guardmark.cli.commands import build

    of_shell = get_completion_class(shell)
    assert of_shell is not None  # noqa: S101 - click has one for each of the choices
    echo_raw(of_shell(build(), {}, "guardmark", "_GUARDMARK_COMPLETE").source())
