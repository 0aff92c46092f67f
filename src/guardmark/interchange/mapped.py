"""Decisions of live guards in the exports of other tools, read by a mapping file."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import DatasetError
from guardmark.core.outcome import Evidence, Outcome
from guardmark.core.sample import Prompt, Sample
from guardmark.interchange import imported
from guardmark.parsing.mapped import (
    field_at,
    found_at,
    has_failed,
    is_wanted,
    read_decision,
    read_mapping,
    sample_fields,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from guardmark.core.outcome import Decision
    from guardmark.interchange.imported import Object, Statements
    from guardmark.parsing.mapped import RowMapping, ToolMapping

_MOST_EVIDENCE: Final = 500


def read_mapped(tool: str, path: Path, statements: Statements) -> imported.ImportedRun:
    """Read what a guard decided of each text; of several guards the person names one."""
    mapping = read_mapping(tool)
    data = imported.bytes_of(path, hint=mapping.hint)
    warnings: list[str] = []
    rows = []
    for document in _documents(path, data, mapping, warnings):
        for row in mapping.rows(document):
            if is_wanted(row, mapping.decisions):
                rows.append(row)
    if not rows:
        raise DatasetError(
            f"{path} holds no decision of a guard, as {mapping.name} keeps them.\n{mapping.hint}\n"
            f"Next: to use its texts as data, name it there: {{path: {path.name}, format: {tool}}}."
        )
    rules = mapping.decisions
    names = [_word(row, rules, "guard") for row in rows]
    guard = imported.one_of(names, statements.model, "guard", path)
    pairs = []
    for row, name in zip(rows, names, strict=True):
        if name == guard:
            answer = imported.ImportedAnswer(decision=_decision(row, rules))
            pairs.append((_sample(row, rules, statements), answer))
    taken = imported.rows_of(pairs, mapping.noun, warnings)
    if not taken:
        left_out = "".join(f"{warning}.\n" for warning in warnings[:2])
        raise DatasetError(
            f"{path} holds no decision with a text and a label.\n{left_out}"
            "Next: if all of them are one of both, say which: --label attack or --label benign."
        )
    created = [_word(row, rules, "created") for row in rows]
    return imported.ImportedRun(
        tool=mapping.name,
        guard=guard or path.stem,
        created_utc=max(created, default=""),
        rows=taken,
        files={path.name: sha256(data).hexdigest()},
        readings=(_reading(rules),),
        warnings=tuple(warnings),
    )


def _reading(rules: RowMapping) -> str:
    """Say what the decision was read from."""
    paths = ", ".join(rules.fields.get("decision", ()))
    return f"the decision was read from {paths}: true or a word such as blocked = blocked"


def _documents(
    path: Path, data: bytes, mapping: ToolMapping, warnings: list[str]
) -> Iterator[object]:
    """Yield the documents of a file: its lines, or the members of one list or object."""
    if data.lstrip()[:1] == b"[":
        wrapped = b'{"rows": ' + data + b"}"
        yield imported.object_of(wrapped, str(path), hint=mapping.hint)["rows"]
        return
    if path.suffix.lower() == ".json":
        yield imported.object_of(data, str(path), hint=mapping.hint)
        return
    for _, document in imported.objects_of(data, path, warnings):
        yield document


def _word(row: Object, rules: RowMapping, name: str) -> str:
    """Return a field of a row as text."""
    return imported.word({name: field_at(row, rules, name)}, name)


def _sample(row: Object, rules: RowMapping, statements: Statements) -> Sample | str:
    """Make the sample of a row, or say why it is left out."""
    fields = sample_fields(row, rules)
    prompt = _prompt(fields)
    label = imported.label_of(fields.get("label"), statements.label)
    if prompt is None:
        return "without a text"
    if label is None:
        return imported.why_unlabelled(fields.get("label"))
    identity = imported.word(fields, "id") or sha256(prompt.digest()).hexdigest()[:16]
    facets = imported.facets_of(fields)
    return Sample(
        id=identity,
        prompt=prompt,
        label=label,
        group=imported.word(fields, "group"),
        **(facets | {"source": facets["source"] or "trace"}),
    )


def _prompt(fields: dict[str, Any]) -> Prompt | None:
    """Return what a guard was shown: messages, or a text."""
    messages = fields.get("messages")
    if messages:
        turns = [(str(each["role"]), each["content"]) for each in messages]
        return imported.prompt_of(turns)
    text = imported.word(fields, "text")
    if text.strip():
        return Prompt.of_text(text)
    return None


def _decision(row: Object, rules: RowMapping) -> Decision:
    """Read what a guard decided."""
    if has_failed(row, rules):
        why = _word(row, rules, "error") or "it failed"
        return imported.decision_of(None, why)
    path, value = found_at(row, rules, "decision")
    is_blocked = read_decision(value, rules, column=path.rpartition(".")[2])
    decision = imported.decision_of(is_blocked, score=field_at(row, rules, "score"))
    if decision.outcome is Outcome.MALFORMED:
        return replace(decision, evidence=Evidence(raw=str(value)[:_MOST_EVIDENCE]))
    return decision
