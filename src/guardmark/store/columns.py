"""Samples, records and usage as columns and sums; numpy is imported only when they are read."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, chain, groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, overload

from guardmark.core.errors import StoreError
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.core.values import dataclass
from guardmark.store.codec import stored_object
from guardmark.store.connect import values_of
from guardmark.store.samples import kinds_of
from guardmark.store.schema import FACET_COLUMNS, FLAG_CACHED, STAGE_CODE, STAGES, query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from guardmark.store.connect import Row
    from guardmark.store.reader import RecordReader

HAS_TIME: Final = 1 << 32  # mark of `coded` numbers
_CHUNK: Final = 250
_ANSWER: Final = (1 << 36) - 1  # what of these is of a record
_SAMPLES: Final = "SELECT id, kind, length, origin FROM samples ORDER BY position LIMIT ?"
_ANY_CROSSING: Final = """SELECT 1 FROM samples WHERE rest LIKE '{"crossing":%' LIMIT 1"""
_RESTS: Final = "SELECT rest FROM samples ORDER BY position LIMIT ?"
_OF_PART: Final = (
    " WHERE defense = (SELECT id FROM defenses WHERE name = ?) AND stage = ?"
    " AND layer = (SELECT id FROM layers WHERE name = ?)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """One property of samples, as codes that take room only while they are looked at.

    Attributes:
        names: The words, each at its code.
        table: The code of each place, such as each kind of sample.
        places: The place of each sample; None where a place is a sample.
    """

    names: Sequence[str]
    table: NDArray[np.int32]
    places: NDArray[np.integer] | None = None

    @property
    def codes(self) -> NDArray[np.int32]:
        """The code of each sample."""
        if self.places is None:
            return self.table
        return self.table.take(self.places)

    def of(self, chosen: NDArray[np.int64]) -> Facet:
        """Return the facet of some samples, repeated as asked."""
        if self.places is None:
            return replace(self, table=self.table[chosen])
        return replace(self, places=self.places[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleColumns:
    """The samples of a run with a label, one place each, in order of position."""

    ids: Sequence[str]
    is_attack: NDArray[np.bool_]
    category: Facet
    subcategory: Facet
    severity: Facet
    language: Facet
    variant: Facet
    technique: Facet
    source: Facet
    group: Facet
    length: NDArray[np.int64]
    crossing: Facet | None = None
    """The factor that crosses the groups, where rows are crossed; the groups are then of the one
    with fewer levels."""
    origin: Facet | None = None
    """The groups as stated, where others stand for them: samples were asked about by these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """All records of one defense, stage and layer, by repeat, then sample.

    Attributes:
        defense: The defense.
        stage: The stage.
        layer: The layer.
        sample: Position of the sample, shape (n,), as the rest.
        repeat: Number of the repeat, from 0.
        outcome: Code of the outcome.
        score: The score, or NaN.
        latency_ns: The time it took, or -1 where it was not measured.
        error_kind: Code of what failed, or -1.
        answer_mode: Code of the answer mode, or -1.
        flags: Bits, `FLAG_...` of the schema.
    """

    defense: str
    stage: Stage
    layer: str
    sample: NDArray[np.int64]
    repeat: NDArray[np.int32]
    outcome: NDArray[np.int8]
    score: NDArray[np.float64]
    latency_ns: NDArray[np.int64]
    error_kind: NDArray[np.int8]
    answer_mode: NDArray[np.int8]
    flags: NDArray[np.uint8]


def sample_columns(reader: RecordReader, *, is_every: bool = False) -> SampleColumns:
    """Read the samples with a label as columns; or every sample, the unlabelled as benign."""
    import numpy as np

    ids = PackedStrings()
    groups: dict[str, int] = {}
    kinds = kinds_of(reader.connection)
    count = reader.sample_count()
    if is_every:
        count += reader.unlabelled_count()
    numbers = np.empty(count, dtype=np.int64)
    lengths = np.empty(count, dtype=np.int64)
    codes = np.arange(count, dtype=np.int32)  # each stands alone, under its id
    with values_of(reader.path):
        for rows in reader.connection.chunks(_SAMPLES, (count,), size=_CHUNK):
            names, chunk, sizes, origins = zip(*rows, strict=True)
            here = slice(len(ids), len(ids) + len(rows))
            numbers[here], lengths[here] = chunk, sizes
            if not groups and any(origins):
                groups = {name: code for code, name in enumerate(ids)}
            if groups or any(origins):
                stated = (
                    name if origin is None else origin
                    for name, origin in zip(names, origins, strict=True)
                )
                codes[here] = [groups.setdefault(name, len(groups)) for name in stated]
            ids.extend(names)
    group_names: Sequence[str] = ids
    if groups:
        group_names = PackedStrings(groups)
    group = Facet(names=group_names, table=codes)
    samples = _samples_of(kinds, numbers, ids=ids, lengths=lengths, group=group)
    if is_every or not _may_be_crossed(reader):
        return samples
    words: list[str] = []
    with values_of(reader.path):
        for rows in reader.connection.chunks(_RESTS, (count,), size=_CHUNK):
            words += [stored_object(rest, "rest").get("crossing", "") for (rest,) in rows]
    if not any(words):
        return samples
    return crossed(samples, words)


def _may_be_crossed(reader: RecordReader) -> bool:
    """Tell whether samples may have a second origin, without a look at each of a large run."""
    if not reader.sample_count():
        return False
    manifest = reader.manifest()
    if any("crossing" in data.mapping for data in manifest.data):
        return True
    if all(data.mapping for data in manifest.data):
        return False
    return reader.connection.value(_ANY_CROSSING) is not None


def crossed(samples: SampleColumns, words: Sequence[str]) -> SampleColumns:
    """Give samples a second origin; those without one are each crossed by themselves.

    The factor with fewer levels becomes the group, for all that knows one factor alone. A sample
    without a second origin keeps its group.
    """
    import numpy as np

    alone = [f"\x1f{sample_id}" for sample_id in samples.ids]
    second = [word or own for word, own in zip(words, alone, strict=True)]
    crossing = facet_of(second, None)
    group = samples.group
    has_second = np.array([bool(word) for word in words], dtype=np.bool_)
    levels = len(np.unique(group.codes[has_second]))
    if len(np.unique(crossing.codes[has_second])) >= levels:
        return replace(samples, crossing=crossing)
    fewer: list[str] = []
    other: list[str] = []
    for at, code in enumerate(group.codes.tolist()):
        own = group.names[code]
        if words[at]:
            fewer.append(words[at])
            other.append(own)
        else:
            fewer.append(own)
            other.append(alone[at])
    return replace(
        samples, group=facet_of(fewer, None), crossing=facet_of(other, None), origin=group
    )


def metadata_facets(reader: RecordReader, names: Sequence[str]) -> dict[str, Facet]:
    """Read fields of the samples' metadata as facets; what a sample does not state is empty."""
    if not names:
        return {}
    words: dict[str, list[str]] = {name: [] for name in names}
    count = reader.sample_count()
    with values_of(reader.path):
        for rows in reader.connection.chunks(_RESTS, (count,), size=_CHUNK):
            for (rest,) in rows:
                metadata = stored_object(rest, "rest").get("metadata", {})
                for name, column in words.items():
                    column.append(word_of(metadata.get(name)))
    return {name: facet_of(column, None) for name, column in words.items()}


def word_of(value: object) -> str:
    """Return a value of metadata as a word; lists and objects are no values to slice by."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    return ""


def _samples_of(
    kinds: Mapping[int, Sequence[Any]],
    numbers: NDArray[np.int64],
    *,
    ids: Sequence[str],
    lengths: NDArray[np.int64],
    group: Facet,
) -> SampleColumns:
    import numpy as np

    kind = np.searchsorted(list(kinds), numbers).astype(np.min_scalar_type(len(kinds)))
    facets = {}
    for column, name in enumerate(FACET_COLUMNS, start=1):
        words = [values[column] for values in kinds.values()]
        facets[name] = facet_of(words, kind)
    is_attack = np.array([values[0] == 1 for values in kinds.values()], dtype=np.bool_)[kind]
    return SampleColumns(ids=ids, is_attack=is_attack, length=lengths, group=group, **facets)


def coded_rows(
    reader: RecordReader, name: str, defense: str, *, edges: Sequence[int]
) -> Iterator[Row]:
    """Yield what a query says of samples and records of a defense as one number."""
    defenses = {word: number for number, word in reader.connection.names("defenses").items()}
    layers = {word: number for number, word in reader.connection.names("layers").items()}
    sizes = " + ".join(f"(s.length > {edge})" for edge in edges)
    words = {
        "coded": query("coded").format(sizes=sizes),
        "answers": query("answers").format(
            stage=STAGE_CODE[Stage.DEFENSE], defense=defenses[defense], layer=layers[FIRST_LAYER]
        ),
    }
    with values_of(reader.path):
        yield from chain.from_iterable(reader.connection.chunks(query(name).format(**words)))


def coded_columns(
    reader: RecordReader,
    defense: str,
    coded: NDArray[np.int64],
    *,
    edges: Sequence[int],
    group: Facet,
    latency_ns: NDArray[np.int64] | None = None,
) -> tuple[SampleColumns, RecordColumns]:
    """Turn numbers into samples of no name and their records, timed or with a time of 0."""
    import numpy as np

    kinds = kinds_of(reader.connection)
    numbers, sizes = np.divmod(coded >> 36, 8)
    lengths = np.array([0, *(edge + 1 for edge in edges)])[sizes]
    at = np.flatnonzero(coded & _ANSWER)
    packed = (coded & _ANSWER)[at] - 1
    if latency_ns is None:
        latency = np.where(packed & HAS_TIME, 0, -1)
    else:
        latency = latency_ns[at]
    samples = _samples_of(kinds, numbers, ids=(), lengths=lengths, group=group)
    records = _records_of(
        (defense, Stage.DEFENSE, FIRST_LAYER),
        at,
        packed=packed & (HAS_TIME - 1),
        score=np.full(len(at), np.nan),
        latency=latency,
    )
    return samples, records


def facet_of(words: Sequence[str], places: NDArray[np.integer] | None) -> Facet:
    """Return a facet from the word of each place, and the place of each sample."""
    import numpy as np

    seen = {word: code for code, word in enumerate(dict.fromkeys(words))}
    table = np.array([seen[word] for word in words], dtype=np.int32)
    return Facet(names=tuple(seen), table=table, places=places)


def record_columns(
    reader: RecordReader,
    defense: str,
    *,
    stage: Stage = Stage.DEFENSE,
    layer: str = FIRST_LAYER,
    is_every: bool = False,
) -> RecordColumns:
    """Read all records of one defense, stage and layer as columns.

    Those of samples without a label are left out, unless every record is asked for.
    """
    import numpy as np

    _require_known("defense", defense, reader.defenses())
    _require_known("layer", layer, reader.layers())
    end = reader.sample_count()
    if is_every:
        end += reader.unlabelled_count()
    key = (defense, STAGE_CODE[stage], layer, end)
    counting = f"SELECT count(*) FROM records{_OF_PART} AND sample < ?"  # noqa: S608 - constants of ours
    count = reader.connection.value(counting, key)
    # At once into columns: as tuples they would take five times the memory until the end.
    kinds = (np.int64, np.int64, np.float64, np.int64)
    columns: list[NDArray[Any]] = [np.empty(count, dtype=kind) for kind in kinds]
    of_part = query("columns").format(of_part=_OF_PART)
    filled = 0
    with values_of(reader.path):
        for rows in reader.connection.chunks(of_part, (*key, count), size=_CHUNK):
            here = slice(filled, filled + len(rows))
            for column, values in zip(columns, zip(*rows, strict=True), strict=True):
                column[here] = values
            filled += len(rows)
    sample, packed, score, latency = columns
    named = (defense, stage, layer)
    return _records_of(named, sample, packed=packed, score=score, latency=latency)


def _require_known(kind: str, name: str, known: Sequence[str]) -> None:
    """Refuse the name of a defense or a layer that a run does not have."""
    if name not in known:
        raise StoreError(f"The run has no {kind} {name!r}. It has: {', '.join(known)}.")


def _records_of(
    named: tuple[str, Stage, str],
    sample: NDArray[np.int64],
    *,
    packed: NDArray[np.int64],
    score: NDArray[np.float64],
    latency: NDArray[np.int64],
) -> RecordColumns:
    import numpy as np

    return RecordColumns(
        defense=named[0],
        stage=named[1],
        layer=named[2],
        sample=sample,
        repeat=_lean((packed >> 32).astype(np.int32)),
        outcome=packed.astype(np.uint8).view(np.int8),
        score=_lean(score),
        latency_ns=latency,
        error_kind=_lean((packed >> 16).astype(np.uint8).view(np.int8) - np.int8(1)),
        answer_mode=_lean((packed >> 24).astype(np.uint8).view(np.int8) - np.int8(1)),
        flags=_lean((packed >> 8).astype(np.uint8)),
    )


def _lean(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column that takes no room where all of its values are the same."""
    import numpy as np

    same = np.broadcast_to(column[:1].copy(), column.shape)
    if np.array_equal(column, same, equal_nan=column.dtype.kind == "f"):
        return same
    return column


def sample_digests(reader: RecordReader) -> list[bytes]:
    """Return the content hash of every sample with a label, in order of position."""
    query = "SELECT digest FROM samples ORDER BY position LIMIT ?"
    return [digest for (digest,) in reader.connection.rows(query, (reader.sample_count(),))]


class PackedStrings(Sequence[str]):
    """A sequence of words that makes each when it is asked for.

    A million ids as strings of their own take 70 bytes each; here they take what they are long,
    and eight.
    """

    __slots__ = ("_content", "_ends")

    def __init__(self, words: Iterable[str] = ()) -> None:
        self._content = bytearray()
        self._ends = array("Q", [0])
        self.extend(words)

    def extend(self, words: Iterable[str]) -> None:
        """Put words behind the others."""
        parts = [word.encode(errors="surrogatepass") for word in words]
        self._ends.extend(accumulate(map(len, parts), initial=self._ends.pop()))
        self._content += b"".join(parts)

    def __len__(self) -> int:
        """Return how many words there are."""
        return len(self._ends) - 1

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> list[str]: ...

    def __getitem__(self, at: int | slice) -> str | list[str]:
        """Return a word, or a list of some."""
        places = range(len(self))[at]
        if isinstance(places, range):
            return [self[place] for place in places]
        word = self._content[self._ends[places] : self._ends[places + 1]]
        return word.decode(errors="surrogatepass")

    def __iter__(self) -> Iterator[str]:
        """Yield the words in order."""
        for start, end in pairwise(self._ends):
            yield self._content[start:end].decode(errors="surrogatepass")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageColumns:
    """Tokens and money of the calls that reported any.

    Attributes:
        sample: Position of the sample, shape (n,), as the rest.
        repeat: Number of the repeat.
        read: Tokens read, or NaN.
        written: Tokens written, or NaN.
        cost: Money, or NaN.
    """

    sample: NDArray[np.int64]
    repeat: NDArray[np.int64]
    read: NDArray[np.float64]
    written: NDArray[np.float64]
    cost: NDArray[np.float64]


_USED: Final = ", ".join(f"json_extract(x.evidence, '$.usage[{at}]')" for at in range(3))
# The word is looked for first: parsing every piece of evidence would cost far more.
_HAS_USAGE: Final = "instr(x.evidence, '\"usage\"') AND json_type(x.evidence, '$.usage') = 'array'"


def usage_columns(reader: RecordReader, defense: str) -> UsageColumns:
    """Read what the calls of a defense used."""
    import numpy as np

    query = (
        f"SELECT sample, repeat, {_USED} FROM details x{_OF_PART} AND sample < ? AND {_HAS_USAGE}"  # noqa: S608 - constants of ours
        " ORDER BY 2, 1"
    )
    key = (defense, STAGE_CODE[Stage.DEFENSE], FIRST_LAYER, reader.sample_count())
    rows = reader.connection.rows(query, key)
    with values_of(reader.path):
        table = np.array(rows, dtype=np.float64).reshape(len(rows), 5)
    return UsageColumns(
        sample=table[:, 0].astype(np.int64),
        repeat=table[:, 1].astype(np.int64),
        read=table[:, 2],
        written=table[:, 3],
        cost=table[:, 4],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingColumns:
    """What the answers of a defense say of one native category, by repeat, then sample.

    Attributes:
        name: The category, in the defense's own words.
        sample: Position of the sample, shape (n,), as the rest.
        repeat: Number of the repeat.
        flagged: 1 or 0; -1 where the category is only scored.
        score: The score, or NaN.
    """

    name: str
    sample: NDArray[np.int64]
    repeat: NDArray[np.int64]
    flagged: NDArray[np.int8]
    score: NDArray[np.float64]


def holds_findings(reader: RecordReader) -> bool:
    """Tell whether any answer of a run says something of native categories."""
    return reader.connection.value(query("any_finding")) is not None


def finding_columns(reader: RecordReader, defense: str) -> tuple[FindingColumns, ...]:
    """Read what the answers of a defense say of native categories, in order of their names."""
    import numpy as np

    key = (defense, STAGE_CODE[Stage.DEFENSE], FIRST_LAYER, reader.sample_count())
    findings = query("findings").format(of_part=_OF_PART)
    columns: dict[str, tuple[array[int], array[int], array[int], array[float]]] = {}
    with values_of(reader.path):
        for rows in reader.connection.chunks(findings, key, size=_CHUNK):
            for sample, repeat, name, flagged, score in rows:
                if name not in columns:
                    columns[name] = (array("q"), array("q"), array("b"), array("d"))
                samples, repeats, flags, scores = columns[name]
                samples.append(sample)
                repeats.append(repeat)
                flags.append(-1 if flagged is None else flagged)
                scores.append(math.nan if score is None else score)
    return tuple(
        FindingColumns(
            name=name,
            sample=np.frombuffer(samples, dtype=np.int64),
            repeat=np.frombuffer(repeats, dtype=np.int64),
            flagged=np.frombuffer(flags, dtype=np.int8),
            score=np.frombuffer(scores, dtype=np.float64),
        )
        for name, (samples, repeats, flags, scores) in sorted(columns.items())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartUsage:
    """What the calls of one part used at one stage; None where no answer reports any.

    A request is what was sent: questions for a repair and retries are requests of their own.
    """

    DERIVED: ClassVar = ("cost_per_1000_answers", "cost_per_1000_requests")

    part: str  # name of the defense, model or judge
    stage: str  # `defense`, `warmup`, `model`, `judge` or `try`
    layer: str  # which judging; `run` for the run itself
    answers: int  # answers that report usage and were asked for in this run, each time they were
    calls: int  # requests that were sent for them, questions for a repair and retries included
    recalled: int  # answers kept from an earlier run; in no sum
    tokens_read: int | None  # None where no answer reports any
    tokens_written: int | None  # None where no answer reports any
    cost: float | None  # in the currency of the price table
    priced: int  # answers behind `cost`

    @property
    def cost_per_1000_answers(self) -> float | None:
        """Cost of 1,000 answers, with all requests that these take; None without a price."""
        if self.cost is None or not self.priced:
            return None
        return 1000 * self.cost / self.priced

    @property
    def cost_per_1000_requests(self) -> float | None:
        """Cost of 1,000 requests as they were sent; None unless every answer has a price."""
        if self.cost is None or self.priced < self.answers or not self.calls:
            return None
        return 1000 * self.cost / self.calls


_STORED: Final = (
    "SELECT x.defense, x.stage, x.layer, r.flags, x.evidence"  # noqa: S608 - a constant of ours
    " FROM details x JOIN records r USING (defense, stage, layer, repeat, sample)"
    f" UNION ALL SELECT defense, {STAGE_CODE[Stage.TRY]}, layer, flags, evidence FROM tries"
)
_ASKED_AGAIN: Final = " UNION ALL SELECT defense, stage, layer, flags, evidence FROM superseded"
_REQUESTS: Final = (
    "coalesce(json_extract(x.evidence, '$.requests'),"
    " max(1, coalesce(json_array_length(x.evidence, '$.attempts'), 1)))"
)
_ALL_USAGE: Final = (
    f"SELECT d.name, x.stage, l.name, x.flags & {FLAG_CACHED}, {_USED}, {_REQUESTS} FROM ({{}}) x"  # noqa: S608 - constants of ours
    " JOIN defenses d ON d.id = x.defense JOIN layers l ON l.id = x.layer"
    f" WHERE {_HAS_USAGE} ORDER BY x.defense, x.stage, x.layer"
)


def read_usage(reader: RecordReader) -> tuple[PartUsage, ...]:
    """Add up what all calls of a run used."""
    again = _ASKED_AGAIN if reader.connection.has_superseded else ""
    rows = reader.connection.rows(_ALL_USAGE.format(_STORED + again))
    with values_of(reader.path):
        return tuple(_sums_of(rows))


def _sums_of(rows: list[tuple[Any, ...]]) -> Iterator[PartUsage]:
    for (name, stage, layer), group in groupby(rows, key=itemgetter(0, 1, 2)):
        calls = list(group)
        asked = [row[4:] for row in calls if not row[3]]
        read = [row[0] for row in asked if row[0] is not None]
        written = [row[1] for row in asked if row[1] is not None]
        cost = [row[2] for row in asked if row[2] is not None]
        yield PartUsage(
            part=name,
            stage=STAGES[stage].value,
            layer=layer,
            answers=len(asked),
            calls=sum(row[3] for row in asked),
            recalled=len(calls) - len(asked),
            tokens_read=sum(read) if read else None,
            tokens_written=sum(written) if written else None,
            cost=math.fsum(cost) if cost else None,
            priced=len(cost),
        )
