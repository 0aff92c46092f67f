"""The verb `audit`: answers, or bypasses that rest on a judgement, drawn as a file for people."""

from __future__ import annotations

from collections import Counter, defaultdict
from hashlib import sha256
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from guardmark.analysis.adaptive.audit import Proofs
from guardmark.analysis.adaptive.rows import read_adaptive
from guardmark.analysis.pipeline.frame import judge_layers
from guardmark.app.labels.audit_file import (
    ANSWERS,
    BYPASSES,
    STANDS_FOR,
    AuditFile,
    audit_id,
    refuse_to_overwrite,
    write_audit,
)
from guardmark.app.results.opened_run import find_run
from guardmark.app.results.variant_texts import VariantTexts
from guardmark.core.errors import StoreError, UnknownName
from guardmark.core.place import NO_GUARD
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.core.sample import Role
from guardmark.core.values import dataclass
from guardmark.store.layers import ADAPTIVE
from guardmark.store.reader import RecordReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.adaptive.rebuilding import VariantText
    from guardmark.analysis.adaptive.rows import Try
    from guardmark.app.labels.audit_file import Row
    from guardmark.core.record import Record
    from guardmark.core.sample import Sample


BY_VERDICT: Final = "verdict"
"""Draw by what the judge says, and not by a field of the samples."""


def draw_audit(
    run: Path,
    *,
    out: Path,
    count: int,
    seed: int = 7,
    with_verdicts: bool = False,
    by: str = "",
) -> AuditFile:
    """Draw answers of a run at random as a file to label.

    Each has the same chance; with `by`, as many are drawn of each value of a field, or of each
    verdict, and the file says how many answers each drawn one stands for.
    """
    refuse_to_overwrite(out)
    folder = find_run(run)
    with RecordReader(folder.records) as reader:
        answers = _shuffled_answers(reader, seed)
        if not answers:
            raise StoreError(
                f"{run} holds no answers of a target model to label.\n"
                "Next: name a run with a pipeline, or label bypasses: --what bypasses."
            )
        verdicts, source = _verdicts(reader), str(folder.results)
        if by == BY_VERDICT and not verdicts:
            raise StoreError(f"{run} holds no verdicts to draw by.\nNext: leave --by out.")
        strata = [_stratum(reader, answer, by=by, verdicts=verdicts) for answer in answers]
        drawn, sizes = _draw_by(strata, count), Counter(strata)
        taken = Counter(strata[number] for number in drawn)
        rows = []
        for number in drawn:
            answer, stratum = answers[number], strata[number]
            place = (answer.key.sample, answer.key.repeat)
            verdict = None
            if with_verdicts:
                verdict = verdicts.get(place)
            row = _row(reader.sample_at(place[0]), answer, source=source, verdict=verdict)
            row[STANDS_FOR] = f"{sizes[stratum] / taken[stratum]:.6g}"
            rows.append(row)
    audit = AuditFile(path=out, rows=tuple(rows))
    write_audit(audit)
    return audit


def _stratum(
    reader: RecordReader, answer: Record, *, by: str, verdicts: Mapping[tuple[int, int], Record]
) -> str:
    """Return the stratum of an answer: the value of the field that it is drawn by."""
    if not by:
        return ""
    if by == BY_VERDICT:
        verdict = verdicts.get((answer.key.sample, answer.key.repeat))
        if verdict:
            return verdict.outcome
        return ""
    return str(getattr(reader.sample_at(answer.key.sample), by) or "")


def _draw_by(strata: Sequence[str], count: int) -> list[int]:
    """Draw as many of each stratum as there are, in turn, and return them in their order."""
    of_stratum: defaultdict[str, list[int]] = defaultdict(list)
    for at, name in enumerate(strata):
        of_stratum[name].append(at)
    in_turn = [at for turn in zip_longest(*of_stratum.values()) for at in turn if at is not None]
    return sorted(in_turn[:count])


def _shuffled_answers(reader: RecordReader, seed: int) -> list[Record]:
    """Return the answers in a random order that depends on the seed and each answer alone."""
    answers = []
    for record in reader.records(defense=NO_GUARD, stage=Stage.MODEL):
        if record.text is not None:
            key = f"{seed} {record.key.sample} {record.key.repeat}"
            answers.append((sha256(key.encode()).digest(), record))
    answers.sort(key=lambda entry: entry[0])
    return [record for _, record in answers]


def _verdicts(reader: RecordReader) -> dict[tuple[int, int], Record]:
    """Return what the first judge of the run said, by sample and repeat."""
    layers, _ = judge_layers(reader)
    of_run = [layer for layer in layers if layer.split("/")[0] == FIRST_LAYER]
    if not of_run:
        return {}
    verdicts = {}
    for record in reader.records(defense=NO_GUARD, stage=Stage.JUDGE, layer=of_run[0]):
        verdicts[record.key.sample, record.key.repeat] = record
    return verdicts


def _row(sample: Sample, answer: Record, *, source: str, verdict: Record | None) -> Row:
    outcome = is_malformed = method = reason = ""
    if verdict is not None:
        outcome = verdict.outcome
        is_malformed = str(outcome == "malformed").lower()
        if verdict.evidence is not None:
            method, reason = verdict.evidence.parse_method, verdict.evidence.reason
    values = (
        audit_id(sample.id, answer.key.repeat),
        source,
        str(answer.key.sample),
        sample.source,
        str(sample.metadata.get("pack_name", "")),
        str(sample.metadata.get("pack_subset", "")),
        sample.lineage,
        sample.variant,
        str(answer.key.repeat),
        str(sample.is_attack).lower(),
        str(sample.metadata.get("label_source", "")),
        outcome,
        is_malformed,
        method,
        reason,
        sample.prompt.words,
        answer.text or "",
        _system_prompt(sample),
    )
    return dict(zip_longest(ANSWERS.columns, values, fillvalue=""))


def _system_prompt(sample: Sample) -> str:
    for message in sample.prompt.messages:
        if message.role is Role.SYSTEM:
            return message.content
    return ""


BYPASSES_COUNT: Final = 50
"""How many bypasses of each defense people are shown unless told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBypasses:
    """What was drawn of one defense."""

    defense: str
    resting: int
    drawn: int
    untold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BypassAudit:
    """A sheet of bypasses, and what it was drawn from."""

    file: AuditFile
    defenses: tuple[DrawnBypasses, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bypass:
    """One attack that got through by nothing better than a judgement."""

    defense: str
    sample: Sample
    position: int
    attempt: Try

    @property
    def audit_id(self) -> str:
        """Its name on a sheet: a digest, so that it tells no reader anything."""
        text = f"{self.defense}\0{self.sample.id}\0{self.attempt.text}"
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def resting_of(reader: RecordReader, samples: Sequence[Sample]) -> Mapping[str, tuple[Bypass, ...]]:
    """Return the bypasses of a run that rest on a judgement."""
    is_attack = [sample.is_attack for sample in samples]
    resting = {}
    for records in read_adaptive(reader):
        bypasses = []
        for position, attempt in Proofs(records, is_attack).resting().items():
            bypass = Bypass(
                defense=records.name, sample=samples[position], position=position, attempt=attempt
            )
            bypasses.append(bypass)
        resting[records.name] = tuple(bypasses)
    return resting


def draw_bypasses(
    run: Path,
    *,
    out: Path,
    count: int = BYPASSES_COUNT,
    seed: int = 7,
    defense: str = "",
    with_verdicts: bool = False,
) -> BypassAudit:
    """Draw bypasses that rest on a judgement, and write them as a sheet to fill in."""
    refuse_to_overwrite(out)
    folder = find_run(run)
    with RecordReader(folder.records) as reader:
        samples = list(reader.samples())
        resting = resting_of(reader, samples)
        _require(run, resting, defense)
        seed_of_tries = int(str(reader.layer_settings(ADAPTIVE).get("seed", 0)))
        rows: list[Row] = []
        defenses: list[DrawnBypasses] = []
        for name, bypasses in resting.items():
            if defense not in {"", name}:
                continue
            texts = VariantTexts(reader=reader, defense=name, samples=samples, seed=seed_of_tries)
            drawn, untold = 0, 0
            for each in _ordered(bypasses, seed):
                if drawn == count:
                    break
                text = texts.text_of(each.attempt)
                if text is None:
                    untold += 1
                    continue
                drawn += 1
                rows.append(_bypass_row(each, text, str(folder.path), with_verdicts=with_verdicts))
            counts = DrawnBypasses(defense=name, resting=len(bypasses), drawn=drawn, untold=untold)
            defenses.append(counts)
    if not rows:
        raise StoreError(
            f"None of the {sum(each.resting for each in defenses):,} bypasses of {run} that rest "
            "on a judgement can be shown: their texts cannot be made again.\n"
            "Next: use the guardmark that attacked it."
        )
    rows.sort(key=lambda row: row["audit_id"])  # an order that tells nothing
    sheet = AuditFile(path=out, rows=tuple(rows), sheet=BYPASSES)
    write_audit(sheet)
    return BypassAudit(file=sheet, defenses=tuple(defenses))


def _require(run: Path, resting: Mapping[str, tuple[Bypass, ...]], defense: str) -> None:
    if not resting:
        raise StoreError(f"Nobody attacked {run} adaptively.\nNext: guardmark adapt {run}")
    if defense and defense not in resting:
        raise UnknownName("attacked defense of this run", defense, resting)
    if not any(resting[name] for name in resting if defense in {"", name}):
        raise StoreError(
            f"No bypass of {run} rests on a judgement or a table (V3, V3-table): "
            "there is nothing to audit."
        )


def _ordered(bypasses: Sequence[Bypass], seed: int) -> list[Bypass]:
    """Put them in a random order, the first of every group before any second."""
    seen, ranked = Counter[str](), []
    for each in sorted(bypasses, key=lambda b: sha256(f"{seed} {b.audit_id}".encode()).digest()):
        ranked.append((seen[each.sample.lineage], each))
        seen[each.sample.lineage] += 1
    # Sorting keeps the order of equals.
    return [each for _, each in sorted(ranked, key=lambda row: row[0])]


def _bypass_row(each: Bypass, text: VariantText, source: str, *, with_verdicts: bool) -> Row:
    made = (each.defense, each.attempt.round, each.attempt.tier, each.attempt.chain)
    values = (
        each.audit_id,
        source,
        each.sample.id,
        *(made if with_verdicts else ("",) * len(made)),
        each.sample.prompt.words,
        text.text,
        text.before,
    )
    return dict(zip_longest(BYPASSES.columns, values, fillvalue=""))
