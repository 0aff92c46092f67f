"""Write what follows from the code; `--check` says what is stale.

That is docs/reference, and the schemas that are shipped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from crosswalk_page import crosswalk_page
from records_page import records_page
from write_schemas import schema_files

from guardmark.app.parts.loading import config_schema
from guardmark.app.registry import GROUPS, known_types
from guardmark.cli.commands import build

DOCS = Path(__file__).resolve().parents[1] / "docs" / "reference"
_ABOUT_CONFIGURATIONS = (
    "A configuration is a YAML file. Unknown keys are errors. `guardmark schema` prints the\n"
    "JSON Schema for editors; `guardmark init` prints a commented file to start from.\n\n"
)
_NOTE = "<!-- Written by scripts/write_reference.py; edit the code, not this page. -->\n\n"


def commands_page() -> str:
    """Return the help of every command as Markdown."""
    root = build()
    settings = root.context_settings  # which options print help, for one
    context = click.Context(root, info_name="guardmark", **settings | {"max_content_width": 88})
    parts = [
        "# Commands\n\n",
        _NOTE,
        "What each command says of itself. `--debug` adds a traceback to any error.\n\n",
        _help_block(root, context),
    ]
    for name in root.list_commands(context):
        parts.extend(_command_parts(root.get_command(context, name), f"guardmark {name}", context))
    return "".join(parts)


def _command_parts(command: click.Command | None, title: str, above: click.Context) -> list[str]:
    if command is None:
        return []
    context = click.Context(
        command, info_name=title.rpartition(" ")[2], parent=above, max_content_width=88
    )
    parts = [f"## {title}\n\n", _help_block(command, context)]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            parts.extend(_command_parts(below, f"{title} {name}", context))
    return parts


def _help_block(command: click.Command, context: click.Context) -> str:
    formatter = click.HelpFormatter(width=88)
    command.format_help(context, formatter)
    return f"```\n{formatter.getvalue().rstrip()}\n```\n\n"


def configuration_page() -> str:
    """Return every key of a configuration as Markdown tables."""
    schema = config_schema()
    definitions = schema["$defs"]
    parts = [
        "# Configuration\n\n",
        _NOTE,
        _ABOUT_CONFIGURATIONS,
        "## Top level\n\n",
        _table(schema),
    ]
    sections = sorted(name for name in definitions if name.endswith("Settings") and "." not in name)
    for name in sections:
        parts.append(f"## {name.removesuffix('Settings')}\n\n{_about(definitions[name])}")
        parts.append(_table(definitions[name]))
    for kind in GROUPS:
        for part_type in sorted(known_types(kind)):
            entry = definitions[f"{kind}.{part_type}"]
            parts.append(f"## {kind} of type `{part_type}`\n\n{_about(entry)}{_table(entry)}")
    return "".join(parts)


def _about(entry: dict[str, Any]) -> str:
    text = str(entry.get("description", "")).strip().split("\n\n")[0].replace("\n", " ")
    return f"{text}\n\n" if text else ""


def _table(entry: dict[str, Any]) -> str:
    rows = ["| key | meaning | value | default |\n|---|---|---|---|\n"]
    required = set(entry.get("required", ()))
    for key, said in entry.get("properties", {}).items():
        default = "required" if key in required else _default(said)
        rows.append(f"| `{key}` | {said.get('description', '')} | {_kind(said)} | {default} |\n")
    return "".join(rows) + "\n" if len(rows) > 1 else "No settings.\n\n"


def _default(said: dict[str, Any]) -> str:
    if "default" not in said or said["default"] is None:
        return "none"
    value = said["default"]
    return "see below" if isinstance(value, dict) and value else f"`{value}`"


def _kind(said: Any) -> str:
    if not isinstance(said, dict) or not said:
        return "anything"
    if "$ref" in said:
        return str(said["$ref"].rpartition("/")[2].removesuffix("Settings"))
    choices = [said["const"]] if "const" in said else said.get("enum", ())
    if choices:
        return ", ".join(f"`{value}`" for value in choices)
    for many in ("anyOf", "oneOf", "allOf"):
        if many in said:
            kinds = [_kind(one) for one in said[many] if one.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    inner = {"array": ("list of", "items"), "object": ("map to", "additionalProperties")}
    words, key = inner.get(str(said.get("type")), ("", ""))
    return f"{words} {_kind(said.get(key, {}))}" if words else _range(said)


def _range(said: dict[str, Any]) -> str:
    words = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    kind = words.get(str(said.get("type")), str(said.get("type", "anything")))
    limits = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most"}
    limits["exclusiveMaximum"] = "below"
    said_limits = [f"{word} {said[key]:g}" for key, word in limits.items() if key in said]
    return f"{kind}, {', '.join(said_limits)}" if said_limits else kind


PAGES = {
    "commands.md": commands_page,
    "configuration.md": configuration_page,
    "crosswalk.md": crosswalk_page,
    "records.md": records_page,
}


def main() -> None:
    """Write the files, or say which are stale."""
    stale = []
    pages = {DOCS / name: page() for name, page in PAGES.items()}
    for path, text in (pages | schema_files()).items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.name)
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    print(f"{'stale' if '--check' in sys.argv else 'written'}: {', '.join(stale) or 'none'}")
    sys.exit(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    main()
