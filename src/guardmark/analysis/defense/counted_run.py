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
    timed = [(code, waited, n) for (code, waited), n in counted.items() if code & HAS_TIME]
    groups = _groups(
        rows, counted, is_grouped=reader.connection.value(query("any_origin")) is not None
    )
    shown = _shown(rows, max(_FEWEST_SHOWN, 2 * settings.listed_samples))
    ints = partial(np.array, dtype=np.int64)
    return replace(
        frame(
            [code for codes, _, _ in groups for code in codes],
            [own for codes, own, _ in groups for _ in codes],
        ),
        weights=ints([count for codes, _, count in groups for _ in codes]),
        examples=replace(
            frame([code for code, _, _ in shown], [own for _, _, own in shown]),
            positions=ints([position for _, position, _ in shown]),
        ),
        times=replace(
            frame(
                [code for code, _, _ in timed],
                range(len(timed)),
                latency_ns=ints([int(waited) for _, waited, _ in timed]),
            ),
            weights=ints([count for _, _, count in timed]),
        ),
    )


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
    return [
        (tuple(map(int, str(codes).split())), names[codes], count)
        for codes, count in groups.items()
    ]


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
    names = {own: at for at, own in enumerate(dict.fromkeys(owners))}
    table = np.array([names[own] for own in owners], dtype=np.int32)
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
