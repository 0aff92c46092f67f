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
from guardmark.parsing.labels import is_benign_column, read_is_blocked

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    warnings += _readings(columns, statements.label)
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


def _readings(columns: dict[str, str], stated: Label | None) -> Iterator[str]:
    """Say which column was taken for what."""
    column = columns["blocked"] or columns["passed"]
    yes, no = "blocked", "allowed"
    if read_is_blocked("true", column=column) is False:
        yes, no = no, yes
    yield f"the decision was read from the column {column!r}: true = {yes}, false = {no}"
    if columns["label"]:
        meaning = "benign" if is_benign_column(columns["label"]) else "attack"
        yield f"the label was read from the column {columns['label']!r}: true = {meaning}"
    elif stated is not None:
        yield f"no column states a label: every row was taken as {stated.value}, as you said"
    if columns["score"]:
        yield f"the score was read from the column {columns['score']!r}"


def _sample(
    row: imported.Object, columns: dict[str, str], at: int, label: Label | None
) -> Sample | str:
    text = imported.word(row, columns["text"])
    stated = row.get(columns["label"])
    label = imported.label_of(stated, label, column=columns["label"])
    if not text.strip():
        return "without a text"
    if label is None:
        return imported.why_unlabelled(stated)
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
        text = data.decode("utf-16" if data[:2] in _UTF_16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not a table in UTF-8: {error}.\n{_HINT}") from error
    try:
        return list(_records(text, _delimiter(path, text), path))
    except csv.Error as error:
        raise DatasetError(f"{path} is not a table: {error}.\n{_HINT}") from error


_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")


def _delimiter(path: Path, text: str) -> str:
    """Return what parts the cells: a tab, or of comma and semicolon the one that the header has."""
    if path.suffix == ".tsv":
        return "\t"
    header = text.partition("\n")[0]
    return ";" if header.count(";") > header.count(",") else ","


def _records(text: str, delimiter: str, path: Path) -> Iterator[imported.Object]:
    """Yield the rows by the names of the header; a row with more cells than names is refused."""
    reader = csv.DictReader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    for number, row in enumerate(reader, start=2):
        if None in row:
            raise DatasetError(
                f"{path}:{number}: has more cells than the header has names; a text that holds "
                f"{delimiter!r} needs quotes around it.\n{_HINT}"
            )
        yield {(key or "").strip().lower(): value or "" for key, value in row.items()}


def _decision(row: imported.Object, columns: dict[str, str]) -> Decision:
    column = columns["blocked"] or columns["passed"]
    value = row.get(column)
    is_blocked = read_is_blocked(value, column=column)
    # any-guardrail says of an answer it could not read that it is not valid.
    if imported.inner(row, "extra").get("parse_failure") is True:
        is_blocked = None
    decision = imported.decision_of(
        is_blocked, imported.word(row, columns["error"]), score=row.get(columns["score"])
    )
    if decision.outcome is Outcome.MALFORMED:
        return replace(decision, evidence=Evidence(raw=str(value)[:500]))
    return decision
