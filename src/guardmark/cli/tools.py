"""Commands about this installation: `plugins`, `doctor`."""

from __future__ import annotations

import json

import click


def plugins_command() -> click.Command:
    """Return the command."""

    @click.command(help="List every type of defense, model and judge, and where it comes from.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    def plugins(*, as_json: bool) -> None:
        from guardmark.app.registry import GROUPS, known_types
        from guardmark.reports.document.safe_text import clean

        table = {kind: dict(known_types(kind)) for kind in GROUPS}
        if as_json:
            click.echo(json.dumps(table, indent=2))
            return
        for kind, types in table.items():
            click.echo(f"{kind}s (other packages add theirs under the entry point {GROUPS[kind]})")
            width = max((len(name) for name in types), default=0)
            for name, place in sorted(types.items()):
                click.echo(clean(f"  {name:<{width}}  {place}"))

    return plugins


def doctor_command() -> click.Command:
    """Return the command."""

    @click.command(help="Say what this installation can do, extra by extra.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    def doctor(*, as_json: bool) -> None:
        from guardmark.app.preflight.doctor import examine

        findings = examine()
        if as_json:
            click.echo(json.dumps([finding.as_json() for finding in findings], indent=2))
            return
        width = max(len(finding.subject) for finding in findings)
        for finding in findings:
            mark = "ok  " if finding.is_fine else "--  "
            click.echo(f"{mark}{finding.subject:<{width}}  {finding.detail}")

    return doctor
