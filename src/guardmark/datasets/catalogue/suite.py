"""Suites: fixed mixes of public data, so that two teams measure the same thing."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from guardmark.core.errors import DatasetError
from guardmark.datasets.formats.fields import Fault
from guardmark.datasets.formats.files import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from guardmark.datasets.catalogue.settings import Suite, SuitePart
    from guardmark.datasets.formats.fields import DatasetSpec
    from guardmark.datasets.formats.files import RawRow


def suite_specs(
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
        version = f"{spec.version} ({label})" if spec.version else label
        specs.append(replace(spec, version=version, rows=partial(_taken, spec, part, groups)))
    return tuple(specs)


def _drawn(spec: DatasetSpec, part: SuitePart, seed: int) -> frozenset[str]:
    """Draw groups by a hash of their names, none of which takes a class above its quota."""
    sizes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for _, row in _wanted(spec, part):
        sizes[_group(row)][_class(row)] += 1
    ranks = {g: sha256(f"{seed}\x1f{spec.name}\x1f{g}".encode()).digest() for g in sizes}
    taken: Counter[str] = Counter()
    drawn = set()
    for group in sorted(ranks, key=ranks.__getitem__):
        if all(taken[name] + count <= part.quota[name] for name, count in sizes[group].items()):
            taken.update(sizes[group])
            drawn.add(group)
    return frozenset(drawn)


def _taken(spec: DatasetSpec, part: SuitePart, groups: frozenset[str]) -> Iterator[RawRow]:
    return (numbered for numbered in _wanted(spec, part) if _group(numbered[1]) in groups)


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
