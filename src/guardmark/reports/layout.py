"""JSON laid out for two readers: one line for a small thing, indented where things nest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Tree = dict[str, "Tree"] | list["Tree"] | str | float | int | bool | None


_WIDEST: Final = 400  # an estimate, all of its fields, is some 350 characters


def lay_out(value: Tree) -> str:
    """Write a value as JSON.

    A list that holds nothing but words and numbers takes one line, and so does an object that is
    no wider than an estimate: half of the bytes are no longer indentation, and the compiled
    encoder of the standard library, which cannot indent, writes nearly all of it.
    """
    return "".join(_parts(value, "")) + "\n"


def _parts(value: Tree, indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        line = _line(value) if _is_flat(value.values()) else ""
        heads = [f"{_line(key)}: " for key in value]
        entries, brackets = list(value.values()), "{}"
    elif isinstance(value, list):
        line = _line(value) if _is_flat(value) else ""
        heads, entries, brackets = [""] * len(value), value, "[]"
    else:
        yield _line(value)
        return
    if line and (len(line) <= _WIDEST or isinstance(value, list)):
        yield line
        return
    for number, (head, entry) in enumerate(zip(heads, entries, strict=True)):
        yield f"{',' if number else brackets[0]}\n{indent}  {head}"
        yield from _parts(entry, f"{indent}  ")
    yield f"\n{indent}{brackets[1]}"


def _line(value: Tree) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _is_flat(values: Iterable[Tree]) -> bool:
    return not any(isinstance(each, dict | list) for each in values)
