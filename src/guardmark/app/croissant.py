"""The verb `data croissant`: the metadata by which others find and read a data set."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.data import FileOptions, data_specs
from guardmark.core.errors import ConfigError
from guardmark.datasets.builtin import builtin_set
from guardmark.datasets.formats.croissant import DescribedFile, croissant_document
from guardmark.datasets.formats.files import address_of, errors_of_data, read_rows
from guardmark.datasets.loading import file_sha256
from guardmark.store.whole_files import whole_file

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.datasets.formats.fields import DatasetSpec

LICENCE: Final = "https://www.apache.org/licenses/LICENSE-2.0"
"""Of the data that ship with guardmark."""


def describe_dataset(target: str, options: FileOptions | None = None) -> dict[str, Any]:
    """Return the Croissant metadata of a built-in set (`builtin:core@2`) or of a data file.

    Raises:
        UnknownName: There is no such built-in set.
        ConfigError: The data are far away, or are no files.
        DatasetError: A file cannot be read.
    """
    specs = data_specs(target, options or FileOptions())
    files = [_described(spec) for spec in specs]
    origin, _, name = target.partition(":")
    if origin == "builtin":
        known = builtin_set(name)
        facts = {"version": f"{known.version}.0.0", "license": LICENCE}
        return croissant_document(files, name=known.name, about=known.purpose, facts=facts)
    first = specs[0]
    facts = {"version": first.version} if first.version else {}
    about = f"{first.name}: labelled inputs for measuring a guard."
    return croissant_document(files, name=first.name, about=about, facts=facts)


def write_metadata(document: dict[str, Any], path: Path) -> None:
    """Write Croissant metadata into a file."""
    with whole_file(path) as file:
        file.write(metadata_text(document).encode())


def metadata_text(document: dict[str, Any]) -> str:
    """Return Croissant metadata as the text of a file."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _described(spec: DatasetSpec) -> DescribedFile:
    if spec.rows is not None or address_of(spec.path):
        raise ConfigError(
            f"{spec.shown_as} is no plain file of this machine, so it is not described.\n"
            "Next: name a file of data, or builtin:NAME."
        )
    next(read_rows(spec), None)  # what is no data is refused sooner than it is hashed
    with errors_of_data(spec):
        return DescribedFile(
            spec=spec,
            address=spec.path.name,
            sha256=file_sha256(spec.path),
            size=spec.path.stat().st_size,
        )
