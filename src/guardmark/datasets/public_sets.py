"""The public sets that a configuration names: found, fetched, and read by their entries.

A suite is a fixed mix of them, so that two teams measure the same thing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial
from hashlib import sha256
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
from guardmark.datasets.formats.fields import BadRows, DatasetSpec, Fault
from guardmark.datasets.formats.files import read_rows
from guardmark.datasets.loading import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from guardmark.datasets.catalogue.settings import CatalogueEntry, Suite, SuitePart
    from guardmark.datasets.formats.files import RawRow
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
    return _suite_specs(entry.suite, find_suite(entry.suite), specs.__getitem__)


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
    copies = stored(name, known.revision)
    if copies is not None:
        return copies.files
    wanted = f"suite:{entry.suite}" if entry.suite else name
    raise DatasetError(
        f"{name} is not on this machine (licence {known.licence or 'stated at its source'}; "
        f"{home_page(known.home)}).\n"
        f"Fetch it: guardmark data get {wanted}; or name a local copy with from: FOLDER."
    )


def _named(entry: DataSettings, folder: Path) -> list[tuple[str, CatalogueEntry]]:
    """Return the entries of the catalogue that data name, or what is asked of a hub."""
    if entry.hub is not None:
        pattern = f"*{entry.split}*" if entry.split else "*"
        if entry.subset:
            pattern = f"*{entry.subset}/{pattern}"
        path = entry.path or pattern
        return [(f"hub:{entry.hub} {path}", hub_entry(entry.hub, entry.revision, [path]))]
    names: list[str] = []
    if entry.suite is not None:
        names = [part.entry for part in find_suite(entry.suite).parts]
    elif entry.catalogue:
        names = [entry.catalogue]
    return [(name, _entry(name, entry, folder)) for name in names]


def _entry(name: str, entry: DataSettings, folder: Path) -> CatalogueEntry:
    """Return an entry of the catalogue, in the revision and for the use that are asked for."""
    if name.endswith(".toml"):
        known = find_entry(str(folder / name))
    else:
        known = find_entry(name)
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


def _suite_specs(
    name: str, suite: Suite, spec_of: Callable[[str], DatasetSpec]
) -> tuple[DatasetSpec, ...]:
    """Return the data of a suite: of each entry whole groups, up to its quotas."""
    specs = []
    for part in suite.parts:
        spec = spec_of(part.entry)
        groups = _drawn(spec, part, suite.seed)
        if not groups:
            raise DatasetError(f"The suite {name} finds nothing of what it takes in {part.entry}.")
        label = f"suite {name} {suite.version}, purpose {suite.purposes[0]}"
        version = label
        if spec.version:
            version = f"{spec.version} ({label})"
        specs.append(replace(spec, version=version, rows=partial(_taken, spec, part, groups)))
    return tuple(specs)


def _drawn(spec: DatasetSpec, part: SuitePart, seed: int) -> frozenset[str]:
    """Draw groups by a hash of their names, as long as no class goes above its quota."""
    sizes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for _, row in _wanted(spec, part):
        sizes[_group(row)][_class(row)] += 1

    def rank(group: str) -> bytes:
        return sha256(f"{seed}\x1f{spec.name}\x1f{group}".encode()).digest()

    taken: Counter[str] = Counter()
    drawn = set()
    for group in sorted(sizes, key=rank):
        if all(taken[name] + count <= part.quota[name] for name, count in sizes[group].items()):
            taken.update(sizes[group])
            drawn.add(group)
    return frozenset(drawn)


def _taken(spec: DatasetSpec, part: SuitePart, groups: frozenset[str]) -> Iterator[RawRow]:
    for number, row in _wanted(spec, part):
        if _group(row) in groups:
            yield number, row


def _wanted(spec: DatasetSpec, part: SuitePart) -> Iterator[tuple[int, dict[str, object]]]:
    for number, row in read_rows(spec):
        if isinstance(row, Fault):
            continue  # the entry was checked whole when it came
        if _class(row) in part.quota and (not part.kinds or row["kind"] in part.kinds):
            yield number, row


def _class(row: Mapping[str, object]) -> str:
    return str(row.get("category") or row["kind"])


def _group(row: Mapping[str, object]) -> str:
    return str(row.get("group") or row["id"])
