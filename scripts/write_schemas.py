"""Write the JSON Schemas that are shipped, made from the types of the values the encoder writes.

A field is described where it stands: `trials: int  # How many trials were eligible.`, or by comment
lines above it where the text is longer. Classes that strangers use list theirs in the docstring.
"""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from inspect import cleandoc, getsource
from itertools import takewhile
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from guardmark.analysis.compare.chains import ChainRanking
from guardmark.reports.render.json.documents import (
    SENTENCES,
    ComparisonDocument,
    GateDocument,
    StabilityDocument,
    Summary,
)
from guardmark.reports.render.json.encoder import BESIDE, entries_of, is_table

if TYPE_CHECKING:
    from guardmark.reports.render.json.encoder import Entry, Sentences

    Json = dict[str, Any]

FOLDER: Final = (
    Path(__file__).resolve().parents[1] / "src" / "guardmark" / "reports" / "render" / "json"
)
_DOCUMENTS: Final = {
    "summary": (Summary, "guardmark summary.json", "Everything from clocks stands under timing."),
    "comparison": (ComparisonDocument, "guardmark comparison.json", "Defenses side by side."),
    "gate": (GateDocument, "guardmark gate --json", "Limits of a release, and how each stands."),
    "chains": (ChainRanking, "guardmark compare --chains --json", "Chains of defenses."),
    "stability": (StabilityDocument, "guardmark slice_stability.json", "Small slices of a run."),
}
_PLAIN: Final = {bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null"}
_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def schema_files() -> dict[Path, str]:
    """Return what each shipped schema must hold."""
    return {
        FOLDER / f"{name}.schema.json": json.dumps(
            schema_of(kind, title=title, description=about, sentences=SENTENCES), indent=1
        )
        + "\n"
        for name, (kind, title, about) in _DOCUMENTS.items()
    }


def schema_of(
    kind: type, *, title: str, description: str, sentences: Sentences | None = None
) -> Json:
    """Make the JSON Schema (draft 2020-12) of the objects that values of a dataclass become.

    Args:
        kind: The dataclass.
        title: Of the schema.
        description: Of the whole document.
        sentences: What the encoder is given.
    """
    made = _Definitions(sentences or {})
    root = made.object(kind)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **root,
        "title": title,
        "description": description,
        "$defs": dict(sorted(made.definitions.items())),
    }


class _Definitions:
    """Makes schemas, and keeps those of dataclasses by name."""

    def __init__(self, sentences: Sentences) -> None:
        self.definitions: dict[str, Json] = {}
        self._sentences = sentences

    def object(self, kind: type) -> Json:
        """Return the schema of a dataclass, written out."""
        properties = self._properties(kind)
        return {
            "type": "object",
            "description": _first_line(kind),
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def _properties(self, kind: type) -> dict[str, Json]:
        about = _attributes(kind)
        schemas: dict[str, Json] = {}
        for entry in entries_of(kind):
            hint, is_optional, description = _resolved(kind, entry, about)
            if entry.key == BESIDE:
                schemas |= self._properties(hint)
                continue
            schema = self._table(hint) if entry.is_table else self.of(hint)
            if is_optional:
                schema = _union([schema, {"type": "null"}])
            schemas[entry.key] = {**schema, "description": description} if description else schema
        for key, function in self._sentences.get(kind.__name__, {}).items():
            text = str(function.__annotations__["return"])
            hint = _hint(text, function.__module__)
            schema = self._table(hint) if is_table(text) else self.of(hint)
            schemas[key] = {**schema, "description": _first_line(function)}
        return schemas

    def of(self, hint: Any) -> Json:
        """Return the schema of a type; of a dataclass a reference."""
        if hint in _PLAIN:
            return {"type": _PLAIN[hint]}
        if is_dataclass(hint):
            return self._reference(hint)  # type: ignore[arg-type]  # a class, never a value
        if isinstance(hint, type) and issubclass(hint, Enum):
            return {"enum": [each.value for each in hint]}
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in {Union, UnionType}:
            return _union([self.of(each) for each in arguments])
        return self._collection(origin, arguments)

    def _collection(self, origin: Any, arguments: tuple[Any, ...]) -> Json:
        if origin in {tuple, list, Sequence}:
            return {"type": "array", "items": self.of(arguments[0])}
        if origin in {dict, Mapping}:
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        return {}  # anything a configuration may hold

    def _table(self, hint: Any) -> Json:
        _, value = get_args(get_args(hint)[0])
        return {"type": "object", "additionalProperties": self.of(value)}

    def _reference(self, kind: type) -> Json:
        if kind.__name__ not in self.definitions:
            self.definitions[kind.__name__] = {}  # a type may hold itself
            self.definitions[kind.__name__] = self.object(kind)
        return {"$ref": f"#/$defs/{kind.__name__}"}


def _resolved(kind: type, entry: Entry, about: Mapping[str, str]) -> tuple[Any, bool, str]:
    """Return the type of an entry, whether null may stand for it, and what it is."""
    hint = _hint(entry.annotation, kind.__module__)
    if not entry.within:
        own = about.get(entry.name) or _first_line(getattr(kind, entry.name, None))
        return hint, False, own or _sentence_of(hint)
    parts = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    (inner,) = (each for each in parts if each is not NoneType)
    name = entry.within
    stated = {each.name: each.annotation for each in entries_of(inner)} | inner.__annotations__
    annotation = stated.get(name) or getattr(inner, name).fget.__annotations__["return"]
    about_inner = _attributes(inner).get(name) or _first_line(getattr(inner, name, None))
    return _hint(annotation, inner.__module__), NoneType in parts, about_inner


def _union(schemas: list[Json]) -> Json:
    """Join schemas; plain types stand in one list."""
    if all(each.keys() == {"type"} for each in schemas):
        kinds: list[str] = []
        for each in schemas:
            kinds += [each["type"]] if isinstance(each["type"], str) else each["type"]
        return {"type": list(dict.fromkeys(kinds))}
    return {"anyOf": schemas}


@cache
def _hint(annotation: str, module: str) -> Any:
    """Resolve an annotation, also where its names are imported for type checkers alone."""
    holder = type("Holder", (), {"__annotations__": {"it": annotation}})
    return get_type_hints(holder, globalns=_names(module))["it"]


@cache
def _names(module: str) -> dict[str, Any]:
    """Return the names of a module, with those it imports for type checkers alone."""
    loaded = import_module(module)
    blocks = [each for each in ast.parse(getsource(loaded)).body if isinstance(each, ast.If)]
    imports = [
        each
        for block in blocks
        if ast.unparse(block.test) == "TYPE_CHECKING"
        for each in block.body
        if isinstance(each, ast.ImportFrom) and each.module
    ]
    return vars(loaded) | {
        name.asname or name.name: getattr(import_module(str(each.module)), name.name, None)
        for each in imports
        for name in each.names
    }


@cache
def _attributes(kind: type) -> dict[str, str]:
    """Read what a class says of its attributes: in its docstring, or in comments of its fields."""
    _, _, section = cleandoc(kind.__doc__ or "").partition("\nAttributes:\n")
    written = {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(section)}
    return _comments(kind.__module__).get(kind.__name__, {}) | written


@cache
def _comments(module: str) -> dict[str, dict[str, str]]:
    """Read the comments of fields, by class: above it, and at the end of its line."""
    source = getsource(import_module(module))
    lines = source.splitlines()
    comments: dict[str, dict[str, str]] = defaultdict(dict)
    for kind in (each for each in ast.parse(source).body if isinstance(each, ast.ClassDef)):
        for node in kind.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                above = list(takewhile(_is_comment, reversed(lines[: node.lineno - 1])))[::-1]
                after = lines[(node.end_lineno or 0) - 1].encode()[node.end_col_offset :].decode()
                text = " ".join(each.lstrip(" #") for each in (*above, after))
                comments[kind.name][node.target.id] = text.strip()
    return comments


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _sentence_of(hint: Any) -> str:
    """Return what the first class that a type holds says of itself."""
    if is_dataclass(hint) or (isinstance(hint, type) and issubclass(hint, Enum)):
        return _first_line(hint)
    return next(filter(None, map(_sentence_of, get_args(hint))), "")


def _first_line(of: object) -> str:
    text = getattr(of, "__doc__", None) or ""
    return cleandoc(text).partition("\n")[0]
