"""Limits of a configuration: refused with the limit, soon, and in five lines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from time import process_time

import pytest

from guardmark.app.parts.loading import load_config
from guardmark.app.run.running import RunOptions, Session, run
from guardmark.core import limits
from guardmark.core.errors import ConfigError, DatasetError

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


def test_the_page_of_limits_is_written_from_the_code() -> None:
    """To write it anew: python scripts/write_limits.py."""
    page = PAGE.read_text(encoding="utf-8")
    assert page.endswith(f"\n{limits.limits_table()}\n")


@pytest.mark.parametrize("word", ["a", "aA", "-eyJaaaaaaaa", "?a", "://", "tokena", "\u00e9"])
def test_keys_are_looked_for_in_long_words_without_a_long_wait(tmp_path: Path, word: str) -> None:
    """A hundred thousand characters without a blank, under a name that a key may have."""
    text = json.dumps(word * (100_000 // len(word)))
    path = tmp_path / "long.yaml"
    path.write_text(
        f"version: 1\ndata: [{{builtin: tutor}}]\n{WALL}services: {{'http://a': {{token: {text}}}}}\n",
        encoding="utf-8",
    )
    began = process_time()
    with pytest.raises(ConfigError):
        load_config(path)
    assert process_time() - began < 2


def test_an_id_that_no_run_folder_may_hold_is_a_mistake_of_the_data(tmp_path: Path) -> None:
    """The row is named before anything is called."""
    rows = [{"id": "a" * 20_000, "text": "x", "label": "attack"}]
    rows += [{"id": "b", "text": "y", "label": "benign", "group": "g" * 20_000}]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "rows.jsonl").write_text(text, encoding="utf-8")
    path = tmp_path / "bench.yaml"
    path.write_text(f"version: 1\ndata: [{{path: rows.jsonl}}]\n{WALL}", encoding="utf-8")
    with pytest.raises(DatasetError) as raised:
        run(load_config(path), RunOptions(out=tmp_path / "out"), Session())
    for field, row in (("id", 1), ("group", 2)):
        said = f"row {row}, field {field}: has more than 10,000 characters"
        assert said in str(raised.value)
