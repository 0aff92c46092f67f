"""Croissant, the metadata of data sets by MLCommons: written for ours, read for a user's.

Read are files that lie beside the metadata, with record sets whose fields come from one file each.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from hashlib import file_digest
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import DatasetError, listed
from guardmark.core.values import dataclass
from guardmark.datasets.formats.fields import Fault, getter
from guardmark.datasets.formats.files import file_format, read_document, read_rows
from guardmark.parsing.foreign_text import limited_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from guardmark.datasets.formats.fields import DatasetSpec
    from guardmark.datasets.formats.files import RawRow

CONFORMS_TO: Final = "http://mlcommons.org/croissant/1.1"
_VERSIONS: Final = ("http://mlcommons.org/croissant/1.",)
_MOST_BYTES: Final = 16 << 20
_LOOKED_AT: Final = 2_000  # rows whose columns are listed
_HINT: Final = "Name the metadata of a data set whose files lie beside it."

_ENCODINGS: Final = {
    "jsonl": "application/jsonlines",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "json": "application/json",
    "prompt_pack": "application/json",
    "parquet": "application/x-parquet",
}
_FORMATS: Final = {
    **{encoding: name for name, encoding in _ENCODINGS.items() if name != "prompt_pack"},
    "application/jsonl": "jsonl",
    "application/x-jsonlines": "jsonl",
    "application/parquet": "parquet",
    "application/vnd.apache.parquet": "parquet",
}

_NAMES: Final = r"\w+(?:\.\w+)*"
_JSON_PATH: Final = re.compile(rf"\$(?:\.(?P<rows>{_NAMES})\[\*\]|\[\*\])?\.(?P<own>{_NAMES})")
_NESTED: Final = "nested"  # of lists and objects, which are described as repeated texts

CONTEXT: Final = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
"""The context of the specification, which every file repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedFile:
    """A file of a data set, as its metadata name it.

    Attributes:
        spec: How it is read.
        address: Its path from the metadata on.
        sha256: Hash (hex) of its bytes.
        size: Its length in bytes.
    """

    spec: DatasetSpec
    address: str
    sha256: str
    size: int


def croissant_document(
    files: Sequence[DescribedFile], *, name: str, about: str, facts: Mapping[str, str]
) -> dict[str, Any]:
    """Describe a data set: each file with its hash, and a record set of its columns.

    Args:
        files: Its files.
        name: What it is called.
        about: A sentence on it.
        facts: Further properties of schema.org, such as `version`, `license` and `url`.
    """
    distribution = []
    record_sets = []
    for file in files:
        distribution.append(
            {
                "@type": "cr:FileObject",
                "@id": file.address,
                "name": file.address,
                "contentUrl": file.address,
                "contentSize": f"{file.size} B",
                "encodingFormat": _ENCODINGS[file_format(file.spec)],
                "sha256": file.sha256,
            }
        )
        record_sets.append(_record_set(file))
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": name,
        "description": about,
        **facts,
        "distribution": distribution,
        "recordSet": record_sets,
    }


def _record_set(file: DescribedFile) -> dict[str, Any]:
    own = re.sub(r"\.[a-z]+(\.gz)?$", "", file.address)
    pack = _pack_items(file.spec)
    if pack is None:
        rows = _first_rows(file.spec)
    else:
        rows = [_flat(item) for item in pack]
    fields = []
    for column in _columns(rows, needs_all=pack is not None):
        values = [row[column] for row in rows if row.get(column) is not None]
        name = column.removeprefix("metadata.")
        extract = {"column": column}
        if pack is not None:
            extract = {"jsonPath": f"$.items[*].{column}"}
        source = {"fileObject": {"@id": file.address}, "extract": extract}
        described = _described(f"{own}/{name}", name, values, source)
        if described is not None:
            fields.append(described)
    return {"@type": "cr:RecordSet", "@id": own, "name": own, "field": fields}


def _described(
    identity: str, name: str, values: Sequence[object], source: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Describe a column: of single values, of lists of texts, or of lists of objects."""
    field: dict[str, Any] = {"@type": "cr:Field", "@id": identity, "name": name}
    types = {_type_of(value) for value in values}
    if types != {_NESTED}:
        if _NESTED in types:
            return None
        data_type = types.pop() if len(types) == 1 else "sc:Text"
        return {**field, "dataType": data_type, "source": source}
    members: list[Any] = []
    for value in values:
        if isinstance(value, list):
            members += value
    if all(isinstance(member, str) for member in members):
        return {**field, "dataType": "sc:Text", "repeated": True, "source": source}
    if not all(isinstance(member, dict) for member in members):
        return None
    parts = []
    for key in _columns(members, needs_all=True):
        if all(isinstance(member[key], str) for member in members):
            parts.append(
                {
                    "@type": "cr:Field",
                    "@id": f"{identity}/{key}",
                    "name": key,
                    "dataType": "sc:Text",
                    "source": {**source, "transform": {"jsonPath": f"$.{key}"}},
                }
            )
    if not parts:
        return None
    return {**field, "repeated": True, "subField": parts}


def _pack_items(spec: DatasetSpec) -> list[dict[str, Any]] | None:
    """Return the items of a prompt pack as they stand in its file; None for other files."""
    if file_format(spec) not in {"json", "prompt_pack"}:
        return None
    document = read_document(spec)
    if not isinstance(document, dict) or not isinstance(document.get("items"), list):
        return None
    return [item for item in document["items"] if isinstance(item, dict)]


def _flat(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the single values of an item and of its metadata, by their paths."""
    flat = {}
    for key, value in item.items():
        if key != "metadata" and _type_of(value) != _NESTED:
            flat[key] = value
    inner = item.get("metadata")
    if isinstance(inner, dict):
        for key, value in inner.items():
            if _type_of(value) != _NESTED:
                flat[f"metadata.{key}"] = value
    return flat


def _first_rows(spec: DatasetSpec) -> list[dict[str, Any]]:
    rows = []
    for _, row in islice(read_rows(spec), _LOOKED_AT):
        if not isinstance(row, Fault):
            rows.append(row)
    return rows


def _columns(rows: Sequence[Mapping[str, Any]], *, needs_all: bool) -> list[str]:
    """Name the columns of rows in order; those that every row has where all are needed."""
    counts: dict[str, int] = {}
    for row in rows:
        for column, value in row.items():
            counts[column] = counts.get(column, 0) + (value is not None)
    least = 1
    if needs_all:
        least = len(rows)
    return [column for column, count in counts.items() if count >= least]


def _type_of(value: object) -> str:
    if isinstance(value, bool):
        return "sc:Boolean"
    if isinstance(value, int):
        return "sc:Integer"
    if isinstance(value, float):
        return "sc:Float"
    if isinstance(value, str):
        return "sc:Text"
    return _NESTED


def croissant_specs(spec: DatasetSpec) -> tuple[DatasetSpec, ...]:
    """Return the files that the metadata at a path describe, each with its fields as columns.

    Raises:
        DatasetError: It is no such metadata, or a file is missing, far away or another one.
    """
    tree = _read(spec)
    objects = {}
    for described in _members(tree, "distribution"):
        objects[str(described.get("@id") or described.get("name"))] = described
    files = []
    for record_set in _members(tree, "recordSet"):
        columns, owner = _sources(record_set, spec)
        if owner:
            files.append(_file_spec(spec, objects.get(owner, {}), columns, owner=owner))
    if not files:
        raise DatasetError(
            f"{spec.shown_as} describes no record set with fields that come from a file.\n{_HINT}"
        )
    name = str(tree.get("name") or spec.name)
    version = spec.version or str(tree.get("version") or "")
    return tuple(replace(file, name=name, version=version) for file in files)


def _read(spec: DatasetSpec) -> dict[str, Any]:
    try:
        tree = json.loads(limited_bytes(spec.path, most=_MOST_BYTES))
    except OSError as error:
        raise DatasetError(
            f"The metadata {spec.shown_as} cannot be opened: {error.strerror}.\n{_HINT}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{spec.shown_as} is not JSON: {error}.\n{_HINT}") from error
    if not isinstance(tree, dict):
        raise DatasetError(f"{spec.shown_as} holds no JSON object.\n{_HINT}")
    stated = tree.get("conformsTo", tree.get("dct:conformsTo"))
    if isinstance(stated, dict):
        stated = stated.get("@id")
    if not str(stated).startswith(_VERSIONS):
        raise DatasetError(
            f"{spec.shown_as} does not say that it conforms to Croissant 1.x (conformsTo is "
            f"{str(stated)[:60]!r}).\n{_HINT}"
        )
    return tree


def _members(tree: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects, under a name with or without the prefix of the vocabulary."""
    value = tree.get(name, tree.get(f"cr:{name}", []))
    if not isinstance(value, list):
        value = [value]
    return [member for member in value if isinstance(member, dict)]


def _sources(
    record_set: Mapping[str, Any], spec: DatasetSpec
) -> tuple[dict[str, tuple[str, str]], str]:
    """Return the fields of a record set: a path of rows and a path in a row; and their file."""
    columns: dict[str, tuple[str, str]] = {}
    owners = set()
    for field in _members(record_set, "field"):
        described = next(iter(_members(field, "subField")), field)
        source = described.get("source")
        if not isinstance(source, dict):
            continue
        owner = source.get("fileObject") or source.get("fileSet")
        if isinstance(owner, dict):
            owner = owner.get("@id")
        extract = source.get("extract") or {}
        name = str(field.get("name") or field.get("@id", "")).rpartition("/")[2]
        if not owner or not isinstance(extract, dict):
            continue
        owners.add(str(owner))
        columns[name] = _column(extract, spec, name)
    if len(owners) > 1:
        raise DatasetError(
            f"{spec.shown_as}: the record set {record_set.get('name')!r} joins "
            f"{len(owners)} files ({listed(sorted(owners))}), which is not read.\n"
            "Next: describe one file that holds text and label together."
        )
    return columns, next(iter(owners), "")


def _column(extract: Mapping[str, Any], spec: DatasetSpec, field: str) -> tuple[str, str]:
    """Return where rows stand in a document and where the field stands in a row."""
    column = extract.get("column", extract.get("csvColumn"))
    if isinstance(column, str):
        return "", column
    shape = _JSON_PATH.fullmatch(str(extract.get("jsonPath", "")))
    if shape is None:
        raise DatasetError(
            f"{spec.shown_as}: field {field} is extracted by {json.dumps(extract)[:80]}; read are "
            "a column, and JSON paths such as $.text or $.items[*].text."
        )
    return shape["rows"] or "", shape["own"]


def _file_spec(
    spec: DatasetSpec,
    stated: Mapping[str, Any],
    columns: Mapping[str, tuple[str, str]],
    *,
    owner: str,
) -> DatasetSpec:
    """Return how one described file is read, once it is shown to be that file."""
    address = str(stated.get("contentUrl") or "")
    path = spec.path.parent / address
    is_beside = bool(address) and "://" not in address
    if not is_beside or not path.resolve().is_relative_to(spec.path.parent.resolve()):
        raise DatasetError(
            f"{spec.shown_as}: {owner} lies at {address[:80] or 'no address'}, not beside the "
            "metadata.\nNext: fetch it, put it into the same folder, and name it there in "
            "contentUrl."
        )
    if stated.get("containedIn"):
        raise DatasetError(
            f"{spec.shown_as}: {owner} lies in an archive, which is not read.\n"
            "Next: unpack it, and describe the file itself."
        )
    encoding = str(stated.get("encodingFormat") or "")
    format_name = _FORMATS.get(encoding, "")
    shown_as = str(spec.path.parent.joinpath(address).name)
    file = replace(spec, path=path, shown_as=shown_as, format=format_name)
    _require_same(file, str(stated.get("sha256") or ""), metadata=spec.shown_as)
    lists: set[str] = set()
    inner = {}
    for name, (rows, own) in columns.items():
        lists.add(rows)
        inner[name] = own
    if len(lists) > 1:
        raise DatasetError(f"{spec.shown_as}: fields of {owner} come from several lists of rows.")
    return replace(file, rows=partial(_rows, file, inner, "".join(lists)))


def _require_same(file: DatasetSpec, stated: str, *, metadata: str) -> None:
    if not file.path.is_file():
        raise DatasetError(f"{metadata} describes {file.shown_as}, which is not there.\n{_HINT}")
    with file.path.open("rb") as opened:
        digest = file_digest(opened, "sha256").hexdigest()
    if stated and digest != stated.lower():
        raise DatasetError(
            f"{file.shown_as} is not the file that {metadata} describes (sha256 differs).\n"
            "Next: fetch it again, or write its metadata anew: guardmark data croissant FILE."
        )


def _rows(file: DatasetSpec, columns: Mapping[str, str], under: str) -> Iterator[RawRow]:
    """Yield the rows of a file under the names of the described fields."""
    gets = {name: getter(path) for name, path in columns.items()}
    rows: Iterable[RawRow] = read_rows(file)
    if under:
        document = read_document(file)
        members = None
        if isinstance(document, dict):
            members = getter(under)(document)
        rows = ()
        if isinstance(members, list):
            rows = enumerate(members, start=1)
    for number, row in rows:
        if isinstance(row, Fault):
            yield number, row
        if not isinstance(row, dict):
            continue
        fields = {}
        for name, get in gets.items():
            value = get(row)
            if value is not None:
                fields[name] = value
        yield number, fields
