"""`guardmark schema`: JSON Schemas of configurations and documents."""

from __future__ import annotations

import json

import click

from guardmark.cli.terminal import echo_json

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
