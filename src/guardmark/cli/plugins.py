"""`guardmark plugins`: every part and profile that a configuration can name."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter

import click

from guardmark.cli.terminal import echo, echo_json

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
            line = f"  {name:<{width}}  {_sentence(kind, name)}"
            package = package_of(kind, name)
            if package:
                line += f" ({package})"
            echo(line)


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
            needs = ""
            if each.variables:
                needs = f"; needs {', '.join(each.variables)}"
            echo(f"  {each.name:<{width}}  {each.about}", f"  {'':<{width}}  {each.licence}{needs}")
