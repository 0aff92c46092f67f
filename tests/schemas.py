"""Published schemas to hold documents against; that each is a schema is a test of its own."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from guardmark.reports.render.json.documents import document_schema


@cache
def _validator(name: str, path: tuple[str, ...]) -> Draft202012Validator:
    schema: Any = document_schema(name)
    part = schema
    for key in path:
        part = part[key]
    return Draft202012Validator({**part, "$defs": schema["$defs"]})


def check_document(document: object, *path: str, of: str = "summary") -> None:
    """Raise unless a document keeps to its schema, or a part of one to what stands at a path."""
    _validator(of, path).validate(document)
