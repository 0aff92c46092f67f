"""Files of rows: JSONL, JSON, CSV, prompt packs and Parquet, plain or gzip."""

from __future__ import annotations

import codecs
import errno
import fnmatch
import gzip
import io
import json
import stat
import zlib
from base64 import b64encode
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import accumulate, chain
from json.scanner import make_scanner
from pathlib import PosixPath
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, cast

from guardmark.config.source import parse_yaml
from guardmark.core.errors import ConfigError, DatasetError, did_you_mean, listed, needs
from guardmark.core.limits import LONGEST_DATA_LINE, MOST_TEXT_BYTES
from guardmark.datasets.formats.class_labels import class_names, with_names
from guardmark.datasets.formats.fields import PACK_MARK, BadRows, Fault
from guardmark.parsing.foreign_text import (
    BrokenTable,
    DoubledMember,
    EndlessLine,
    TableReader,
    is_utf16,
    lines_of,
    require_end,
    unique_members,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from guardmark.datasets.formats.fields import DatasetSpec


RawRow = tuple[int, "dict[str, object] | Fault"]
"""Row number from 1, and the row, or what is wrong with it."""

_BY_SUFFIX = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".yaml": "yaml",
    ".yml": "yaml",
}
FORMATS: Final = ("jsonl", "json", "csv", "tsv", "parquet", "yaml", "prompt_pack")
_AHEAD = 1 << 20  # characters of a list that are read at once
_AT_ONCE = 100  # rows of Parquet, each of which may hold images
_BLANKS = " \t\n\r"
_REASON = 300  # characters of what a store says
_KEPT = 32 << 20  # bytes of a text in another encoding that stay in memory
_MOST, _LOOSE, _DENSE, _ROW = 4 << 30, 256 << 20, 250, 64
"""Bytes a file may unpack to, those that any may, how many for each of its own, those of a row."""
_BOM = b"\xef\xbb\xbf"
_ZIP = b"PK\x03\x04"
_WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".ods")
_SAVE_AS_CSV = "Save the sheet as CSV (UTF-8) and name that file."
_ENCODE = "save it as UTF-8, or state under data: encoding: "
# NaN and infinities are no JSON; where a file has them they mean that nothing is known.
_DECODER = json.JSONDecoder(parse_constant=lambda _: None, object_pairs_hook=unique_members)
_scan = make_scanner(_DECODER)  # type: ignore[arg-type]  # typeshed names the scanner itself
NESTED_COLUMNS = ("messages", "must_keep", "spans", "secrets", "tools", "metadata")
"""Columns of a table whose cells hold lists or objects as JSON."""
INERT_COLUMN = "inert_cells"
"""Column that names the cells of a row which got an apostrophe so that no spreadsheet runs
them as a formula; it is taken off again on reading."""


def read_rows(spec: DatasetSpec) -> Iterator[RawRow]:
    """Read the rows of one data set."""
    if spec.rows is not None:
        yield from spec.rows()
        return
    kind = file_format(spec)
    try:
        with errors_of_data(spec):
            yield from _rows_of(spec, kind)
    except EndlessLine as error:
        raise _broken(spec.shown_as, str(error)) from error


def _rows_of(spec: DatasetSpec, kind: str) -> Iterator[RawRow]:
    if kind == "parquet":
        yield from _parquet_rows(spec)
        return
    with open_text(spec) as stream:
        if kind == "jsonl":
            yield from _jsonl_rows(stream, spec.shown_as)
        elif kind == "yaml":
            yield from _yaml_rows(stream, spec.shown_as)
        elif kind in {"csv", "tsv"}:
            yield from _csv_rows(stream, spec.shown_as, tabs=kind == "tsv")
        else:
            yield from _json_rows(stream, spec, pack=kind == "prompt_pack")


def read_document(spec: DatasetSpec) -> object:
    """Read a file that is one JSON document, whole."""
    try:
        with errors_of_data(spec), open_text(spec) as stream:
            content = stream.read(LONGEST_DATA_LINE + 1)
        if len(content) > LONGEST_DATA_LINE:
            most = LONGEST_DATA_LINE >> 20
            raise _broken(spec.shown_as, f"is one JSON document of more than {most} MiB")
        return _DECODER.decode(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", "nested too deeply")
        raise _broken(spec.shown_as, f"is not JSON ({reason})") from error


def file_format(spec: DatasetSpec) -> str:
    """Return the format of a file, as stated or by its name."""
    if spec.format:
        if spec.format not in FORMATS:
            raise DatasetError(
                f"No data format is called {spec.format!r}.{did_you_mean(spec.format, FORMATS)}"
                f" Known: {listed(FORMATS)}."
            )
        return spec.format
    suffix = ""
    for ending in spec.path.suffixes:
        if ending.lower() != ".gz":
            suffix = ending.lower()
    kind = _BY_SUFFIX.get(suffix)
    if kind is None and not (address_of(spec.path) or spec.path.exists()):
        raise _not_opened(spec, "No such file or directory")
    if suffix in _WORKBOOKS:
        raise DatasetError(f"{spec.shown_as} is a workbook, which is not read.\n{_SAVE_AS_CSV}")
    if kind is None:
        raise DatasetError(
            f"The name of {spec.shown_as} does not tell its format.\n"
            f"State it: format: one of {listed(FORMATS)}."
        )
    return kind


def open_bytes(path: Path) -> io.BufferedReader:
    """Open a file of this machine or an object of a store; refuse a pipe or a device."""
    if not address_of(path):
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
        return path.open("rb")
    with _store(path) as (system, inner):
        return io.BufferedReader(system.open_input_file(inner), _AHEAD)


def list_objects(path: Path) -> list[Path]:
    """Return the objects that an address stands for: its last step may be a pattern."""
    if not {"*", "["}.intersection(path.name):
        return [path]
    with _store(path.parent) as (system, inner):
        from pyarrow.fs import FileSelector

        names = [info.base_name for info in system.get_file_info(FileSelector(inner))]
    return [path.parent / name for name in sorted(fnmatch.filter(names, path.name))]


class ObjectPath(PosixPath):
    """An address in a store as a path; settings alone make one, so no name of a file is taken."""


def address_of(path: Path) -> str:
    """Return the address that was made a path, which took one of its two strokes, or nothing."""
    if not isinstance(path, ObjectPath):
        return ""
    scheme, _, rest = str(path).partition(":/")
    if scheme == "file":
        return f"file:///{rest}"
    return f"{scheme}://{rest}"


@contextmanager
def _store(path: Path) -> Iterator[Any]:
    """Find the store of an address, and tell in a few lines what it refuses."""
    address = address_of(path)
    with needs(f"Reading {address} needs pyarrow", "parquet"):
        from pyarrow import ArrowException
        from pyarrow.fs import FileSystem
    try:
        uri = address
        if address.startswith(("gs://", "gcs://")):
            uri += "?retry_limit_seconds=20"  # Google's client would try for a quarter of an hour
        yield FileSystem.from_uri(uri)
    except (ArrowException, OSError) as error:
        reason = _first_line(error)[:_REASON].rstrip(".")
        raise DatasetError(
            f"{address} cannot be read: {reason}.\n"
            "Next: check the address, and that the keys in this environment may read it."
        ) from error


def _first_line(error: Exception) -> str:
    """Return the first line of what an error says; its kind where it says nothing."""
    lines = str(error).splitlines()
    if not lines:
        return type(error).__name__
    return lines[0]


@contextmanager
def errors_of_data(spec: DatasetSpec) -> Iterator[None]:
    """Say which data file a block cannot open or read to its end, why, and what to do."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise _not_opened(spec, error.strerror) from error
    except (OSError, EOFError, zlib.error) as error:
        reason = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        raise DatasetError(
            f"The data file {spec.shown_as} cannot be read: {reason}.\n"
            "Fetch or pack it again; it is cut off, or not what its name says."
        ) from error


def _not_opened(spec: DatasetSpec, reason: str | None) -> DatasetError:
    """Say that a file cannot be opened, and which one may be meant."""
    near = did_you_mean(spec.path.name, [file.name for file in spec.path.parent.glob("*")])
    return DatasetError(
        f"The data file {spec.shown_as} cannot be opened: {reason}.{near}\n"
        "Paths are taken from the folder of the configuration."
    )


def open_text(spec: DatasetSpec) -> BinaryIO:
    """Open a file as UTF-8, whatever its encoding; refuse what is plainly not such a text."""
    is_packed = spec.path.suffix.lower() == ".gz"
    if is_packed:
        with open_bytes(spec.path) as opened, gzip.GzipFile(fileobj=opened) as packed:
            chunks = iter(partial(packed.read, 1 << 20), b"")
            _require_modest(spec, (len(chunk) + _ROW * chunk.count(b"\n") for chunk in chunks))
    stream = open_bytes(spec.path)
    with ExitStack() as stack:
        stack.enter_context(stream)
        if is_packed:
            packed = gzip.GzipFile(fileobj=stream)
            packed.myfileobj = cast("io.FileIO", stream)  # closed with it
            stream = cast("io.BufferedReader", packed)
        if stream.peek(4)[:4] == _ZIP:
            raise _broken(spec.shown_as, f"is a workbook, or another zip archive. {_SAVE_AS_CSV}")
        beginning = stream.peek(4)[:4]
        if spec.encoding:
            try:
                return _recoded(stream, spec.encoding)
            except (UnicodeError, LookupError) as error:
                message = f"cannot be read with encoding: {spec.encoding} ({error})"
                raise _broken(spec.shown_as, message) from error
        if is_utf16(beginning):
            try:
                return _recoded(stream, "utf-16")
            except UnicodeError as error:
                message = f"is not UTF-16, as its first bytes say ({error})"
                raise _broken(spec.shown_as, message) from error
        if beginning.count(b"\0") in {1, 2}:  # more are no text at all
            order = "utf-16-le"
            if beginning.startswith(b"\0"):
                order = "utf-16-be"
            message = f"is UTF-16 without a mark of the order of its bytes: {_ENCODE}{order}"
            raise _broken(spec.shown_as, message)
        stack.pop_all()
    return stream


def _recoded(stream: BinaryIO, encoding: str) -> BinaryIO:
    """Write a text as UTF-8, a piece at a time; a long one goes to a temporary file."""
    " ".encode(encoding)  # refuses what is no encoding of texts, such as hex
    with ExitStack() as stack:
        text = stack.enter_context(SpooledTemporaryFile(max_size=_KEPT))
        for piece in codecs.iterdecode(iter(partial(stream.read, 1 << 20), b""), encoding):
            text.write(piece.encode())
        text.seek(0)
        stack.pop_all()
    return cast("BinaryIO", text)


def _require_modest(spec: DatasetSpec, sizes: Iterable[int]) -> None:
    """Refuse a file that unpacks to far more than texts do, before anything of it is built."""
    with open_bytes(spec.path) as opened:
        most = min(_MOST, _LOOSE + _DENSE * opened.seek(0, io.SEEK_END))
    if any(size > most for size in accumulate(sizes)):
        raise _broken(spec.shown_as, f"unpacks to more than {most >> 20} MiB, as no texts do")


def _jsonl_rows(stream: BinaryIO, shown_as: str) -> Iterator[RawRow]:
    """Read one object a line; only a line feed ends a line, so U+2028 stays inside a text."""
    for number, line in enumerate(iter(partial(stream.readline, LONGEST_DATA_LINE), b""), start=1):
        # The usual line, without the calls around the scanner: half of what reading it costs.
        try:
            text = line.decode()
            row, end = _scan(text, 0)
        except (ValueError, StopIteration, RecursionError):
            row, text, end = None, "", 0
        # One character is found sooner than two, and most lines have no backslash.
        is_plain = "\\" not in text or "\\u" not in text
        if type(row) is dict and text[end:] == "\n" and is_plain:
            yield number, row
            continue
        body = line
        if number == 1:
            body = line.removeprefix(_BOM)
        if body.strip():
            yield number, _unusual_line(body, number, shown_as)


def _unusual_line(body: bytes, number: int, shown_as: str) -> dict[str, object] | Fault:
    """Read a line that has white space, escapes or a byte order mark, or that is no object."""
    require_end(body, number)
    try:
        row = _DECODER.decode(body.decode())
    except UnicodeDecodeError as error:
        return _not_utf8(shown_as, number, error)
    except DoubledMember as error:
        return Fault(file=shown_as, row=number, field="", message=f"is not one object: {error}")
    except (ValueError, RecursionError) as error:
        message = f"is not JSON ({getattr(error, 'msg', 'nested too deeply')})"
        return Fault(file=shown_as, row=number, field="", message=message)
    if isinstance(row, dict) and b"\\u" not in body:
        return row
    return _checked(shown_as, number, row)


def _csv_rows(stream: BinaryIO, shown_as: str, *, tabs: bool) -> Iterator[RawRow]:
    """Read a table by the reader that imports use, one row at a time."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    try:
        table = TableReader(lines_of(text, ""), tabs=tabs)
        names = table.names
        for number, cells in enumerate(table, start=1):
            if len(cells) == len(names):
                yield number, _decoded(dict(zip(names, cells, strict=True)))
            else:
                why = table.why_unfit(cells)
                yield number, Fault(file=shown_as, row=number, field="", message=why)
    except UnicodeDecodeError as error:
        raise BadRows([_not_utf8(shown_as, 0, error)]) from error
    except BrokenTable as error:
        raise _broken(shown_as, str(error)) from error
    finally:
        text.detach()  # whoever opened the stream closes it


def _decoded(row: dict[str, Any]) -> dict[str, object]:
    """Undo what tables do to cells: lists as JSON text, apostrophes before formulas."""
    for name in str(row.pop(INERT_COLUMN, None) or "").split():
        cell = row.get(name)
        if isinstance(cell, str):
            row[name] = cell.removeprefix("'")
    for name in NESTED_COLUMNS:
        cell = row.get(name)
        if not isinstance(cell, str):
            continue
        if not cell.strip():
            row[name] = None
        elif cell.lstrip()[0] in "[{":
            # What is no JSON, or no text once read, is left for the reader of rows to refuse.
            with suppress(ValueError, RecursionError):
                value = _DECODER.decode(cell)
                json.dumps(value, ensure_ascii=False).encode()
                row[name] = value
    if row.get("metadata", row) is None:
        del row["metadata"]
    return row


def _yaml_rows(stream: BinaryIO, shown_as: str) -> Iterator[RawRow]:
    """Read a YAML list of objects, as PINT and others keep their prompts."""
    data = stream.read(MOST_TEXT_BYTES + 1)
    if len(data) > MOST_TEXT_BYTES:
        raise _broken(shown_as, f"is longer than {MOST_TEXT_BYTES >> 20} MiB, the most of YAML")
    try:
        document, _ = parse_yaml(data.decode("utf-8-sig"), shown_as)
    except UnicodeDecodeError as error:
        raise BadRows([_not_utf8(shown_as, 0, error)]) from error
    except ConfigError as error:
        raise DatasetError(str(error)) from error
    if not isinstance(document, list):
        raise _broken(shown_as, "holds no list of rows")
    for number, row in enumerate(document, start=1):
        yield number, _checked(shown_as, number, row)


def _json_rows(stream: BinaryIO, spec: DatasetSpec, *, pack: bool) -> Iterator[RawRow]:
    """Read a list of objects as it comes, or the items of a prompt pack."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    number = 0
    try:
        head = text.read(_AHEAD)
        if head.lstrip(_BLANKS).startswith("["):
            for number, row in enumerate(_elements(text, head), start=1):
                yield number, _checked(spec.shown_as, number, row)
            return
        document = _DECODER.decode(head + "".join(lines_of(text, "")))
    except UnicodeDecodeError as error:
        raise BadRows([_not_utf8(spec.shown_as, 0, error)]) from error
    except DoubledMember as error:
        raise _broken(spec.shown_as, f"is not read: {error}") from error
    except EndlessLine:
        raise
    except (ValueError, RecursionError) as error:
        where = f"at line {getattr(error, 'lineno', 1)}"
        if number:
            where = f"behind row {number}"
        message = f"is not JSON {where} ({getattr(error, 'msg', error)})"
        raise _broken(spec.shown_as, message) from error
    finally:
        text.detach()  # whoever opened the stream closes it
    if not isinstance(document, dict) or not (pack or "items" in document):
        raise _broken(spec.shown_as, "holds neither a list of rows nor a prompt pack with items")
    yield from _pack_items(document, spec)


def _elements(text: IO[str], held: str) -> Iterator[object]:
    """Read what a list holds, one after the other; what was read is let go."""
    at = held.index("[")
    if held[at + 1 :].lstrip(_BLANKS).startswith("]"):
        at = held.index("]")
    while held[at : at + 1] != "]":
        try:
            row, end = _DECODER.raw_decode(held, _after_blanks(held, at + 1))
            end = _after_blanks(held, end)
            if held[end : end + 1] not in {",", "]"}:
                raise json.JSONDecodeError("Expecting ',' delimiter", held, end)
        except DoubledMember:
            raise
        except (ValueError, RecursionError):
            # It may go on in what is not read yet: as much again, so that long ones cost no square.
            left = len(held) - at
            more = ""
            if left < LONGEST_DATA_LINE:
                more = text.read(max(_AHEAD, left))
            if not more:
                raise
            held = held[at:] + more
            at = 0
        else:
            yield row
            at = end
    _DECODER.decode(f'""{held[at + 1 :]}{text.read(_AHEAD)}')  # nothing stands behind it


def _after_blanks(held: str, at: int) -> int:
    """Return the position of the next character that is no blank."""
    while at < len(held) and held[at] in _BLANKS:
        at += 1
    return at


def _pack_items(pack: dict[str, object], spec: DatasetSpec) -> Iterator[RawRow]:
    """Yield the items of a prompt pack, each told where it comes from."""
    items = pack.get("items", [])
    if not isinstance(items, list) or not items:
        raise _broken(spec.shown_as, "is a prompt pack without items", field="items")
    name = str(pack.get("name") or spec.path.name.split(".")[0])
    origin = {PACK_MARK: name, "pack_subset": str(pack.get("subset") or "")}
    for number, item in enumerate(items, start=1):
        row = _checked(spec.shown_as, number, item)
        if not isinstance(row, Fault):
            row = {"source": f"prompt_pack:{name}", **origin, **row}
        yield number, row


def _parquet_rows(spec: DatasetSpec) -> Iterator[RawRow]:
    """Read the rows of a Parquet file, some at a time."""
    with needs(f"Reading {spec.shown_as} needs pyarrow", "parquet"):
        from pyarrow import ArrowException
        from pyarrow.compute import binary_length
        from pyarrow.parquet import ParquetFile, read_metadata
    number = 0
    try:
        with open_bytes(spec.path) as opened:
            metadata = read_metadata(opened)
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        _require_modest(spec, (group.total_byte_size + _ROW * group.num_rows for group in groups))
        # As a dictionary, a text that many rows share takes its size only once.
        names = [column.path for column in metadata.schema]
        with open_bytes(spec.path) as opened, ParquetFile(opened, read_dictionary=names) as table:
            columns = chain.from_iterable(map(_leaves, table.iter_batches()))
            shared = (column for column in columns if hasattr(column, "dictionary"))
            sizes = (binary_length(text.dictionary).take(text.indices).sum() for text in shared)
            _require_modest(spec, (size.as_py() or 0 for size in sizes))
        with open_bytes(spec.path) as opened, ParquetFile(opened) as table:
            classes = class_names(table.schema_arrow.metadata)
            for batch in table.iter_batches(batch_size=_AT_ONCE):
                for row in batch.to_pylist():
                    number += 1
                    named = with_names(row, classes)
                    text = json.dumps(named, ensure_ascii=False, default=_as_words)
                    yield number, _decoded(_DECODER.decode(text))
    except UnicodeDecodeError as error:
        raise BadRows([_not_utf8(spec.shown_as, number + 1, error)]) from error
    except ArrowException as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _broken(spec.shown_as, f"is not Parquet ({first})") from error


def read_class_names(spec: DatasetSpec) -> dict[str, list[str]]:
    """Return the columns of a Parquet file whose numbers are classes, with the classes' names."""
    with needs(f"Reading {spec.shown_as} needs pyarrow", "parquet"):
        from pyarrow import ArrowException
        from pyarrow.parquet import read_schema
    try:
        with open_bytes(spec.path) as opened:
            return class_names(read_schema(opened).metadata)
    except ArrowException as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _broken(spec.shown_as, f"is not Parquet ({first})") from error


def _leaves(columns: Iterable[Any]) -> Iterator[Any]:
    """Yield the columns that hold values: those inside lists and structures, too."""
    for column in columns:
        plain = getattr(column, "storage", column)  # of a type that is no type of Parquet's own
        if not hasattr(plain, "flatten"):
            yield plain
            continue
        inner = plain.flatten()
        if not isinstance(inner, list):
            inner = [inner]
        yield from _leaves(inner)


def _as_words(cell: object) -> str:
    """Write as text what JSON has no words for: dates and the like, bytes as they are or a URL."""
    if not isinstance(cell, bytes):
        return str(cell)
    with suppress(UnicodeDecodeError):
        if b"\0" not in cell:  # which every image has somewhere
            return cell.decode()
    return f"data:;base64,{b64encode(cell).decode()}"


def _broken(shown_as: str, message: str, *, field: str = "") -> BadRows:
    """Say what is wrong with a file as a whole."""
    return BadRows([Fault(file=shown_as, row=0, field=field, message=message)])


def _checked(shown_as: str, number: int, row: object) -> dict[str, object] | Fault:
    """Refuse what is no object, and half a character, which JSON can escape and UTF-8 not hold."""
    if not isinstance(row, dict):
        message = f"is of type {type(row).__name__}, expected an object with named fields"
        return Fault(file=shown_as, row=number, field="", message=message)
    for name, value in row.items():
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            message = "holds a lone surrogate, which no encoding can carry"
            field = name.encode(errors="replace").decode()
            return Fault(file=shown_as, row=number, field=field, message=message)
    return row


def _not_utf8(shown_as: str, row: int, error: UnicodeDecodeError) -> Fault:
    """Say where a file is no UTF-8, and how to state its encoding."""
    message = f"is not UTF-8 ({{value}}): {_ENCODE}cp1252 (or what it was saved in)"
    byte = f"byte 0x{error.object[error.start]:02x} at {error.start}"
    return Fault(file=shown_as, row=row, field="", message=message, value=byte)
