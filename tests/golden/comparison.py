"""What counts as the same: frozen files against files made anew, and what may differ."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from itertools import islice
from math import isclose
from typing import TYPE_CHECKING, Any, Final

from guardmark.store.schema import FLAG_COLD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SHOWN_LINES: Final = 40
_SHOWN_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedChange:
    """Lines of a report.html that may be replaced by others, and why.

    Attributes:
        old: Consecutive lines of the frozen page; empty where lines are only added.
        new: Lines that stand there now; empty where lines are only removed.
        why: The reason, as the changelog gives it.
    """

    old: tuple[str, ...]
    new: tuple[str, ...]
    why: str


ALLOWED_IN_REPORT_HTML: tuple[AllowedChange, ...] = ()
"""Every difference of report.html that was decided on; none so far."""

VOLATILE: Final = (
    # An Inspect log names the guardmark that exported it, not the one that ran.
    (re.compile(r"/inspect/.*\.json$"), re.compile(rb'("guardmark": ?)"[^"]*"'), rb'\1"-"'),
    # Limits on systems and judges came after the frozen runs, which set none.
    (
        re.compile(r"config\.resolved\.yaml$"),
        re.compile(
            rb"  system:\n    asr_upper: null\n    over_refusal_upper: null\n"
            rb"    per_category: \{\}\n  judge:\n    min_agreement: null\n"
        ),
        b"",
    ),
    # So did the part and the data that each line of the results names,
    (re.compile(r"results\.jsonl$"), re.compile(rb',"part":\{[^{}]*\},"data":"[0-9a-f]*"'), b""),
    # and the choice of the judging that figures stand on.
    (re.compile(r"config\.resolved\.yaml$"), re.compile(rb"  headline: ''\n"), b""),
    # and guards that are asked once for all repeats.
    (re.compile(r"config\.resolved\.yaml$"), re.compile(rb"  deterministic: \[\]\n"), b""),
    (re.compile(r"config\.resolved\.yaml$"), re.compile(rb"  repeat_guards: false\n"), b""),
    # Shards came after the frozen runs, which are whole.
    (re.compile(r"config\.resolved\.yaml$"), re.compile(rb"  shard: null\n"), b""),
    # Since ADR 0035 reports name the head of the records; those of the frozen runs do not yet.
    (re.compile(r"report\.html$"), re.compile(rb"<div><dt>Head of the records.*\n"), b""),
    (re.compile(r"summary\.md$"), re.compile(rb"- Head of the records: .*\n"), b""),
    (
        re.compile(r"(junit|gate)\.xml$"),
        re.compile(rb" *<properties>\n.*guardmark\.records_head.*\n *</properties>\n"),
        b"",
    ),
)
"""Pattern of a file's path, and what is replaced in its bytes by what before comparing."""

_NUMBER: Final = re.compile(rb"(-?\d+\.\d+(?:[eE][-+]?\d+)?)")
"""A number with a fraction; counts are compared as text."""

_EXPECTED: Final = re.compile(r"; expected .*$")
"""What a message says could have been returned: it grows with the shapes that are read."""

_TIMES: Final = frozenset({"latency_ns", "service_ns", "started_ns"})
"""Keys of a record that say how long something took; found at any depth."""


def differences(frozen: Mapping[str, bytes], made: Mapping[str, bytes]) -> list[str]:
    """Compare folders of files; return one short text for each file that differs."""
    said = [f"{name}: is not made any more" for name in sorted(frozen.keys() - made.keys())]
    said += [f"{name}: was not there" for name in sorted(made.keys() - frozen.keys())]
    for name in sorted(frozen.keys() & made.keys()):
        told = difference(name, frozen[name], made[name])
        said += [told] if told else []
    return said


def difference(name: str, frozen: bytes, made: bytes) -> str:
    """Compare one file; return the first lines of a unified diff, or nothing when equal."""
    old, new = _steadied(name, frozen), _steadied(name, made)
    if old == new or _is_rounding(old, new):
        return ""
    if name.endswith("report.html") and _is_allowed(old, new):
        return ""
    return _unified(name, old, new)


def _steadied(name: str, content: bytes) -> bytes:
    """Replace what is volatile in a file."""
    for path, found, replacement in VOLATILE:
        if path.search(name):
            content = found.sub(replacement, content)
    return content


def _is_allowed(frozen: bytes, made: bytes) -> bool:
    """Tell whether every changed run of lines is on the list."""
    allowed = {(change.old, change.new) for change in ALLOWED_IN_REPORT_HTML}
    if not allowed:
        return False
    old, new = frozen.decode().splitlines(), made.decode().splitlines()
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return all(
        kind == "equal" or (tuple(old[a:b]), tuple(new[c:d])) in allowed
        for kind, a, b, c, d in matcher.get_opcodes()
    )


def _is_rounding(frozen: bytes, made: bytes) -> bool:
    """Tell whether only the last digits of numbers differ.

    numpy takes other instructions on other processors, and sums then end in other digits.
    """
    old, new = (_NUMBER.split(content) for content in (frozen, made))
    return len(old) == len(new) and all(
        before == now
        or (at % 2 == 1 and isclose(float(before), float(now), rel_tol=1e-9, abs_tol=1e-12))
        for at, (before, now) in enumerate(zip(old, new, strict=True))
    )


def _unified(name: str, frozen: bytes, made: bytes) -> str:
    old, new = (content.decode(errors="replace").splitlines() or [""] for content in (frozen, made))
    lines = unified_diff(old, new, f"frozen/{name}", f"now/{name}", lineterm="", n=1)
    shown = [line[:_SHOWN_CHARACTERS] for line in islice(lines, _SHOWN_LINES)]
    return "\n".join(shown or [f"{name}: differs in line ends only"])


_LATER: Final = {"part", "data"}
"""Fields of a record that came after the frozen runs: which part gave it, and of which data."""


def record_differences(frozen: bytes, made: bytes) -> list[str]:
    """Compare results.jsonl of two makings by key, times left out; return what differs."""
    old, new = _by_key(frozen), _by_key(made)
    said = [f"{key}: is not recorded any more" for key in old.keys() - new.keys()]
    said += [f"{key}: was not recorded" for key in new.keys() - old.keys()]
    for key in old.keys() & new.keys():
        fields = old[key].keys() | (new[key].keys() - _LATER)
        for field in fields:
            before, now = old[key].get(field), new[key].get(field)
            if before != now:
                said.append(f"{key}: {field}: {before!r} -> {now!r}"[:_SHOWN_CHARACTERS])
    return sorted(said)[:_SHOWN_LINES]


def _by_key(content: bytes) -> dict[tuple[str, ...], dict[str, Any]]:
    """Read records by defense, sample id, repeat, stage and layer."""
    rows = list(_rows(content.decode().splitlines()))
    keys = ("defense", "id", "repeat", "stage", "layer")
    found = {tuple(str(row[key]) for key in keys): row for row in rows}
    if len(found) < len(rows):
        raise AssertionError("two records have the same key")
    return found


def _rows(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        yield _timeless(json.loads(line))


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        # Which sample is asked about first is a matter of order, as times are.
        fields = {k: v & ~FLAG_COLD if k == "flags" else v for k, v in value.items()}
        return {key: _timeless(each) for key, each in fields.items() if key not in _TIMES}
    if isinstance(value, str):
        return _EXPECTED.sub("", value)
    return [_timeless(each) for each in value] if isinstance(value, list) else value
