"""Limits of a configuration: refused with the limit, soon, and in five lines."""

from __future__ import annotations

import re
from pathlib import Path
from time import process_time

import pytest

from guardmark.app.parts.loading import load_config
from guardmark.core import limits
from guardmark.core.errors import ConfigError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "limits.md"
WALL = "defenses: {wall: {type: block-all}}\n"


def mistake(folder: Path, text: str) -> str:
    """Load a configuration that has a mistake, and return what is said of it within 5 s."""
    path = folder / "odd.yaml"
    path.write_text(f"version: 1\ndata: [{{builtin: tutor}}]\n{text}", encoding="utf-8")
    began = process_time()
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    assert process_time() - began < 5
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "defenses:\n" + "".join(f"  w{n}: {{type: block-all}}\n" for n in range(2_000)),
            f"at most {limits.MOST_DEFENSES}",
        ),
        (
            f"{WALL}stats: {{prevalence: [{', '.join(['0.1'] * 100_000)}]}}\n",
            f"at most {limits.MOST_PREVALENCES}",
        ),
        (f"{WALL}stats: {{margin: 1.0e-300}}\n", "0.000001"),
        (f"{WALL}stats: {{confidence: 0.9999999999999999}}\n", "0.999999"),
        (f'{WALL}services: {{"http://a": {{rate: 0.0000001/h}}}}\n', "more than a day"),
        (f"{WALL}run: {{seed: {'9' * 5_000}}}\n", f"{limits.LONGEST_NUMBER} characters"),
    ],
    ids=["defenses", "prevalence", "margin", "confidence", "rate", "digits"],
)
def test_what_is_too_much_is_refused_with_its_limit(tmp_path: Path, text: str, said: str) -> None:
    """Before anything is called, read or computed."""
    assert said in mistake(tmp_path, text)


def test_thousands_of_mistakes_are_five_lines(tmp_path: Path) -> None:
    """The last one counts the others, and none is longer than a reader reads."""
    wrong = "".join(f"  nope{n}{'x' * 400}: {n}\n" for n in range(2_000))
    lines = mistake(tmp_path, f"{WALL}stats:\n{wrong}").splitlines()
    assert len(lines) == limits.MOST_MISTAKES
    assert max(map(len, lines)) <= limits.LONGEST_MISTAKE
    assert re.fullmatch(r"\.\.\. and 1,99\d more mistakes\.", lines[-1])


def test_the_page_of_limits_states_the_numbers_that_the_code_has() -> None:
    """Each number of the table of the code stands in the page."""
    page = PAGE.read_text(encoding="utf-8")
    for words in (
        f"{limits.MOST_TEXT_BYTES >> 20} MiB",
        f"| {limits.MOST_DEFENSES} |",
        f"| {limits.MOST_PREVALENCES} |",
        f"{limits.LEAST_MARGIN:f}",
        f"| {limits.LONGEST_NUMBER} |",
        f"at most {limits.LONGEST_MISTAKE} characters",
        f"| {limits.MOST_MISTAKES} |",
    ):
        assert words in page, words
