"""Small files of rows, and samples made from a few words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from guardmark.core.sample import DEFAULT_TAXONOMY, Label, Message, Prompt, Role, Sample
from guardmark.datasets.formats.fields import DatasetSpec
from guardmark.datasets.loading import LoadedData, load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Write a file: bytes as they are, text as UTF-8, anything else as JSON lines."""

    def write(name: str, content: Any) -> Path:
        path = tmp_path / name
        if isinstance(content, list):
            content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def spec() -> Callable[..., DatasetSpec]:
    """Name a file as a data set."""

    def make(path: Path, **settings: Any) -> DatasetSpec:
        settings.setdefault("name", path.name.split(".")[0])
        settings.setdefault("shown_as", path.name)
        return DatasetSpec(path=path, **settings)

    return make


@pytest.fixture
def read(put: Callable[..., Path], spec: Callable[..., DatasetSpec]) -> Callable[..., LoadedData]:
    """Write one file and load it."""

    def load_one(name: str, content: Any, **settings: Any) -> LoadedData:
        return load([spec(put(name, content), **settings)], DEFAULT_TAXONOMY)

    return load_one


@pytest.fixture
def sample() -> Callable[..., Sample]:
    """Make a sample; benign unless told otherwise."""
    made = 0

    def make(text: str = "a text", *, attack: bool = False, **fields: Any) -> Sample:
        nonlocal made
        made += 1
        fields.setdefault("id", f"s{made}")
        fields.setdefault("prompt", Prompt.of_text(text))
        return Sample(label=Label.ATTACK if attack else Label.BENIGN, **fields)

    return make


@pytest.fixture
def conversation() -> Callable[..., Prompt]:
    """Make a prompt from (role, content) pairs; the last is under test unless told otherwise."""

    def make(*turns: tuple[str, str], under_test: int = -1) -> Prompt:
        messages = tuple(Message(role=Role(role), content=content) for role, content in turns)
        return Prompt(messages=messages, under_test=under_test % len(messages))

    return make
