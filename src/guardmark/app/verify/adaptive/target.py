"""Answers of a target model to an adaptive attacker, on the second path of `verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.lines import compare_lines, parsed

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.app.verify.difference import Comparer
    from guardmark.app.verify.source import Answer, Source

Json = dict[str, Any]

_TARGET: Final = "adaptive/target"
_CANARIES: Final = "adaptive/canaries"
_VERDICT: Final = "adaptive/verdict"


def _is_about_target(layer: str) -> bool:
    """Tell whether tries of a layer are answers of the target model or its judges."""
    return layer in {_TARGET, _CANARIES, _VERDICT} or layer.startswith(f"{_VERDICT}/")


def check_target(path: Path, source: Source, comparer: Comparer) -> None:
    """Compare every line of `target.jsonl` with the answer it tells."""
    layers = list(source.layers)
    told = [answer for answer in source.answers("try") if _is_about_target(answer.layer)]
    told.sort(key=lambda each: layers.index(each.layer))
    head = {"arm": _TARGET, "settings": source.layers.get(_TARGET, {})}
    compare_lines(path, [head, *map(_line, told)], comparer)


def _line(answer: Answer) -> Json:
    note = parsed(answer.text or "{}")
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
