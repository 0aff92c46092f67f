"""`guardmark init`: a configuration to begin with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import click

from guardmark.cli.terminal import (
    echo_text,
    tell_note,
)
from guardmark.core.errors import ConfigError

_PATH = click.Path(path_type=Path)

_TEMPLATES = click.Choice(
    (
        "http",
        "openai",
        "hf",
        "pipeline",
        "python",
        "system-prompt",
        "command-python",
        "command-node",
        "alt-profanity-check",
        "any-guardrail",
        "bad-words",
        "better-profanity",
        "guardrails-ai",
        "llamafirewall",
        "llm-guard",
        "nemoguardrails",
        "obscenity",
        "openai-guardrails",
        "presidio",
        "vard",
        "yara",
    )
)


@click.command(
    help=(
        "Print a commented configuration to start from, or write it with -o; at a "
        "terminal, asks what is to be measured. Beside it, the template python "
        "writes the function that is measured (unless there is one), command-python "
        "and command-node the worker that asks your guard, and those named for a "
        "guard library one that asks that library."
    )
)
@click.option("--template", type=_TEMPLATES, help="What is to be measured.")
@click.option("-o", "--out", type=_PATH, help="File to write; one that is there is kept.")
def init_command(template: str | None, out: Path | None) -> None:
    """Print a configuration to start from."""
    if template is None:
        template = "python"
        if sys.stdin.isatty() and sys.stdout.isatty():
            template = click.prompt("What is to be measured?", default=template, type=_TEMPLATES)
    folder = Path(__file__).parents[1] / "app" / "templates"
    text = (folder / f"{template}.yaml").read_text(encoding="utf-8")
    here = Path()
    if out is not None:
        _write_new(out, text)
        here = out.parent
    for worker in (folder / template).glob("*.template"):
        beside = here / worker.stem
        if template == "python" and beside.exists():
            continue  # The function that is to be measured, written already.
        _write_new(beside, worker.read_text(encoding="utf-8"))
        tell_note(f"Wrote {beside}: ask your guard in its function check.")
    if out is None:
        echo_text(text)
        return
    schema = out.parent / _SCHEMA
    if not schema.exists():
        from guardmark.app.parts.loading import config_schema

        _write_new(schema, json.dumps(config_schema(), indent=1) + "\n")
        tell_note(f"Wrote {schema}: editors check the configuration by it.")
    tell_note(f"Wrote {out}.", f"Next: edit it, then guardmark check {out}")


_SCHEMA: Final = "guardmark.schema.json"
"""What the first line of each template names, for editors."""


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}.\nNext: name another file."
        ) from error
