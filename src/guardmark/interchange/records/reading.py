"""Records that `guardmark export` wrote: CSV, JSON lines and Parquet, a row a record.

They hold no texts of samples, only their hashes, and not how the run was configured. What is lost
is said; decisions, verdicts, labels, groups and facets come back as they were.
"""

from __future__ import annotations

import json
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar

from guardmark.canon.visible import text_of_cell
from guardmark.core.chunks import split_prefix
from guardmark.core.errors import DatasetError, needs
from guardmark.core.outcome import (
    PROVIDER_ACTIONS,
    AnswerMode,
    BlockedAt,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    Response,
    ScoreKind,
    Verdict,
    VerdictLabel,
)
from guardmark.core.place import part_of
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.core.sample import Label, Prompt, Sample
from guardmark.interchange.imported import (
    ImportedAnswer,
    ImportedRow,
    ImportedRun,
    Object,
    bytes_of,
    facets_of,
    filtered_response,
    inner,
    objects_of,
    one_of,
    word,
)
from guardmark.parsing.foreign_text import table_records
from guardmark.parsing.labels import read_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from guardmark.interchange.imported import Statements

_HINT: Final = (
    "Name a file that guardmark export wrote: records.csv, results.jsonl, or NAME.parquet."
)
_NEEDED: Final = ("defense", "stage", "layer", "repeat", "id", "sha256", "label", "outcome")
_BARE: Final = "none"  # the arm without a guard, under whose name models and judges stand
_READ: Final = (Stage.DEFENSE.value, Stage.MODEL.value, Stage.JUDGE.value)

_Word = TypeVar("_Word", bound=Enum)
_Key = tuple[str, int]  # id of a sample and repeat


def is_records(names: Iterable[str]) -> bool:
    """Tell whether a table has the columns of an export of records."""
    return set(_NEEDED) <= set(names)


def read_records(path: Path, statements: Statements) -> ImportedRun:
    """Read the decisions of one defense with the answers and verdicts that stand beside them."""
    warnings: list[str] = []
    data = bytes_of(path, hint=_HINT)
    rows: list[Object] = []
    others: list[str] = []  # defenses of records about other texts than the samples
    for row in _rows(path, data, warnings):
        name = word(row, "defense")
        if word(row, "stage") in _READ:
            if part_of(name) == name:
                rows.append(row)
            else:
                others.append(name)
    if not rows or not is_records(rows[0]):
        raise DatasetError(f"{path} holds no records of guardmark.\n{_HINT}")
    of_stage: dict[str, list[Object]] = {stage: [] for stage in _READ}
    for row in rows:
        of_stage[word(row, "stage")].append(row)
    guards = {word(row, "defense") for row in of_stage["defense"]}
    guard = ""
    if guards:
        guard = one_of(guards, statements.model, "defense", path)
    decided = _once(of_stage["defense"], path, defense=guard)
    answered = _once(of_stage["model"], path)
    layer = _judging(of_stage["judge"])
    judged = _once(of_stage["judge"], path, layer=layer)
    samples = _samples(rows, path)
    repeats = 1 + max(_repeat(row) for row in rows)
    made = []
    for sample in samples:
        keys = [(sample.id, repeat) for repeat in range(repeats)]
        answers = [_answer(key, decided, answered, judged) for key in keys]
        given = tuple(answer for answer in answers if answer is not None)
        if given:
            made.append(ImportedRow(sample=sample, answers=given))
    if not made:
        raise DatasetError(f"{path} holds no decision and no answer.\n{_HINT}")
    return ImportedRun(
        tool="guardmark",
        guard=guard,
        model=_part(of_stage["model"], "model"),
        judge=_part(of_stage["judge"], "judge"),
        rows=tuple(made),
        files={path.name: sha256(data).hexdigest()},
        readings=tuple(_readings(guard, layer)),
        warnings=(
            *warnings,
            *_lost(path, has_model=bool(answered), guards=guards),
            *_beside(others),
        ),
    )


def _rows(path: Path, data: bytes, warnings: list[str]) -> Iterator[Object]:
    """Yield the rows of an export, in whichever form it is."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        yield from _parquet(path)
    elif suffix in {".csv", ".tsv"}:
        for _, row in table_records(data, path.name, warnings, tabs=suffix == ".tsv"):
            yield {name: text_of_cell(cell) for name, cell in row.items()}
    else:
        yield from (row for _, row in objects_of(data, path, warnings))


def _parquet(path: Path) -> Iterator[Object]:
    """Yield the rows of a Parquet file."""
    with needs(f"Reading {path} needs pyarrow", "parquet"):
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    try:
        with ParquetFile(path) as table:
            for batch in table.iter_batches():
                yield from batch.to_pylist()
    except (ArrowException, OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DatasetError(f"{path} is not Parquet: {reason}.\n{_HINT}") from error


def _repeat(row: Object) -> int:
    number = read_number(row.get("repeat"))
    if number is None or number < 0 or number != int(number):
        raise DatasetError(f"A record has the repeat {row.get('repeat')!r:.40}.\n{_HINT}")
    return int(number)


def _once(
    rows: list[Object], path: Path, *, defense: str | None = None, layer: str = FIRST_LAYER
) -> dict[_Key, Object]:
    """Return the records of one layer by sample and repeat; two of one place are refused."""
    kept: dict[_Key, Object] = {}
    for row in rows:
        if word(row, "layer") != layer or defense not in {None, word(row, "defense")}:
            continue
        key = word(row, "id"), _repeat(row)
        if kept.setdefault(key, row) != row:
            raise DatasetError(
                f"{path} holds two records of sample {key[0][:60]!r} in repeat {key[1]}.\n{_HINT}"
            )
    return kept


def _judging(rows: list[Object]) -> str:
    """Return the layer whose verdicts are taken: that of the run, else the first by name."""
    layers = {word(row, "layer") for row in rows}
    if FIRST_LAYER in layers or not layers:
        return FIRST_LAYER
    return min(layers)


def _samples(rows: list[Object], path: Path) -> list[Sample]:
    found: dict[str, Sample] = {}
    digests: dict[str, str] = {}
    places: dict[str, float] = {}
    for row in rows:
        name, digest = word(row, "id"), word(row, "sha256")
        if digests.setdefault(name, digest) != digest:
            raise DatasetError(f"{path}: the id {name[:60]!r} stands for two samples.\n{_HINT}")
        if name in found:
            continue
        label = {each.value: each for each in Label}.get(word(row, "label"))
        if label is None:
            raise DatasetError(f"{path}: sample {name[:60]!r} has no label.\n{_HINT}")
        places[name] = read_number(row.get("position")) or 0.0
        found[name] = Sample(
            id=name,
            prompt=Prompt.of_text(f"(not in the export; SHA-256 {digest})"),
            label=label,
            group=word(row, "group"),
            **facets_of(row),
        )
    return sorted(found.values(), key=lambda sample: places[sample.id])


def _answer(
    key: _Key,
    decided: Mapping[_Key, Object],
    answered: Mapping[_Key, Object],
    judged: Mapping[_Key, Object],
) -> ImportedAnswer | None:
    """Read what came of one sample in one repeat; None where nothing did."""
    if key not in decided and key not in answered:
        return None
    decision, response, verdict = None, None, None
    if key in decided:
        decision = _decision(decided[key])
    if key in answered:
        response = _response(answered[key])
    if key in judged:
        verdict = _verdict(judged[key])
    return ImportedAnswer(repeat=key[1], decision=decision, response=response, verdict=verdict)


def _decision(row: Object) -> Decision:
    outcome = _known(Outcome, row, "outcome")
    score = read_number(row.get("score"))
    if outcome is None or outcome is Outcome.ERROR:
        kind = _known(ErrorKind, row, "error_kind") or ErrorKind.CONTRACT
        return Decision(outcome=Outcome.ERROR, error_kind=kind, evidence=_evidence(row))
    text = None
    if outcome is Outcome.ALLOW:
        text = word(row, "text") or None
    return Decision(
        outcome=outcome,
        score=score,
        score_kind=_known(ScoreKind, row, "score_kind") or ScoreKind.NONE,
        evidence=_evidence(row),
        text=text,
    )


def _response(row: Object) -> Response:
    """Read what the model answered, that its provider blocked, or why there is nothing."""
    outcome, evidence = word(row, "outcome"), _evidence(row)
    if outcome == Outcome.BLOCK.value:
        action = word(inner(row, "evidence"), "native_action")
        if action == PROVIDER_ACTIONS[BlockedAt.INPUT]:
            return filtered_response(BlockedAt.INPUT)
        return filtered_response(BlockedAt.OUTPUT)
    if outcome != "answered":
        kind = _known(ErrorKind, row, "error_kind") or ErrorKind.CONTRACT
        return Response(text=None, error_kind=kind, evidence=evidence)
    return Response(text=word(row, "text"), evidence=evidence)


def _verdict(row: Object) -> Verdict:
    label = _known(VerdictLabel, row, "outcome") or VerdictLabel.MALFORMED
    error_kind = None
    if label is VerdictLabel.ERROR:
        error_kind = _known(ErrorKind, row, "error_kind") or ErrorKind.CRASH
    return Verdict(
        label=label,
        answer_mode=_known(AnswerMode, row, "answer_mode"),
        score=read_number(row.get("score")),
        error_kind=error_kind,
        evidence=_evidence(row),
    )


def _known(kind: type[_Word], row: Object, field: str) -> _Word | None:
    return {each.value: each for each in kind}.get(word(row, field))


def _evidence(row: Object) -> Evidence | None:
    stated = row.get("evidence")
    if isinstance(stated, str) and stated:
        stated = json.loads(stated)
    if not isinstance(stated, dict):
        return None
    return Evidence(
        reason=word(stated, "reason"),
        raw=word(stated, "raw"),
        message=word(stated, "message"),
        finish_reason=word(stated, "finish_reason"),
        parse_method=word(stated, "parse_method"),
    )


def _part(rows: list[Object], otherwise: str) -> str:
    """Return the name of what gave some records; empty without any."""
    if not rows:
        return ""
    part: dict[str, Any] = inner(rows[0], "part")
    return word(part, "model") or word(part, "name") or otherwise


def _readings(guard: str, layer: str) -> Iterator[str]:
    if guard:
        yield f"the decisions were read from the records of {guard!r}"
    yield f"verdicts were read from the layer {layer!r}, labels and groups from each record"


def _lost(path: Path, *, has_model: bool, guards: set[str]) -> Iterator[str]:
    """Say what such a file cannot bring back."""
    yield (
        "the export holds no texts of samples: their hashes stand in their place, and nothing "
        "can be asked again"
    )
    yield "latencies, tokens, costs and the configuration were left out"
    if path.suffix.lower() != ".jsonl":
        yield "reasons and other evidence are only in results.jsonl, and were left out"
    if has_model:
        yield "what happens to malformed and failed decisions is not in it: they block"
    if len(guards) > 1:
        yield f"the other defenses were left out: {', '.join(sorted(guards))[:200]} are in the file"


def _beside(names: Sequence[str]) -> Iterator[str]:
    """Say what was asked about other texts, which an imported run has no place for."""
    prefixes = sum(split_prefix(name)[1] is not None for name in names)
    if prefixes:
        yield (
            f"{prefixes:,} records of calls about prefixes of answers were left out: how much had "
            "gone out before a block is unknown here"
        )
    rewritten = len(names) - prefixes
    if rewritten:
        yield (
            f"{rewritten:,} records of calls about texts that guards rewrote were left out: what "
            "comes of these texts is unknown here"
        )
