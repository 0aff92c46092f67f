"""Tables that anybody writes: a text, its label and what a defense decided, one row an answer."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import DatasetError, counted, listed
from guardmark.core.outcome import Evidence, Outcome, ScoreKind
from guardmark.core.sample import Label, Prompt, Sample
from guardmark.defenses.answers import ConfidenceRange
from guardmark.interchange import imported
from guardmark.interchange.records.reading import is_records
from guardmark.parsing.foreign_text import doubled_columns, table_records
from guardmark.parsing.labels import is_benign_column, read_is_blocked, read_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.core.outcome import Decision
    from guardmark.interchange.imported import Statements

_HINT: Final = "Name a table with a header (.csv, .tsv) or JSON lines (.jsonl)."
_TABLE: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def read_table(path: Path, statements: Statements) -> imported.ImportedRun:
    """Read what one defense decided of each text; rows of one id are repeats.

    A decision that is neither yes nor no is malformed, and one beside an error is an error. Of
    several defenses in one file the person names the one to take.
    """
    data, warnings = imported.bytes_of(path, hint=_HINT), list[str]()
    rows = _rows(path, data, warnings)
    if rows and is_records(rows[0]):
        raise DatasetError(
            f"{path} holds records that guardmark exported: their text is what a model answered.\n"
            f"Next: guardmark import guardmark {path.name}"
        )
    columns = _columns(rows, path, statements.label)
    guard = imported.one_of(
        (imported.word(r, columns["defense"]) for r in rows), statements.model, "defense", path
    )
    pairs = []
    confidences = ConfidenceRange()
    without_score = 0
    for at, row in enumerate(rows, start=1):
        if imported.word(row, columns["defense"]) != guard:
            continue
        sample = _sample(row, columns, at, statements.label)
        decision = _decision(row, columns, statements.confidence)
        confidences.add(decision)
        stated_score = imported.word(row, columns["score"] or columns["confidence"])
        if stated_score and decision.score is None and decision.error_kind is None:
            without_score += 1
        pairs.append((sample, imported.ImportedAnswer(decision=decision)))
    if confidences.is_contradicted:
        warnings.append(
            f"{confidences.sentence}. Import it again and say what it is: --confidence risk (how "
            "dangerous the input is) or --confidence certainty (how sure the decision is)"
        )
    if without_score:
        warnings.append(f"left out, since not from 0 to 1: {counted(without_score, 'score')}")
    taken = imported.rows_of(pairs, "row", warnings)
    if not taken:
        left_out = "".join(f"{warning}.\n" for warning in warnings[:2])
        raise DatasetError(
            f"{path} holds no row with a text and a label.\n{left_out}"
            "Next: add a column label (attack, benign); or, if every row is one of both, --label."
        )
    return imported.ImportedRun(
        tool="table",
        guard=guard or path.stem,
        rows=taken,
        files={path.name: sha256(data).hexdigest()},
        readings=tuple(_readings(columns, statements)),
        warnings=tuple(warnings),
    )


def _columns(rows: list[imported.Object], path: Path, stated: Label | None) -> dict[str, str]:
    """Return which column holds what; one column is never taken for two things."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {
        key: next(filter(names.__contains__, of), "") for key, of in _TABLE["columns"].items()
    }
    passed = [name for name in _TABLE["columns"]["passed"] if name in names]
    columns["passed"] = next((name for name in passed if name != columns["label"]), "")
    if stated is not None and columns["label"] in passed and not _decides(columns):
        # The only column of its kind, beside a label that a person states: it is the decision.
        columns |= {"passed": columns["label"], "label": ""}
    if not columns["text"] or not _decides(columns):
        wanted = ", ".join(_TABLE["columns"]["blocked" if columns["text"] else "text"])
        raise DatasetError(f"{path} has no column {wanted}; it has {listed(names)}.\n{_HINT}")
    return columns


def _decides(columns: dict[str, str]) -> bool:
    """Tell whether a column holds decisions."""
    return bool(columns["blocked"] or columns["passed"])


def _readings(columns: dict[str, str], statements: Statements) -> Iterator[str]:
    """Say which column was taken for what."""
    column = columns["blocked"] or columns["passed"]
    yes, no = "blocked", "allowed"
    if read_is_blocked("true", column=column) is False:
        yes, no = no, yes
    yield f"the decision was read from the column {column!r}: true = {yes}, false = {no}"
    if columns["label"]:
        meaning = "benign" if is_benign_column(columns["label"]) else "attack"
        yield f"the label was read from the column {columns['label']!r}: true = {meaning}"
    elif statements.label is not None:
        label = statements.label.value
        yield f"no column states a label: every row was taken as {label}, as you said"
    if columns["score"]:
        how = ", turned where it allowed" if statements.confidence == "certainty" else ""
        yield f"the score was read from the column {columns['score']!r}{how}"
        if columns["confidence"]:
            yield f"the column {columns['confidence']!r} was left out: a score stands beside it"
    elif columns["confidence"]:
        meanings = {
            "risk": "as a risk, as you said",
            "certainty": "as the certainty of the decision, turned where it allowed, as you said",
            "": "as a risk, the higher the more dangerous (--confidence certainty: how sure a "
            "decision is)",
        }
        yield (
            f"the score was read from the column {columns['confidence']!r} "
            f"{meanings[statements.confidence]}"
        )


def _sample(
    row: imported.Object, columns: dict[str, str], at: int, label: Label | None
) -> Sample | str:
    """Make the sample of a row, or say why it is left out."""
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
    """Read the rows of a table or of JSON lines, by names in small letters."""
    if path.suffix.lower() in {".csv", ".tsv"}:
        tabs = path.suffix.lower() == ".tsv"
        rows = [row for _, row in table_records(data, path.name, warnings, tabs=tabs)]
        if not warnings and not data.rstrip(b"\0").endswith(b"\n"):  # zeros: UTF-16
            warnings.append(
                f"{path.name} does not end with an end of line, as a file that was cut off does"
            )
        return rows
    rows = []
    for number, row in imported.objects_of(data, path, warnings):
        twice = doubled_columns(list(row))
        if twice:
            names = ", ".join(twice)
            raise DatasetError(f"{path}:{number}: more than one member is called {names}.\n{_HINT}")
        rows.append({key.strip().lower(): value for key, value in row.items()})
    return rows


def _decision(row: imported.Object, columns: dict[str, str], meaning: str) -> Decision:
    """Read what the defense decided, with its score."""
    column = columns["blocked"] or columns["passed"]
    value = row.get(column)
    is_blocked = read_is_blocked(value, column=column)
    # any-guardrail says of an answer it could not read that it is not valid.
    if imported.inner(row, "extra").get("parse_failure") is True:
        is_blocked = None
    why = imported.word(row, columns["error"])
    score = read_number(row.get(columns["score"] or columns["confidence"]))
    if meaning == "certainty" and is_blocked is False and score is not None:
        score = 1.0 - score
    is_explained = meaning or columns["score"]
    kind = ScoreKind.SELF_REPORTED if is_explained else ScoreKind.CONFIDENCE
    decision = imported.decision_of(is_blocked, why, score=score, kind=kind)
    if decision.outcome is Outcome.MALFORMED:
        return replace(decision, evidence=Evidence(raw=str(value)[:500]))
    return decision
