"""The verb `matrix`: several configurations of one file, run one after the other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from guardmark.app.parts.loading import LoadedConfig, parse_config
from guardmark.app.parts.prices import known_prices
from guardmark.app.results.report_files import write_reports
from guardmark.app.run.running import RunOptions, run
from guardmark.config.source import parse_yaml, read_text
from guardmark.core.errors import BudgetReached, ConfigError, GuardmarkError, UnknownName
from guardmark.core.values import dataclass
from guardmark.engine.runner import Ending
from guardmark.interchange.records.writing import matrix_metrics, matrix_pivot
from guardmark.reports.chapters.matrix import MatrixLine, matrix_document
from guardmark.reports.render.markdown import render_markdown
from guardmark.store.run_dir import RunDir
from guardmark.store.seals import note_seals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from guardmark.app.run.running import Session
    from guardmark.core.budget import SpendingMeter

_KEYS = frozenset({"global", "rows"})
_INTERRUPTED = "interrupted"
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow:
    """One configuration of a matrix."""

    row_id: str
    label: str
    loaded: LoadedConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixDone:
    """A matrix that was run, or as far as it came."""

    folder: RunDir
    lines: tuple[MatrixLine, ...]
    is_interrupted: bool
    is_over_budget: bool = False


def load_matrix(path: Path) -> tuple[MatrixRow, ...]:
    """Read a file of configurations: `global` settings, and `rows` that change them."""
    document, _ = parse_yaml(read_text(path, f"The matrix {path}"), str(path))
    if not isinstance(document, dict) or not isinstance(document.get("rows"), list):
        raise ConfigError(f"{path}: a matrix has the keys global and rows (a list).")
    strange = sorted(set(document) - _KEYS)
    if strange:
        raise ConfigError(f"{path}: unknown keys: {', '.join(strange)}. Known: global, rows.")
    rows = [_row(document.get("global") or {}, entry, path) for entry in document["rows"]]
    names = [row.row_id for row in rows]
    if not rows or len(set(names)) < len(names):
        raise ConfigError(f"{path}: needs rows, each with an id of its own.")
    return tuple(_with_own_prices(rows))


def _with_own_prices(rows: Sequence[MatrixRow]) -> Iterator[MatrixRow]:
    """Yield rows with the prices of their own parts; one of no part of any row is refused."""
    everywhere = frozenset[str]().union(*(known_prices(row.loaded) for row in rows))
    for row in rows:
        config, known = row.loaded.config, known_prices(row.loaded)
        for name in config.prices:
            if name not in everywhere:
                unknown = UnknownName("part or model of this matrix", name, everywhere)
                raise ConfigError(f"{row.loaded.source.shown_as}: prices.{name}: {unknown}")
        own = {name: price for name, price in config.prices.items() if name in known}
        config = config.model_copy(update={"prices": own})
        yield replace(row, loaded=replace(row.loaded, config=config))


@dataclass(slots=True, kw_only=True)
class _RestOfBudget:
    """What rows may still spend together, as the global settings of a matrix say."""

    calls: int | None
    cost: float | None
    is_over: bool = False

    def limited(self, loaded: LoadedConfig) -> LoadedConfig:
        """Return a row whose own limits are no wider than what is left."""
        run = loaded.config.run
        left = {
            "max_calls": _narrower(run.max_calls, self.calls),
            "max_cost": _narrower(run.max_cost, self.cost),
        }
        run = run.model_copy(update=left)
        return replace(loaded, config=loaded.config.model_copy(update={"run": run}))

    def take(self, meter: SpendingMeter) -> None:
        """Take away what a row has spent."""
        if self.calls is not None:
            self.calls = max(0, self.calls - meter.calls)
        if self.cost is not None:
            self.cost = max(0.0, self.cost - meter.cost)

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left of it."""
        return self.calls == 0 or self.cost == 0


def _narrower(own: Number | None, left: Number | None) -> Number | None:
    if own is None or left is None:
        if own is None:
            return left
        return own
    return min(own, left)


def _budget_of(path: Path) -> _RestOfBudget:
    """Read the limits that hold for all rows of a matrix together."""
    document, _ = parse_yaml(read_text(path, f"The matrix {path}"), str(path))
    shared = None
    if isinstance(document, dict):
        shared = document.get("global")
    run = None
    if isinstance(shared, dict):
        run = shared.get("run")
    stated = run if isinstance(run, dict) else {}
    return _RestOfBudget(calls=stated.get("max_calls"), cost=stated.get("max_cost"))


def run_matrix(
    path: Path, out: Path, *, session: Callable[[], Session], options: RunOptions | None = None
) -> MatrixDone:
    """Run every row of a matrix, or go on; one that fails does not stop the others."""
    rows = load_matrix(path)
    home = RunDir(path=out).create()
    lines: list[MatrixLine] = []
    budget = _budget_of(path)
    for row in rows:
        own = session()
        lines.append(_run_row(row, out / row.row_id, own, options or RunOptions(), budget=budget))
        budget.take(own.meter)
        if lines[-1].message == _INTERRUPTED:
            break
    source, names = str(path), ("label", "status", "message", "run_dir")
    entries = [{"id": each.row_id} | {n: getattr(each, n) for n in names} for each in lines]
    manifest = {"matrix": source, "rows": entries}
    home.write_text("manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    home.write_text("matrix_metrics.csv", matrix_metrics(lines))
    home.write_text("matrix_attack_success.csv", matrix_pivot(lines, alarms=False))
    home.write_text("matrix_false_alarms.csv", matrix_pivot(lines, alarms=True))
    home.write_text("matrix_report.md", render_markdown(matrix_document(lines, source=source)))
    return MatrixDone(
        folder=home,
        lines=tuple(lines),
        is_interrupted=lines[-1].message == _INTERRUPTED,
        is_over_budget=budget.is_over,
    )


def _run_row(
    row: MatrixRow,
    folder: Path,
    session: Session,
    options: RunOptions,
    *,
    budget: _RestOfBudget,
) -> MatrixLine:
    analysis, status, message = None, "success", ""
    try:
        if budget.is_used_up:
            raise BudgetReached("The budget of the matrix is used up.")
        result = run(budget.limited(row.loaded), replace(options, out=folder), session)
        if result.summary.ending is Ending.INTERRUPTED:
            status, message = "failed", _INTERRUPTED
        formats = row.loaded.config.report
        analysis, *_ = write_reports(result.folder, row.loaded.config, formats=formats)
        note_seals(result.folder.path)
    except GuardmarkError as error:
        # A probe speaks before anything is stored.
        budget.is_over = budget.is_over or isinstance(error, BudgetReached)
        began = RunDir(path=folder).records.exists()
        status, message = "failed" if began else "skipped_after_probe", str(error)
    return MatrixLine(
        row_id=row.row_id,
        label=row.label,
        status=status,
        message=message,
        run_dir=str(folder),
        analysis=analysis,
    )


def _row(shared: Mapping[str, Any], entry: object, path: Path) -> MatrixRow:
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str | int):
        raise ConfigError(f"{path}: every row needs an id.")
    import yaml

    row_id = str(entry["id"])
    if not row_id or "/" in row_id or row_id.startswith("."):
        raise ConfigError(f"{path}: {row_id!r} cannot name a folder; take letters and digits.")
    own = {key: value for key, value in entry.items() if key not in {"id", "label"}}
    merged = {"version": 1, "name": row_id, **_merged(shared, own)}
    loaded = parse_config(
        yaml.safe_dump(merged, sort_keys=False),
        folder=path.resolve().parent,
        shown_as=f"{path} (row {row_id})",
    )
    return MatrixRow(row_id=row_id, label=str(entry.get("label") or ""), loaded=loaded)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay settings over settings: sections are merged, everything else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        # A part that names its type is whole: settings of another type do not show through.
        is_section = isinstance(value, Mapping) and "type" not in value
        merged[key] = _merged(under, value) if is_section and isinstance(under, Mapping) else value
    return merged
