"""Readers of every format: what a row is, and what keeps it from being one."""

from __future__ import annotations

import gzip
import json
import re
import sys
import tracemalloc
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from guardmark.core.errors import ConfigError, DatasetError
from guardmark.core.sample import Role
from guardmark.datasets.formats.fields import BadRows, DatasetSpec
from guardmark.datasets.formats.files import open_text
from guardmark.datasets.settings import describe_data

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guardmark.datasets.loading import LoadedData

    Read = Callable[..., LoadedData]

ROWS = [
    {"id": "a", "text": "first", "label": "attack", "category": "jailbreak"},
    {"id": "b", "text": "second", "label": "benign", "category": "cooking"},
]
SEPARATOR = "\u2028"
BOM = b"\xef\xbb\xbf"


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    """Write rows as JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def csv_text(rows: list[dict[str, Any]], delimiter: str = ",") -> str:
    """Write rows as a table that needs no quotes."""
    head = delimiter.join(rows[0])
    return "\n".join([head, *(delimiter.join(map(str, row.values())) for row in rows)]) + "\n"


def ids_and_texts(data: LoadedData) -> list[tuple[str, str]]:
    """What was read, briefly."""
    return [(sample.id, sample.prompt.text) for sample in data.samples()]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data.jsonl", jsonl(ROWS)),
        ("data.ndjson", jsonl(ROWS)),
        ("data.jsonl.gz", gzip.compress(jsonl(ROWS), mtime=0)),
        ("data.json", json.dumps(ROWS)),
        ("data.json.gz", gzip.compress(json.dumps(ROWS).encode(), mtime=0)),
        ("data.csv", csv_text(ROWS)),
        ("semicolon.csv", csv_text(ROWS, ";")),
        ("data.tsv", csv_text(ROWS, "\t")),
        ("data.csv.gz", gzip.compress(csv_text(ROWS).encode(), mtime=0)),
        ("bom.jsonl", BOM + jsonl(ROWS)),
        ("bom.csv", BOM + csv_text(ROWS).encode()),
        ("bom.json", BOM + json.dumps(ROWS).encode()),
        ("crlf.jsonl", jsonl(ROWS).replace(b"\n", b"\r\n")),
        ("crlf.csv", csv_text(ROWS).replace("\n", "\r\n")),
        ("gaps.jsonl", b"\n" + jsonl(ROWS).replace(b"\n", b"\n  \n")),
    ],
)
def test_every_format_gives_the_same_samples(read: Read, name: str, content: bytes | str) -> None:
    """Format, packing, byte-order mark and line ends are no part of the data."""
    data = read(name, content)
    assert ids_and_texts(data) == [("a", "first"), ("b", "second")]
    assert [(m.attacks, m.benign) for m in data.manifests] == [(1, 1)]


def test_parquet_gives_the_same_samples(read: Read, tmp_path: Path) -> None:
    """Columns are fields; what JSON cannot say becomes text."""
    table = pa.Table.from_pylist([{**row, "seen": b"\x00", "weight": float("nan")} for row in ROWS])
    pq.write_table(table, tmp_path / "made.parquet")
    data = read("data.parquet", (tmp_path / "made.parquet").read_bytes())
    assert ids_and_texts(data) == [("a", "first"), ("b", "second")]
    assert next(data.samples()).metadata == {"seen": "data:;base64,AA==", "weight": None}


def test_content_decides_the_hash_and_the_format_does_not(read: Read) -> None:
    """The same samples are the same data, however they are written."""
    hashes = {
        read(name, content).manifests[0].sha256
        for name, content in [
            ("one.jsonl", jsonl(ROWS)),
            ("two.csv", csv_text(ROWS)),
            ("three.json", json.dumps(ROWS)),
        ]
    }
    assert len(hashes) == 1


@pytest.mark.parametrize("field", ["text", "label", "category", "id", "severity", "group"])
def test_a_change_of_any_facet_changes_the_hash(read: Read, field: str) -> None:
    """A figure that could differ must not go by the same hash."""
    changed = {"label": "benign", "severity": "low", "category": "extraction"}.get(field, "other")
    before = read("data.jsonl", jsonl(ROWS[:1])).manifests[0].sha256
    after = read("data.jsonl", jsonl([{**ROWS[0], field: changed}])).manifests[0].sha256
    assert before != after


@pytest.mark.parametrize(
    "text",
    [
        f"line one{SEPARATOR}line two",
        "para\u2029graph",
        "next\x85line",
        "a\rb",
        "tab\there",
        "{{7*7}} ${HOME} %s",
        "\u202eright to left",
        "\x00\x01\x1b[31m",
        "x" * 30_000,
        "long " * 210_000,
        "👩\u200d👩\u200d👧",
        "  spaces kept  ",
    ],
)
@pytest.mark.parametrize("name", ["data.jsonl", "data.json", "data.csv"])
def test_a_text_arrives_byte_for_byte(read: Read, name: str, text: str) -> None:
    """An attack that is trimmed, split or normalised is another attack."""
    if name.endswith("csv"):
        content = 'text,label\n"{}",attack\n'.format(text.replace('"', '""'))
    else:
        row = {"text": text, "label": "attack"}
        content = json.dumps([row] if name.endswith("json") else row, ensure_ascii=False)
    (only,) = read(name, content).samples()
    assert only.prompt.text == text


def test_quoted_cells_keep_line_ends_and_quotes(read: Read) -> None:
    """CSV as RFC 4180 writes it."""
    data = read("data.csv", 'text,label\r\n"a ""b""\r\nc, d",benign\r\n')
    assert next(data.samples()).prompt.text == 'a "b"\r\nc, d'


def test_usual_names_need_no_map(read: Read) -> None:
    """A text, a topic and what is expected, as other tools name them."""
    row = {"input_text": "t", "label": "attack", "topic": "roles", "expected_behavior": "block"}
    (only,) = read("data.jsonl", json.dumps(row)).samples()
    assert (only.prompt.text, only.subcategory, only.expected) == ("t", "roles", "block")


def test_the_separator_line_of_a_spreadsheet_is_passed_over(read: Read) -> None:
    """Spreadsheets write it before the head, and it is neither head nor row."""
    data = read("data.csv", "sep=;\r\ntext;label\r\na, b;benign\r\n")
    assert [sample.prompt.text for sample in data.samples()] == ["a, b"]


def test_lists_in_cells_are_read_from_json(read: Read) -> None:
    """A table can carry conversations too."""
    messages = json.dumps(
        [
            {"role": "user", "content": "sum it up"},
            {"role": "tool", "content": "do X", "under_test": True},
        ]
    ).replace('"', '""')
    content = (
        f'messages,label,must_keep,metadata\n"{messages}",attack,"[""X""]","{{""lang"": ""de""}}"\n'
    )
    (only,) = read("data.csv", content).samples()
    assert [m.role for m in only.prompt.messages] == [Role.USER, Role.TOOL]
    assert (only.prompt.text, only.must_keep, only.language) == ("do X", ("X",), "de")


def test_an_apostrophe_named_as_ours_is_taken_off_again(read: Read) -> None:
    """Cells made inert for spreadsheets come back as they were; others keep what they have."""
    data = read("data.csv", "text,label,inert_cells\n'=1+1,benign,text\n'=2+2,benign,\n")
    assert [s.prompt.text for s in data.samples()] == ["=1+1", "'=2+2"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("data.jsonl", b'{"text": "a"\n', "data.jsonl row 1: is not JSON"),
        ("data.jsonl", b'["text"]\n', "row 1: is of type list, expected an object"),
        ("data.jsonl", b'{"text": "\xff"}\n', "row 1: is not UTF-8 (byte 0xff at 10)"),
        ("data.jsonl", b"[" * 100_000, "row 1: is not JSON (nested too deeply)"),
        ("data.jsonl", b'{"text": "\\ud800"}\n', "row 1, field text: holds a lone surrogate"),
        ("data.jsonl", b'{"id": "\\udfff", "text": "a"}\n', "field id: holds a lone surrogate"),
        ("data.json", b'[{"text": "\\ud800"}]', "row 1, field text: holds a lone surrogate"),
        ("data.json", b'{"items": [{"prompt": "\\ud800"}]}', "field prompt: holds a lone"),
        ("data.json", b"[1]", "row 1: is of type int, expected an object"),
        ("data.json", b'{"items": [3]}', "row 1: is of type int, expected an object"),
        ("data.json", b"{", "data.json: is not JSON at line 1"),
        ("data.json", b'"\xff"', "data.json: is not UTF-8 (byte 0xff at 1)"),
        ("data.json", b'{"rows": []}', "holds neither a list of rows nor a prompt pack"),
        ("data.json", b'{"items": []}', "data.json, field items: is a prompt pack without items"),
        ("data.csv", b"text,label\na\n", "row 1: has 1 cell where the header has 2 names"),
        ("data.csv", b"text,label\n\xff,attack\n", "data.csv: is not UTF-8"),
        (
            "data.csv",
            b'text,label\na,1\n"b,1\nc,1\n',
            "unexpected end of data, in the record from line 3",
        ),
        (
            "data.csv",
            b'text,label\n"a"b,1\n',
            "is not CSV: ',' expected after '\"', in the record from line 2",
        ),
        ("data.csv", b"text,text,label\na,b,attack\n", "more than one column called text"),
        ("data.csv", b'messages,label\n"[""\\ud800""]",1\n', "field messages: is not a list"),
        ("data.csv", b"messages,label\n[{,1\n", "field messages: is not a list of messages"),
        ("data.parquet", b"no parquet at all", "data.parquet: is not Parquet"),
    ],
)
def test_what_is_no_row_is_named(read: Read, name: str, content: bytes, said: str) -> None:
    """File, row and reason, so that a person finds the place."""
    with pytest.raises(BadRows) as caught:
        read(name, content)
    assert said in str(caught.value)


def test_every_bad_row_of_every_file_is_listed_at_once(
    put: Callable[..., Path], spec: Callable[..., Any]
) -> None:
    """Mending one row a run would take as many runs as there are mistakes."""
    from guardmark.core.sample import DEFAULT_TAXONOMY
    from guardmark.datasets.loading import load

    files = [
        put("one.jsonl", b'{"text": ""}\nno json\n{"text": "x", "label": "what"}\n'),
        put("two.json", b"{"),
        put("three.csv", "text,label\n ,attack\nfine,attack\n"),
    ]
    with pytest.raises(BadRows) as caught:
        load([spec(path) for path in files], DEFAULT_TAXONOMY)
    places = {(fault.file, fault.row, fault.field) for fault in caught.value.faults}
    assert places == {
        ("one.jsonl", 1, "text"),
        ("one.jsonl", 1, "label"),
        ("one.jsonl", 2, ""),
        ("one.jsonl", 3, "label"),
        ("two.json", 0, ""),
        ("three.csv", 1, "text"),
    }
    assert "4 bad rows" in str(caught.value)


def test_rows_with_the_same_mistake_share_a_line(read: Read) -> None:
    """A thousand empty texts are one line of the message."""
    rows = [{"text": " ", "label": "attack"} for _ in range(1_000)]
    rows[4]["text"] = "fine"
    with pytest.raises(BadRows) as caught:
        read("data.jsonl", rows)
    lines = str(caught.value).splitlines()
    assert lines[1:-1] == ["  data.jsonl rows 1-4, 6-1000, field text: is empty"]
    assert lines[-1].startswith("Fix these rows")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("data.txt", b"", "does not tell its format"),
        ("data", b"", "does not tell its format"),
        ("data.jsonl.gz", b"not gzip", "cannot be read"),
        ("cut.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 999, mtime=0)[:-20], "cannot be read"),
        ("empty.jsonl", b"", "The data set is empty: empty.jsonl holds no rows."),
        ("empty.csv", b"", "The data set is empty"),
        ("head.csv", b"text,label\n", "The data set is empty"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    read: Read, name: str, content: bytes, said: str
) -> None:
    """A file without rows must not read as a perfect defense."""
    with pytest.raises(DatasetError) as caught:
        read(name, content)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 5


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path, spec: Callable[..., Any]) -> None:
    """The commonest mistakes of all."""
    from guardmark.core.sample import DEFAULT_TAXONOMY
    from guardmark.datasets.loading import load

    (tmp_path / "folder.jsonl").mkdir()
    for name in ("nowhere.jsonl", "folder.jsonl"):
        with pytest.raises(DatasetError, match="cannot be opened"):
            load([spec(tmp_path / name)], DEFAULT_TAXONOMY)


def test_an_unknown_format_is_met_with_the_nearest(read: Read) -> None:
    """Formats are words of the configuration, and words get misspelt."""
    with pytest.raises(DatasetError, match="Did you mean 'jsonl'"):
        read("data.txt", b"", format="jsonll")


def test_a_stated_format_beats_the_name(read: Read) -> None:
    """A .txt of JSON lines is fine when its reader says so."""
    data = read("data.txt", jsonl(ROWS), format="jsonl")
    assert data.count == 2


ODD = "Grüße für 10 €"


def odd_content(name: str, encoding: str) -> bytes:
    """Write one row in the format that a name tells, in an encoding."""
    line = json.dumps({"text": ODD, "label": "attack"}, ensure_ascii=False)
    texts = {"data.csv": f"text;label\n{ODD};attack\n", "data.json": f"[{line}]"}
    content = texts.get(name, f"{line}\n").encode(encoding)
    return gzip.compress(content, mtime=0) if name.endswith(".gz") else content


ODD_FILES = ["data.csv", "data.jsonl", "data.json", "data.jsonl.gz"]


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ODD_FILES)
def test_a_file_in_another_encoding_is_named_and_read_once_it_is_stated(
    read: Read, name: str, encoding: str
) -> None:
    """Nothing in the file says what it is; the message names the setting that reads it."""
    content = odd_content(name, encoding)
    with pytest.raises(BadRows) as caught:
        read(name, content)
    plain = "UTF-16 without a mark" if "16" in encoding else "not UTF-8"
    assert f"is {plain}" in str(caught.value)
    assert f"encoding: {encoding}" in str(caught.value)
    assert [s.prompt.text for s in read(name, content, encoding=encoding).samples()] == [ODD]


@pytest.mark.parametrize("name", ODD_FILES)
def test_utf_16_is_read_by_its_first_bytes(read: Read, name: str) -> None:
    """As spreadsheets write it, with semicolons; imports read such files, too."""
    content = odd_content(name, "utf-16")
    assert [s.prompt.text for s in read(name, content).samples()] == [ODD]


def test_utf_16_that_breaks_off_in_a_letter_is_refused(read: Read) -> None:
    """Half a letter is not read as another one."""
    with pytest.raises(BadRows, match="is not UTF-16, as its first bytes say"):
        read("data.jsonl", odd_content("data.jsonl", "utf-16")[:-1])


@pytest.mark.parametrize(
    ("name", "encoding", "said"),
    [
        ("data.csv", "cp125x", "encoding: cp125x (unknown encoding: cp125x)"),
        ("data.csv", "ascii", "encoding: ascii ('ascii' codec can't decode byte"),
        ("data.csv", "hex", "encoding: hex ('hex' is not a text encoding"),
    ],
)
def test_an_encoding_that_does_not_fit_is_refused(
    read: Read, name: str, encoding: str, said: str
) -> None:
    """A text must not arrive garbled."""
    with pytest.raises(BadRows, match=re.escape(said)):
        read(name, f"text,label\n{ODD},attack\n", encoding=encoding)


@pytest.mark.slow
def test_a_long_file_in_another_encoding_takes_little_memory(tmp_path: Path) -> None:
    """It is written anew a piece at a time, whatever signs the pieces cut in two."""
    line, count = f"{ODD} \U0001f600\n", 2_000_000
    path = tmp_path / "data.jsonl"
    with path.open("w", encoding="utf-16") as file:
        file.writelines([line] * count)
    spec = DatasetSpec(name="data", path=path)
    tracemalloc.start()
    with open_text(spec) as stream:
        assert sum(each == line.encode() for each in stream) == count
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 0.8 * path.stat().st_size  # read at once it takes three times the file


@pytest.mark.parametrize(
    ("name", "content"), [("data.xlsx", b"PK\x03\x04 zipped"), ("data.csv", b"PK\x03\x04 zipped")]
)
def test_a_workbook_is_called_one(read: Read, name: str, content: bytes) -> None:
    """Whether or not its name says so."""
    with pytest.raises(DatasetError, match=r"is a workbook.*\n?.*Save the sheet as CSV"):
        read(name, content)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("label,Prompt ", "Did you mean 'Prompt '? State map: {text: 'Prompt '}"),
        ("label,TEXT", "Did you mean 'TEXT'? State map: {text: 'TEXT'}"),
        ("label,promt", "Did you mean 'promt'? State map: {text: 'promt'}"),
        ("Label,text", "Did you mean 'Label'? State label_field: 'Label'"),
        ("label,Frage", "(the row has: Frage, label); say which column holds it: map: {text:"),
        ("a,text", "is missing; name its column (label_field: COLUMN)"),
    ],
)
def test_a_column_of_nearly_the_usual_name_is_proposed(read: Read, head: str, said: str) -> None:
    """Spreadsheets add blanks and capitals."""
    with pytest.raises(BadRows, match=re.escape(said)):
        read("data.csv", f"{head}\nattack,Hello\n")


def test_a_misspelt_ending_is_met_with_the_file_there_is(
    put: Callable[..., Path], spec: Callable[..., Any]
) -> None:
    """Before anything is said of formats."""
    from guardmark.core.sample import DEFAULT_TAXONOMY
    from guardmark.datasets.loading import load

    path = put("data.csv", "text,label\nHello,benign\n")
    with pytest.raises(DatasetError, match=r"cannot be opened: .*Did you mean 'data.csv'"):
        load([spec(path.with_suffix(".cvs"))], DEFAULT_TAXONOMY)


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("attack", "Note: no benign samples: add some, else block-all looks perfect."),
        ("0", "Note: no attacks: add some, else allow-all looks perfect."),
    ],
)
def test_data_of_one_side_say_what_would_look_perfect(read: Read, label: str, said: str) -> None:
    """A defense that answers the same to all is perfect on one side."""
    loaded = read("d.csv", f"text,label\nHello,{label}\n")
    assert [*describe_data(loaded.manifests, ())][1:] == [said]


def test_nan_in_a_file_means_that_nothing_is_known(read: Read) -> None:
    """NaN is no JSON; it must not travel into files of ours."""
    (only,) = read("data.jsonl", b'{"text": "a", "label": 1, "risk": NaN}\n').samples()
    assert only.metadata == {"risk": None}


def test_blank_records_and_cells_of_a_table_are_passed_over(read: Read) -> None:
    """Spreadsheets leave them behind; a column named inert that is not there does no harm."""
    content = "text,messages,metadata,must_keep,label,inert_cells\n\nab,, ,b,benign,nothing\n"
    (only,) = read("data.csv", content).samples()
    assert (only.prompt.text, only.must_keep, only.metadata) == ("ab", ("b",), {})


def test_text_of_a_parquet_file_that_is_no_text_is_named(read: Read, tmp_path: Path) -> None:
    """Parquet trusts whoever wrote it; we do not."""
    broken = pa.array([b"fine", b"\xff"]).view(pa.binary()).cast(pa.binary())
    raw = pa.StringArray.from_buffers(2, broken.buffers()[1], broken.buffers()[2])
    pq.write_table(pa.table({"text": raw, "label": [1, 1]}), tmp_path / "made.parquet")
    with pytest.raises(BadRows, match="is not UTF-8"):
        read("data.parquet", (tmp_path / "made.parquet").read_bytes())


@pytest.mark.parametrize("cells", [[{"a": 1}], [["a", "b"]], [[{"a": 1}]]])
def test_a_nested_column_of_a_parquet_file_is_no_fault(
    read: Read, tmp_path: Path, cells: list[object]
) -> None:
    """As a label it is refused in plain words, whatever it is made of."""
    table = pa.table({"text": ["a text"], "id": ["1"], "label": cells})
    pq.write_table(table, tmp_path / "made.parquet")
    with pytest.raises(BadRows, match="label"):
        read("data.parquet", (tmp_path / "made.parquet").read_bytes())


def test_parquet_without_its_extra_says_how_to_get_it(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no part of the plain installation."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'guardmark\[parquet\]'"):
        read("data.parquet", b"")


PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def _images(folder: Path, column: pa.Array, name: str = "image") -> bytes:
    """Write a file whose first column holds images, as the library `datasets` does."""
    texts = [f"Look {index}" for index in range(len(column))]
    table = pa.table({name: column, "text": texts, "label": ["attack"] * len(column)})
    # Without the schema of Arrow: the types are those that Parquet itself has.
    pq.write_table(table, folder / "made.parquet", store_schema=False)
    return (folder / "made.parquet").read_bytes()


@pytest.mark.parametrize("is_list", [False, True])
def test_images_inside_a_parquet_file_are_read(
    read: Read, tmp_path: Path, *, is_list: bool
) -> None:
    """Bytes where there are some, else the file of that name; where there is none, the text."""
    (tmp_path / "beside.png").write_bytes(PNG + b"beside")
    cells = [
        {"bytes": PNG, "path": "elsewhere.png"},
        {"bytes": None, "path": "beside.png"},
        None,
    ]
    column = pa.array([cell and [cell] for cell in cells] if is_list else cells)
    data = read("data.parquet", _images(tmp_path, column, "images" if is_list else "image"))
    shown = [sample.prompt.messages[0].images for sample in data.samples()]
    assert [[image.read() for image in images] for images in shown] == [
        [PNG],
        [PNG + b"beside"],
        [],
    ]
    assert shown[0][0].sha256 == sha256(PNG).hexdigest()
    assert [sample.prompt.text for sample in data.samples()] == ["Look 0", "Look 1", "Look 2"]


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        ({"bytes": b"no image at all", "path": None}, "no PNG, JPEG, GIF or WebP"),
        ({"bytes": b"made.parquet", "path": None}, "no PNG, JPEG, GIF or WebP"),
        ({"bytes": b"", "path": "a.png"}, "no PNG, JPEG, GIF or WebP"),
        ({"bytes": b"\0\xff", "path": None}, "no PNG, JPEG, GIF or WebP"),
        ({"bytes": PNG + bytes(20 << 20), "path": None}, "above 20 MiB"),
        ({"bytes": None, "path": "../a.png"}, "outside its folder"),
        ({"bytes": None, "path": "https://example.org/a.png"}, "no address is fetched"),
        ({"width": 3}, "needs an image"),
    ],
)
def test_a_cell_of_parquet_that_is_no_image_is_named(
    read: Read, tmp_path: Path, cell: dict[str, object], problem: str
) -> None:
    """With its row and its column, and nothing is run."""
    with pytest.raises(BadRows, match=problem) as errors:
        read("data.parquet", _images(tmp_path, pa.array([cell])))
    assert "row 1, field image" in str(errors.value)


def test_bytes_that_are_text_are_read_as_text(read: Read, tmp_path: Path) -> None:
    """Some tools write texts without saying that they are; Python's way to print them is none."""
    table = pa.table({"text": [b"Gr\xc3\xbc\xc3\x9fe"], "label": [b"benign"]})
    pq.write_table(table, tmp_path / "made.parquet", store_schema=False)
    data = read("data.parquet", (tmp_path / "made.parquet").read_bytes())
    assert [sample.prompt.text for sample in data.samples()] == ["Grüße"]


@pytest.mark.parametrize("is_list", [False, True])
def test_an_image_that_thousands_of_rows_share_is_refused_before_it_is_unpacked(
    read: Read, tmp_path: Path, *, is_list: bool
) -> None:
    """A small file would otherwise take all memory, a copy a row."""
    count, image = 600, PNG + bytes(1 << 20)
    once = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([image]))
    column = pa.StructArray.from_arrays([once], ["bytes"])
    if is_list:
        column = pa.ListArray.from_arrays(pa.array(range(count + 1), pa.int32()), column)
    content = _images(tmp_path, column, "images")
    assert len(content) < 2 << 20
    with pytest.raises(BadRows, match="as no texts do"):
        read("data.parquet", content)
