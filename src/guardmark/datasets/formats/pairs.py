"""Labelled pairs of texts, as JSON lines: do both ask for the same?"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import DatasetError
from guardmark.core.values import dataclass
from guardmark.datasets.formats.fields import DatasetSpec, Fault
from guardmark.datasets.formats.files import read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


_MOST_FAULTS: Final = 3
_SHAPE: Final = '{"a": "...", "b": "...", "same": true, "group": "..."}'


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPair:
    """Two texts, labelled with whether both ask for the same.

    Attributes:
        first: One text.
        second: The other.
        is_same: Whether both ask for the same.
        group: Pairs of one group are alike; the first text where none is stated.
    """

    first: str
    second: str
    is_same: bool
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFile:
    """The pairs of a file.

    Attributes:
        name: Name of the file.
        sha256: Hash of its bytes, in hex.
        pairs: Its pairs, in order.
    """

    name: str
    sha256: str
    pairs: tuple[LabelledPair, ...]


def read_pairs(path: Path) -> PairFile:
    """Read labelled pairs."""
    spec = DatasetSpec(name="", path=path, shown_as=str(path), format="jsonl")
    pairs: list[LabelledPair] = []
    faults: list[str] = []
    for number, row in read_rows(spec):
        if isinstance(row, Fault):
            faults.append(f"{path}:{number}: {row}")
            continue
        pair = _pair(row)
        if isinstance(pair, LabelledPair):
            pairs.append(pair)
        else:
            faults.append(f"{path}:{number}: {pair}")
    if len(faults) > _MOST_FAULTS:
        faults[_MOST_FAULTS:] = [f"and {len(faults) - _MOST_FAULTS} more"]
    if not pairs and not faults:
        faults = [f"{path} holds no pair."]
    if faults:
        raise DatasetError("\n".join([*faults, f"A line reads: {_SHAPE}"]))
    digest = sha256(path.read_bytes()).hexdigest()
    return PairFile(name=path.name, sha256=digest, pairs=tuple(pairs))


def _pair(row: Mapping[str, Any]) -> LabelledPair | str:
    """Return the pair of a line, or what is wrong with it."""
    lacking = [name for name in ("a", "b", "same") if row.get(name) is None]
    if lacking:
        return f"lacks {', '.join(lacking)}."
    for name in ("a", "b"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            return f"{name} must be a text, found {row.get(name)!r:.40}."
    if not isinstance(row.get("same"), bool):
        return f"same must be true or false, found {row.get('same')!r:.40}."
    group = row.get("group")
    if group is not None and not isinstance(group, str | int):
        return f"group must be a text or a number, found {group!r:.40}."
    return LabelledPair(
        first=row["a"],
        second=row["b"],
        is_same=row["same"],
        group=row["a"] if group is None else str(group),
    )
