"""Definitions of tools on a row: read in the forms of several protocols, kept, written back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from guardmark.core.sample import Prompt, ToolDefinition, View
from guardmark.datasets.formats.fields import BadRows
from guardmark.datasets.formats.writing import sample_row
from guardmark.store.samples import prompt_of, prompt_to_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.datasets.loading import LoadedData

SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}}
PAY = ToolDefinition(name="pay", description="Pays a bill.", parameters=SCHEMA)
FORMS = {
    "chat": {
        "type": "function",
        "function": {"name": "pay", "description": "Pays a bill.", "parameters": SCHEMA},
    },
    "responses": {
        "type": "function",
        "name": "pay",
        "description": "Pays a bill.",
        "parameters": SCHEMA,
    },
    "anthropic": {"name": "pay", "description": "Pays a bill.", "input_schema": SCHEMA},
    "mcp": {"name": "pay", "description": "Pays a bill.", "inputSchema": SCHEMA},
}


def row(**fields: object) -> dict[str, object]:
    """A row with a text, and more."""
    return {"id": "one", "text": "Pay it.", "label": "benign", **fields}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_text", [True, False])
def test_tools_are_read_in_the_forms_of_four_protocols(
    read: Callable[..., LoadedData], *, form: str, is_text: bool
) -> None:
    """As a list, or as the JSON of one, which tables and the sets of the hub hold."""
    stated: object = [FORMS[form]]
    data = read("d.jsonl", [row(tools=json.dumps(stated) if is_text else stated)])
    (sample,) = data.samples()
    assert sample.prompt.tools == (PAY,)
    assert sample.prompt.text == "Pay it."
    assert "tools" not in sample.metadata


def test_tools_come_back_from_files_and_from_records(read: Callable[..., LoadedData]) -> None:
    """And are part of what a prompt is: another definition, another hash."""
    (sample,) = read("d.jsonl", [row(tools=[FORMS["mcp"]])]).samples()
    (again,) = read("e.jsonl", [sample_row(sample)]).samples()
    assert again.prompt == sample.prompt
    stored = prompt_of(sample.prompt.text, prompt_to_json(sample.prompt), Path("records.sqlite"))
    assert stored == sample.prompt
    assert stored.digest() != Prompt.of_text("Pay it.").digest()
    assert sample.prompt.with_text("Other.").tools == (PAY,)
    assert sample.prompt.shown(View.CONVERSATION) == "tools:\npay: Pays a bill.\n\nuser: Pay it."
    assert sample.prompt.shown(View.TEXT) == "Pay it."


@pytest.mark.parametrize("value", [["pay", "search"], "hammer", [{"step": 1}], None])
def test_what_is_no_definition_stays_beside_the_sample(
    read: Callable[..., LoadedData], value: object
) -> None:
    """Many files have a column `tools` that says something else."""
    (sample,) = read("d.jsonl", [row(tools=value)]).samples()
    assert sample.prompt == Prompt.of_text("Pay it.")
    assert sample.metadata.get("tools") == value


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([{"name": ""}], "number 1, whose name or description is no text"),
        ([FORMS["mcp"], FORMS["chat"]], "defines the tool 'pay' twice"),
        ([{"name": "pay", "parameters": "none"}], "parameters that are no JSON Schema"),
    ],
)
def test_a_broken_definition_is_refused(
    read: Callable[..., LoadedData], tools: object, said: str
) -> None:
    """A guard must not be asked about other tools than the file means."""
    with pytest.raises(BadRows, match=said):
        read("d.jsonl", [row(tools=tools)])


def test_a_stated_column_must_hold_definitions(read: Callable[..., LoadedData]) -> None:
    """With `map: {tools: ...}` nothing is left to guess."""
    with pytest.raises(BadRows, match="is not a list of tool definitions"):
        read("d.jsonl", [row(offered=["pay"])], map={"tools": "offered"})
