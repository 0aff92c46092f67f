"""Lines of JSON in an artefact against what the records tell, one by one."""

from __future__ import annotations

import json
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any

from guardmark.app.verify.difference import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from guardmark.app.verify.difference import Comparer

Json = dict[str, Any]


def parsed(line: str | bytes) -> Any:
    """Return what JSON says, or None where it cannot be read."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def compare_lines(path: Path, told: Iterable[Json], comparer: Comparer, *, above: int = 0) -> None:
    """Compare each line of a file with what it should tell, then how many there are."""
    said = found = 0
    with path.open(encoding="utf-8") as stream:
        lines = islice(stream, above, None)
        for number, (line, wanted) in enumerate(zip_longest(lines, told), 1 + above):
            said, found = said + (line is not None), found + (wanted is not None)
            if line is None or wanted is None:
                continue
            there = parsed(line)
            if there != wanted:
                strange = _first_difference(there, wanted)
                comparer.findings.append(
                    Finding(
                        file=path.name, place=f"line {number}", said=strange[0], found=strange[1]
                    )
                )
            comparer.compared += len(wanted)
    if said != found:
        comparer.value(path.name, "lines", said=said, found=found)


def _first_difference(said: object, found: Json) -> tuple[str, str]:
    """Return what stands at the first key on which two unequal lines differ, and what should."""
    if not isinstance(said, dict):
        return "no JSON object", f"the record of {found.get('id', found.get('sample'))!r}"
    key = next(
        key
        for key in [*found, *said]
        if said.get(key) != found.get(key) or key not in said or key not in found
    )
    return f"{key} {said.get(key)!r:.60}", f"{key} {found.get(key)!r:.60}"
