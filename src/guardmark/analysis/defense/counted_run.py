"""A run of more samples than are held at once: groups that rates cannot tell apart are counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guardmark.analysis.defense.frame import LENGTH_EDGES, Frame, part_column, read_frame
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.store.columns import HAS_TIME, Facet, coded_columns, coded_rows
from guardmark.store.details import holds_rewritten
from guardmark.store.schema import query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.store.connect import Row
    from guardmark.store.reader import RecordReader

    Rows = Callable[[str], Iterator[Row]]

MOST_HELD: Final = 2_000_000  # samples that are read one by one, at some 95 bytes each
_FEWEST_SHOWN: Final = 100


def read_for_report(
    reader: RecordReader, settings: AnalysisSettings, *, most: int = MOST_HELD
) -> Frame:
    """Read a run one by one, or counted where it has more samples and its figures allow it.

    Counted, memory grows with how many groups differ, not with how many there are.
    """
    if reader.sample_count() <= most or not _is_countable(reader, settings):
        return read_frame(reader, settings)
    rows: Rows = partial(coded_rows, reader, defense=reader.defenses()[0], edges=LENGTH_EDGES)
    frame = partial(_frame, reader, settings)
    counted = Counter(rows("timed_codes"))
    is_grouped = reader.connection.value(query("any_origin")) is not None
    shown = _shown(rows, max(_FEWEST_SHOWN, 2 * settings.listed_samples))
    return replace(
        _frame_of_groups(frame, _groups(rows, counted, is_grouped=is_grouped)),
        examples=_frame_of_examples(frame, shown),
        times=_frame_of_times(frame, counted),
    )


def _frame_of_groups(
    frame: Callable[..., Frame], groups: Sequence[tuple[Sequence[int], Any, int]]
) -> Frame:
    """Return the samples of one group of each kind, with how many such groups there are."""
    members, owners, weights = list[int](), list[Any](), list[int]()
    for codes, owner, count in groups:
        for code in codes:
            members.append(code)
            owners.append(owner)
            weights.append(count)
    return replace(frame(members, owners), weights=np.array(weights, dtype=np.int64))


def _frame_of_examples(frame: Callable[..., Frame], shown: Sequence[Row]) -> Frame:
    """Return the samples that may be shown, with where they stand in the run."""
    codes, owners, positions = list[int](), list[Any](), list[int]()
    for code, position, owner in shown:
        codes.append(code)
        owners.append(owner)
        positions.append(position)
    return replace(frame(codes, owners), positions=np.array(positions, dtype=np.int64))


def _frame_of_times(frame: Callable[..., Frame], counted: Counter[Row]) -> Frame:
    """Return a sample of each kind and time that was measured, with how many there are."""
    codes, times, weights = list[int](), list[int](), list[int]()
    for (code, waited), count in counted.items():
        if code & HAS_TIME:
            codes.append(code)
            times.append(int(waited))
            weights.append(count)
    latency_ns = np.array(times, dtype=np.int64)
    timed = frame(codes, range(len(codes)), latency_ns=latency_ns)
    return replace(timed, weights=np.array(weights, dtype=np.int64))


def _is_countable(reader: RecordReader, settings: AnalysisSettings) -> bool:
    """Tell whether one defense was asked about every sample once, and gave no score."""
    alone = tuple((name, Stage.DEFENSE, FIRST_LAYER) for name in reader.defenses())
    return (
        not (settings.weights or settings.slices or settings.thresholds or settings.stop_when)
        and reader.manifest().repeats == len(alone) == 1
        and reader.recorded_stages() == alone
        and reader.layers() == (FIRST_LAYER,)
        and not reader.unlabelled_count()
        and not holds_rewritten(reader)
        and reader.connection.value(query("any_score")) is None
    )


def _groups(
    rows: Rows, counted: Counter[Row], *, is_grouped: bool
) -> list[tuple[Sequence[int], Any, int]]:
    """Return the codes of the members of each kind of group, one of its names, and how many."""
    if not is_grouped:
        alone = Counter[int]()
        for (code, _), count in counted.items():
            alone[code] += count
        return [((code,), code, count) for code, count in alone.items()]
    names, groups = dict[str, str](), Counter[str]()
    for codes, own in rows("codes_of_groups"):
        groups[codes] += 1
        names.setdefault(codes, own)
    kinds: list[tuple[Sequence[int], Any, int]] = []
    for codes, count in groups.items():
        kinds.append((tuple(map(int, str(codes).split())), names[codes], count))
    return kinds


def _shown(rows: Rows, most: int) -> list[Row]:
    """Return the first of each code that the defense got wrong, or did not decide."""
    seen, kept = Counter[int](), list[Any]()
    for row in rows("flawed"):
        seen[row[0]] += 1
        if seen[row[0]] <= most:
            kept.append(row)
    return kept


def _frame(
    reader: RecordReader,
    settings: AnalysisSettings,
    codes: Sequence[int],
    owners: Sequence[Any],
    *,
    latency_ns: NDArray[np.int64] | None = None,
) -> Frame:
    """Make a frame of numbers that stand for samples and their records, with their groups."""
    names: dict[Any, int] = {}
    for owner in owners:
        names.setdefault(owner, len(names))
    table = np.array([names[owner] for owner in owners], dtype=np.int32)
    samples, records = coded_columns(
        reader,
        reader.defenses()[0],
        np.array(codes, dtype=np.int64),
        edges=LENGTH_EDGES,
        group=Facet(names=tuple(map(str, names)), table=table),
        latency_ns=latency_ns,
    )
    manifest = reader.manifest()
    arms = (part_column(manifest, records),)
    return Frame(manifest=manifest, settings=settings, samples=samples, arms=arms)
