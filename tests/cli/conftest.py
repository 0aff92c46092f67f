"""Commands typed in this process, in an empty folder of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.command_line import set_up

from guardmark.cli import main


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """What a command printed and how it ended."""

    code: object
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


Type = Callable[..., Typed]


@pytest.fixture
def guardmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Type:
    """Type a command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def typed(*words: object) -> Typed:
        with pytest.raises(SystemExit) as left:
            main([str(word) for word in words])
        caught = capsys.readouterr()
        return Typed(code=left.value.code, out=caught.out, err=caught.err)

    return typed


@pytest.fixture
def run(guardmark: Type, tmp_path: Path) -> Path:
    """A run of one defense over a dozen samples, in the folder `out`."""
    set_up(tmp_path)
    assert guardmark("run", "bench.yaml", "-o", "out").code == 0
    return tmp_path / "out"
