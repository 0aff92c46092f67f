"""Decisions made already, by another tool or in a finished run, looked up by sample id."""

from __future__ import annotations

import csv
import json
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, model_validator

from guardmark.config.deadline import GrownSettings
from guardmark.config.settings import Rate
from guardmark.core.errors import ConfigError, DatasetError, UnknownName, listed
from guardmark.core.limits import MOST_DECISION_BYTES
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome, ScoreKind
from guardmark.core.protocols import Capabilities
from guardmark.core.record import Stage
from guardmark.core.sample import View
from guardmark.defenses.answers import ConfidenceMeaning
from guardmark.parsing.foreign_text import (
    EndlessLine,
    decode_text,
    limited_bytes,
    require_ends,
    table_records,
    unique_members,
)
from guardmark.parsing.labels import read_is_blocked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from guardmark.config.settings import BuildContext
    from guardmark.core.sample import Prompt, Sample

_FAILURES = {"malformed": Outcome.MALFORMED, "error": Outcome.ERROR}
_DECIDED = (Outcome.ALLOW, Outcome.BLOCK)
_LISTED = 3
_Column = Literal["id", "decision", "score", "confidence", "latency_ms"]
_KEPT = Evidence(from_cache=True)


def _skipped(message: str) -> Decision:
    """Return the error that says why the file decides nothing about a sample."""
    evidence = replace(_KEPT, message=message)
    return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.SKIPPED, evidence=evidence)


_UNKNOWN = _skipped("the file of decisions has no row with this sample's id")
_AMBIGUOUS = _skipped("the file decides differently on samples with this same text")


@dataclass(frozen=True, slots=True, eq=False)
class DecisionsDefense:
    """Answers with what a file says of a sample, whose id it learns by `bind`."""

    name: str
    decisions: Mapping[str, Decision]
    _: KW_ONLY
    threshold: float | None = None
    files: tuple[Path, ...] = ()
    view: View = View.TEXT
    by_prompt: dict[bytes, Decision] = field(default_factory=dict, init=False)

    @property
    def capabilities(self) -> Capabilities:
        """What is known of whoever decided."""
        return Capabilities(view=self.view, threshold=self.threshold, files=self.files)

    def bind(self, samples: Iterable[Sample]) -> None:
        """Learn which prompts will be asked about.

        Equal prompts under several ids share a decision if the file agrees with itself about
        them; otherwise they are errors, since nobody can say which is meant.
        """
        for sample in samples:
            decision = self.decisions.get(sample.id)
            if decision is None:
                continue
            digest = sample.prompt.digest()
            known = self.by_prompt.setdefault(digest, _kept(decision))
            if (known.outcome, known.score) != (decision.outcome, decision.score):
                self.by_prompt[digest] = _AMBIGUOUS

    def decide(self, prompt: Prompt) -> Decision:
        """Look one prompt up."""
        return self.by_prompt.get(prompt.digest(), _UNKNOWN)


def _kept(decision: Decision) -> Decision:
    """Mark a decision of no known time as kept: to look it up is no latency of the defense."""
    if decision.latency_ns is not None:
        return decision
    evidence = _KEPT
    if decision.evidence is not None:
        evidence = replace(decision.evidence, from_cache=True)
    return replace(decision, evidence=evidence)


def read_decisions(
    path: Path, settings: DecisionsSettings, *, shown_as: str
) -> dict[str, Decision]:
    """Read a file of decisions."""
    decisions: dict[str, Decision] = {}
    faults: list[str] = []
    try:
        for number, row in _rows(path, faults):
            try:
                sample_id, decision = _read_row(row, settings)
                if sample_id in decisions:
                    raise ValueError(f"id: {sample_id!r} appears twice")  # noqa: TRY301 - listed with the others
            except ValueError as error:
                faults.append(f"{number}: {error}")
            else:
                decisions[sample_id] = decision
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"The decisions {shown_as} cannot be read: {reason}.") from error
    if not faults and not decisions:
        faults.append("1: the file holds no row")
    if faults:
        lines = [f"{shown_as}:{fault}" for fault in faults[:_LISTED]]
        if len(faults) > _LISTED:
            lines.append(f"... and {len(faults) - _LISTED} more bad rows.")
        raise DatasetError("\n".join(lines))
    return decisions


def read_run(path: Path, defense: str, *, shown_as: str) -> dict[str, Decision]:
    """Read what a defense of a finished run decided, in its first repeat."""
    from guardmark.store.reader import RecordReader

    if not path.is_file():
        raise ConfigError(f"There is no run in {shown_as}: it holds no records.sqlite.")
    with RecordReader(path) as reader:
        known = reader.defenses()
        if defense not in known:
            raise UnknownName(f"defense of the run {shown_as}", defense, known)
        ids = [sample.id for sample in reader.every_sample()]
        decisions = {}
        for record in reader.records(defense=defense, stage=Stage.DEFENSE, is_every=True):
            if record.key.repeat == 0:
                decisions[ids[record.key.sample]] = Decision(
                    outcome=Outcome(record.outcome),
                    score=record.score,
                    score_kind=record.score_kind,
                    error_kind=record.error_kind,
                    latency_ns=record.latency_ns,
                    amortised=record.amortised,
                    evidence=record.evidence,
                    text=record.text,
                )
        return decisions


def _rows(path: Path, faults: list[str]) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Yield the rows of a table or of JSON lines, with their numbers; note those of no form."""
    data = limited_bytes(path, most=MOST_DECISION_BYTES)
    if path.suffix.lower() in {".csv", ".tsv"}:
        rows = table_records(data, path.name, faults, tabs=path.suffix.lower() == ".tsv")
        for number, row in rows:
            yield number, {name: cell for name, cell in row.items() if cell}
        return
    try:
        require_ends(data)
    except EndlessLine as error:
        raise DatasetError(f"{path.name} {error}.") from error
    for number, line in enumerate(decode_text(data, path.name).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            parsed = json.loads(line, object_pairs_hook=unique_members)
        except (ValueError, RecursionError) as error:
            faults.append(f"{number}: is not JSON: {error}")
            continue
        if isinstance(parsed, dict):
            yield number, parsed
        else:
            faults.append(f"{number}: expected an object, found {type(parsed).__name__}")


def _read_row(row: Mapping[str, object], settings: DecisionsSettings) -> tuple[str, Decision]:
    def value_of(column: _Column) -> object:
        name = settings.map.get(column, column)
        return row.get(name, row.get(name.strip().lower()))  # columns of a table in small letters

    sample_id = value_of("id")
    if not isinstance(sample_id, str | int) or isinstance(sample_id, bool) or sample_id == "":
        came = f"expected text, found {sample_id!r:.60}"
        if sample_id is None:
            came = (
                f"is missing (the row has: {listed(map(str, row))}); name it under map: {{id: ...}}"
            )
        raise ValueError(f"id: {came}")
    score = _number(value_of("score"), "score: expected a number in [0, 1]", most=1)
    confidence = _number(value_of("confidence"), "confidence: expected a number in [0, 1]", most=1)
    latency_ms = _number(value_of("latency_ms"), "latency_ms: expected milliseconds, 0 or more")
    outcome = _outcome(value_of("decision"), score, settings)
    decision = Decision(outcome=outcome)
    if outcome is Outcome.ERROR:
        decision = replace(decision, error_kind=ErrorKind.CRASH)
    if latency_ms is not None:
        decision = replace(decision, latency_ns=round(latency_ms * 1_000_000))
    if score is not None:
        decision = replace(decision, score=score, score_kind=ScoreKind.SELF_REPORTED)
    elif confidence is not None and outcome in _DECIDED:
        score, kind = _score_of(confidence, outcome, settings)
        decision = replace(decision, score=score, score_kind=kind)
    return str(sample_id), decision


def _score_of(
    confidence: float, outcome: Outcome, settings: DecisionsSettings
) -> tuple[float, ScoreKind]:
    """Return the score that a confidence stands for, and its kind.

    It is kept as a risk, and marked as such where nobody said that it is one.
    """
    if settings.confidence is None:
        return confidence, ScoreKind.CONFIDENCE
    if settings.confidence == "certainty" and outcome is Outcome.ALLOW:
        return 1.0 - confidence, ScoreKind.SELF_REPORTED
    return confidence, ScoreKind.SELF_REPORTED


def _outcome(word: object, score: float | None, settings: DecisionsSettings) -> Outcome:
    """Return what a row decided, by its word, or else by its score."""
    is_blocked = None
    if word is not None:
        key = str(word).strip().casefold()
        known = dict(_FAILURES)
        for name, outcome in settings.values.items():
            known[name.casefold()] = outcome
        if key in known:
            return known[key]
        is_blocked = read_is_blocked(word, column=settings.map.get("decision", ""))
    elif score is None or settings.threshold is None:
        raise ValueError("decision: missing, and no score with a threshold to take it from")
    else:
        is_blocked = score >= settings.threshold
    if is_blocked is True:
        return Outcome.BLOCK
    if is_blocked is False:
        return Outcome.ALLOW
    raise ValueError(
        f"decision: {word!r:.60} is not known; say what it means under values, "
        "for example values: {unsafe: block}"
    )


def _number(value: object, wanted: str, *, most: float = 1e9) -> float | None:
    if value is None:
        return None
    with suppress(ValueError, OverflowError):  # said below, as for everything else that is none
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            number = float(value)
            if 0 <= number <= most:
                return number
    raise ValueError(f"{wanted}, found {value!r:.60}")


class DecisionsSettings(GrownSettings):
    """Reads decisions that another tool, or a finished run, already made."""

    later: ClassVar[tuple[str, ...]] = ("run", "defense", "confidence")
    path: str | None = None
    run: str | None = None
    defense: str | None = None
    map: dict[_Column, str] = Field(default_factory=dict)
    values: dict[str, Outcome] = Field(default_factory=dict)
    threshold: Rate | None = None
    confidence: ConfidenceMeaning | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> DecisionsSettings:
        if (self.path is None) == (self.run is None):
            raise ValueError("needs either path (a file) or run (the folder of a finished run)")
        if (self.run is None) != (self.defense is None):
            raise ValueError("run goes with defense, the name of a defense of that run")
        of_file = (self.map, self.values, self.threshold is not None, self.confidence)
        if self.run is not None and any(of_file):
            raise ValueError(
                "map, values, threshold and confidence say how a file is read, not a run"
            )
        return self

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        if self.run is not None:
            records = context.folder / self.run / "records.sqlite"
            stored = read_run(records, self.defense or "", shown_as=self.run)
            return DecisionsDefense(name, stored, files=(records,))
        path = context.folder / (self.path or "")
        decisions = read_decisions(path, self, shown_as=self.path or "")
        return DecisionsDefense(name, decisions, threshold=self.threshold, files=(path,))
