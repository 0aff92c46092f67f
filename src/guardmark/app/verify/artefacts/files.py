"""The other artefacts of a run against what was stored: its lines, and its verdicts."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.difference import Finding
from guardmark.app.verify.lines import compare_lines, parsed

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.app.verify.difference import Comparer
    from guardmark.app.verify.source import Answer, Source

Json = dict[str, Any]

_ARMS: Final = (
    *("adaptive", "adaptive/blind", "adaptive/null", "adaptive/gradient"),
    *("adaptive/attacker", "adaptive/equivalence", "adaptive/candidates", "adaptive/critic"),
    *("adaptive/twin/attacker", "adaptive/twin/equivalence", "adaptive/twin/candidates"),
)
"""Layers of an adaptive measurement of one seed, in the order of its trace."""


def check_lines(path: Path, source: Source, comparer: Comparer) -> None:
    """Compare every line of `results.jsonl` with the record it tells."""
    compare_lines(path, map(_line, source.lines()), comparer)


def check_trace(path: Path, source: Source, comparer: Comparer) -> None:
    """Compare every line of `trace.jsonl` with the try it tells."""
    settings = source.layers.get(_ARMS[0], {})
    layers = _layers(int(settings.get("seeds", 1)))
    tries = [answer for answer in source.answers("try") if answer.layer in layers]
    with path.open(encoding="utf-8") as lines:
        head = parsed(next(lines, ""))
    told = head.get("defenses") if isinstance(head, dict) else None
    order = told if isinstance(told, list) else []
    asked = list(dict.fromkeys(answer.defense for answer in tries))
    comparer.value(path.name, "defenses", said=sorted(map(str, order)), found=sorted(asked))
    for name, found in (("data", source.manifest.get("data_sha256")), ("settings", settings)):
        said = head.get(name) if isinstance(head, dict) else None
        comparer.value(path.name, name, said=said, found=found)
    order = [*order, *asked]
    tries.sort(key=lambda each: (order.index(each.defense), layers.index(each.layer)))
    compare_lines(path, map(_try, tries), comparer, above=1)


def _layers(seeds: int) -> list[str]:
    """Return the layers of a trace in its order: what defenses were asked, then models."""
    more = [
        f"adaptive/seed-{n}{arm}" for n in range(2, seeds + 1) for arm in ("", "/blind", "/null")
    ]
    return [*_ARMS[:4], *more, *_ARMS[4:]]


def _try(answer: Answer) -> Json:
    note = parsed(answer.text or "{}")
    evidence = answer.evidence if isinstance(answer.evidence, dict) else {}
    # Only what an attacker model was told of its candidates stands in a trace.
    is_told = answer.layer == _ARMS[0] and isinstance(note, dict) and note.get("round") == "R5"
    reason = evidence.get("reason") if is_told else None
    # And whether a block of round 0 spoke of a failure, but not what it said.
    is_asked = isinstance(note, dict) and note.get("round") == "R0" and answer.outcome == "block"
    failed = bool(evidence.get("message") or (evidence.get("attempts") or [[None] * 3])[-1][2])
    return {
        "defense": answer.defense,
        "arm": answer.layer,
        "try": answer.repeat,
        "sample": answer.subject.id,
        **(note if isinstance(note, dict) else {}),
        "outcome": answer.outcome,
        "score": answer.score,
        "score_kind": answer.score_kind,
        "error": answer.error_kind,
        **({"reason": reason} if reason else {}),
        **({"complaint": True} if is_asked and failed else {}),
    }


def _line(answer: Answer) -> Json:
    subject = answer.subject
    return {
        "defense": answer.defense,
        "stage": answer.stage,
        "layer": answer.layer,
        "repeat": answer.repeat,
        "position": subject.position,
        "id": subject.id,
        "sha256": subject.sha256,
        "label": "attack" if subject.is_attack else "benign",
        **subject.facets,
        "group": subject.group,
        "score": answer.score,
        "latency_ns": answer.latency_ns,
        "outcome": answer.outcome,
        "score_kind": answer.score_kind,
        "error_kind": answer.error_kind,
        "answer_mode": answer.answer_mode,
        "flags": answer.flags,
        "text": answer.text,
        "evidence": answer.evidence,
    }


def check_verdicts(path: Path, verdicts: Json, comparer: Comparer) -> None:
    """Look for the verdict line of every defense in a report."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        text = html.unescape(re.sub(r"<[^>]*>", "", text))
    else:
        text = re.sub(r"\\(.)", r"\1", html.unescape(text))
    words = " ".join(text.split())
    for name, sentence in verdicts.items():
        comparer.compared += 1
        if " ".join(sentence.split()) not in words:
            comparer.findings.append(
                Finding(
                    file=path.name,
                    place=f"verdict of {name}",
                    said="something else",
                    found=sentence,
                )
            )
