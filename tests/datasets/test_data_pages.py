"""The pages about data: what they show is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from guardmark.cli import main
from guardmark.core.sample import CATEGORY_MINIMA
from guardmark.datasets.formats.fields import USUAL_NAMES
from guardmark.datasets.formats.files import FORMATS
from guardmark.parsing.labels import ATTACK_WORDS, BENIGN_WORDS, FALSE_WORDS, TRUE_WORDS
from guardmark.stats.rates.proportion import wilson_half_width

DOCS = Path(__file__).resolve().parents[2] / "docs"
HOW_TO = DOCS / "how-to" / "use-your-own-data.md"
REFERENCE = DOCS / "reference" / "data-formats.md"
FILE = re.compile(r'^```\w+ title="([\w.]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^guardmark (.+)$", re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds every file the pages show."""
    for page in (HOW_TO, REFERENCE):
        for name, content in FILE.findall(page.read_text(encoding="utf-8")):
            (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(line: str) -> int:
    """Type a command."""
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line))
    return ended.value.code if isinstance(ended.value.code, int) else 1


@pytest.mark.usefixtures("folder")
def test_every_command_of_the_guide_works(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of the page, with the files of the page."""
    commands = COMMAND.findall(HOW_TO.read_text(encoding="utf-8"))
    assert len(commands) == 9
    codes = {command: typed(command) for command in commands}
    assert set(codes.values()) == {0}, (codes, capsys.readouterr().err)
    said = capsys.readouterr().out
    assert "2 near-duplicates in 2 groups: a-1, a-2" in said
    assert "Largest distance to the stated deployment: 0.2" in said


@pytest.mark.parametrize("name", ["conversation.jsonl", "mix.yaml"])
def test_every_file_of_the_reference_is_read(folder: Path, name: str) -> None:
    """Nothing shown is out of date."""
    assert typed(f"data check {folder / name}") == 0


def test_the_reference_lists_every_format_field_name_and_label() -> None:
    """A name recognised in silence would be no help."""
    page = REFERENCE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in FORMATS)
    for field, names in USUAL_NAMES.items():
        assert f"| `{field}` | {', '.join(names)} |" in page
    for words, end in (
        ((*ATTACK_WORDS, *TRUE_WORDS, "1"), "mean attack"),
        ((*BENIGN_WORDS, *FALSE_WORDS, "0"), "mean benign"),
    ):
        sentence = page[: page.index(end)].rsplit("**Labels.**")[-1].rsplit(";")[-1]
        assert all(re.search(rf"\b{word}\b", sentence) for word in words)


def test_the_half_widths_of_the_pages_are_the_true_ones() -> None:
    """A hundred samples never gave five points."""
    page = " ".join(REFERENCE.read_text(encoding="utf-8").split())
    for least in sorted(set(CATEGORY_MINIMA.values())):
        assert f"±{100 * wilson_half_width(0.5, least):.1f}" in page
    guide = " ".join(HOW_TO.read_text(encoding="utf-8").split())
    assert "100 samples give about ±10 points, 400 about ±5" in guide
    assert round(100 * wilson_half_width(0.5, 100)) == 10
    assert round(100 * wilson_half_width(0.5, 400)) == 5
