"""The verb `audit`: answers, or bypasses that rest on a judgement, drawn as a file for people."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from guardmark.analysis.adaptive.audited import resting_bypasses
from guardmark.analysis.adaptive.rows import read_battles
from guardmark.app.adapt.variant_texts import VariantTexts
from guardmark.app.labels.audit_file import (
    ANSWERS,
    BYPASSES,
    AuditFile,
    audit_id,
    refuse_to_overwrite,
    write_audit,
)
from guardmark.app.results.opened_run import find_run
from guardmark.core.errors import StoreError, UnknownName
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.engine.plan import NO_GUARD
from guardmark.store.layers import ADAPTIVE
from guardmark.store.reader import RecordReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.analysis.adaptive.rows import AdaptiveRecords, Try
    from guardmark.app.adapt.variant_texts import VariantText
    from guardmark.app.labels.audit_file import Row
    from guardmark.core.record import Record
    from guardmark.core.sample import Sample
    from guardmark.store.reader import RecordReader as Reader


def draw_audit(
    run: Path, *, out: Path, count: int, seed: int = 7, with_verdicts: bool = False
) -> AuditFile:
    """Draw answers of a run at random and write them as a file to label.

    Every answer has the same chance, so the labels may correct the rates of the whole run.
    """
    refuse_to_overwrite(out)
    folder = find_run(run)
    with RecordReader(folder.records) as reader:
        answers = [
            record
            for record in reader.records(defense=NO_GUARD, stage=Stage.MODEL)
            if record.text is not None
        ]
        if not answers:
            raise StoreError(
                f"{run} holds no answers of a target model to label.\n"
                "Next: name a run with a pipeline, or label bypasses: --what bypasses."
            )
        drawn = sorted(answers, key=lambda record: _order(record, seed))[:count]
        verdicts = _verdicts(reader)
        rows = tuple(
            _row(
                reader.sample_at(record.key.sample),
                record,
                source=str(folder.results),
                verdict=verdicts.get((record.key.sample, record.key.repeat))
                if with_verdicts
                else None,
            )
            for record in drawn
        )
    found = AuditFile(path=out, rows=rows)
    write_audit(found)
    return found


def _order(record: Record, seed: int) -> bytes:
    """A random order that depends on the seed and the answer alone."""
    return sha256(f"{seed} {record.key.sample} {record.key.repeat}".encode()).digest()


def _verdicts(reader: RecordReader) -> dict[tuple[int, int], Record]:
    layers = [layer for name, stage, layer in reader.recorded_stages() if stage is Stage.JUDGE]
    first = next((layer for layer in layers if layer.split("/")[0] == FIRST_LAYER), None)
    if first is None:
        return {}
    return {
        (record.key.sample, record.key.repeat): record
        for record in reader.records(defense=NO_GUARD, stage=Stage.JUDGE, layer=first)
    }


def _row(sample: Sample, answer: Record, *, source: str, verdict: Record | None) -> Row:
    evidence = verdict.evidence if verdict else None
    system = next((m.content for m in sample.prompt.messages if m.role.value == "system"), "")
    said = sample.metadata
    values = (
        audit_id(sample.id, answer.key.repeat),
        source,
        str(answer.key.sample),
        sample.source,
        str(said.get("pack_name", "")),
        str(said.get("pack_subset", "")),
        sample.lineage,
        sample.variant,
        str(answer.key.repeat),
        str(sample.is_attack).lower(),
        str(said.get("label_source", "")),
        verdict.outcome if verdict else "",
        str(verdict.outcome == "malformed").lower() if verdict else "",
        evidence.parse_method if evidence else "",
        evidence.reason if evidence else "",
        sample.prompt.text,
        answer.text or "",
        system,
        "",
        "",
        "",
    )
    return dict(zip(ANSWERS.columns, values, strict=True))


BYPASSES_COUNT: Final = 50
"""How many bypasses of each defense people are shown unless told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What was drawn of one defense."""

    defense: str
    resting: int
    drawn: int
    untold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BypassAudit:
    """A sheet of bypasses, and what it was drawn from."""

    file: AuditFile
    defenses: tuple[Drawn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bypass:
    """One attack that fell to nothing better than a judgement."""

    defense: str
    sample: Sample
    position: int
    attempt: Try

    @property
    def audit_id(self) -> str:
        """Its name on a sheet: a digest, so that it tells no reader anything."""
        said = f"{self.defense}\0{self.sample.id}\0{self.attempt.text}"
        return sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def resting_of(reader: Reader, samples: Sequence[Sample]) -> Mapping[str, tuple[Bypass, ...]]:
    """Return the bypasses of a run that rest on a judgement."""
    is_attack = [sample.is_attack for sample in samples]
    return {battle.name: _resting(battle, samples, is_attack) for battle in read_battles(reader)}


def draw_bypasses(
    run: Path,
    *,
    out: Path,
    count: int = BYPASSES_COUNT,
    seed: int = 7,
    defense: str = "",
    with_verdicts: bool = False,
) -> BypassAudit:
    """Draw bypasses that rest on a judgement, and write them as a sheet to fill in.

    Of each group one comes first, then a second of each, and so on, in random order: items are as
    independent as they can be.
    """
    refuse_to_overwrite(out)
    folder = find_run(run)
    with RecordReader(folder.records) as reader:
        samples = list(reader.samples())
        found = resting_of(reader, samples)
        _require(run, found, defense)
        chosen = {name: each for name, each in found.items() if name == (defense or name)}
        seed_of_tries = int(str(reader.layer_settings(ADAPTIVE).get("seed", 0)))
        rows: list[Row] = []
        told: list[Drawn] = []
        for name, bypasses in chosen.items():
            texts = VariantTexts(reader=reader, defense=name, samples=samples, seed=seed_of_tries)
            drawn, untold = _draw(bypasses, texts, count=count, seed=seed)
            rows += [
                _bypass_row(each, text, str(folder.path), with_verdicts=with_verdicts)
                for each, text in drawn
            ]
            told.append(Drawn(defense=name, resting=len(bypasses), drawn=len(drawn), untold=untold))
    if not rows:
        raise StoreError(
            f"None of the {sum(each.resting for each in told):,} bypasses of {run} that rest on a "
            "judgement can be shown: their texts cannot be made again.\n"
            "Next: use the guardmark that attacked it."
        )
    rows.sort(key=lambda row: row["audit_id"])  # an order that tells nothing
    sheet = AuditFile(path=out, rows=tuple(rows), sheet=BYPASSES)
    write_audit(sheet)
    return BypassAudit(file=sheet, defenses=tuple(told))


def _require(run: Path, found: Mapping[str, tuple[Bypass, ...]], defense: str) -> None:
    if not found:
        raise StoreError(f"Nobody attacked {run} adaptively.\nNext: guardmark adapt {run}")
    if defense and defense not in found:
        raise UnknownName("attacked defense of this run", defense, found)
    if not any(found[name] for name in found if name == (defense or name)):
        raise StoreError(
            f"No bypass of {run} rests on a judgement or a table (V3, V3-table): "
            "there is nothing to audit."
        )


def _resting(
    battle: AdaptiveRecords, samples: Sequence[Sample], is_attack: Sequence[bool]
) -> tuple[Bypass, ...]:
    resting = resting_bypasses(battle, is_attack)
    return tuple(
        Bypass(defense=battle.name, sample=samples[place], position=place, attempt=each)
        for place, each in resting.items()
    )


def _draw(
    bypasses: Sequence[Bypass], texts: VariantTexts, *, count: int, seed: int
) -> tuple[list[tuple[Bypass, VariantText]], int]:
    """Draw bypasses whose texts can be had; return them and how many could not."""
    drawn: list[tuple[Bypass, VariantText]] = []
    untold = 0
    for each in _ordered(bypasses, seed):
        if len(drawn) == count:
            break
        text = texts.text_of(each.attempt)
        if text is None:
            untold += 1
        else:
            drawn.append((each, text))
    return drawn, untold


def _ordered(bypasses: Sequence[Bypass], seed: int) -> list[Bypass]:
    """Put them in a random order in which the first of every group comes before any second."""
    shuffled = sorted(
        bypasses, key=lambda each: sha256(f"{seed} {each.audit_id}".encode()).digest()
    )
    seen: dict[str, int] = {}
    ranked = []
    for number, each in enumerate(shuffled):
        group = each.sample.group or each.sample.id
        rank = seen[group] = seen.get(group, -1) + 1
        ranked.append((rank, number, each))
    return [each for _, _, each in sorted(ranked, key=lambda row: row[:2])]


def _bypass_row(each: Bypass, text: VariantText, source: str, *, with_verdicts: bool) -> Row:
    told = (each.defense, each.attempt.round, each.attempt.tier, each.attempt.chain)
    values = (
        each.audit_id,
        source,
        each.sample.id,
        *(told if with_verdicts else ("",) * len(told)),
        each.sample.prompt.text,
        text.text,
        text.before,
        "",
        "",
        "",
    )
    return dict(zip(BYPASSES.columns, values, strict=True))
