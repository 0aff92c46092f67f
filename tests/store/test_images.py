"""Images of a run lie in its folder, under the hash by which its records know them."""

from __future__ import annotations

import json
import sqlite3
from base64 import b64encode
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from tests.store.conftest import make_sample

from guardmark.core.errors import DatasetError, StoreError
from guardmark.core.sample import Image, Message, Prompt, Role, Sample, ToolCall
from guardmark.store import integrity
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

if TYPE_CHECKING:
    from pathlib import Path

PNG = b"\x89PNG\r\n\x1a\n" + b"QUILLFISH"
NAME = sha256(PNG).hexdigest()
URL = f"data:image/png;base64,{b64encode(PNG).decode()}"


def sample_with(place: str) -> Sample:
    """A sample that holds everything a message may have."""
    image = Image(sha256=NAME, media_type="image/png", place=place)
    messages = (
        Message(role=Role.USER, content="", images=(image, image)),
        Message(role=Role.ASSISTANT, content="", calls=(ToolCall("c1", "pay", "{}"),)),
        Message(role=Role.TOOL, content="Paid.", answers="c1"),
    )
    return replace(make_sample(1), prompt=Prompt(messages=messages, under_test=0), must_keep=())


@pytest.fixture(params=["file", "url"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Records with a sample of text and one with images, whose sources are gone."""
    source = tmp_path / "a.png"
    source.write_bytes(PNG)
    place = str(source) if request.param == "file" else URL
    path = tmp_path / "run" / "records.sqlite"
    path.parent.mkdir()
    with RecordWriter(path) as writer:
        writer.load_samples([make_sample(0), sample_with(place)])
    source.unlink()
    return path


def second(path: Path) -> Sample:
    """Read the sample with images back."""
    with RecordReader(path) as reader:
        return list(reader.samples())[1]


def test_images_are_copied_once_and_read_back(stored: Path) -> None:
    """The data may go; the run stands by itself, and can be moved."""
    assert [each.name for each in (stored.parent / "images").iterdir()] == [NAME]
    moved = stored.parent.rename(stored.parent.with_name("moved")) / stored.name
    back = second(moved)
    assert back == sample_with(URL)
    assert back.prompt.messages[0].parts() == sample_with(URL).prompt.messages[0].parts()
    assert not integrity.check(moved)
    with RecordWriter(moved) as writer:
        chunks = list(writer.stored.pending(None))
        assert [chunk.has_images for chunk in chunks] == [True]


@pytest.mark.parametrize("change", ["removed", "changed", "linked"])
def test_a_copy_that_was_changed_is_never_sent(stored: Path, change: str) -> None:
    """The records say by its hash what was shown."""
    copy = stored.parent / "images" / NAME
    copy.unlink()
    if change == "changed":
        copy.write_bytes(PNG + b"!")
    elif change == "linked":
        copy.symlink_to("/etc/passwd")
    with pytest.raises(DatasetError, match="is gone, or was changed since"):
        second(stored).prompt.messages[0].parts()


def test_a_run_of_texts_has_no_folder_of_images(tmp_path: Path) -> None:
    """And its chunks say so, for which nothing is looked at twice."""
    path = tmp_path / "records.sqlite"
    with RecordWriter(path) as writer:
        writer.load_samples([make_sample(number) for number in range(5)])
        assert not any(chunk.has_images for chunk in writer.stored.pending(None))
    assert not (tmp_path / "images").exists()


_HOSTILE: list[Any] = [
    {"images": [["../../../etc/passwd", "image/png"]]},
    {"images": [[NAME, "text/html"]]},
    {"images": [[NAME, "image/png", "/etc/passwd"]]},
    {"images": [["/etc/passwd"]]},
    {"images": 7},
    {"calls": [["c1", "pay"]]},
    {"calls": [["c1", "pay", 7]]},
    {"calls": [["c1", "pay", "\ud800"]]},
    {"answers": 7},
    {"answers": "\ud800"},
    [],
    "images",
]


@pytest.mark.parametrize("more", _HOSTILE, ids=map(str, range(len(_HOSTILE))))
def test_what_a_stranger_writes_in_place_of_parts_is_damage(stored: Path, more: object) -> None:
    """No path of theirs is opened, and nothing half read is sent."""
    prompt = json.dumps([[["user", "x", more]], 0])
    with closing(sqlite3.connect(stored)) as records, records:
        records.execute("UPDATE samples SET prompt = ? WHERE position = 1", (prompt,))
    with pytest.raises(StoreError, match="damaged"):
        second(stored)
