"""Answers of a target model to an adaptive attacker, on the second path of `verify`."""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.difference import Finding

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.app.verify.difference import Comparer
    from guardmark.app.verify.source import Answer, Source

Json = dict[str, Any]

_TARGET: Final = "adaptive/target"
_CANARIES: Final = "adaptive/canaries"
_VERDICT: Final = "adaptive/verdict"


def is_about_target(layer: str) -> bool:
    """Tell whether tries of a layer are answers of the target model or its judges.

    Args:
        layer: Name of the layer.
    """
    return layer in {_TARGET, _CANARIES} or layer.split("/")[:2] == ["adaptive", "verdict"]


def check_target(path: Path, source: Source, comparer: Comparer) -> None:
    """Compare every line of `target.jsonl` with the answer it tells.

    Args:
        path: The file.
        source: All that the run stored.
        comparer: Takes what differs.
    """
    layers = list(source.layers)
    told = [answer for answer in source.answers("try") if is_about_target(answer.layer)]
    told.sort(key=lambda each: layers.index(each.layer))
    found = [{"arm": _TARGET, "settings": source.layers.get(_TARGET, {})}, *map(_line, told)]
    said = path.read_text(encoding="utf-8").splitlines()
    comparer.value(path.name, "lines", said=len(said), found=len(found))
    for number, (line, wanted) in enumerate(zip_longest(said, found), 1):
        if line is None or wanted is None:
            return
        comparer.compared += len(wanted)
        parsed = _parsed(line)
        if parsed != wanted:
            comparer.findings.append(
                Finding(
                    file=path.name,
                    place=f"line {number}",
                    said=f"{line:.60}",
                    found=f"{json.dumps(wanted):.60}",
                )
            )


def _line(answer: Answer) -> Json:
    note = _parsed(answer.text or "{}")
    return {
        "defense": answer.defense,
        "arm": answer.layer,
        "try": answer.repeat,
        "sample": None if answer.layer == _CANARIES else answer.subject.id,
        **(note if isinstance(note, dict) else {}),
        "outcome": answer.outcome,
        "score": answer.score,
        "mode": answer.answer_mode,
        "error": answer.error_kind,
    }


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None
