"""The public sets that a configuration names: found, fetched, and read by their entries."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from guardmark.core.errors import ConfigError, DatasetError
from guardmark.core.sample import DEFAULT_TAXONOMY
from guardmark.datasets.catalogue.cache import (
    fetch,
    home_page,
    hub_entry,
    local_files,
    store_copies,
    stored,
)
from guardmark.datasets.catalogue.mapping import mapped_rows
from guardmark.datasets.catalogue.settings import find_entry, find_suite
from guardmark.datasets.catalogue.suite import suite_specs
from guardmark.datasets.formats.fields import BadRows, DatasetSpec
from guardmark.datasets.loading import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from guardmark.datasets.catalogue.settings import CatalogueEntry
    from guardmark.datasets.settings import DataSettings


def public_specs(entry: DataSettings, folder: Path) -> tuple[DatasetSpec, ...]:
    """Return the files of a public set, or of all sets of a suite; raise what is not here."""
    specs = {}
    for name, known in _named(entry, folder):
        if known.unread:
            raise ConfigError(f"{name} has no rows to read.\n{known.unread}")
        specs[name] = _spec(name, known, _files(name, known, entry, folder))
    if entry.suite is None:
        return tuple(specs.values())
    return suite_specs(entry.suite, find_suite(entry.suite), specs.__getitem__)


def hub_files(entry: DataSettings, folder: Path) -> tuple[str, Mapping[str, Path]]:
    """Return the revision of data of a hub that is on this machine, and its files."""
    ((name, known),) = _named(entry, folder)
    copies = stored(name, known.revision)
    revision = copies.revision if copies else ""
    return revision, _files(name, known, entry, folder)


def _files(
    name: str, known: CatalogueEntry, entry: DataSettings, folder: Path
) -> Mapping[str, Path]:
    """Find the files of a public set: in a named folder, or in the cache."""
    if entry.from_:
        return local_files(name, known, folder / Path(entry.from_).expanduser())
    if here := stored(name, known.revision):
        return here.files
    wanted = f"suite:{entry.suite}" if entry.suite else name
    raise DatasetError(
        f"{name} is not on this machine (licence {known.licence or 'stated at its source'}; "
        f"{home_page(known.home)}).\n"
        f"Fetch it: guardmark data get {wanted}; or name a local copy with from: FOLDER."
    )


def _named(entry: DataSettings, folder: Path) -> list[tuple[str, CatalogueEntry]]:
    """Return the entries of the catalogue that data name, or what is asked of a hub."""
    if entry.hub is not None:
        split = f"*{entry.split}*" if entry.split else "*"
        path = entry.path or (f"*{entry.subset}/{split}" if entry.subset else split)
        return [(f"hub:{entry.hub} {path}", hub_entry(entry.hub, entry.revision, [path]))]
    names = [entry.catalogue] if entry.catalogue else []
    if entry.suite is not None:
        names = [part.entry for part in find_suite(entry.suite).parts]
    return [(name, _entry(name, entry, folder)) for name in names]


def _entry(name: str, entry: DataSettings, folder: Path) -> CatalogueEntry:
    """Return an entry of the catalogue, in the revision and for the use that are asked for."""
    known = find_entry(str(folder / name) if name.endswith(".toml") else name)
    if entry.use in known.forbids:
        raise ConfigError(
            f"The licence of {name} ({known.licence}) forbids {entry.use} use.\n"
            f"Take another set (guardmark data list), or ask its authors: {home_page(known.home)}"
        )
    if entry.revision and entry.revision != known.revision:
        # Checksums are known of one revision only.
        files = tuple(file.model_copy(update={"sha256": ""}) for file in known.files)
        known = known.model_copy(update={"revision": entry.revision, "files": files})
    return known


def fetch_missing(
    entry: DataSettings, folder: Path, announce: Callable[[str], None], *, anew: bool = False
) -> None:
    """Fetch what data name and this machine lacks, or copy it; licences are announced before."""
    for name, known in _named(entry, folder):
        check = partial(_check_rows, name, known)
        if not anew and (entry.from_ or stored(name, known.revision)):
            continue
        if entry.from_:
            announce(f"Reading {name} from {entry.from_}. Licence: {known.licence}.")
            store_copies(name, known, folder / Path(entry.from_).expanduser(), check)
        else:
            fetch(name, known, check, announce)


def _check_rows(name: str, entry: CatalogueEntry, files: Mapping[str, Path]) -> None:
    """Read every row once, so that what cannot be used is not stored."""
    if not entry.licence:
        return  # of a hub, whose columns nobody knows yet
    try:
        load([_spec(name, entry, files)], DEFAULT_TAXONOMY)
    except BadRows as error:
        rows = "\n".join(str(error).splitlines()[1:-1])
        raise DatasetError(
            f"{name} is not as its entry describes it; nothing was stored.\n{rows}\n"
            "Take the revision that the entry names, or read it by path: with a map: of your own."
        ) from error


def _spec(name: str, entry: CatalogueEntry, files: Mapping[str, Path]) -> DatasetSpec:
    """Return a public set as the readers of data take it."""
    own = Path(name).stem
    return DatasetSpec(
        name=own,
        path=next(iter(files.values())),
        shown_as=own,
        version=entry.revision,
        files={f"{own}/{path}": where for path, where in files.items()},
        rows=partial(mapped_rows, entry, own, files),
        unlabelled=entry.unlabelled,
    )
