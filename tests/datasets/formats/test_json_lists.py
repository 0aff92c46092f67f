"""Lists of objects in one JSON file: read as they come, as `json` would read the whole."""

from __future__ import annotations

import json
import re
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.datasets.formats.fields import BadRows, DatasetSpec
from guardmark.datasets.formats.files import read_rows

if TYPE_CHECKING:
    from pathlib import Path

PIECE = 1 << 20  # characters that are read at once
BLANKS = st.text(" \t\r\n", max_size=3)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
BEHIND = [
    {"text": 'a "quoted" \\ text', "label": "attack", "n": [1.5e-7, -12, True, None, {}]},
    {"text": "\u2028 \U0001f600 ü", "label": "benign", "n": []},
]


def rows(path: Path) -> list[object]:
    """What a file holds."""
    return [row for _, row in read_rows(DatasetSpec(name="data", path=path))]


@given(objects=st.lists(st.dictionaries(st.text(max_size=3), VALUES, max_size=3)), data=st.data())
def test_a_list_is_read_whatever_blanks_stand_in_it(
    tmp_path_factory: pytest.TempPathFactory, objects: list[object], data: Any
) -> None:
    """As the `json` of Python reads it, with a byte order mark or without."""

    def blank() -> str:
        """Another one at each place."""
        drawn: str = data.draw(BLANKS)
        return drawn

    inner = f"{blank()},{blank()}".join(json.dumps(each) for each in objects)
    text = f"{blank()}[{blank()}{inner}{blank()}]{blank()}"
    path = tmp_path_factory.mktemp("list") / "data.json"
    path.write_text(text, encoding=data.draw(st.sampled_from(["utf-8", "utf-8-sig"])), newline="")
    assert rows(path) == json.loads(text) == objects


@given(text=st.text('[]{},:"\\ -+.eE0123456789truefalsn\n', max_size=20).map("[{}".__add__))
def test_what_json_refuses_is_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """However little is wrong with it, and what it accepts is read."""
    path = tmp_path_factory.mktemp("list") / "data.json"
    path.write_text(text, encoding="utf-8", newline="")
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(BadRows, match="is not JSON"):
            rows(path)
    else:
        assert len(rows(path)) == len(expected)


@pytest.mark.parametrize("start", range(0, 150, 50))
def test_a_piece_may_end_anywhere(tmp_path: Path, start: int) -> None:
    """Inside a name, a number, an escape, a word, or between two rows."""
    path = tmp_path / "data.json"
    behind = json.dumps(BEHIND)[1:]
    for cut in range(start, start + 50):
        long = {"text": "x" * (PIECE - cut), "label": "benign"}
        path.write_text(f"[{json.dumps(long)}, {behind}", encoding="utf-8")
        assert rows(path) == [long, *BEHIND]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('[{"a": 1}, {"a": 2}', "is not JSON behind row 1 (Expecting ',' delimiter)"),
        ('[{"a": 1} {"a": 2}]', "is not JSON at line 1 (Expecting ',' delimiter)"),
        ('[\n\n{"a": }]', "is not JSON at line 3 (Expecting value)"),
        ('[{"a": 1}] []', "is not JSON behind row 1 (Extra data)"),
        ("[] x", "is not JSON at line 1 (Extra data)"),
        ("[,]", "is not JSON at line 1 (Expecting value)"),
        ("[" * 100_000, "is not JSON at line 1 (maximum recursion depth exceeded"),
    ],
)
def test_a_mistake_is_placed(tmp_path: Path, content: str, said: str) -> None:
    """By its line where no row was read, and otherwise by the last row that was."""
    path = tmp_path / "data.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BadRows, match=re.escape(said)):
        rows(path)


def test_a_long_list_takes_little_memory(tmp_path: Path) -> None:
    """Of 20 MB in one line, a few pieces are held at once."""
    path, row = tmp_path / "data.json", json.dumps({"text": "x" * 1_000, "label": "benign"})
    path.write_text(f"[{', '.join([row] * 20_000)}]", encoding="utf-8")
    tracemalloc.start()
    count = sum(1 for _ in read_rows(DatasetSpec(name="data", path=path)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (count, most < 0.5 * path.stat().st_size) == (20_000, True)
