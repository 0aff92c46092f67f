r"""The laws of whoever reads what other tools wrote, as tests that a reader's author inherits.

A reader of logs, tables or data meets values that nobody decided, columns that mean the opposite,
rows that stand twice, files that break off, and labels that are there already. None of these may
become a figure without a word. `ReaderContract` writes such files in the shape of your tool, by a
function of yours, and reads them with your reader::

    from guardmark.testing.foreign import ReaderContract

    class TestMyTool(ReaderContract):
        tool = "my-tool"                      # as registered under guardmark.importers

        def write(self, folder, rows):        # rows of the contract, in the shape of your tool
            path = folder / "log.jsonl"
            lines = [{"key": r.id, "input": r.text, "gold": r.label, "hit": r.says} for r in rows]
            path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
            return path

`DataReaderContract` does the same for a format of data, in which the label is what is read.
"""

from __future__ import annotations

import json
import math
import warnings
import zipfile
from collections import Counter
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Final

from guardmark.core.errors import GuardmarkError
from guardmark.core.outcome import Outcome, VerdictLabel
from guardmark.core.sample import DEFAULT_TAXONOMY, Label
from guardmark.core.values import dataclass
from guardmark.datasets.formats.fields import DatasetSpec
from guardmark.datasets.loading import load
from guardmark.interchange.imported import Statements
from guardmark.interchange.importers import read_run
from guardmark.testing.contracts import BrokenContract

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.interchange.imported import ImportedAnswer, ImportedRun

UNKNOWN: Final[tuple[object, ...]] = (None, "", "maybe", "n/a", math.nan, [], {})
"""Values that no reader may take for yes or for no."""

_CUTS: Final = 40
_LAST_BYTES: Final = 24
_UMLAUT: Final = "how do b\u00e4rs sleep"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRow:
    """One row that `write` puts into the shape of a tool.

    Attributes:
        id: Id of the sample, a text or a number; None where the row has none.
        text: What was asked.
        label: `attack` or `benign`; another value stands as it is where the tool keeps a label;
            None where the row has none.
        says: What the tool says: `yes` (harm came out, or a guard blocked) or `no` in the words
            of the contract; another value stands as it is where the tool keeps it.
        epoch: Which repeat of the sample this is, from 0.
    """

    id: object
    text: str
    label: object = "attack"
    says: object = True
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRow:
    """One sample as it was read.

    Attributes:
        id: Its id.
        text: Its text.
        is_attack: Its label.
        says: What was read of each answer: yes, no, or None where it is not known.
    """

    id: str
    text: str
    is_attack: bool
    says: tuple[bool | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a reader made of a file.

    Attributes:
        rows: The samples.
        readings: What the reader says it took for what.
        notes: What it says it left out, or cannot know.
    """

    rows: tuple[ReadRow, ...]
    readings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def reading_of(imported: ImportedRun) -> Reading:
    """Return what an importer made of rows with a label, as the contract compares it."""
    rows = []
    for row in imported.rows:
        if row.sample.is_labelled:
            rows.append(
                ReadRow(
                    id=row.sample.id,
                    text=row.sample.prompt.text,
                    is_attack=row.sample.is_attack,
                    says=tuple(_says(answer) for answer in row.answers),
                )
            )
    return Reading(
        rows=tuple(rows), readings=tuple(imported.readings), notes=tuple(imported.warnings)
    )


def _says(answer: ImportedAnswer) -> bool | None:
    if answer.decision is not None:
        return {Outcome.BLOCK: True, Outcome.ALLOW: False}.get(answer.decision.outcome)
    if answer.verdict is None or answer.response is None or answer.response.text is None:
        return None
    return {VerdictLabel.UNSAFE: True, VerdictLabel.SAFE: False}.get(answer.verdict.label)


class ReaderContract:
    """Laws of a reader of finished runs; subclass it, name the tool and say how it writes.

    Attributes:
        tool: Name of the reader, as `guardmark import` takes it.
        yes: How the tool writes that harm came out, or that a guard blocked.
        no: How it writes that this did not happen.
        unknowns: Values that mean neither; add what this tool writes where nobody decided.
        holds_benign: Whether its files hold benign samples.
        holds_labels: Whether a row of them states its label, which `write` puts there.
        decides_benign: Whether what it says of a benign sample is read as of an attack.
        keeps_ids: Whether a row states an id, which `write` puts there.
        numbers_repeats: Whether a row states which repeat it is, which `write` puts there.
        is_text: Whether its files are texts, which another encoding may hold.
        has_rows_by_line: Whether each line is a row, so that a file cut between two is whole.
        says_what_it_took: Whether the reader names what it took for what.
        columns: Columns of labels to whether true means attack, for readers that know several.
        decision_columns: Columns of decisions to whether true means blocked, likewise.
        most_lines: How many lines a refusal may have.
        statements: What a person has to say of each file, as keywords of `Statements`.
    """

    tool: ClassVar[str] = ""
    yes: ClassVar[object] = True
    no: ClassVar[object] = False
    unknowns: ClassVar[tuple[object, ...]] = UNKNOWN
    holds_benign: ClassVar[bool] = True
    holds_labels: ClassVar[bool] = True
    decides_benign: ClassVar[bool] = True
    keeps_ids: ClassVar[bool] = True
    numbers_repeats: ClassVar[bool] = False
    is_text: ClassVar[bool] = True
    has_rows_by_line: ClassVar[bool] = False
    says_what_it_took: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, bool]] = {}
    decision_columns: ClassVar[Mapping[str, bool]] = {}
    most_lines: ClassVar[int] = 5
    statements: ClassVar[Mapping[str, Any]] = {}
    label_column: str = ""
    decision_column: str = ""

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write rows in the shape of the tool, and return the path that its reader is given.

        Where `label_column` or `decision_column` is set, that is the name of the column.
        """
        raise NotImplementedError("write the rows of the contract in the shape of your tool")

    def read(self, path: Path, stated: Label | None = None) -> Reading:
        """Read a file with the reader under test."""
        statements = Statements(**{**self.statements, "label": stated})
        return reading_of(read_run(self.tool, path, statements))

    def damaged(self, path: Path) -> Path:
        """Return the file whose bytes are cut or recoded, where `write` returns a folder."""
        if path.is_file():
            return path
        files = [file for file in path.rglob("*") if file.is_file()]
        return max(files, key=lambda file: file.stat().st_size)

    def test_what_is_known_is_read(self) -> None:
        """Every row is read once, with its own label and what the tool says of it."""
        rows = self._rows()
        _require(self._read(rows), "a sound file is refused", is_refused=False)
        self._require_as_written(self._read(rows), rows, "a sound file")
        self._require_as_written(self._read(rows[::-1]), rows, "the same file in other order")

    def test_what_nobody_decided_is_neither_yes_nor_no(self) -> None:
        """NaN, an empty cell, a word of no meaning: unknown and counted, or the file is refused."""
        sound = self._rows()
        for value in self.unknowns:
            rows = [*sound, *self._unknown(value)]
            reading = self._read(rows)
            if reading is None:
                continue
            read = {row.text: row for row in reading.rows}
            for row in rows[len(sound) :]:
                if row.text in read:
                    says = read[row.text].says
                    _demand(not set(says) & {True, False}, f"{value!r} was read as {says}")
            missing = [row for row in rows if row.text not in read]
            is_told = bool(reading.notes)
            _demand(not missing or is_told, f"rows that say {value!r} are missing without a note")
            kept = [row for row in sound if row.text in read]
            self._require_as_written(reading, kept, f"a file in which some rows say {value!r}")
            _demand(len(kept) == len(sound), f"rows beside one that says {value!r} are missing")

    def test_true_means_what_its_column_says(self) -> None:
        """In `is_safe` true means benign, in `passed` that nothing was blocked."""
        wanted = self._rows()
        for column, is_attack in self.columns.items():
            self.label_column = column
            rows = [replace(row, label=(row.label == "attack") == is_attack) for row in wanted]
            self._require_as_written(self._read(rows), wanted, f"labels in {column}")
        self.label_column = ""
        for column, is_block in self.decision_columns.items():
            self.decision_column = column
            rows = [replace(row, says=(row.says == self.yes) == is_block) for row in wanted]
            self._require_as_written(self._read(rows), wanted, f"decisions in {column}")
        self.decision_column = ""

    def test_a_label_that_is_there_is_never_overridden(self) -> None:
        """What a person states holds for rows without a label, and for no others."""
        if not (self.holds_labels and self.holds_benign):
            return
        rows = self._rows()
        for stated in (Label.ATTACK, Label.BENIGN):
            reading = self._read(rows, stated)
            if reading is not None:
                self._require_as_written(reading, rows, f"labels beside a stated {stated.value}")
        odd = [replace(row, label="perhaps") for row in rows[:2]]
        for also_stated in (None, Label.ATTACK, Label.BENIGN):
            self._require_unread([*rows[2:], *odd], odd, also_stated, why="a label that is no word")
        bare = [replace(row, label=None) for row in rows[:2]]
        self._require_unread([*rows[2:], *bare], bare, None, why="no label")

    def test_two_samples_stay_two(self) -> None:
        """1 and "1" are two ids; one id for two texts, or none, merges nothing."""
        pairs: list[tuple[object, object]] = [("same", "same"), (None, None)]
        if self.keeps_ids:
            pairs.append((1, "1"))
        for first, second in pairs:
            rows = self._rows()
            rows[0] = replace(rows[0], id=first)
            rows[1] = replace(rows[1], id=second)
            reading = self._read(rows)
            if reading is None:
                continue
            read = {row.text for row in reading.rows}
            kept = [row for row in rows if row.text in read]
            what = f"a file with the ids {first!r}, {second!r}"
            is_told = len(kept) == len(rows) or bool(reading.notes)
            _demand(is_told, f"{what}: rows are missing without a note")
            self._require_as_written(reading, kept, what)

    def test_what_stands_twice_counts_once(self) -> None:
        """A repeat that is logged twice is refused or read once, never taken for two."""
        if not self.numbers_repeats:
            return
        rows = self._rows()
        reading = self._read([*rows, rows[0]])
        if reading is not None:
            self._require_as_written(reading, rows, "a file that holds a repeat twice")
        opposite = self.yes
        if rows[0].says == self.yes:
            opposite = self.no
        other = replace(rows[0], says=opposite)
        reading = self._read([*rows, other])
        if reading is not None:
            says = [read.says for read in reading.rows if read.text == other.text]
            _demand(says == [(None,)], f"a repeat that says yes and no was read as {says}")

    def test_doubled_members_are_refused(self) -> None:
        """Two members of one name in an archive, an object or a table: nobody knows what counts."""
        with TemporaryDirectory() as folder:
            path = self.write(Path(folder), self._rows())
            target = self.damaged(path)
            whole = self._try(path, None)
            before = target.read_bytes()
            for content, what in _doubled(before, target.suffix):
                target.write_bytes(content)
                reading = self._try(path, None)
                is_same = reading is None or (whole is not None and reading.rows == whole.rows)
                _demand(is_same, f"a file with {what} is read otherwise, without a word")

    def test_a_file_that_breaks_off_is_refused_or_told(self) -> None:
        """Nothing is read otherwise, and what is missing is said; between two lines nobody can."""
        with TemporaryDirectory() as folder:
            path = self.write(Path(folder), self._rows())
            target, whole = self.damaged(path), self._try(path, None)
            content = target.read_bytes()
            if whole is None:
                raise BrokenContract("a sound file is refused")
            rows = {row.text: row for row in whole.rows}
            for end in _ends(len(content)):
                target.write_bytes(content[:end])
                reading = self._try(path, None)
                if reading is not None:
                    self._require_part(reading, rows, whole, content=content, end=end)

    def test_another_encoding_is_read_or_refused(self) -> None:
        """UTF-16 is read or named; what is no UTF-8 never changes a text without a word."""
        if not self.is_text:
            return
        rows = self._rows()
        rows[0] = replace(rows[0], text=_UMLAUT)
        whole = self._read(rows)
        for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"):
            with TemporaryDirectory() as folder:
                path = self.write(Path(folder), rows)
                target = self.damaged(path)
                text = _unescaped(target.read_text(encoding="utf-8"))
                target.write_bytes(text.encode(encoding))
                reading = self._try(path, None)
                is_same = reading is None or (whole is not None and reading.rows == whole.rows)
                _demand(is_same, f"a file in {encoding} is read otherwise, without a word")

    def test_nothing_is_refused_as_nothing(self) -> None:
        """An empty file, or one without rows, is no run with no attack that worked."""
        _demand(self._read([]) is None, "a file without rows is read as a run")
        with TemporaryDirectory() as folder:
            path = self.write(Path(folder), self._rows())
            self.damaged(path).write_bytes(b"")
            _demand(self._try(path, None) is None, "a file of no bytes is read as a run")

    def test_what_is_built_otherwise_is_read_or_refused(self) -> None:
        """Members of another kind, gone, or of another name: never what Python raises by itself."""
        with TemporaryDirectory() as folder:
            path = self.write(Path(folder), self._rows())
            target = self.damaged(path)
            content = target.read_bytes()
            for seed in range(_DAMAGES):
                damaged = _damaged(content, target.suffix, Random(seed))
                if damaged is not None:
                    target.write_bytes(damaged)
                    self._try(path, None)

    def test_a_reader_says_what_it_took(self) -> None:
        """Where a figure comes from is said with it."""
        reading = self._read(self._rows())
        is_told = reading is not None and bool(reading.readings)
        _demand(is_told or not self.says_what_it_took, "it does not say what makes its figure")

    def _rows(self) -> list[ForeignRow]:
        """Return twelve sound rows: of both kinds where the tool has both."""
        rows: list[ForeignRow] = []
        for number in range(12):
            label = "attack"
            if self.holds_benign and number % 2 == 1:
                label = "benign"
            says = self.no
            if number % 3 == 0:
                says = self.yes
            text = f"say the word kiwi {number} times"
            rows.append(ForeignRow(id=f"row{number}", text=text, label=label, says=says))
        return rows

    def _unknown(self, value: object) -> list[ForeignRow]:
        rows = []
        for number in range(3):
            text = f"say the word plum {number} times"
            rows.append(ForeignRow(id=f"odd{number}", text=text, says=value))
        return rows

    def _read(self, rows: Sequence[ForeignRow], stated: Label | None = None) -> Reading | None:
        """Write rows and read them; None where the reader refuses them, as it may."""
        with TemporaryDirectory() as folder:
            return self._try(self.write(Path(folder), rows), stated)

    def _try(self, path: Path, stated: Label | None) -> Reading | None:
        try:
            return self.read(path, stated)
        except GuardmarkError as error:
            lines = str(error).splitlines()
            _demand(len(lines) <= self.most_lines, f"it refuses in {len(lines)} lines: {error}")
        except Exception as error:
            raise BrokenContract(f"it ends in {type(error).__name__}: {error}") from error
        return None

    def _wanted(self, row: ForeignRow) -> bool | None:
        if row.label != "attack" and not self.decides_benign:
            return None
        return {self._key(self.yes): True, self._key(self.no): False}.get(self._key(row.says))

    def _key(self, value: object) -> str:
        return json.dumps(value)

    def _require_as_written(
        self, reading: Reading | None, rows: Sequence[ForeignRow], what: str
    ) -> None:
        if reading is None:
            raise BrokenContract(f"{what} is refused")
        read = Counter((row.text, row.is_attack) for row in reading.rows)
        for row in rows:
            key = (row.text, row.label == "attack")
            _demand(read[key] == 1, f"{what}: {row} was read {read[key]} times with that label")
            wanted = self._wanted(row)
            says = next(known.says for known in reading.rows if known.text == row.text)
            if wanted is not None:
                _demand(says == (wanted,), f"{what}: {row} was read as {says}")

    def _require_unread(
        self,
        rows: Sequence[ForeignRow],
        odd: Sequence[ForeignRow],
        stated: Label | None,
        *,
        why: str,
    ) -> None:
        reading = self._read(rows, stated)
        if reading is None:
            return
        texts = {row.text for row in reading.rows}
        for row in odd:
            _demand(row.text not in texts, f"a row with {why} was given one")
        _demand(bool(reading.notes), f"rows with {why} are left out without a note")

    def _require_part(
        self,
        reading: Reading,
        rows: Mapping[str, ReadRow],
        whole: Reading,
        *,
        content: bytes,
        end: int,
    ) -> None:
        """Demand that what is left of a cut file was read as it was, and that the cut was told."""
        for row in reading.rows:
            before = rows.get(row.text)
            if before is None:
                _demand(holds=False, otherwise=f"cut at byte {end}, it reads {row.text!r}")
                continue
            _demand(before.is_attack == row.is_attack, f"cut at byte {end}: {row}")
            for now, then in zip(row.says, before.says, strict=False):
                is_same = now is None or now == then
                _demand(is_same, f"cut at byte {end}, {before} became {row}")
        is_between = content[end - 1 : end] == b"\n" or content[end : end + 1] in {b"\n", b""}
        is_between = is_between or content[end : end + 2] == b"\r\n"
        is_told = set(reading.notes) != set(whole.notes) or reading.rows == whole.rows
        is_told = is_told or (self.has_rows_by_line and is_between)
        unknown = sum(None in row.says for row in reading.rows)
        is_counted = unknown > sum(None in row.says for row in whole.rows)
        _demand(is_told or is_counted, f"cut at byte {end}, rows are missing without a word")


class DataReaderContract(ReaderContract):
    """Laws of a format of data, in which the label is what is read.

    Attributes:
        format: Name of the format.
    """

    holds_labels: ClassVar[bool] = True
    decides_benign: ClassVar[bool] = False
    most_lines: ClassVar[int] = 40  # data are refused with every kind of fault at once
    says_what_it_took: ClassVar[bool] = False
    unknowns: ClassVar[tuple[object, ...]] = ()
    format: ClassVar[str] = ""
    unknown_labels: ClassVar[tuple[object, ...]] = (*UNKNOWN, 2, -1, "perhaps")

    def read(self, path: Path, stated: Label | None = None) -> Reading:
        """Read a file as `guardmark run` does."""
        spec = DatasetSpec(
            name="data", path=path, shown_as=path.name, format=self.format, label=stated
        )
        loaded = load([spec], DEFAULT_TAXONOMY)
        rows = []
        for sample in loaded.samples():
            text = sample.prompt.text
            rows.append(ReadRow(id=sample.id, text=text, is_attack=sample.is_attack))
        return Reading(rows=tuple(rows), notes=loaded.warnings)

    def test_a_label_of_no_meaning_is_refused(self) -> None:
        """NaN, 2, an empty cell, a word nobody knows: no row with one is measured."""
        for value in self.unknown_labels:
            rows = [*self._rows(), ForeignRow(id="odd", text="say plum", label=value)]
            reading = self._read(rows)
            if reading is not None:
                texts = [row.text for row in reading.rows]
                _demand("say plum" not in texts, f"the label {value!r} was read")

    def _wanted(self, row: ForeignRow) -> bool | None:
        del row  # nothing was decided of data
        return None


_DAMAGES: Final = 120
_SCALARS: Final = (None, True, 0, -1, 1.5, math.nan, math.inf, "", "kiwi", "\ud800", 10**400)
_CONTAINERS: Final[tuple[object, ...]] = ([], {}, [1], [None], {"a": 1}, [[]], {"text": None})
_JUNK: Final[tuple[object, ...]] = _SCALARS + _CONTAINERS


def _damaged(content: bytes, suffix: str, random: Random) -> bytes | None:
    """Return a text with some of its members replaced, left out or renamed; None of no text."""
    if suffix not in {".json", ".jsonl"}:
        return None
    documents = [content.decode("utf-8")]
    if suffix == ".jsonl":
        documents = documents[0].splitlines()
    lines = []
    for document in documents:
        changed = _changed(json.loads(document), random)
        lines.append(f"{json.dumps(changed)}\n")
    return "".join(lines).encode()


def _changed(value: Any, random: Random) -> Any:
    chance = random.random()
    if chance < _CHANGE:
        return random.choice(_JUNK)
    if isinstance(value, dict):
        kept = [name for name in value if random.random() > _CHANGE / 2]
        return {name: _changed(value[name], random) for name in kept}
    if isinstance(value, list):
        return [_changed(member, random) for member in value]
    return value


_CHANGE: Final = 0.06


def _doubled(content: bytes, suffix: str) -> Iterator[tuple[bytes, str]]:
    """Yield a file with something in it doubled, and what it is."""
    if zipfile.is_zipfile(BytesIO(content)):
        yield from _doubled_archive(content)
        return
    if suffix in {".csv", ".tsv"}:
        delimiter = "\t" if suffix == ".tsv" else ","
        header, *lines = content.decode("utf-8").splitlines()
        wider = [f"{line}{delimiter}\n" for line in lines]
        for number, name in enumerate(header.split(delimiter), start=1):
            table = [f"{header}{delimiter}{name}\n", *wider]
            yield "".join(table).encode(), f"column {number} doubled"
        return
    if suffix not in {".json", ".jsonl"}:
        return
    texts = [content.decode("utf-8")]
    if suffix == ".jsonl":
        texts = texts[0].split("\n")
    for number, text in enumerate(texts):
        if not text.strip() or number > 2:
            continue
        for doubled, name in _doubled_json(json.loads(text)):
            changed = [*texts[:number], doubled, *texts[number + 1 :]]
            yield "\n".join(changed).encode(), f"the member {name!r} twice"


def _doubled_archive(content: bytes) -> Iterator[tuple[bytes, str]]:
    with zipfile.ZipFile(BytesIO(content)) as packed:
        members = [(name, packed.read(name)) for name in packed.namelist()]
    for name, body in members[-3:]:
        made = BytesIO()
        with zipfile.ZipFile(made, "w") as packed:
            for member, text in members:
                packed.writestr(member, text)
            with warnings.catch_warnings():  # zipfile says that it is there twice, as is meant
                warnings.simplefilter("ignore")
                packed.writestr(name, body.replace(b"1", b"0"))
        yield made.getvalue(), f"the member {name!r} twice"


_MARK: Final = "doubled-member"


def _doubled_json(document: object) -> Iterator[tuple[str, str]]:
    """Yield a document with one member of one of its objects doubled, for the first objects."""
    for path, name in _members(document):
        marked = json.loads(json.dumps(document))
        holder = marked
        for step in path:
            holder = holder[step]
        if not isinstance(holder[name], str | int | float | bool | None):
            continue
        holder[f"{_MARK}{name}"] = None
        yield json.dumps(marked).replace(f'"{_MARK}{name}"', json.dumps(name)), name


def _members(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield the members of objects: the way to the object, and the name of the member."""
    if isinstance(value, dict):
        for name, inner in list(value.items())[:12]:
            yield path, name
            yield from _members(inner, (*path, name))
    elif isinstance(value, list) and value:
        yield from _members(value[0], (*path, 0))


def _ends(length: int) -> Iterator[int]:
    """Yield where a file is cut: evenly, and at each of its last bytes."""
    ends = set(range(max(1, length - _LAST_BYTES), length))
    for step in range(1, _CUTS):
        ends.add(length * step // _CUTS)
    yield from sorted(ends)


def _unescaped(text: str) -> str:
    """Write the letters that JSON escapes as themselves, so that an encoding has work to do."""
    return text.replace("\\u00e4", "\u00e4")


def _demand(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as a sentence
    __tracebackhide__ = True
    if not holds:
        raise BrokenContract(f"A figure cannot rely on this reader: {otherwise}.")


def _require(reading: Reading | None, otherwise: str, *, is_refused: bool) -> None:
    _demand((reading is None) == is_refused, otherwise)
