"""`guardmark schema`: the JSON Schema of a configuration, for editors."""

from __future__ import annotations

import json

import click


def schema_command() -> click.Command:
    """Return the command."""

    @click.command(help="Print the JSON Schema of a configuration, for editors.")
    def schema() -> None:
        from guardmark.app.parts.loading import config_schema

        click.echo(json.dumps(config_schema(), indent=2))

    return schema
