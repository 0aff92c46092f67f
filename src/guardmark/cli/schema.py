"""`guardmark schema`: the JSON Schema of a configuration, or of a document of figures."""

from __future__ import annotations

import json

import click

_CONFIG = "config"


def schema_command() -> click.Command:
    """Return the command."""

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
    def schema(document: str) -> None:
        if document == _CONFIG:
            from guardmark.app.parts.loading import config_schema

            click.echo(json.dumps(config_schema(), indent=2))
        else:
            from guardmark.reports.render.json.documents import document_schema

            click.echo(json.dumps(document_schema(document), indent=2))

    return schema
