"""`guardmark doctor`: what this installation can do."""

from __future__ import annotations

import json

import click


def command() -> click.Command:
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
