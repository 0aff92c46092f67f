"""Tables that anybody writes: a text, its label and what a defense decided, one row an answer."""

from __future__ import annotations

import csv
import tomllib
from dataclasses import replace
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import DatasetError, listed
from guardmark.core.outcome import Evidence, Outcome
from guardmark.core.sample import Label, Prompt, Sample
from guardmark.importers import imported

if TYPE_CHECKING:
    from guardmark.core.outcome import Decision
    from guardmark.importers.imported import Statements

_HINT: Final = "Name a table with a header (.csv, .tsv) or JSON lines (.jsonl)."
_TABLE: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def read_table(path: Path, statements: Statements) -> imported.ImportedRun:
    """Read what one defense decided of each text; rows of one id are repeats.

    A decision that is neither yes nor no is malformed, and one beside an error is an error. Of
    several defenses in one file the person names the one to take.
    """
    data, warnings = imported.bytes_of(path, hint=_HINT), list[str]()
    rows = _rows(path, data, warnings)
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {
        key: next(filter(names.__contains__, of), "") for key, of in _TABLE["columns"].items()
    }
    for key in ("text", "blocked"):
        if not (columns[key] or (key == "blocked" and columns["passed"])):
            wanted = ", ".join(_TABLE["columns"][key])
            raise DatasetError(f"{path} has no column {wanted}; it has {listed(names)}.\n{_HINT}")
    guard = imported.one_of(
        (imported.word(r, columns["defense"]) for r in rows), statements.model, "defense", path
    )
    samples: dict[str, Sample] = {}
    pairs = []
    for at, row in enumerate(rows, start=1):
        if imported.word(row, columns["defense"]) != guard:
            continue
        sample = _sample(row, columns, at, statements.label)
        if not isinstance(sample, str) and samples.setdefault(sample.id, sample) != sample:
            raise DatasetError(f"{path}: the id {sample.id!r} stands for two samples.\n{_HINT}")
        pairs.append((sample, imported.ImportedAnswer(decision=_decision(row, columns))))
    taken = imported.rows_of(pairs, "row", warnings)
    if not taken:
        raise DatasetError(f"{path} holds no row with a text and a label.\nNext: --label attack.")
    return imported.ImportedRun(
        tool="table",
        guard=guard or path.stem,
        rows=taken,
        files={path.name: sha256(data).hexdigest()},
        warnings=tuple(warnings),
    )


def _sample(
    row: imported.Object, columns: dict[str, str], at: int, label: Label | None
) -> Sample | str:
    text = imported.word(row, columns["text"])
    if (is_attack := _yes_or_no(row.get(columns["label"]))) is not None:
        label = Label.ATTACK if is_attack else Label.BENIGN
    if not text.strip() or label is None:
        return "without a text" if label else "without a label"
    return Sample(
        id=imported.word(row, columns["id"]) or f"row-{at}",
        prompt=Prompt.of_text(text),
        label=label,
        category=imported.word(row, "category"),
        technique=imported.word(row, "technique"),
        language=imported.word(row, "language"),
        group=imported.word(row, columns["group"]),
        source="table",
    )


def _rows(path: Path, data: bytes, warnings: list[str]) -> list[imported.Object]:
    if path.suffix not in {".csv", ".tsv"}:
        rows = [row for _, row in imported.objects_of(data, path, warnings)]
        return [{key.strip().lower(): value for key, value in row.items()} for row in rows]
    csv.field_size_limit(max(csv.field_size_limit(), len(data)))  # of the process: never lowered
    try:
        lines = StringIO(data.decode("utf-8-sig"), newline="")
        read = csv.DictReader(lines, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
        return [{(k or "").strip().lower(): v or "" for k, v in row.items()} for row in read]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path} is not a table in UTF-8: {error}.\n{_HINT}") from error


def _yes_or_no(value: object) -> bool | None:
    written, words = str(value).strip().lower(), _TABLE["words"]
    return True if written in words["yes"] else False if written in words["no"] else None


def _decision(row: imported.Object, columns: dict[str, str]) -> Decision:
    value = row.get(columns["blocked"] or columns["passed"])
    is_yes = _yes_or_no(value)
    # any-guardrail says of an answer it could not read that it is not valid.
    if imported.inner(row, "extra").get("parse_failure") is True:
        is_yes = None
    is_blocked = None if is_yes is None else is_yes == bool(columns["blocked"])
    decision = imported.decision_of(
        is_blocked, imported.word(row, columns["error"]), score=row.get(columns["score"])
    )
    if decision.outcome is Outcome.MALFORMED:
        return replace(decision, evidence=Evidence(raw=str(value)[:500]))
    return decision
