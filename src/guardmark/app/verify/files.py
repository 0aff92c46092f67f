"""The other artefacts of a run against what was stored: lines, tables, manifest, data."""

from __future__ import annotations

import csv
import html
import io
import re
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.difference import Finding
from guardmark.app.verify.lines import compare_lines, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
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
    """Compare every line of `results.jsonl` with the record it tells.

    Args:
        path: The file.
        source: All that the run stored.
        comparer: Takes what differs.
    """
    compare_lines(path, map(_line, source.lines()), comparer)


def check_trace(path: Path, source: Source, comparer: Comparer) -> None:
    """Compare every line of `trace.jsonl` with the try it tells.

    Args:
        path: The file.
        source: All that the run stored.
        comparer: Takes what differs.
    """
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


def check_table(path: Path, summary: Json, comparer: Comparer, *, facets: Sequence[str]) -> None:
    """Compare a CSV of slices with the slices that were counted again.

    Args:
        path: The file.
        summary: The figures as counted again, in the shape of `summary.json`.
        comparer: Takes what differs.
        facets: Which facets the file tells.
    """
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
    known = {defense["name"] for defense in summary["defenses"]}
    rows = [row for row in rows if row.get("defense", "").lstrip("'") in known and _is_own(row)]
    wanted = list(_table_rows(summary, facets))
    comparer.value(path.name, "rows", said=len(rows), found=len(wanted))
    for number, (row, found) in enumerate(zip(rows, wanted, strict=False), 2):
        for column, value in found.items():
            place = f"row {number}, {column}"
            comparer.value(path.name, place, said=_cell(row.get(column), value), found=value)


def _is_own(row: dict[str, str]) -> bool:
    """Rows of a pipeline's arms name another rate; they are told from other figures."""
    return row.get("rate") in {"attack_success_rate", "false_positive_rate"}


def _table_rows(summary: Json, facets: Sequence[str]) -> Iterator[Json]:
    for defense in summary["defenses"]:
        times = {
            (table["facet"], table["label"]): table["median_ms"]
            for table in summary["timing"]["defenses"][defense["name"]]["slice_medians"]
        }
        for table in defense["slices"]:
            if table["facet"] not in facets:
                continue
            is_attack = table["label"] == "attack"
            for row in table["rates"]:
                rate = row["rate"]
                greyed = row.get("is_greyed")
                said: Json = {} if greyed is None else {"is_greyed": "yes" if greyed else "no"}
                yield said | {
                    "facet": table["facet"],
                    "label": table["label"],
                    "rate": "attack_success_rate" if is_attack else "false_positive_rate",
                    "value": row["name"],
                    "asked": row["asked"],
                    "answered": rate["trials"],
                    "errors_counted": rate["successes"],
                    "estimate": rate["value"],
                    "low": rate["low"],
                    "high": rate["high"],
                    "confidence": rate["confidence"],
                    "method": rate["method"],
                    "groups": rate["groups"],
                    "effective_n": rate["effective_n"],
                    "design_effect": rate["design_effect"],
                    "folded": row["folded"],
                    "median_latency_ms": times[table["facet"], table["label"]][row["name"]],
                }


def _cell(text: str | None, beside: object) -> object:
    """Read a cell in the type of what it is compared with."""
    if text is None or (text == "" and beside is None):
        return None
    if isinstance(beside, int | float):
        try:
            return float(text)
        except ValueError:
            return text
    # A cell that a spreadsheet could take for a formula is kept inert by an apostrophe.
    return text[1:] if isinstance(beside, str) and text == f"'{beside}" else text


def check_verdicts(path: Path, verdicts: Json, comparer: Comparer) -> None:
    """Look for the verdict line of every defense in a report.

    Args:
        path: `summary.md` or `report.html`.
        verdicts: Defense to the line as made again.
        comparer: Takes what is not there.
    """
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
