"""Records, slices and the rates of a matrix as tables, at full precision.

A cell of CSV is safe in a spreadsheet.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from guardmark.canon.visible import csv_line, csv_text
from guardmark.core.errors import StorageError, needs
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.interchange.records.parquet import AT_ONCE, FIELDS, TABLES
from guardmark.store.file_errors import errors_of_files
from guardmark.store.json_lines import COLUMNS, record_rows, write_jsonl
from guardmark.store.seals import is_current
from guardmark.store.whole_files import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.defense.slices import SliceRate, SliceTable
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.estimate import Estimate
    from guardmark.reports.chapters.matrix import MatrixLine
    from guardmark.stats.figures import Quantile
    from guardmark.store.connect import Row
    from guardmark.store.reader import RecordReader

HEAD: Final = (
    "defense",
    "facet",
    "value",
    "label",
    "rate",
    "asked",
    "answered",
    "errors_counted",
    "estimate",
    "low",
    "high",
    "confidence",
    "method",
    "groups",
    "effective_n",
    "design_effect",
    "is_greyed",
    "median_latency_ms",
    "median_latency_low_ms",
    "median_latency_high_ms",
    "timed",
    "folded",
)
"""Columns; `errors_counted` is the number of attacks allowed or of benign samples blocked, `timed`
how many latencies the median rests on, `folded` how many rare values a row holds together, 0 for a
value by itself."""

MATRIX_HEAD: Final = (
    "row_id",
    "row_label",
    "arm",
    "scope",
    "variant",
    "attack_success_rate",
    "attack_success_low",
    "attack_success_high",
    "attacks",
    "false_alarm_rate",
    "false_alarm_low",
    "false_alarm_high",
    "benign",
    "allow_rate",
    "allow_low",
    "allow_high",
    "guarded",
    "run_dir",
)
"""Columns; a false alarm is an over-refusal at scope `system`, a blocked benign sample at scope
`defense`; `guarded` is how many samples the guard was asked about."""


_NOTHING: Final = (None, None, None, None)
"""The cells of a figure that is not there."""


def categories_csv(analysis: RunAnalysis) -> str:
    """Write every slice of every defense but the variants."""
    return _write(analysis, lambda table: table.facet != "variant")


def variants_csv(analysis: RunAnalysis) -> str:
    """Write the slices by variant and by technique, and the arms of a pipeline by variant."""
    slices = _write(analysis, lambda table: table.facet in {"variant", "technique"})
    rows: list[tuple[object, ...]] = []
    if analysis.pipeline is not None:
        for arm in analysis.pipeline.arms:
            for variant in arm.variants:
                for label, name, rate in (
                    ("attack", "system_attack_success_rate", variant.attack_success_rate),
                    ("benign", "system_over_refusal_rate", variant.over_refusal_rate),
                ):
                    head = (arm.name, "variant", variant.variant, label, name, None)
                    greyed = _yes_or_no(is_true=rate.few_groups)
                    rows.append((*head, *_cells(rate), greyed, *_NOTHING, 0))
    return slices + csv_text(rows)


def _write(analysis: RunAnalysis, is_wanted: Callable[[SliceTable], bool]) -> str:
    rows: list[tuple[object, ...]] = [HEAD]
    for defense in analysis.defenses:
        for table in defense.slices:
            if is_wanted(table):
                rows.extend(_row(defense, table, rate) for rate in table.rates)
    return csv_text(rows)


def _row(defense: DefenseAnalysis, table: SliceTable, entry: SliceRate) -> tuple[object, ...]:
    label, rate = "benign", "false_positive_rate"
    if table.is_attack:
        label, rate = "attack", "attack_success_rate"
    return (
        defense.name,
        table.facet,
        entry.name,
        label,
        rate,
        entry.asked,
        *_cells(entry.rate),
        _yes_or_no(is_true=entry.is_greyed),
        *_figures(entry.median_latency_ms),
        entry.folded,
    )


def _yes_or_no(*, is_true: bool) -> str:
    if is_true:
        return "yes"
    return "no"


def _cells(rate: Estimate) -> tuple[object, ...]:
    """Return the columns from `answered` to `design_effect`."""
    return (
        rate.trials,
        rate.successes,
        _number(rate.value),
        _number(rate.low),
        _number(rate.high),
        rate.confidence,
        rate.method,
        rate.groups,
        _number(rate.effective_n),
        _number(rate.design_effect),
    )


def _number(value: float | None) -> float | None:
    if value is None:
        return None
    return float(value)


def matrix_metrics(lines: Sequence[MatrixLine]) -> str:
    """Write `matrix_metrics.csv`: every arm of every row, over all variants and by variant."""
    from guardmark.reports.chapters.matrix import matrix_rates  # on use: most runs are no matrix

    rows: list[tuple[object, ...]] = [MATRIX_HEAD]
    for line in lines:
        for rates in matrix_rates(line.analysis):
            row = (
                line.row_id,
                line.label,
                rates.arm,
                rates.scope,
                rates.variant,
                *_figures(rates.harm),
                *_figures(rates.alarm),
                *_figures(rates.allowed),
                line.run_dir,
            )
            rows.append(row)
    return csv_text(rows)


def matrix_pivot(lines: Sequence[MatrixLine], *, alarms: bool) -> str:
    """Write one rate, with its limits and count, as a table of rows and arms by variant."""
    from guardmark.reports.chapters.matrix import matrix_rates

    head = ["row_id", "arm"]
    variants: list[str] = []
    by_arm: dict[tuple[str, str], dict[str, Estimate]] = {}
    for line in lines:
        for rates in matrix_rates(line.analysis):
            if rates.variant not in variants:
                variants.append(rates.variant)
                head += [f"{rates.variant}{what}" for what in ("", " low", " high", " n")]
            rate = rates.harm
            if alarms:
                rate = rates.alarm
            by_arm.setdefault((line.row_id, rates.arm), {})[rates.variant] = rate
    table: list[Sequence[object]] = [head]
    for (row_id, arm), by_variant in by_arm.items():
        row: list[object] = [row_id, arm]
        for variant in variants:
            row += _figures(by_variant.get(variant))
        table.append(row)
    return csv_text(table)


def _figures(figure: Estimate | Quantile | None) -> tuple[float | None, ...]:
    """Return the value of a figure, its limits and its trials; nothing where it is not there."""
    if figure is None:
        return _NOTHING
    return _number(figure.value), _number(figure.low), _number(figure.high), figure.trials


_HASH: Final = 16


def write_lines(reader: RecordReader, path: Path) -> int:
    """Write one JSON object a record, each with the part that gave it and the hash of the data."""
    if is_current(path, reader.connection):
        return int(reader.connection.value("SELECT count(*) FROM records"))
    if reader.holds_cases:
        return _write_case_lines(reader, path)
    manifest, parts = reader.manifest(), dict[tuple[str, ...], dict[str, object]]()
    for defense, stage, layer in reader.recorded_stages():
        own = [part for part in manifest.parts if part.kind == stage.value]
        name = layer.partition("/")[2]
        if stage is Stage.DEFENSE:
            name = defense
        known = {part.name: asdict(part) for part in own}
        part = known.get(name, {})
        if name not in known and len(own) == 1 and layer == FIRST_LAYER:
            part = asdict(own[0])
        part = part or dict(reader.layer_settings(layer))
        stated = part.get("settings")
        if not isinstance(stated, dict):
            stated = {}
        facts = {
            "name": part.get("name") or part.get("judge"),
            "type": part.get("type"),
            "model": stated.get("model"),
            "fingerprint": str(part.get("fingerprint") or "")[:_HASH],
            "prompt_sha256": stated.get("system_prompt_sha256", stated.get("instructions_sha256")),
        }
        present = {key: value for key, value in facts.items() if value}
        parts[defense, stage.value, layer] = {"part": present, "data": manifest.data_sha256[:_HASH]}
    return write_jsonl(reader, path, parts=parts)


def write_csv(reader: RecordReader, path: Path) -> int:
    """Write one row a record."""
    count = 0
    with whole_file(path) as file:
        file.write(csv_line(COLUMNS).encode())
        for rows in record_rows(reader):
            file.write(csv_text(rows).encode())
            count += len(rows)
    return count


def write_parquet(reader: RecordReader, path: Path) -> int:
    """Write a row a record into a file `NAME.parquet`, else into a folder a file a partition.

    Such a folder also holds each table as it is stored: from these the run can be read again.
    """
    with needs("Parquet needs pyarrow", "parquet"):
        import pyarrow as pa
    whole = ("repeat", "position", "latency_ns", "flags")
    kinds = {"score": pa.float64(), **dict.fromkeys(whole, pa.int64())}
    fields = [(name, kinds.get(name, pa.string())) for name in COLUMNS]
    rows = chain.from_iterable(record_rows(reader))
    if path.suffix == ".parquet":
        with whole_file(path) as file:
            return _write_rows(file, fields, rows)
    if path.exists():
        raise StorageError(f"{path} already exists.\nNext: name another folder with -o.")
    count, connection = 0, reader.connection
    with errors_of_files(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as beside:
            home = Path(beside, path.name)
            (home / TABLES).mkdir(parents=True)
            connection.execute("BEGIN")  # one state of the records, also while a run goes on
            for key, part in groupby(rows, key=itemgetter(slice(len(_PARTITION)))):
                names = zip(_PARTITION, key, strict=True)
                folder = home.joinpath(*(f"{name}={quote(each, safe='')}" for name, each in names))
                folder.mkdir(parents=True)
                cells = (row[len(_PARTITION) :] for row in part)
                count += _write_rows(folder / "0.parquet", fields[len(_PARTITION) :], cells)
            for (name,) in connection.rows("SELECT name FROM sqlite_schema WHERE type = 'table'"):
                typed = [(each, _TYPES[kind]) for each, kind in connection.rows(FIELDS, (name,))]
                stored = connection.chunks(f"SELECT * FROM {name}")  # noqa: S608 - a name of ours
                _write_rows(home / TABLES / f"{name}.pq", typed, chain.from_iterable(stored))
            connection.execute("COMMIT")
            home.rename(path)
    return count


def _write_rows(out: Any, fields: Sequence[tuple[str, Any]], rows: Iterable[Row]) -> int:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    schema, count, left = pa.schema(fields), 0, iter(rows)
    with ParquetWriter(out, schema) as table:
        batch = list(islice(left, AT_ONCE))
        while batch:
            columns = list(zip(*batch, strict=True))
            table.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
            count += len(batch)
            batch = list(islice(left, AT_ONCE))
    return count


_PARTITION: Final = COLUMNS[:3]  # defense, stage, layer: rows come in their order
_TYPES: Final = {"INTEGER": "int64", "REAL": "float64", "TEXT": "string", "BLOB": "binary"}


def _write_case_lines(reader: RecordReader, path: Path) -> int:
    """Write one JSON object a case of agents and arm: its ids, what was done, and every step."""
    from guardmark.analysis.agents.cases import (  # on use: few runs are of agents
        planned_case,
        stated_arms,
    )

    cases = [planned_case(position, sample) for position, sample in enumerate(reader.samples())]
    stated, count = stated_arms(reader.manifest()), 0
    with whole_file(path) as file:
        for record in reader.records(stage=Stage.CASE):
            case = cases[record.key.sample]
            subject = record.key.defense
            arm, agent, latency_ms = subject, "", None
            if subject in stated:
                arm, agent = stated[subject][:2]
            if record.latency_ns is not None:
                latency_ms = record.latency_ns / 1e6
            line = {
                "id": case.id,
                "arm": arm,
                "agent": agent,
                "suite": case.suite,
                "task": case.task,
                "injection": case.injection or None,
                "wording": case.wording or None,
                "repeat": record.key.repeat,
                "latency_ms": latency_ms,
                **json.loads(record.text or "{}"),
            }
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            count += 1
    return count
